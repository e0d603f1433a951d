"""`determined.errors`."""

from stoker.compat.determined.exceptions import (
    InternalException,
    InvalidCheckpointException,
    InvalidConfigurationException,
    InvalidDataTypeException,
    InvalidExperimentException,
    InvalidModelException,
)

__all__ = [
    "InternalException",
    "InvalidCheckpointException",
    "InvalidConfigurationException",
    "InvalidDataTypeException",
    "InvalidExperimentException",
    "InvalidModelException",
]
