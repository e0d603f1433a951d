"""A bucket in a folder: the contract, what people do by hand, and kills at bad moments."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from stoker.errors import NotFoundError, StokerError
from stoker.storage.bucket import BucketFolder
from stoker.storage.files import Files, explained
from stoker.storage.object_store import PreconditionError, StoredObject
from tests.contracts.storage import StorageContract, keys, put, read


@pytest.fixture
def root(tmp_path: Path) -> BucketFolder:
    folder = BucketFolder(tmp_path / "bucket", url="gs://bucket", may_make=True)
    folder.make()
    return folder


class TestBucketFolder(StorageContract):
    pass


class TestFiles(StorageContract):
    keeps_attributes = False
    keeps_odd_keys = False

    @pytest.fixture
    def root(self) -> Files:
        return Files()

    @pytest.fixture
    def base(self, tmp_path: Path) -> str:
        return f"{tmp_path}/files/"


def test_object_is_a_plain_file_at_its_key(root: BucketFolder) -> None:
    put(root, "models/1/model.joblib", b"model")

    assert (root.path / "models/1/model.joblib").read_bytes() == b"model"
    assert [path.name for path in root.path.iterdir() if not path.name.startswith(".")] == ["models"]


def test_file_put_by_hand_is_an_object(root: BucketFolder) -> None:
    (root.path / "data").mkdir()
    (root.path / "data/train.csv").write_bytes(b"123456789")

    assert keys(root, "") == ["data/train.csv"]
    assert read(root, "data/train.csv") == b"123456789"
    found = root.stat("data/train.csv")
    assert found is not None
    assert found.md5 == ""
    summed = root.with_checksums(found)
    assert (summed.md5, summed.crc32c) == ("JfnnlDI7RTiF9RgfG2JNCw==", "4waSgw==")  # RFC 1321, RFC 3720
    assert root.stat("data/train.csv") == summed


def test_file_changed_by_hand_loses_what_was_known_of_the_old_bytes(root: BucketFolder) -> None:
    made = put(root, "data", b"old", attributes={"contentType": "text/x-old"})
    (root.path / "data").write_bytes(b"new")

    found = root.stat("data")
    assert found is not None
    assert found.generation != made.generation
    assert (found.md5, dict(found.attributes)) == ("", {})


def test_empty_folder_is_not_listed_and_goes_with_its_last_object(root: BucketFolder) -> None:
    (root.path / "by/hand").mkdir(parents=True)
    put(root, "a/b/c", b"x")

    assert keys(root, "", folders=True) == ["a/"]
    root.remove("a/b/c")

    assert not (root.path / "a").exists()
    assert (root.path / "by/hand").exists()


def test_key_cannot_lead_out_of_the_folder(root: BucketFolder, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    put(root, "x", b"x")

    for key in ("../secret", "x/../../secret", "/../secret", f"{tmp_path}/secret"):
        assert root.stat(key) is None
        put(root, key, b"mine")
        assert read(root, key) == b"mine"
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert keys(root, "", "../") == ["../secret"]


def test_linked_folder_is_followed_once(root: BucketFolder, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/data").write_bytes(b"x")
    (root.path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/back").symlink_to(tmp_path / "elsewhere")

    assert keys(root, "") == ["link/data"]


def test_object_under_a_name_that_became_free_moves_to_its_path(root: BucketFolder) -> None:
    put(root, "a", b"file")
    put(root, "a/b", b"odd")
    root.remove("a")
    assert read(root, "a/b") == b"odd"

    put(root, "a/b", b"path")

    assert keys(root, "") == ["a/b"]
    assert read(root, "a/b") == b"path"


def test_generation_survives_a_copy_of_the_folder_with_times(root: BucketFolder, tmp_path: Path) -> None:
    made = put(root, "data", b"x", attributes={"metadata": {"a": "1"}})
    copied = tmp_path / "copied"
    shutil.copytree(root.path, copied)

    found = BucketFolder(copied, url="gs://copied", may_make=False).stat("data")
    assert found is not None
    assert (found.generation, dict(found.attributes)) == (made.generation, {"metadata": {"a": "1"}})


def test_bytes_have_their_own_attributes_when_killed_between_sidecar_and_rename(root: BucketFolder) -> None:
    made = put(root, "data", b"old", attributes={"contentType": "text/x-old"})

    class Killed(BaseException):
        pass

    def killed(draft: Path, key: str) -> None:
        raise Killed

    draft = root.draft("data")
    draft.write(b"new")
    root._place = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        root.commit("data", draft, attributes={"contentType": "text/x-new"})

    again = BucketFolder(root.path, url="gs://bucket", may_make=True)
    assert again.stat("data") == made
    assert read(again, "data") == b"old"


def test_of_many_writers_that_want_to_be_first_one_is(root: BucketFolder) -> None:
    def is_first(current: StoredObject | None) -> None:
        if current is not None:
            raise PreconditionError("not the first")

    outcomes: list[str] = []
    start = threading.Barrier(8)

    def write(name: str) -> None:
        own = BucketFolder(root.path, url="gs://bucket", may_make=True)
        draft = own.draft("lock")
        draft.write(name.encode())
        start.wait()
        try:
            own.commit("lock", draft, check=is_first)
            outcomes.append(name)
        except PreconditionError:
            draft.discard()

    threads = [threading.Thread(target=write, args=(f"writer {n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(outcomes) == 1
    assert read(root, "lock").decode() == outcomes[0]


def test_reader_sees_one_version_while_it_is_replaced(root: BucketFolder) -> None:
    versions = [bytes([n]) * 200_000 for n in range(20)]
    put(root, "data", versions[0])
    done = threading.Event()

    def write() -> None:
        for version in versions:
            put(root, "data", version)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not done.is_set():
        data = read(root, "data")
        assert len(data) == 200_000
        seen |= set(data)
        assert len(set(data)) == 1
    writer.join()
    assert seen


def test_missing_folder_of_a_setting_is_not_made(tmp_path: Path) -> None:
    root = BucketFolder(tmp_path / "unmounted", url="gs://data", may_make=False)

    for attempt in (lambda: root.draft("x"), lambda: root.stat("x"), lambda: list(root.list())):
        with pytest.raises(NotFoundError, match=r"gs://data.*unmounted.*storage\.buckets"):
            attempt()
    assert not (tmp_path / "unmounted").exists()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written_is_named(root: BucketFolder) -> None:
    root.path.chmod(0o500)

    with pytest.raises(StokerError, match=r"gs://bucket/x: permission denied"):
        root.draft("x")


def test_place_that_cannot_be_written_is_named() -> None:
    root = BucketFolder(Path("/proc/nowhere"), url="gs://bucket", may_make=True)

    with pytest.raises(StokerError, match="gs://bucket/x"):
        root.draft("x")


def test_stale_drafts_are_swept_and_fresh_ones_kept(root: BucketFolder) -> None:
    stale, fresh = root.draft("a"), root.draft("b")
    os.utime(stale.path, (0, 0))

    root.sweep()

    assert not stale.path.exists()
    assert fresh.path.exists()
    stale.close()
    fresh.discard()


def test_complaints_of_the_system_name_the_place() -> None:
    for error, expected in (
        (PermissionError(13, "denied", "/data/x"), "gs://bucket/x: permission denied to user .* \\(/data/x\\)"),
        (OSError(28, "No space left on device"), "gs://bucket/x: No space left on device. Make room"),
        (OSError(30, "Read-only file system"), "gs://bucket/x: Read-only file system"),
        (FileNotFoundError(2, "none"), "gs://bucket/x: not there"),
    ):
        with pytest.raises(StokerError, match=expected), explained("gs://bucket/x"):
            raise error
