"""`determined.util`: the few of its functions that examples use."""

from stoker.compat.determined.blobs import download_gcs_blob_with_backoff

__all__ = ["download_gcs_blob_with_backoff"]
