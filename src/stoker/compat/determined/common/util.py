"""`determined.common.util`."""

from stoker.compat.determined.checks import (
    chunks,
    debug_mode,
    get_config_path,
    get_default_master_address,
    safe_load_yaml_with_exceptions,
    sizeof_fmt,
)

_LEGACY_TRAINING = "training"
_LEGACY_VALIDATION = "validation"

__all__ = [
    "chunks",
    "debug_mode",
    "get_config_path",
    "get_default_master_address",
    "safe_load_yaml_with_exceptions",
    "sizeof_fmt",
]
