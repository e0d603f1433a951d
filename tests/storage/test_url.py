"""URLs taken apart."""

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.storage.url import StorageUrl


@pytest.mark.parametrize(
    ("url", "scheme", "bucket", "key"),
    [
        ("gs://bucket/a/b", "gs", "bucket", "a/b"),
        ("gs://bucket", "gs", "bucket", ""),
        ("gs://bucket/", "gs", "bucket", ""),
        ("gs://bucket/dir/", "gs", "bucket", "dir/"),
        ("gcs://bucket/a", "gs", "bucket", "a"),
        ("s3://my.bucket-1/a//b?c#d", "s3", "my.bucket-1", "a//b?c#d"),
        ("file:///tmp/x", "file", "", "/tmp/x"),
        ("file://localhost/tmp/x", "file", "", "/tmp/x"),
        ("/tmp/../tmp/x/", "file", "", "/tmp/x/"),
        ("/", "file", "", "/"),
    ],
)
def test_url_is_taken_apart(url: str, scheme: str, bucket: str, key: str) -> None:
    assert StorageUrl.parse(url) == StorageUrl(scheme, bucket, key)


def test_plain_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert StorageUrl.parse("data/x") == StorageUrl("file", "", f"{tmp_path}/data/x")
    assert StorageUrl.parse(Path("data")) == StorageUrl("file", "", f"{tmp_path}/data")


@pytest.mark.parametrize("url", ["", "gs://", "gs:///key", "gs://UPPER/x", "gs://a/x", "http://host/x", "hdfs://n/x"])
def test_what_is_no_place_is_refused_in_one_line(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        StorageUrl.parse(url)

    assert "\n" not in str(caught.value)
    assert "gs://" in str(caught.value)
