"""Where a bucket is, by settings, credentials and default."""

import sys
from pathlib import Path

import pytest

from stoker.errors import StokerError, UsageError
from stoker.storage.credentials import ANONYMOUS
from stoker.storage.storage import Storage
from stoker.storage.url import StorageUrl


def storage_of(home: Path, table: str = "", **environment: str) -> Storage:
    (home / "config.toml").write_text(f"[storage.buckets]\n{table}\n")
    return Storage(home, environment=environment)


def test_bucket_lives_in_the_home_without_settings_and_credentials(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)

    assert storage.local_path("gs://b-1/x/y") == tmp_path / "buckets/b-1/x/y"
    said = storage.where("gs://b-1/x")
    assert "\n" not in said
    assert f"{tmp_path}/buckets/b-1" in said
    assert "GOOGLE_APPLICATION_CREDENTIALS" in said


def test_bucket_lives_where_the_setting_says(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, f'"gs://named" = "{tmp_path}/disk"\n"gs://*" = "{tmp_path}/all"')

    assert storage.local_path("gs://named/x") == tmp_path / "disk/x"
    assert storage.local_path("gs://other/x") == tmp_path / "all/other/x"
    assert "config.toml: gs://*" in storage.where("gs://other")


def test_s3_bucket_may_live_in_a_folder_too(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, f'"s3://old" = "{tmp_path}"')

    assert storage.local_path("s3://old/x") == tmp_path / "x"


def test_bucket_is_googles_when_the_credentials_variable_is_set(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, GOOGLE_APPLICATION_CREDENTIALS="/nowhere.json")

    assert storage.local_path("gs://b-1/x") is None
    assert storage.where("gs://b-1") == "gs://b-1 is gs://b-1"
    assert not storage.buckets.needs_gateway()


def test_stokers_own_anonymous_credentials_are_none(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, GOOGLE_APPLICATION_CREDENTIALS=ANONYMOUS)

    assert Path(ANONYMOUS).is_file()
    assert storage.local_path("gs://b-1/x") == tmp_path / "buckets/b-1/x"


def test_gateway_is_needed_unless_all_is_googles(tmp_path: Path) -> None:
    real = {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"}

    assert storage_of(tmp_path).buckets.needs_gateway()
    assert storage_of(tmp_path, '"gs://b-1" = "/data"', **real).buckets.needs_gateway()
    assert storage_of(tmp_path, '"gs://b-1" = "s3://other"', **real).buckets.needs_gateway()
    assert not storage_of(tmp_path, '"s3://b-1" = "/data"', **real).buckets.needs_gateway()
    assert not storage_of(tmp_path, '"gs://*" = "gcs"').buckets.needs_gateway()


def test_known_buckets_are_those_set_and_those_there(tmp_path: Path) -> None:
    storage = storage_of(tmp_path, '"gs://named" = "/data"\n"s3://other" = "/data"')
    with storage.open_url("gs://written/x", "wb") as file:
        file.write(b"x")

    assert list(storage.buckets.names("gs")) == ["named", "written"]
    assert storage.buckets.is_open(StorageUrl.parse("gs://any-other"))
    assert not storage.buckets.is_open(StorageUrl.parse("gs://named"))


def test_lost_credentials_are_named_with_url_and_variable(tmp_path: Path) -> None:
    pytest.importorskip("gcsfs")
    storage = storage_of(tmp_path, GOOGLE_APPLICATION_CREDENTIALS="/nowhere.json")

    with pytest.raises(
        UsageError, match=r"gs://b-1: GOOGLE_APPLICATION_CREDENTIALS names /nowhere\.json, which is not"
    ):
        storage.exists("gs://b-1/x")


def test_unset_key_variable_is_named(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    storage = storage_of(tmp_path, '"s3://b-1" = { root = "s3", key_variable = "MINIO_KEY" }')

    with pytest.raises(UsageError, match="s3://b-1: its key is to be in MINIO_KEY, which is not set"):
        storage.exists("s3://b-1/x")


def test_store_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")
    storage = storage_of(
        tmp_path,
        '"s3://b-1" = { root = "s3", endpoint_url = "http://127.0.0.1:1", key_variable = "K", secret_variable = "K" }',
        K="x",
    )

    with pytest.raises(StokerError) as caught:
        storage.exists("s3://b-1/x")
    assert str(caught.value).startswith("s3://b-1/x: cannot reach s3://b-1 at http://127.0.0.1:1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("url", "module", "extra"), [("gs://b-1/x", "gcsfs", "gcs"), ("s3://b-1/x", "s3fs", "s3")])
def test_missing_extra_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, module: str, extra: str
) -> None:
    for name in (module, f"{module}.core"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    storage = storage_of(tmp_path, '"gs://b-1" = "gcs"')

    with pytest.raises(UsageError) as caught:
        storage.exists(url)
    assert str(caught.value) == (
        f"{url[:8]} ({url[:8]}) needs {module}. Install it with `pip install 'stoker[{extra}]'`."
    )
