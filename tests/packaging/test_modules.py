"""Whether a module can be run is known before anything is submitted."""

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.packaging.package.modules import find_module, has_module
from tests.packaging.made import make_sdist, make_wheel

PATHS = (
    "setup.py",
    "trainer/__init__.py",
    "trainer/task.py",
    "trainer/eval/__main__.py",
    "src/deep/__init__.py",
    "src/deep/train_it.py",
    "no module/x.py",
)


def find(module: str, *roots: str) -> str:
    return find_module(PATHS, import_roots=roots or (".",), module=module, where="./p")


def test_module_and_package_with_main_are_found() -> None:
    assert find("trainer.task") == "trainer/task.py"
    assert find("trainer.eval") == "trainer/eval/__main__.py"


def test_import_roots_are_searched_in_order() -> None:
    assert find("deep.train_it", "src", ".") == "src/deep/train_it.py"
    with pytest.raises(UsageError, match="Did you mean src.deep.train_it"):
        find("deep.train_it")


def test_nearest_names_are_suggested() -> None:
    with pytest.raises(UsageError, match=r"No module 'trainer.tsk' in \./p\. Did you mean trainer.task"):
        find("trainer.tsk")
    with pytest.raises(UsageError, match="Did you mean trainer.task"):
        find("task")


def test_package_without_main_is_said_to_be_one() -> None:
    with pytest.raises(UsageError, match=r"'trainer' is a package .* no __main__\.py"):
        find("trainer")


def test_package_without_python_is_said_to_be_one() -> None:
    with pytest.raises(UsageError, match="It has no Python modules"):
        find_module(["data.csv"], import_roots=(".",), module="a", where="./p")


def test_far_off_name_gets_the_list() -> None:
    with pytest.raises(UsageError, match="It has setup, src.deep.train_it, trainer.eval"):
        find("qqqqqqqqqq")


def test_archives_are_searched_too(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "trainer", "1.0", files={"trainer/task.py": ""})
    sdist = make_sdist(tmp_path, "deep", "1.0", {"src/deep/task.py": "", "flat.py": "", "tests/hidden/deep.py": ""})

    assert has_module(wheel, "trainer.task")
    assert not has_module(wheel, "trainer.tusk")
    assert has_module(sdist, "deep.task")
    assert has_module(sdist, "flat")
    assert not has_module(sdist, "hidden.deep")


def test_broken_archive_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "x.whl").write_text("no")

    with pytest.raises(UsageError, match="cannot be read"):
        has_module(tmp_path / "x.whl", "a")
