"""By what the SDK's lists can be asked to be sorted; ours come newest first, whatever is asked of these."""

import enum


class ExperimentSortBy(enum.Enum):
    ID = "id"
    NAME = "name"
    START_TIME = "start_time"
    END_TIME = "end_time"
    STATE = "state"


class TrialSortBy(enum.Enum):
    ID = "id"
    START_TIME = "start_time"
    END_TIME = "end_time"
    STATE = "state"
    BEST_VALIDATION_METRIC = "best_validation_metric"
    LATEST_VALIDATION_METRIC = "latest_validation_metric"
    BATCHES_PROCESSED = "batches_processed"
    DURATION = "duration"
    RESTARTS = "restarts"
    CHECKPOINT_SIZE = "checkpoint_size"


class ModelSortBy(enum.Enum):
    UNSPECIFIED = "unspecified"
    NAME = "name"
    DESCRIPTION = "description"
    CREATION_TIME = "creation_time"
    LAST_UPDATED_TIME = "last_updated_time"
    WORKSPACE = "workspace"
