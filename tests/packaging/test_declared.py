"""pyproject.toml and setup.cfg, without running anything."""

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.packaging.package.metadata import poetry_specifier, read_pyproject, read_setup_cfg, roots_of
from tests.packaging.made import write


def pyproject(root: Path, text: str) -> Path:
    return write(root, {"pyproject.toml": text}) / "pyproject.toml"


def test_project_table_is_read(tmp_path: Path) -> None:
    text = """
[project]
name = "taxi"
version = "1.2"
requires-python = ">=3.8"
dependencies = ["torch>=2", "six"]
[project.optional-dependencies]
gpu = ["triton"]
[tool.setuptools.package-dir]
"" = "lib"
"""

    found = read_pyproject(pyproject(tmp_path, text))

    assert (found.name, found.version, found.python_requires) == ("taxi", "1.2", ">=3.8")
    assert found.requirements == ["torch>=2", "six"]
    assert found.extras == {"gpu": ["triton"]}
    assert found.import_roots == ["lib"]


def test_project_without_dependencies_has_none(tmp_path: Path) -> None:
    assert read_pyproject(pyproject(tmp_path, "[project]\nname = 'a'\n")).requirements == []


def test_dynamic_dependencies_come_from_their_files(tmp_path: Path) -> None:
    write(tmp_path, {"base.txt": "six\n", "more.txt": "-r base.txt\nhumanize\n"})
    text = """
[project]
name = "a"
dynamic = ["dependencies"]
[tool.setuptools.dynamic]
dependencies = {file = ["more.txt"]}
"""

    found = read_pyproject(pyproject(tmp_path, text))

    assert found.requirements == ["six", "humanize"]
    assert {file.name for file in found.files} == {"base.txt", "more.txt"}


def test_dynamic_dependencies_from_elsewhere_are_left_to_setup_py(tmp_path: Path) -> None:
    text = '[project]\nname = "a"\ndynamic = ["dependencies"]\n'

    assert read_pyproject(pyproject(tmp_path, text)).requirements is None


def test_settings_of_tools_declare_nothing(tmp_path: Path) -> None:
    found = read_pyproject(pyproject(tmp_path, "[tool.ruff]\nline-length = 100\n"))

    assert found.requirements is None
    assert found.name is None


def test_poetry_is_read(tmp_path: Path) -> None:
    text = """
[tool.poetry]
name = "taxi"
version = "0.1.0"
packages = [{include = "taxi", from = "src"}]
[tool.poetry.dependencies]
python = "^3.8"
torch = "^2.1"
six = "*"
pandas = {version = "~1.5", extras = ["excel"], python = "<3.12"}
hub = {git = "https://host/hub.git", tag = "v1"}
local = {path = "../local"}
plot = {version = "*", optional = true}
numpy = [{version = "<2", markers = "sys_platform == 'linux'"}, {version = ">=2", python = ">=3.9.1"}]
"""

    found = read_pyproject(pyproject(tmp_path, text))

    assert found.python_requires == ">=3.8,<4"
    assert found.import_roots == ["src"]
    assert found.requirements == [
        "torch>=2.1,<3",
        "six",
        'pandas[excel]>=1.5,<1.6 ; python_version < "3.12"',
        "hub @ git+https://host/hub.git@v1",
        "numpy<2 ; (sys_platform == 'linux')",
        'numpy>=2 ; python_full_version >= "3.9.1"',
    ]


@pytest.mark.parametrize(
    ("poetry", "standard"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0", ">=0,<1"),
        ("^0.0", ">=0.0,<0.1"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("~=1.4", "~=1.4"),
        ("1.2.3", "==1.2.3"),
        ("1.2.*", "==1.2.*"),
        ("*", ""),
        (">= 1.0, < 2.0", ">=1.0,<2.0"),
        ("^1 || ^2", ""),
    ],
)
def test_poetry_specifiers_in_the_standards_words(poetry: str, standard: str) -> None:
    assert poetry_specifier(poetry) == standard


def test_setup_cfg_is_read(tmp_path: Path) -> None:
    text = """
[metadata]
name = taxi
version = attr: taxi.__version__
[options]
python_requires = >=3.7
install_requires =
    torch>=1
    # a remark
    six; python_version < "3.9"
package_dir =
    = src
[options.extras_require]
gpu = triton; cupy
"""

    found = read_setup_cfg(write(tmp_path, {"setup.cfg": text}) / "setup.cfg")

    assert (found.name, found.version, found.python_requires) == ("taxi", None, ">=3.7")
    assert found.requirements == ["torch>=1", 'six; python_version < "3.9"']
    assert found.import_roots == ["src"]
    assert found.extras == {"gpu": ["triton", "cupy"]}


def test_setup_cfg_may_name_a_requirement_file(tmp_path: Path) -> None:
    write(tmp_path, {"setup.cfg": "[options]\ninstall_requires = file: reqs.txt\n", "reqs.txt": "six\n"})

    assert read_setup_cfg(tmp_path / "setup.cfg").requirements == ["six"]


@pytest.mark.parametrize(
    ("package_dir", "roots"),
    [
        ({"": "src"}, ["src"]),
        ({"trainer": "lib/trainer"}, ["lib"]),
        ({"a.b": "x/a/b", "": "."}, ["x", "."]),
        ({"trainer": "code"}, []),
    ],
)
def test_roots_of_package_dir(package_dir: dict[str, str], roots: list[str]) -> None:
    assert roots_of(package_dir) == roots


def test_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml is not TOML: .*line 1"):
        read_pyproject(pyproject(tmp_path, "[project\n"))
    with pytest.raises(UsageError, match=r"setup\.cfg cannot be read"):
        read_setup_cfg(write(tmp_path, {"setup.cfg": "no section = 1\n"}) / "setup.cfg")
