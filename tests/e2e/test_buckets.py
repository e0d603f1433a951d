"""A package that speaks to Google Cloud Storage by itself, on a machine with no cloud."""

from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.command import submit, write_package

pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")
pytestmark = pytest.mark.slow

UPLOADS = """
import argparse
from google.cloud import storage
parser = argparse.ArgumentParser()
parser.add_argument("--job-dir")
bucket, _, prefix = parser.parse_args().job_dir[len("gs://"):].partition("/")
blob = storage.Client().bucket(bucket).blob(f"{prefix}/model.txt")
blob.upload_from_string("trained")
print("read back:", storage.Client().bucket(bucket).blob(f"{prefix}/model.txt").download_as_text())
"""


def test_a_job_that_uploads_to_a_bucket_finds_it_on_disk(home: Home, tmp_path: Path) -> None:
    project = write_package(tmp_path / "project", upload=UPLOADS)

    done = submit(project, "uploads", "upload", "--job-dir", "gs://my-models/taxi", "--stream-logs")

    assert done.code == 0, done.err + done.out
    assert "read back: trained" in done.lines
    assert (home.root / "buckets" / "my-models" / "taxi" / "model.txt").read_text() == "trained"
