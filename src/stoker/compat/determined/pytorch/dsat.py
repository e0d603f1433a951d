"""`determined.pytorch.dsat`."""

from stoker.compat.determined.tuning import (
    dsat_reporting_context,
    get_ds_config_from_hparams,
    get_hf_args_with_overwrites,
)

__all__ = ["dsat_reporting_context", "get_ds_config_from_hparams", "get_hf_args_with_overwrites"]
