"""`determined.common.experimental.model`."""

from stoker.compat.determined.sdk_models import Model, ModelVersion

__all__ = ["Model", "ModelVersion"]
