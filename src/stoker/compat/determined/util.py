"""`determined.util`: the few of its functions that examples use."""

from stoker.compat.determined.blobs import download_gcs_blob_with_backoff
from stoker.compat.determined.merging import merge_dicts

__all__ = ["download_gcs_blob_with_backoff", "merge_dicts"]
