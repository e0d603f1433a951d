"""Directories become archives that are the same for the same tree, and come back as they were."""

import os
import tarfile
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.formats.archive import unpack
from stoker.packaging.package.archive import hash_of, pack
from stoker.packaging.package.tree import source_of_directory, walk
from tests.packaging.made import contents, write

FILES = {
    "setup.py": "from setuptools import setup\n",
    "trainer/__init__.py": "",
    "trainer/task.py": "print('hello')\n",
    "trainer/nested/deep/model.py": "x = 1\n",
    "trainer/data/vocabulary.txt": "a\nb\n",
}


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as tar:
        return tar.getnames()


def test_pack_gives_the_same_hash_when_the_same_tree_lies_elsewhere_with_other_times(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one", FILES), write(tmp_path / "two", dict(reversed(FILES.items())))
    for path in two.rglob("*"):
        os.utime(path, (1, 1))
        os.chmod(path, 0o700 if path.is_dir() else 0o600)

    first = pack(walk(source_of_directory(one)), out=tmp_path / "out")
    second = pack(walk(source_of_directory(two)), out=tmp_path / "out")

    assert first.hash == second.hash
    assert os.listdir(tmp_path / "out") == [f"{first.hash}.tar.gz"]


def test_pack_gives_another_hash_when_a_byte_a_name_or_the_executable_bit_differs(tmp_path: Path) -> None:
    def packed(name: str, files: dict[str, str], *, executable: str | None = None) -> str:
        root = write(tmp_path / name, files)
        if executable:
            (root / executable).chmod(0o755)
        return pack(walk(source_of_directory(root)), out=tmp_path / "out").hash

    hashes = {
        packed("a", FILES),
        packed("b", {**FILES, "trainer/task.py": "print('hullo')\n"}),
        packed("c", {**FILES, "trainer/other.py": ""}),
        packed("d", FILES, executable="setup.py"),
    }

    assert len(hashes) == 4


def test_package_names_its_archive_by_the_hash_of_its_bytes(tmp_path: Path) -> None:
    package = pack(walk(source_of_directory(write(tmp_path / "p", FILES))), out=tmp_path / "out")

    assert package.hash == hash_of(package.file)
    assert package.file.name == f"{package.hash}.tar.gz"
    assert package.size_bytes == package.file.stat().st_size
    assert package.num_files == len(FILES)
    assert package.content_bytes == sum(map(len, FILES.values()))


def test_unpack_gives_back_what_was_packed(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {**FILES, "bin/run.sh": "#!/bin/sh\n"})
    (root / "bin/run.sh").chmod(0o755)
    (root / "empty").mkdir()
    (root / "latest").symlink_to("trainer/data")
    package = pack(walk(source_of_directory(root)), out=tmp_path / "out")

    unpack(package.file, tmp_path / "back", hash=package.hash)

    assert contents(tmp_path / "back") == contents(root)
    assert os.access(tmp_path / "back/bin/run.sh", os.X_OK)
    assert not os.access(tmp_path / "back/setup.py", os.X_OK)
    assert (tmp_path / "back/empty").is_dir()
    assert os.readlink(tmp_path / "back/latest") == "trainer/data"


def test_pack_writes_nothing_into_the_users_directory(tmp_path: Path) -> None:
    root = write(tmp_path / "p", FILES)
    before = contents(root)
    root.chmod(0o555)
    (root / "trainer").chmod(0o555)

    pack(walk(source_of_directory(root)), out=tmp_path / "out")

    root.chmod(0o755)
    assert contents(root) == before


def test_pack_warns_and_names_the_largest_files_when_the_package_is_large(tmp_path: Path) -> None:
    files = {f"data/{number}.bin": "x" * number for number in range(100, 107)}
    tree = walk(source_of_directory(write(tmp_path / "p", files)))

    package = pack(tree, out=tmp_path / "out", warn_bytes=500)

    assert package.warning is not None
    assert [file.path for file in package.largest] == [f"data/{number}.bin" for number in range(106, 101, -1)]
    assert "data/106.bin (106 bytes)" in package.warning
    assert ".stokerignore" in package.warning
    assert pack(tree, out=tmp_path / "out").warning is None


def test_pack_refuses_what_is_over_the_limit_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = walk(source_of_directory(write(tmp_path / "p", {"weights.bin": "x" * 3000})))
    monkeypatch.setenv("STOKER_PACKAGE_LIMIT_MB", "0.002")

    with pytest.raises(UsageError, match=r"3 kB, more than 2 kB\. Largest: weights\.bin .*STOKER_PACKAGE_LIMIT_MB"):
        pack(tree, out=tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_limit_that_is_no_number_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = walk(source_of_directory(write(tmp_path / "p", FILES)))
    monkeypatch.setenv("STOKER_PACKAGE_LIMIT_MB", "much")

    with pytest.raises(UsageError, match="'much'; it should be a number of megabytes"):
        pack(tree, out=tmp_path / "out")


def test_pack_says_which_file_cannot_be_read(tmp_path: Path) -> None:
    root = write(tmp_path / "p", FILES)
    tree = walk(source_of_directory(root))
    (root / "trainer/task.py").unlink()

    with pytest.raises(UsageError, match=r"Cannot pack .*trainer/task\.py: No such file"):
        pack(tree, out=tmp_path / "out")

    assert os.listdir(tmp_path / "out") == []


def test_large_files_are_streamed_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "p"
    root.mkdir()
    (root / "weights.bin").write_bytes(os.urandom(3 << 20))
    package = pack(walk(source_of_directory(root)), out=tmp_path / "out")

    unpack(package.file, tmp_path / "back")

    assert contents(tmp_path / "back") == contents(root)


def test_names_that_are_long_or_not_ascii_come_back(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"Größe/数据.csv": "1", f"{'long' * 40}/{'name' * 30}.txt": "2"})
    package = pack(walk(source_of_directory(root)), out=tmp_path / "out")

    unpack(package.file, tmp_path / "back")

    assert contents(tmp_path / "back") == contents(root)
