"""`determined.common.experimental.checkpoint`."""

from stoker.compat.determined.sdk_checkpoint import Checkpoint, CheckpointSortBy, CheckpointState, DownloadMode

__all__ = ["Checkpoint", "CheckpointSortBy", "CheckpointState", "DownloadMode"]
