"""Files that are there whole, or not at all."""

import os
import stat
from pathlib import Path

import pytest

from stoker.atomic import replace_file


def test_file_is_replaced_whole_and_leaves_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "note"
    replace_file(path, "old")
    with path.open() as first:
        replace_file(path, b"new", sync=True)

        assert first.read() == "old", "who has it open reads what it was"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["note"]


@pytest.mark.parametrize("mode", [0o600, 0o755])
def test_mode_is_as_asked_whatever_the_umask(tmp_path: Path, mode: int) -> None:
    before = os.umask(0o077)
    try:
        replace_file(tmp_path / "note", "text", mode=mode)
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "note").stat().st_mode) == mode


def test_what_cannot_be_put_in_place_leaves_no_draft(tmp_path: Path) -> None:
    (tmp_path / "note").mkdir()

    with pytest.raises(IsADirectoryError):
        replace_file(tmp_path / "note", "text")

    assert os.listdir(tmp_path) == ["note"]
