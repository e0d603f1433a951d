"""google-cloud-storage, the real one, against the gateway: what trainers do with it."""

import gzip
import io
import os
from pathlib import Path

import pytest

from stoker.storage.gcs_api.server import Gateway

storage = pytest.importorskip("google.cloud.storage", reason="google-cloud-storage is not installed")
from google.api_core import exceptions  # noqa: E402
from google.cloud.storage import transfer_manager  # noqa: E402

BIG = bytes(range(256)) * 80_000  # twenty megabytes: past the limit of one request


@pytest.fixture
def client(led: Gateway) -> "storage.Client":
    return storage.Client()


@pytest.fixture
def bucket(client: "storage.Client") -> "storage.Bucket":
    return client.get_bucket("my-bucket")


def names(found: object) -> list[str]:
    return [blob.name for blob in found]  # type: ignore[attr-defined]


def test_client_needs_no_credentials(client: "storage.Client") -> None:
    assert client.project == "stoker"
    assert names(client.list_buckets()) == []


def test_trainer_saves_its_model_as_in_the_seeds(bucket: "storage.Bucket", home: Path, tmp_path: Path) -> None:
    (tmp_path / "model.pth").write_bytes(b"weights")

    bucket.blob("jobs/taxi/model_20261115_120000/model.pth").upload_from_filename(str(tmp_path / "model.pth"))

    saved = home / "buckets/my-bucket/jobs/taxi/model_20261115_120000/model.pth"
    assert saved.read_bytes() == b"weights"


@pytest.mark.parametrize("chunk_size", [None, 1 << 20])
@pytest.mark.parametrize("checksum", ["auto", "md5", "crc32c", None])
def test_large_blob_goes_up_and_comes_down(
    bucket: "storage.Bucket", chunk_size: int | None, checksum: str | None
) -> None:
    blob = bucket.blob("big", chunk_size=chunk_size)

    blob.upload_from_file(io.BytesIO(BIG), checksum=checksum)

    assert bucket.blob("big", chunk_size=chunk_size).download_as_bytes(checksum=checksum) == BIG


def test_part_of_a_blob_is_downloaded(bucket: "storage.Bucket") -> None:
    bucket.blob("data").upload_from_string(b"0123456789")

    assert bucket.blob("data").download_as_bytes(start=2, end=4) == b"234"
    assert bucket.blob("data").download_as_bytes(start=7) == b"789"


def test_blob_is_a_file(bucket: "storage.Bucket") -> None:
    with bucket.blob("lines.txt").open("w") as file:
        file.write("one\ntwo\n")
    with bucket.blob("big").open("wb", chunk_size=1 << 20) as file:
        file.write(BIG)

    with bucket.blob("lines.txt").open() as file:
        assert list(file) == ["one\n", "two\n"]
    with bucket.blob("big").open("rb") as file:
        file.seek(1_000_000)
        assert file.read(4) == BIG[1_000_000:1_000_004]


def test_blobs_are_listed(client: "storage.Client", bucket: "storage.Bucket") -> None:
    for name in ("a/1", "a/2", "b/c/3", "d"):
        bucket.blob(name).upload_from_string(name)

    assert names(bucket.list_blobs()) == ["a/1", "a/2", "b/c/3", "d"]
    assert names(client.list_blobs("my-bucket", prefix="a/")) == ["a/1", "a/2"]
    shallow = client.list_blobs("my-bucket", delimiter="/")
    assert (names(shallow), shallow.prefixes) == (["d"], {"a/", "b/"})
    assert [len(names(page)) for page in bucket.list_blobs(page_size=3).pages] == [3, 1]
    assert names(bucket.list_blobs(match_glob="**/3")) == ["b/c/3"]
    assert names(bucket.list_blobs(max_results=2)) == ["a/1", "a/2"]


def test_blob_has_its_properties(bucket: "storage.Bucket") -> None:
    blob = bucket.blob("data.json")
    blob.metadata = {"epoch": "3"}
    blob.cache_control = "no-store"
    blob.upload_from_string("123456789", content_type="application/json")

    found = bucket.get_blob("data.json")
    assert (found.size, found.content_type, found.metadata) == (9, "application/json", {"epoch": "3"})
    assert (found.md5_hash, found.crc32c) == ("JfnnlDI7RTiF9RgfG2JNCw==", "4waSgw==")
    assert found.updated is not None
    found.metadata = {"epoch": "4"}
    found.patch()
    again = bucket.get_blob("data.json")
    assert (again.metadata, again.metageneration, again.generation) == ({"epoch": "4"}, 2, found.generation)
    assert bucket.get_blob("none") is None
    assert not bucket.blob("none").exists()
    assert bucket.blob("data.json").exists()


def test_blobs_are_copied_renamed_composed_and_deleted(client: "storage.Client", bucket: "storage.Bucket") -> None:
    one, two = bucket.blob("one"), bucket.blob("two")
    one.upload_from_string("1")
    two.upload_from_string("2")

    bucket.copy_blob(one, client.bucket("other"), "dir/copy")
    bucket.rename_blob(two, "zwei")
    bucket.blob("both").compose([one, bucket.blob("zwei")])
    bucket.delete_blobs([one, bucket.blob("zwei")])

    assert client.bucket("other").blob("dir/copy").download_as_bytes() == b"1"
    assert bucket.blob("both").download_as_bytes() == b"12"
    assert names(bucket.list_blobs()) == ["both"]
    with pytest.raises(exceptions.NotFound, match="No such object: my-bucket/one"):
        one.delete()
    with pytest.raises(exceptions.NotFound):
        one.download_as_bytes()


def test_generations_guard_a_blob(bucket: "storage.Bucket") -> None:
    blob = bucket.blob("lock")
    blob.upload_from_string("first", if_generation_match=0)
    generation = blob.generation

    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_string("second", if_generation_match=0)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").delete(if_generation_match=7)
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("lock").upload_from_file(io.BytesIO(BIG), if_generation_match=0)
    bucket.blob("lock").upload_from_string("third", if_generation_match=generation)
    with pytest.raises(exceptions.NotFound):
        bucket.blob("lock", generation=generation).download_as_bytes()


def test_batch_does_all_or_says_what_failed(client: "storage.Client", bucket: "storage.Bucket") -> None:
    for name in ("a", "b"):
        bucket.blob(name).upload_from_string(name)

    with client.batch():
        bucket.delete_blob("a")
        bucket.delete_blob("b")
    batch = client.batch()
    with pytest.raises(exceptions.NotFound, match="none"), batch:
        bucket.delete_blob("none")

    assert names(bucket.list_blobs()) == []


def test_buckets_are_made_and_deleted(client: "storage.Client") -> None:
    made = client.create_bucket("new-bucket")
    made.blob("x").upload_from_string("x")

    with pytest.raises(exceptions.Conflict):
        client.create_bucket("new-bucket")
    with pytest.raises(exceptions.Conflict):
        made.delete()
    made.labels = {"team": "a"}
    made.patch()
    assert client.get_bucket("new-bucket").labels == {"team": "a"}
    made.delete(force=True)
    assert names(client.list_buckets()) == []


def test_gzip_blob_is_unpacked_by_the_client(bucket: "storage.Bucket") -> None:
    packed = gzip.compress(b"text")
    blob = bucket.blob("text")
    blob.content_encoding = "gzip"
    blob.upload_from_string(packed, content_type="text/plain")

    assert bucket.blob("text").download_as_bytes() == b"text"
    assert bucket.blob("text").download_as_bytes(raw_download=True) == packed


def test_folder_marker_is_a_blob_of_its_own(bucket: "storage.Bucket", home: Path) -> None:
    bucket.blob("folder/").upload_from_string("")
    bucket.blob("folder/x").upload_from_string("x")

    assert names(bucket.list_blobs()) == ["folder/", "folder/x"]
    assert (home / "buckets/my-bucket/folder/x").read_bytes() == b"x"


def test_transfers_run_in_parallel(bucket: "storage.Bucket", tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    (tmp_path / "many").mkdir()
    for n in range(20):
        (tmp_path / "many" / f"{n:02}").write_bytes(bytes([n]))

    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "big"), bucket.blob("big"), chunk_size=5 << 20, worker_type="thread"
    )
    transfer_manager.download_chunks_concurrently(
        bucket.get_blob("big"), str(tmp_path / "back"), chunk_size=5 << 20, worker_type="thread"
    )
    files = sorted(os.listdir(tmp_path / "many"))
    results = transfer_manager.upload_many_from_filenames(
        bucket, files, source_directory=str(tmp_path / "many"), worker_type="thread"
    )

    assert (tmp_path / "back").read_bytes() == BIG
    assert results == [None] * 20
    assert names(bucket.list_blobs()) == [*files, "big"]


def test_access_is_everybodys(bucket: "storage.Bucket") -> None:
    blob = bucket.blob("x")
    blob.upload_from_string("x")

    blob.make_public()
    assert list(bucket.get_iam_policy().bindings) == []
    assert bucket.test_iam_permissions(["storage.objects.get"]) == ["storage.objects.get"]
