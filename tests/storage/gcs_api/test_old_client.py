"""google-cloud-storage 1.44 of 2022, on the Python of its time: set STOKER_TEST_OLD_GOOGLE to one that has it."""

import os
import subprocess
from pathlib import Path

import pytest

from stoker.storage.gcs_api import LazyGateway

PYTHON = os.environ.get("STOKER_TEST_OLD_GOOGLE", "")
TRAINER = """
import os, sys, warnings
warnings.simplefilter("ignore")
from google.cloud import storage

bucket = storage.Client().get_bucket("old-bucket")
bucket.blob("in/train.csv").upload_from_string("a,b")
data = os.urandom(10 << 20)
open("model.pth", "wb").write(data)
bucket.blob("model.pth").upload_from_filename("model.pth")
blob = bucket.blob("chunked", chunk_size=1 << 20)
blob.upload_from_filename("model.pth", checksum="crc32c")
blob.download_to_filename("back", checksum="md5")
assert open("back", "rb").read() == data
assert bucket.blob("model.pth").download_as_string(start=1, end=3) == data[1:4]
assert [blob.name for blob in bucket.list_blobs(prefix="in/")] == ["in/train.csv"]
bucket.rename_blob(bucket.copy_blob(blob, bucket, "copied"), "renamed")
bucket.delete_blobs([blob, bucket.blob("renamed")])
with bucket.client.batch():
    bucket.delete_blob("in/train.csv")
print(storage.__version__, [blob.name for blob in bucket.list_blobs()])
"""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="no old google-cloud-storage: set STOKER_TEST_OLD_GOOGLE to its Python")
def test_trainer_of_2022_runs_without_credentials(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GOOGLE_", "CLOUDSDK_"))}
    gateway = LazyGateway(tmp_path / "home")
    try:
        done = subprocess.run(
            [PYTHON, "-c", TRAINER],
            env={**kept, "HOME": str(tmp_path), **gateway.variables()},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
    finally:
        gateway.close()

    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1) == ["1.44.0", "['model.pth']\n"]
    assert (tmp_path / "home/buckets/old-bucket/model.pth").read_bytes() == (tmp_path / "model.pth").read_bytes()
