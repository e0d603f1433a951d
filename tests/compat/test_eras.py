"""The date and the Python that legacy code gets: candidates in order, and the first that resolves is taken."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from stoker.compat.eras.era import last_commit, python_at
from stoker.compat.eras.images import image_of, image_of_runtime
from stoker.compat.eras.pins import at_least, exact, mended
from stoker.compat.eras.supply import Program, Supply, supply_for
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.packaging.environment import runtimes
from stoker.packaging.environment.cache import resolve
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolver import Wanted
from stoker.packaging.environment.runtimes import Runtime, default_runtime
from stoker.packaging.package.requirements import OVERRIDE
from tests.packaging.made import make_runtime, make_wheel

Tried = tuple[str, str | None]  # a Python, a date


@dataclass
class FakeIndex:
    """Releases with their dates, and the Pythons and dates on which everything resolves."""

    dates: dict[str, str] = field(default_factory=dict)  # by requirement line
    fits: set[Tried] = field(default_factory=set)
    wheels: bool = True
    needs: str = ""  # what must be among the lines
    tried: list[Tried] = field(default_factory=list)

    def release_dates(self, lines: Sequence[str]) -> dict[str, str]:
        return {Requirement(line).name: self.dates[line] for line in lines if line in self.dates}

    def resolves(self, runtime: Runtime, lines: Sequence[str], as_of: str | None) -> bool:
        self.tried.append((runtime.minor, as_of))
        return (runtime.minor, as_of) in self.fits and any(self.needs in line for line in lines)

    def has_wheel(self, line: str, runtime: Runtime) -> bool:
        return self.wheels


def found_of(minor: int) -> Runtime:
    """A Python of another version, as far as choosing goes."""
    own = default_runtime()
    return Runtime(f"python3.{minor}", own.python, replace(own.interpreter, version=f"3.{minor}.1"), "found")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """Where there are Pythons 3.7 to 3.9, and the default one."""
    known = [default_runtime(), found_of(9), found_of(8), found_of(7)]
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter(known))
    return Home(tmp_path / "home").make()


OWN = default_runtime().minor


def given(
    home: Home, index: FakeIndex, source: str = "", own: Sequence[str] = (), base: str = "", **environment: str
) -> Supply:
    values: dict[str, Any] = {"module": "t", "environment": environment}
    if base:
        values["origin"] = {"platform": "aiplatform", "container": True, "image": base}
    return supply_for(Program({"t.py": source.encode()}, tuple(own), values), home=home, index=index)


def wanted(own: Sequence[str], supply: Supply) -> tuple[str, ...]:
    needs = Needs(requirements=(*own, *supply.requirements))
    return Wanted.of(needs, Installed(default_runtime())).requirements


def test_what_names_no_release_is_taken_as_declared_on_the_default_python(home: Home) -> None:
    index = FakeIndex(fits={(OWN, None)})

    assert given(home, index, own=["pandas>=1.3", "joblib"]) == Supply()
    assert index.tried == [(OWN, None)]


def test_an_era_is_the_date_of_the_newest_pin_on_the_first_python_that_resolves(home: Home) -> None:
    index = FakeIndex({"pandas==1.2.4": "2021-04-12", "six==1.15.0": "2020-05-21"}, {("3.8", "2021-04-12")})

    supply = given(home, index, own=["pandas==1.2.4", "six==1.15.0", "numpy"])

    assert (supply.python, supply.as_of, supply.requirements) == ("3.8", "2021-04-12", ())
    assert supply.notes == ("Libraries as of 2021-04-12 (pandas==1.2.4); the job runs on python3.8 (Python 3.8.1).",)
    assert index.tried == [("3.8", "2021-04-12")]  # not on a Python that was not there yet


def test_the_default_python_comes_first_where_it_was_released_by_the_date_or_has_the_torch_that_is_used(
    home: Home,
) -> None:
    index = FakeIndex({"pandas==3.0": "2026-01-02", "six==1.15.0": "2020-05-21"})

    given(home, index, own=["pandas==3.0"])
    assert index.tried[0] == (OWN, "2026-01-02")

    index.tried.clear()
    given(home, index, "import torch", ["six==1.15.0"])
    assert index.tried[:2] == [(OWN, "2020-05-21"), ("3.7", "2020-05-21")]


def test_the_date_moves_forward_to_when_a_python_that_is_here_had_wheels(home: Home) -> None:
    index = FakeIndex({"scikit-learn==0.19.1": "2017-10-23"}, {("3.7", "2019-06-27")})

    supply = given(home, index, own=["scikit-learn==0.19.1"])

    assert (supply.python, supply.as_of) == ("3.7", "2019-06-27")
    assert "moved from 2017-10-23" in supply.notes[0]
    assert index.tried == [("3.7", "2019-06-27")]


def test_pins_without_a_wheel_for_any_python_here_become_lower_bounds(home: Home) -> None:
    own = ["h5py==2.7.0", "numpy<2", "gast==0.2.0"]
    index = FakeIndex({"h5py==2.7.0": "2017-03-18"}, {("3.7", "2019-06-27")}, wheels=False, needs="h5py>=2.7.0")

    supply = given(home, index, own=own)

    assert (supply.python, supply.as_of) == ("3.7", "2019-06-27")
    assert set(wanted(own, supply)) == {"numpy<2", "h5py>=2.7.0", "gast>=0.2.0"}
    assert "no Python here has a wheel of h5py==2.7.0" in supply.notes[0]


@pytest.mark.parametrize("own", [["numpy==99.1"], ["scikit-learn>=1.3,<1.2"], ["numpy==1.19.0", "numpy==1.20.0"]])
def test_what_resolves_nowhere_is_left_as_declared_for_the_resolver_to_refuse(home: Home, own: list[str]) -> None:
    supply = given(home, FakeIndex(), own=own)

    assert supply == Supply(is_settled=False)


def test_contradictory_requirements_are_refused_on_the_default_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1.0.2", "1.2.1", "1.3.0"):
        make_wheel(tmp_path / "wheels", "scikit-learn", version)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    home = Home(tmp_path / "home").make()
    own = ("scikit-learn>=1.3,<1.2",)

    supply = supply_for(Program({"t.py": b"import sklearn\n"}, own, {"module": "t"}), home=home)

    assert (supply.python, supply.as_of, supply.requirements) == (None, None, ())
    with pytest.raises(UsageError, match="cannot be met on default") as raised:
        resolve({"requirements": [*own, *supply.requirements]}, home=home)
    assert "\n" not in str(raised.value)


def test_a_date_that_was_asked_for_is_not_moved(home: Home) -> None:
    nowhere = FakeIndex({"pandas": "2024-01-01"})
    supply = given(home, nowhere, own=["pandas"], as_of="2019-03-01")
    assert (supply.as_of, supply.is_settled) == ("2019-03-01", False)
    assert {date for _, date in nowhere.tried} == {"2019-03-01", None}
    assert [python for python, date in nowhere.tried if date is None] == [OWN]  # without undeclared libraries

    supply = given(home, FakeIndex(fits={("3.7", "2019-03-01")}), own=["pandas"], as_of="2019-03-01")
    assert (supply.python, supply.as_of) == ("3.7", "2019-03-01")


def test_today_asks_for_no_era(home: Home) -> None:
    index = FakeIndex({"pandas==1.2.4": "2021-04-12"})

    assert given(home, index, own=["pandas==1.2.4"], as_of="today") == Supply()
    assert index.tried == []


def test_an_index_without_upload_dates_is_said_and_asked_without_a_date(home: Home) -> None:
    supply = given(home, FakeIndex(fits={("3.8", None)}), own=["pandas"], as_of="2021-06-01")

    assert (supply.python, supply.as_of) == ("3.8", None)
    assert supply.notes[0].startswith("The package index serves no upload dates")


def test_the_last_commit_is_the_date_where_what_is_declared_does_not_resolve(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.compat.eras.era.last_commit", lambda root: "2021-06-01")
    index = FakeIndex(fits={("3.8", "2021-06-01")})
    program = Program({"t.py": b""}, ("legacy",), {"module": "t"}, root=tmp_path)

    supply = supply_for(program, home=home, index=index)

    assert (supply.python, supply.as_of) == ("3.8", "2021-06-01")
    assert "(the last commit)" in supply.notes[0]
    assert last_commit(tmp_path / "nowhere") is None


@pytest.mark.parametrize(
    ("date", "python"),
    [
        ("2015-01-01", "3.7"),
        ("2020-01-15", "3.7"),
        ("2021-06-01", "3.8"),
        ("2022-06-01", "3.9"),
        ("2024-01-01", "3.11"),
    ],
)
def test_the_python_of_a_date_was_a_year_old(date: str, python: str) -> None:
    assert python_at(date) == python


@pytest.mark.parametrize(
    ("base", "source", "own", "python"),
    [
        ("python:3.8-slim", "import json", (), "3.8"),
        ("docker.io/library/python:3.9.7", "import json", ("six==1.16",), "3.9"),
        ("python:3.8-slim", "import torch", (), None),  # the default has it, and it is gigabytes
        ("python:3.8-slim", "import torch", ("torch==1.8.1",), "3.8"),
        ("python:3", "import json", (), None),
        ("nvidia/cuda:11.2.0-runtime", "import json", (), None),
    ],
)
def test_a_dockerfiles_python_is_taken_where_nothing_else_names_one(
    home: Home, base: str, source: str, own: tuple[str, ...], python: str | None
) -> None:
    index = FakeIndex(fits={(minor, None) for minor in (OWN, "3.9", "3.8", "3.7")})

    assert given(home, index, source, own, base).python == python
    assert given(home, index, source, own, base, python=OWN).python is None


@pytest.mark.parametrize(
    ("image", "libraries"),
    [
        ("tensorflow/tensorflow:2.4.1-gpu", {"tensorflow": "tensorflow==2.4.1"}),
        ("tensorflow/tensorflow:1.13.1-py3", {"tensorflow": "tensorflow==1.15.*"}),
        ("tensorflow/tensorflow:latest-py3", {}),
        ("gcr.io/deeplearning-platform-release/tf2-cpu.2-1", {"tensorflow": "tensorflow==2.1.*"}),
        ("us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest", {"sklearn": "scikit-learn==0.23.*"}),
        ("gcr.io/cloud-aiplatform/training/xgboost-cpu.1-1", {"xgboost": "xgboost==1.1.*"}),
        ("gcr.io/deeplearning-platform-release/pytorch-gpu.1-4", {}),
    ],
)
def test_an_images_name_says_which_releases_are_in_it(image: str, libraries: dict[str, str]) -> None:
    assert image_of(image).libraries == libraries


@pytest.mark.parametrize(
    ("own", "requirement"),
    [
        ((), "tensorflow==2.4.*"),
        (("tensorflow",), "tensorflow==2.4.*"),
        (("tensorflow>=2.1",), "tensorflow==2.4.*"),
        (("tensorflow>=2.6",), None),
        (("tensorflow==2.2.0",), None),
        (("tensorflow-gpu",), "tensorflow==2.4.*"),
        (("tensorflow-cpu",), None),
    ],
)
def test_a_runtime_version_of_ai_platform_is_its_tensorflow(
    home: Home, own: tuple[str, ...], requirement: str | None
) -> None:
    fits: set[Tried] = {(OWN, None), ("3.8", "2021-11-04"), (OWN, "2020-05-07")}
    index = FakeIndex({"tensorflow==2.4.*": "2021-11-04", "tensorflow==2.2.0": "2020-05-07"}, fits)

    supply = given(home, index, "import tensorflow as tf\n", own, runtime="2.4")

    assert supply.python == ("3.8" if requirement else None)
    assert ("tensorflow==2.4.*" in supply.requirements) is (requirement is not None)
    if requirement:
        assert "Libraries as of 2021-11-04 (runtime 2.4)" in supply.notes[0]


@pytest.mark.parametrize(
    ("source", "runtime", "date"),
    [
        ("import tensorflow as tf\nimport numpy", "1.13", "2020-01-15"),
        ("import tensorflow as tf\ntf.Session()", None, "2020-01-15"),
        ("from sklearn.externals import joblib", None, "2020-01-15"),
        ("import torch", "1.15", None),
    ],
)
def test_runtime_1_and_code_of_its_time_have_its_date(
    home: Home, source: str, runtime: str | None, date: str | None
) -> None:
    index = FakeIndex(fits={("3.7", "2020-01-15")})
    environment = {"runtime": runtime} if runtime else {}

    supply = given(home, index, source, **environment)

    assert (supply.python, supply.as_of) == ("3.7" if date else None, date)
    assert ("tensorflow==1.15.*" in supply.libraries) is ("tensorflow" in source)
    assert image_of_runtime(runtime).date == ("2020-01-15" if runtime else None)


def test_a_pin_that_the_images_release_does_not_go_with_gets_an_earlier_one(home: Home) -> None:
    """numpy 1.14.5 is from before TensorFlow 1.15, and resolves with TensorFlow 1.14."""
    own = ["tensorflow", "numpy==1.14.5"]
    index = FakeIndex({"numpy==1.14.5": "2018-06-28"}, {("3.7", "2020-01-15")}, needs="tensorflow<1.16")

    supply = given(home, index, "import tensorflow as tf\ntf.Session()\n", own)

    assert (supply.python, supply.as_of, supply.libraries) == ("3.7", "2020-01-15", ("tensorflow<1.16",))


def test_keras_of_a_time_comes_with_the_tensorflow_that_it_did_not_declare(home: Home) -> None:
    index = FakeIndex({"keras==2.1.2": "2017-12-05"}, {("3.7", "2019-06-27")})

    supply = given(home, index, "from keras.models import Sequential", ["keras==2.1.2"])

    assert supply.libraries == ("tensorflow",)


def test_what_the_code_takes_of_the_runtime_is_resolved_at_the_date_too_but_torch(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    make_runtime(home, tmp_path / "lab", {"pandas": "3.0", "matplotlib": "3.11", "torch": "2.13"})
    source = "import pandas\nimport torch\nimport matplotlib.pyplot\n"
    index = FakeIndex({"numpy==1.23.5": "2022-11-20", "pandas==1.5": "2022-09-19"}, {(OWN, "2022-11-20")})

    def libraries(*own: str) -> tuple[str, ...]:
        return given(home, index, source, own, runtime="lab").libraries

    assert libraries("numpy==1.23.5") == ("matplotlib", "pandas")
    assert libraries("numpy==1.23.5", "pandas==1.5") == ("matplotlib",)
    assert libraries() == ()


def test_undeclared_libraries_that_are_not_available_are_left_out_and_said(home: Home) -> None:
    supply = given(home, FakeIndex(fits={(OWN, None)}, needs="six"), "import cv2", ["six"])
    assert supply.libraries == ("opencv-python-headless",)

    class Without(FakeIndex):
        def resolves(self, runtime: Runtime, lines: Sequence[str], as_of: str | None) -> bool:
            return "opencv-python-headless" not in lines

    supply = given(home, Without(), "import cv2", ["six"])
    assert (supply.libraries, supply.lacking, supply.is_settled) == ((), ("opencv-python-headless",), False)
    assert "not available here" in supply.notes[-1]


def test_backports_are_left_out_and_libraries_required_by_their_names() -> None:
    own = ["numpy<2", "futures==3.2.0", "sklearn"]

    found = mended(own)

    assert found.lines == ("numpy<2", "scikit-learn")
    wanted = Wanted.of(Needs(requirements=(*own, *found.added)), Installed(default_runtime()))
    assert wanted.requirements == ("numpy<2", "scikit-learn")
    assert found.notes[0].startswith("Left out futures==3.2.0")


def test_pins_are_lines_that_name_a_release() -> None:
    lines = ["six==1.0", "numpy==1.16.*", "pandas>=1", "tensorflow<2", "keras~=2.3", "x @ https://example.com/x.whl"]

    assert exact(lines) == ["six==1.0", "numpy==1.16.*", "keras~=2.3"]
    assert at_least(lines) == ["six>=1.0", "numpy>=1.16", "keras>=2.3"]
    assert not any(line.startswith(OVERRIDE) for line in at_least(lines))
