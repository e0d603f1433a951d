"""What a job takes along: archives given as URLs."""

from pathlib import Path

import pytest

from stoker.errors import StokerError
from stoker.storage.storage import Storage
from stoker.submission.shipment import build_shipment


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    return tmp_path / "home"


def test_archive_is_fetched_from_where_the_settings_put_its_bucket(home: Path, tmp_path: Path) -> None:
    with Storage(home).open_url("gs://my-bucket/dist/trainer-1.0.zip", "wb") as file:
        file.write(b"zipped")

    shipment = build_shipment({}, None, ["gs://my-bucket/dist/trainer-1.0.zip"], folder=tmp_path, notify=print)

    assert [archive.file.name for archive in shipment.archives] == ["trainer-1.0.zip"]
    assert shipment.archives[0].file.read_bytes() == b"zipped"


def test_archive_that_is_not_in_its_bucket_is_named(home: Path, tmp_path: Path) -> None:
    with pytest.raises(StokerError) as caught:
        build_shipment({}, None, ["gs://my-bucket/missing.whl"], folder=tmp_path, notify=print)

    assert "gs://my-bucket/missing.whl" in str(caught.value)
    assert "\n" not in str(caught.value)
