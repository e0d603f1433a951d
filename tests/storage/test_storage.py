"""Every place by its URL: reading, listing, copying, removing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.storage.draft import Draft
from stoker.storage.storage import Storage

BIG = bytes(range(256)) * 40_000  # ten megabytes


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path / "home", environment={})


def write(storage: Storage, url: str | Path, data: bytes = b"x") -> None:
    with storage.open_url(url, "wb") as file:
        file.write(data)


def read(storage: Storage, url: str | Path) -> bytes:
    with storage.open_url(url) as file:
        return file.read()


def urls(storage: Storage, url: str | Path, *, recursive: bool = False) -> list[str]:
    return [found.url for found in storage.list(url, recursive=recursive)]


def partials(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if "partial" in str(path.relative_to(folder)) and path.is_file()]


@pytest.mark.parametrize("scheme", ["gs", "file"])
def test_file_is_there_once_closed(storage: Storage, tmp_path: Path, scheme: str) -> None:
    url = "gs://bucket/a/b" if scheme == "gs" else f"file://{tmp_path}/out/a/b"
    file = storage.open_url(url, "wb")
    file.write(b"he")
    file.write(memoryview(b"llo"))
    assert not storage.exists(url)

    file.close()

    assert read(storage, url) == b"hello"
    assert storage.size(url) == 5
    assert partials(tmp_path) == []


def test_file_left_by_an_exception_is_not_written(storage: Storage, tmp_path: Path) -> None:
    write(storage, "gs://bucket/a", b"old")

    def fail() -> None:
        with storage.open_url("gs://bucket/a", "wb") as file:
            file.write(b"new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()

    assert read(storage, "gs://bucket/a") == b"old"
    assert partials(tmp_path) == []


def test_file_nobody_closed_is_not_written(storage: Storage, tmp_path: Path) -> None:
    file = storage.open_url("gs://bucket/a", "wb")
    file.write(b"half")
    del file

    assert not storage.exists("gs://bucket/a")
    assert partials(tmp_path) == []


def test_unknown_mode_is_refused(storage: Storage) -> None:
    with pytest.raises(UsageError, match="'a'"):
        storage.open_url("gs://bucket/a", "a")


def test_place_exists_as_object_or_folder_or_bucket(storage: Storage, tmp_path: Path) -> None:
    write(storage, "gs://bucket/a/b")

    for url in ("gs://bucket/a/b", "gs://bucket/a", "gs://bucket/a/", "gs://bucket"):
        assert storage.exists(url)
    assert not storage.exists("gs://bucket/b")
    assert not storage.exists("gs://other")
    assert storage.exists(tmp_path)
    assert not storage.exists(tmp_path / "none")


def test_listing_shows_one_level_or_all(storage: Storage) -> None:
    for key in ("a/b", "a/c/d", "e"):
        write(storage, f"gs://bucket/{key}", b"12345")

    assert urls(storage, "gs://bucket") == ["gs://bucket/a/", "gs://bucket/e"]
    assert urls(storage, "gs://bucket/a") == ["gs://bucket/a/b", "gs://bucket/a/c/"]
    assert urls(storage, "gs://bucket/e") == ["gs://bucket/e"]
    assert urls(storage, "gs://bucket", recursive=True) == ["gs://bucket/a/b", "gs://bucket/a/c/d", "gs://bucket/e"]
    found = next(iter(storage.list("gs://bucket/e")))
    assert (found.size_bytes, found.is_folder) == (5, False)
    assert storage.size("gs://bucket") == 15


def test_pattern_matches_keys(storage: Storage) -> None:
    for key in ("in/1.csv", "in/2.csv", "in/2.txt", "in/deep/3.csv", "in/[1].csv"):
        write(storage, f"gs://bucket/{key}")

    assert urls(storage, "gs://bucket/in/*.csv") == [f"gs://bucket/in/{n}.csv" for n in ("1", "2", "[1]")]
    assert urls(storage, "gs://bucket/in/**.csv")[-1] == "gs://bucket/in/deep/3.csv"
    assert urls(storage, "gs://bucket/*/deep/?.csv") == ["gs://bucket/in/deep/3.csv"]
    assert urls(storage, "gs://bucket/in/[12].{csv,txt}") == [
        f"gs://bucket/in/{n}" for n in ("1.csv", "2.csv", "2.txt")
    ]
    assert urls(storage, "gs://bucket/in/[1].csv") == ["gs://bucket/in/[1].csv"]  # an object of that very name
    with pytest.raises(NotFoundError, match=r"\*\.parquet"):
        urls(storage, "gs://bucket/in/*.parquet")


@pytest.mark.parametrize("url", ["gs://bucket/none", "gs://no-bucket", "/nowhere/at/all"])
def test_missing_place_is_named(storage: Storage, url: str) -> None:
    write(storage, "gs://bucket/a")

    for attempt in (lambda: urls(storage, url), lambda: storage.size(url), lambda: storage.copy(url, "gs://bucket/c")):
        with pytest.raises(NotFoundError, match=url):
            attempt()


def test_empty_bucket_and_folder_list_nothing(storage: Storage, tmp_path: Path) -> None:
    write(storage, "gs://bucket/a")
    storage.remove("gs://bucket/a")
    (tmp_path / "empty").mkdir()

    assert urls(storage, "gs://bucket") == []
    assert urls(storage, tmp_path / "empty") == []


def test_object_is_copied_with_its_attributes(storage: Storage) -> None:
    write(storage, "gs://bucket/a", BIG)

    copied = storage.copy("gs://bucket/a", "gs://other/b")

    assert (copied.files, copied.size_bytes, copied.unchanged) == (1, len(BIG), 0)
    assert read(storage, "gs://other/b") == BIG


def test_object_goes_into_a_folder(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "model.pt"
    source.write_bytes(b"x")
    (tmp_path / "out").mkdir()

    storage.copy(source, "gs://bucket")
    storage.copy(source, "gs://bucket/models/")
    storage.copy(source, "gs://bucket/renamed")
    storage.copy("gs://bucket/model.pt", tmp_path / "out")

    assert urls(storage, "gs://bucket", recursive=True) == [
        "gs://bucket/model.pt",
        "gs://bucket/models/model.pt",
        "gs://bucket/renamed",
    ]
    assert (tmp_path / "out/model.pt").read_bytes() == b"x"


def test_folder_is_copied_with_all_in_it(storage: Storage, tmp_path: Path) -> None:
    source = tmp_path / "data"
    for n in range(30):
        (source / f"d{n % 3}").mkdir(parents=True, exist_ok=True)
        (source / f"d{n % 3}/{n}").write_bytes(b"x" * n)

    copied = storage.copy(source, "gs://bucket/data", recursive=True)
    back = storage.copy("gs://bucket/data", tmp_path / "back", recursive=True)

    assert copied == back
    assert copied.files == 30
    for path in source.rglob("*"):
        if path.is_file():
            assert (tmp_path / "back" / path.relative_to(source)).read_bytes() == path.read_bytes()


def test_pattern_is_copied_from_its_last_plain_folder(storage: Storage, tmp_path: Path) -> None:
    for key in ("in/a/1.csv", "in/b/2.csv", "in/b/3.txt"):
        write(storage, f"gs://bucket/{key}")

    storage.copy("gs://bucket/in/*/*.csv", tmp_path / "out")

    assert sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*")) == [
        "a/1.csv",
        "b/2.csv",
    ]


def test_folder_without_recursive_is_refused(storage: Storage) -> None:
    write(storage, "gs://bucket/a/b")

    with pytest.raises(UsageError, match=r"folder of 1 objects.*-r"):
        storage.copy("gs://bucket/a", "gs://bucket/c")
    with pytest.raises(UsageError, match=r"folder of 1 objects.*-r"):
        storage.remove("gs://bucket/a")


def test_progress_comes_to_the_whole(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(BIG)
    seen: list[tuple[int, int]] = []

    storage.copy(tmp_path / "a", "gs://bucket/a", progress=lambda done, total: seen.append((done, total)))

    assert seen == sorted(seen)
    assert seen[-1] == (len(BIG), len(BIG))
    assert len(seen) > 5


def test_copy_again_copies_only_what_is_not_there(storage: Storage, tmp_path: Path) -> None:
    for n in range(5):
        write(storage, tmp_path / f"data/{n}", bytes([n]) * 100)
    storage.copy(tmp_path / "data", "gs://bucket/data", recursive=True)
    before = {found.url: found.updated for found in storage.list("gs://bucket/data", recursive=True)}
    write(storage, tmp_path / "data/3", b"y" * 100)  # same size, other bytes

    again = storage.copy(tmp_path / "data", "gs://bucket/data", recursive=True)

    after = {found.url: found.updated for found in storage.list("gs://bucket/data", recursive=True)}
    assert again.unchanged == 4
    assert [url for url in after if after[url] != before[url]] == ["gs://bucket/data/3"]


@pytest.mark.parametrize("target", ["gs://bucket/big", "file"])
def test_copy_that_was_broken_off_goes_on_where_it_stopped(storage: Storage, tmp_path: Path, target: str) -> None:
    (tmp_path / "big").write_bytes(BIG)
    url = target if target != "file" else str(tmp_path / "out" / "big")

    class Interrupted(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        if done > len(BIG) // 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        storage.copy(tmp_path / "big", url, progress=interrupt)
    assert not storage.exists(url)
    left = partials(tmp_path)
    assert [path.stat().st_size >= len(BIG) // 2 for path in left] == [True]

    first: list[int] = []
    storage.copy(tmp_path / "big", url, progress=lambda done, total: first.append(done))

    assert first[0] >= len(BIG) // 2
    assert read(storage, url) == BIG
    assert partials(tmp_path) == []


def test_left_over_part_of_another_version_is_not_used(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        storage.copy(tmp_path / "big", "gs://bucket/big", progress=interrupt)
    (tmp_path / "big").write_bytes(BIG[::-1])

    storage.copy(tmp_path / "big", "gs://bucket/big")

    assert read(storage, "gs://bucket/big") == BIG[::-1]


def test_source_that_changes_meanwhile_is_not_copied(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG)
    changed = threading.Event()

    def change(done: int, total: int) -> None:
        if not changed.is_set():
            changed.set()
            (tmp_path / "big").write_bytes(b"short")

    with pytest.raises(ConflictError, match=r"big changed while it was copied"):
        storage.copy(tmp_path / "big", "gs://bucket/big", progress=change)
    assert not storage.exists("gs://bucket/big")


def test_damaged_source_is_not_copied(storage: Storage, tmp_path: Path) -> None:
    write(storage, "gs://bucket/a", b"sound")
    path = storage.local_path("gs://bucket/a")
    assert path is not None
    times = path.stat()
    path.write_bytes(b"rotte")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    with pytest.raises(StokerError, match="gs://bucket/a: its bytes do not have the checksum"):
        storage.copy("gs://bucket/a", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_copy_that_does_not_read_back_is_not_kept(
    storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(BIG)
    monkeypatch.setattr(Draft, "is_on_disk", lambda self: False)  # a failing disk cannot be had here

    with pytest.raises(StokerError, match="read back is not what was written"):
        storage.copy(tmp_path / "a", "gs://bucket/a")
    assert not storage.exists("gs://bucket/a")
    assert partials(tmp_path) == []


def test_first_failure_ends_a_copy_and_names_the_object(storage: Storage, tmp_path: Path) -> None:
    for n in range(20):
        write(storage, tmp_path / f"data/{n:02}", b"x")
    write(storage, tmp_path / "out/05/in-the-way", b"x")

    with pytest.raises(StokerError, match="out/05"):
        storage.copy(tmp_path / "data", tmp_path / "out", recursive=True)


def test_failure_is_named_and_not_a_sibling_that_was_broken_off_by_it(storage: Storage, tmp_path: Path) -> None:
    write(storage, tmp_path / "data/00")
    os.truncate(tmp_path / "data/00", 1 << 40)  # listed first, and so large that only the other's failure ends it
    write(storage, tmp_path / "data/01")
    write(storage, tmp_path / "out/01/in-the-way")

    with pytest.raises(StokerError, match="out/01"):
        storage.copy(tmp_path / "data", tmp_path / "out", recursive=True)


def test_file_is_not_copied_onto_itself(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    with pytest.raises(ConflictError, match="same file"):
        storage.copy(tmp_path / "a", f"file://{tmp_path}/a")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_folder_is_removed_with_all_in_it(storage: Storage, tmp_path: Path) -> None:
    for n in range(3):
        write(storage, f"gs://bucket/a/{n}")
        write(storage, tmp_path / f"files/a/{n}")
    write(storage, "gs://bucket/b")

    assert storage.remove("gs://bucket/a", recursive=True) == 3
    assert storage.remove(tmp_path / "files", recursive=True) == 3

    assert urls(storage, "gs://bucket") == ["gs://bucket/b"]
    assert not (tmp_path / "files").exists()


def test_whole_machine_is_not_removed(storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "precious").write_bytes(b"x")

    with pytest.raises(UsageError, match="all you have"):
        storage.remove(tmp_path, recursive=True)
    assert (tmp_path / "precious").exists()


@pytest.mark.slow
def test_killed_copy_leaves_nothing_under_the_name_and_is_taken_up_again(storage: Storage, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(BIG * 10)
    code = (
        "import sys, pathlib; from stoker.storage import Storage\n"
        "storage = Storage(pathlib.Path(sys.argv[1]), environment={})\n"
        "def say(done, total):\n"
        "    print(done, flush=True); sys.stdin.readline()\n"
        "storage.copy(sys.argv[2], 'gs://bucket/big', progress=say)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "home"), str(tmp_path / "big")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while int(process.stdout.readline()) < len(BIG):
            process.stdin.write("\n")
            process.stdin.flush()
        process.kill()
    assert not storage.exists("gs://bucket/big")

    first: list[int] = []
    storage.copy(tmp_path / "big", "gs://bucket/big", progress=lambda done, total: first.append(done))

    assert len(BIG) <= first[0] < len(BIG) * 2
    assert read(storage, "gs://bucket/big") == BIG * 10
    assert partials(tmp_path) == []


def test_listing_goes_on_while_objects_are_removed(storage: Storage) -> None:
    for n in range(300):
        write(storage, f"gs://bucket/{n:03}")
    done = threading.Event()

    def remove() -> None:
        storage.remove("gs://bucket/*", recursive=True)
        done.set()

    thread = threading.Thread(target=remove)
    thread.start()
    while not done.is_set():
        assert len(urls(storage, "gs://bucket", recursive=True)) <= 300
    thread.join()
    assert urls(storage, "gs://bucket") == []


@pytest.mark.parametrize("name", ["data/../../../escaped", "data//absolute", "data/.."])
def test_object_whose_name_leads_out_of_the_target_folder_is_not_copied(
    storage: Storage, tmp_path: Path, name: str
) -> None:
    write(storage, "gs://bucket/data/good")
    write(storage, f"gs://bucket/{name}", b"evil")

    with pytest.raises(UsageError, match="not a relative path"):
        storage.copy("gs://bucket/data", tmp_path / "a" / "b" / "out", recursive=True)

    assert list(tmp_path.rglob("escaped")) == []
    assert not (tmp_path / "a").exists()


def test_object_with_dots_in_its_name_is_copied_between_buckets(storage: Storage) -> None:
    write(storage, "gs://bucket/data/../x", b"odd")

    storage.copy("gs://bucket/data", "gs://other/data", recursive=True)

    assert read(storage, "gs://other/data/../x") == b"odd"


def test_placeholder_of_a_folder_is_not_copied_to_a_file(tmp_path: Path) -> None:
    storage = Storage(tmp_path / "home", environment={})
    with storage.open_url("gs://bucket/in/folder/", "wb"):
        pass
    with storage.open_url("gs://bucket/in/folder/data", "wb") as file:
        file.write(b"x")

    copied = storage.copy("gs://bucket/in", tmp_path / "out", recursive=True)

    assert copied.files == 1
    assert (tmp_path / "out/folder/data").read_bytes() == b"x"
