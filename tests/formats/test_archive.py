"""Archives are untrusted: whatever is in one, nothing is written outside, and nothing is left half-unpacked."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.errors import StokerError
from stoker.formats.archive import unpack

Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes = b"x", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> Member:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info, b""


def special(name: str, kind: bytes) -> Member:
    info = tarfile.TarInfo(name)
    info.type = kind
    return info, b""


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Path]:
    def make(*members: Member) -> Path:
        path = tmp_path / "hostile.tar.gz"
        with tarfile.open(path, "w:gz") as tar:
            for info, content in members:
                tar.addfile(info, io.BytesIO(content))
        return path

    return make


def assert_refused(path: Path, tmp_path: Path, match: str, **limits: int) -> None:
    """Refused, with nothing to show for it, inside or outside."""
    (tmp_path / "runs").mkdir()
    before = sorted(os.listdir(tmp_path))

    with pytest.raises(StokerError, match=match):
        unpack(path, tmp_path / "runs" / "package", **limits)

    assert os.listdir(tmp_path / "runs") == []
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../../evil", "a/..", "a//b", "//evil"])
def test_paths_that_lead_out_are_refused(name: str, archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(file("ok.py"), file(name)), tmp_path, "leads out")


@pytest.mark.parametrize("target", ["/etc/passwd", "../../evil", "..", "a/../../.."])
def test_links_that_lead_out_are_refused(target: str, archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(file("a/b"), link("out", target)), tmp_path, "link out")


def test_links_that_lead_out_only_together_are_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    # d/e/up is the top, which is inside; d/e/up/.. looks like d/e and is the top's parent.
    hostile = archive(file("d/e/x"), link("d/e/up", "../.."), link("out", "d/e/up/.."))

    assert_refused(hostile, tmp_path, "link out")


def test_nothing_is_written_through_a_link(archive: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    hostile = archive(link("door", str(tmp_path / "outside")), file("door/evil"))

    assert_refused(hostile, tmp_path, "Cannot unpack|link out")

    assert os.listdir(tmp_path / "outside") == []


def test_no_link_is_made_through_a_link(archive: Callable[..., Path], tmp_path: Path) -> None:
    hostile = archive(link("door", ".."), link("door/evil", "x"))

    assert_refused(hostile, tmp_path, "link out")


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_special_files_are_refused(kind: bytes, archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(special("thing", kind)), tmp_path, "not a file, folder or symbolic link")


def test_hard_links_are_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    hostile = archive(file("a"), link("b", "a", kind=tarfile.LNKTYPE))

    assert_refused(hostile, tmp_path, "not a file, folder or symbolic link")


def test_path_that_comes_twice_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(file("a"), file("./a")), tmp_path, "holds a path twice")


def test_content_over_the_limit_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    hostile = archive(file("a", b"x" * 600), file("b", b"x" * 600))

    assert_refused(hostile, tmp_path, "more than 1,000 bytes", limit_bytes=1000)


def test_bomb_is_refused_while_it_is_unzipped(tmp_path: Path) -> None:
    # A header that promises little, followed by zeros that go on for ever: what counts is what comes out.
    bomb = tmp_path / "bomb.tar.gz"
    info, _ = file("pax", b"")
    info.type, info.size = tarfile.XHDTYPE, 400_000_000
    with gzip.open(bomb, "wb", compresslevel=1) as zipped:
        zipped.write(info.tobuf(tarfile.USTAR_FORMAT))
        for _ in range(400):
            zipped.write(b"\0" * 1_000_000)

    assert_refused(bomb, tmp_path, "header of more than a megabyte", limit_bytes=1000)


def test_bomb_in_the_content_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.tar.gz"
    info, _ = file("zeros", b"")
    info.size = 40_000_000
    with tarfile.open(bomb, "w:gz") as tar:
        tar.addfile(info, io.BytesIO(b"\0" * info.size))

    assert_refused(bomb, tmp_path, "more than 1,000,000 bytes", limit_bytes=1_000_000)


def test_path_that_is_too_deep_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(file("a/" * 1200 + "x")), tmp_path, "more than 100 folders deep")


def test_link_that_resolves_beyond_the_longest_path_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    """CVE-2025-4517: past PATH_MAX `realpath` stops expanding, and `tarfile`'s filter believes the rest."""
    long, members, path = "d" * 247, [], ""
    for letter in "abcdefghijklmnop":
        info = tarfile.TarInfo(f"{path}{long}")
        info.type = tarfile.DIRTYPE
        members += [(info, b""), link(f"{path}{letter}", long)]
        path += f"{long}/"
    beyond = "/".join("abcdefghijklmnop") + "/" + "l" * 254
    members += [link(beyond, "../" * 16), link("escape", f"{beyond}/../../../outside")]
    members.append(file("escape/evil"))

    assert_refused(archive(*members), tmp_path, "link out|Cannot unpack")


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def test_zip_is_unpacked(tmp_path: Path) -> None:
    unpack(zipped(tmp_path / "code.zip", ("pkg/__init__.py", b""), ("pkg/a.py", b"x")), tmp_path / "code")

    assert (tmp_path / "code/pkg/a.py").read_bytes() == b"x"


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../evil"])
def test_zip_that_leads_out_is_refused(name: str, tmp_path: Path) -> None:
    assert_refused(zipped(tmp_path / "code.zip", (name, b"x")), tmp_path, "leads out")


def test_zip_bomb_is_refused(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "code.zip", ("zeros", b"\0" * 50_000_000))

    assert_refused(bomb, tmp_path, "more than 1,000,000 bytes", limit_bytes=1_000_000)


def test_damaged_zip_is_refused(tmp_path: Path) -> None:
    whole = zipped(tmp_path / "code.zip", ("a", os.urandom(5000)))
    whole.write_bytes(whole.read_bytes()[:-40])

    assert_refused(whole, tmp_path, "damaged")


def test_too_many_files_are_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    assert_refused(archive(*(file(str(n)) for n in range(6))), tmp_path, "more than 5 files", max_files=5)


def test_truncated_archive_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    whole = archive(*(file(str(n), os.urandom(5000)) for n in range(5)))
    whole.write_bytes(whole.read_bytes()[:-8000])

    assert_refused(whole, tmp_path, "damaged")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "not.tar.gz"
    path.write_bytes(b"hello")

    assert_refused(path, tmp_path, "damaged")


def test_archive_with_another_hash_is_refused(archive: Callable[..., Path], tmp_path: Path) -> None:
    with pytest.raises(StokerError, match="do not have the hash"):
        unpack(archive(file("a")), tmp_path / "package", hash="0" * 64)

    assert not (tmp_path / "package").exists()


def test_set_user_id_bits_and_odd_modes_are_dropped(archive: Callable[..., Path], tmp_path: Path) -> None:
    unpack(archive(file("run", mode=0o6777), file("read", mode=0o666)), tmp_path / "package")

    assert (tmp_path / "package/run").stat().st_mode & 0o7777 == 0o755 & ~_umask()
    assert (tmp_path / "package/read").stat().st_mode & 0o7777 == 0o644 & ~_umask()


def test_link_inside_is_kept(archive: Callable[..., Path], tmp_path: Path) -> None:
    unpack(archive(link("now", "versions/2"), file("versions/2/model")), tmp_path / "package")

    assert (tmp_path / "package/now/model").read_text() == "x"


def test_unpack_refuses_a_folder_with_something_in_it(archive: Callable[..., Path], tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package/mine").touch()

    with pytest.raises(StokerError, match="Cannot unpack"):
        unpack(archive(file("a")), tmp_path / "package")

    assert os.listdir(tmp_path / "package") == ["mine"]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
