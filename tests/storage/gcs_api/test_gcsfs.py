"""gcsfs, the real one, against the gateway; and pandas through it."""

from pathlib import Path

import pytest

from stoker.storage.gcs_api.server import Gateway

# gcsfs's own doing: aiohttp warns of bodies over a megabyte.
pytestmark = pytest.mark.filterwarnings("ignore:Sending a large body:ResourceWarning")
BIG = bytes(range(256)) * 80_000


@pytest.fixture
def fs(led: Gateway) -> object:
    gcsfs = pytest.importorskip("gcsfs", reason="gcsfs is not installed")
    return gcsfs.GCSFileSystem(skip_instance_cache=True)


def test_file_is_written_and_read(fs, home: Path) -> None:  # type: ignore[no-untyped-def]
    fs.pipe("bucket/small\r", b"ends with return\r")
    with fs.open("bucket/dir/big", "wb", block_size=1 << 20) as file:
        file.write(BIG)

    assert fs.cat("bucket/small\r") == b"ends with return\r"
    assert fs.cat("bucket/dir/big") == BIG
    assert fs.cat_file("bucket/dir/big", start=1_000, end=1_010) == BIG[1_000:1_010]
    assert fs.read_block("bucket/dir/big", len(BIG) - 5, 50) == BIG[-5:]
    assert (home / "buckets/bucket/dir/big").read_bytes() == BIG
    with fs.open("bucket/dir/big", "rb") as file:
        file.seek(-3, 2)
        assert file.read() == BIG[-3:]


def test_upload_that_is_discarded_is_never_there(fs, home: Path) -> None:  # type: ignore[no-untyped-def]
    file = fs.open("bucket/big", "wb", block_size=1 << 20, autocommit=False)
    file.write(BIG)
    assert not fs.exists("bucket/big")
    file.discard()

    assert not fs.exists("bucket/big")
    assert list((home / "buckets/bucket/.stoker/partial").iterdir()) == []


@pytest.mark.parametrize("consistency", ["md5", "size"])
def test_checksums_agree(fs, tmp_path: Path, consistency: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "big").write_bytes(BIG)

    fs.put_file(str(tmp_path / "big"), "bucket/big", consistency=consistency, chunksize=4 << 20)
    fs.get_file("bucket/big", str(tmp_path / "back"), consistency=consistency)

    assert (tmp_path / "back").read_bytes() == BIG


def test_tree_is_walked_copied_moved_and_removed(fs) -> None:  # type: ignore[no-untyped-def]
    fs.pipe({f"bucket/a/{n}": bytes([n]) for n in range(5)} | {"bucket/b": b"b"})

    assert fs.ls("bucket") == ["bucket/a", "bucket/b"]
    assert len(fs.find("bucket")) == 6
    assert fs.glob("bucket/a/[12]") == ["bucket/a/1", "bucket/a/2"]
    assert fs.du("bucket") == 6
    assert fs.isdir("bucket/a")
    assert fs.isfile("bucket/b")
    fs.cp("bucket/a/", "bucket/c/", recursive=True)
    fs.mv("bucket/b", "bucket/d")
    fs.merge("bucket/m", ["bucket/a/1", "bucket/a/2"])
    assert fs.cat("bucket/m") == b"\x01\x02"
    fs.rm("bucket/a", recursive=True)
    assert sorted(fs.find("bucket")) == [*(f"bucket/c/{n}" for n in range(5)), "bucket/d", "bucket/m"]
    with pytest.raises(FileNotFoundError):
        fs.cat("bucket/none")


def test_metadata_is_kept(fs) -> None:  # type: ignore[no-untyped-def]
    fs.pipe("bucket/x", b"x")

    fs.setxattrs("bucket/x", content_type="text/x-t", epoch="3")

    assert fs.getxattr("bucket/x", "epoch") == "3"
    assert fs.info("bucket/x")["contentType"] == "text/x-t"


def test_file_is_created_once(fs) -> None:  # type: ignore[no-untyped-def]
    fs.pipe_file("bucket/x", b"first", mode="create")

    with pytest.raises(FileExistsError):
        fs.pipe_file("bucket/x", b"second", mode="create")
    assert fs.cat("bucket/x") == b"first"


def test_many_files_go_at_once(fs, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "many").mkdir()
    for n in range(200):
        (tmp_path / "many" / f"{n:03}").write_bytes(str(n).encode())

    fs.put(str(tmp_path / "many") + "/", "bucket/many/", recursive=True)
    fs.get("bucket/many/", str(tmp_path / "back") + "/", recursive=True)

    assert len(fs.ls("bucket/many")) == 200
    for n in range(200):
        assert (tmp_path / "back" / f"{n:03}").read_bytes() == str(n).encode()


def test_pandas_reads_and_writes(fs, home: Path) -> None:  # type: ignore[no-untyped-def]
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": [1, 2]}).to_csv("gs://bucket/t.csv", index=False)

    assert pandas.read_csv("gs://bucket/t.csv").a.tolist() == [1, 2]
    assert (home / "buckets/bucket/t.csv").read_text() == "a\n1\n2\n"
