"""The [storage] table: what it means, and every bad field named."""

from pathlib import Path

import pytest

from stoker.errors import ConfigError
from stoker.storage.settings import Target, read_settings

GOOD = """
[pools.default]
whatever = "another reader's"

[storage.buckets]
"gs://my-bucket" = "/data/my-bucket"
"gs://*" = "~/buckets"
"gs://models" = "s3://other/some/prefix/"
"gs://archive" = "gcs"
"s3://*" = { root = "s3", endpoint_url = "http://minio:9000", key_variable = "K", secret_variable = "S" }
"""


def test_settings_map_buckets_to_targets(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(GOOD)

    settings = read_settings(config)

    assert settings.buckets == {
        "gs://my-bucket": Target("file", path="/data/my-bucket"),
        "gs://*": Target("file", path=str(Path.home() / "buckets")),
        "gs://models": Target("s3", bucket="other", path="some/prefix"),
        "gs://archive": Target("gs"),
        "s3://*": Target("s3", endpoint_url="http://minio:9000", key_variable="K", secret_variable="S"),
    }
    assert settings.find("gs", "my-bucket") == ("gs://my-bucket", Target("file", path="/data/my-bucket"))
    assert settings.find("gs", "any-other") == ("gs://*", settings.buckets["gs://*"])


def test_without_a_file_or_a_table_there_are_no_settings(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    assert read_settings(config).buckets == {}

    config.write_text("[pools.default]\n")
    assert read_settings(config).buckets == {}


def test_every_bad_field_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        """
        [storage]
        bukets = {}
        [storage.buckets]
        "gs://my-bucket/path" = "/data"
        "ftp://x" = "/data"
        "gs://relative" = "data/x"
        "gs://number" = 3
        "gs://options" = { root = "/data", endpoint_url = "http://x", nonsense = 1 }
        "s3://typed" = { root = "s3", anonymous = "yes" }
        "s3://rootless" = { region = "eu" }
        "gs://wrong" = { root = "gcs", key_variable = "K" }
        """
    )

    with pytest.raises(ConfigError) as caught:
        read_settings(config)

    lines = [line.strip() for line in str(caught.value).splitlines()]
    assert lines[0].endswith("has 10 bad fields:")
    for start in (
        "storage.bukets: no such field",
        'storage.buckets."gs://my-bucket/path": must be',
        'storage.buckets."ftp://x": must be',
        'storage.buckets."gs://relative": must be an absolute folder',
        'storage.buckets."gs://number": must be a root',
        'storage.buckets."gs://options".nonsense: no such field',
        'storage.buckets."gs://options".endpoint_url: means nothing for /data',
        'storage.buckets."s3://typed".anonymous: must be a bool',
        'storage.buckets."s3://rootless".root: is required',
        'storage.buckets."gs://wrong".key_variable: means nothing for gcs',
    ):
        assert any(line.startswith(start) for line in lines), (start, lines)


def test_file_that_is_no_toml_is_named(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[storage")

    with pytest.raises(ConfigError, match="config.toml is not TOML"):
        read_settings(config)
