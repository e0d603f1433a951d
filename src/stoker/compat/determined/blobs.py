"""Reading single objects of a bucket, again when it fails."""

import time
from typing import Any


def download_gcs_blob_with_backoff(blob: Any, n_retries: int = 32, max_backoff: int = 32) -> bytes:
    """The bytes of a google-cloud-storage blob; waits longer after each failure, and raises the last."""
    for attempt in range(n_retries):
        try:
            found: bytes = (
                blob.download_as_string() if hasattr(blob, "download_as_string") else blob.download_as_bytes()
            )
            return found
        except Exception:  # noqa: BLE001 - whatever a client raises, as it was in Determined; the last is raised
            if attempt == n_retries - 1:
                raise
            time.sleep(min(2**attempt, max_backoff))
    raise ValueError(f"n_retries={n_retries}: at least one try is needed.")
