"""What a runtime has, read from its folders, and whether that meets a requirement."""

import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.fingerprint import search_path
from stoker.packaging.environment.interpreters import Interpreter
from stoker.packaging.environment.runtimes import Runtime
from tests.packaging.made import install, write


def runtime_with(*folders: Path, version: str = "3.9.1") -> Runtime:
    interpreter = Interpreter(version, "cpython", sys.executable, tuple(map(str, folders)))
    return Runtime("lab", Path(sys.executable), interpreter, "found")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path / "site", "torch", "2.13.0+cpu", requires=["numpy", "nothere>=5"])
    install(tmp_path / "site", "numpy", "2.4.6")
    install(tmp_path / "site", "Foo.Bar", "1.0rc1", requires=["numpy>99; extra == 'huge'", "six; extra == 'small'"])
    return tmp_path / "site"


@pytest.mark.parametrize(
    ("line", "is_met"),
    [
        ("torch", True),
        ("torch>=2", True),
        ("torch==2.13.0", True),
        ("torch==2.13.0+cpu", True),
        ("torch==1.11.0", False),
        ("foo-bar>=0.9", True),
        ("FOO_BAR", True),
        ("foo.bar[small]", False),
        ("foo.bar[huge]", False),
        ("foo.bar[other]", True),
        ("six", False),
        ("torch @ https://host/torch.whl", False),
    ],
)
def test_requirement_is_met_by_what_is_there(site: Path, line: str, is_met: bool) -> None:
    assert Installed(runtime_with(site)).satisfies(Requirement(line)) is is_met


def test_markers_are_those_of_the_runtimes_python(site: Path) -> None:
    installed = Installed(runtime_with(site, version="3.7.16"))

    assert installed.applies(Requirement("six; python_version < '3.8'"))
    assert not installed.applies(Requirement("six; python_full_version >= '3.7.17'"))


def test_first_folder_wins(site: Path, tmp_path: Path) -> None:
    install(tmp_path / "user", "torch", "3.0")

    assert Installed(runtime_with(tmp_path / "user", site)).version("torch") == "3.0"
    assert Installed(runtime_with(site, tmp_path / "user")).version("torch") == "2.13.0+cpu"


def test_old_egg_info_counts(tmp_path: Path) -> None:
    write(
        tmp_path / "site",
        {
            "PyYAML-5.3.egg-info/PKG-INFO": "Metadata-Version: 1.1\nName: PyYAML\nVersion: 5.3\n",
            "PyYAML-5.3.egg-info/requires.txt": "six>=1\n",
            "single-1.0-py3.7.egg-info": "Metadata-Version: 1.1\nName: single\nVersion: 1.0\n",
        },
    )

    installed = Installed(runtime_with(tmp_path / "site"))

    assert installed.version("pyyaml") == "5.3"
    assert installed.version("single") == "1.0"
    found = installed.get("pyyaml")
    assert found is not None
    assert [str(one) for one in found.requires] == ["six>=1"]


def test_metadata_that_no_longer_parses_is_passed_over(tmp_path: Path) -> None:
    install(tmp_path / "site", "pandas", "0.24.2", requires=["pytz (>=2011k)", "numpy>=1.12"])
    install(tmp_path / "site", "odd", "not-a-version")

    installed = Installed(runtime_with(tmp_path / "site"))

    assert installed.version("odd") is None
    found = installed.get("pandas")
    assert found is not None
    assert [one.name for one in found.requires] == ["numpy"]


def test_folders_of_pth_files_are_searched(tmp_path: Path) -> None:
    install(tmp_path / "editable", "mine", "0.1")
    write(tmp_path / "site", {"mine.pth": f"# remark\nimport os\n../editable\n{tmp_path}/gone\n"})

    assert search_path([str(tmp_path / "site")]) == [f"{tmp_path}/site", f"{tmp_path}/site/../editable"]
    assert Installed(runtime_with(tmp_path / "site")).version("mine") == "0.1"


def test_layer_on_a_layer_sees_the_runtime_below(tmp_path: Path, site: Path) -> None:
    write(tmp_path / "layer", {"_stoker_runtime.pth": f"import site; site.addsitedir({str(site)!r})\n"})

    assert Installed(runtime_with(tmp_path / "layer")).version("torch") == "2.13.0+cpu"
