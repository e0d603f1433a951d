"""`stoker check` and `stoker runtimes`: what a package needs beside what a runtime has."""

import json
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.host.home import Home
from stoker.packaging.environment.check import Report, Row, Verdict, check
from stoker.packaging.environment.runtimes import Runtime
from tests.packaging.made import contents, install, make_runtime, make_sdist, make_wheel, write
from tests.processes import processes_with_environment

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(home: Home, tmp_path: Path) -> Runtime:
    return make_runtime(home, tmp_path / "lab", {"torch": "2.13.0+cpu", "numpy": "2.4.6"}, requires={"torch": "numpy"})


def checked(root: Path, home: Home, *lines: str, **choices: bool) -> Report:
    write(root / "p", {"trainer/task.py": "", "requirements.txt": "\n".join(lines)})
    return check(root / "p/trainer", home=home, runtime="lab", **choices)


def test_every_verdict_is_given(tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "tiny", "1.0", requires=["smaller"])
    make_wheel(wheelhouse, "smaller", "2.5")
    make_wheel(wheelhouse, "numpy", "1.26.4")

    report = checked(tmp_path, home, "torch>=2", "tiny", "numpy<2", "gone; sys_platform == 'win32'")

    assert report.rows == (
        Row("torch>=2", "2.13.0+cpu", Verdict.OK),
        Row("tiny", None, Verdict.INSTALL, "1.0"),
        Row("numpy<2", "2.4.6", Verdict.REPLACE, "2.4.6 by 1.26.4, for this job alone"),
        Row("gone; sys_platform == 'win32'", None, Verdict.NOT_NEEDED, "on this Python and system"),
    )
    assert report.also == ("smaller==2.5",)
    assert report.can_run
    assert (report.runtime, report.python) == ("lab", lab.version)


def test_trouble_is_told_apart(tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "picky", "1.0", tag="cp27-cp27m-manylinux1_x86_64")
    make_wheel(wheelhouse, "one", "1.0", requires=["shared==1"])
    make_wheel(wheelhouse, "two", "1.0", requires=["shared==2"])
    make_wheel(wheelhouse, "shared", "1")
    make_wheel(wheelhouse, "shared", "2")

    report = checked(tmp_path, home, "torch", "nosuch", "picky", "one")
    assert [row.verdict for row in report.rows] == [Verdict.OK, Verdict.UNKNOWN, Verdict.NO_BUILD, Verdict.INSTALL]
    assert not report.can_run

    report = checked(tmp_path, home, "one", "two")
    assert [row.verdict for row in report.rows] == [Verdict.CONFLICT, Verdict.CONFLICT]
    assert "shared" in report.rows[0].detail


def test_what_has_no_wheel_is_said_to_be_built(tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path) -> None:
    toml = '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    toml += '[project]\nname = "raw"\nversion = "1.0"\n'
    make_sdist(wheelhouse, "raw", "1.0", {"pyproject.toml": toml, "b.py": ""})

    (row,) = checked(tmp_path, home, "raw").rows

    assert row.verdict is Verdict.BUILD
    assert "1.0 from source: it has no wheel for Python" in row.detail


def test_resolving_that_does_not_end_is_ended_with_what_it_builds(
    tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stoker.packaging.environment.resolver._PATIENCE_S", 3.0)
    toml = '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n'
    make_sdist(wheelhouse, "slow", "1.0", {"pyproject.toml": toml, "b.py": "import time\ntime.sleep(600)\n"})
    make_wheel(wheelhouse, "tiny", "1.0")

    rows = checked(tmp_path, home, "tiny", "slow").rows

    assert [row.verdict for row in rows] == [Verdict.CONFLICT, Verdict.CONFLICT]
    assert "no releases that go together were found within" in rows[0].detail
    assert processes_with_environment("UV_CACHE_DIR", str(tmp_path / "uv-cache")) == []


def test_over_pinned_package_runs_when_the_runtime_is_preferred(
    tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path
) -> None:
    assert not checked(tmp_path, home, "torch==1.11.0").can_run

    report = checked(tmp_path, home, "torch==1.11.0", prefer_runtime=True)

    assert report.can_run
    assert report.rows == (
        Row("torch==1.11.0", "2.13.0+cpu", Verdict.OK, "2.13.0+cpu instead, as --prefer-runtime says"),
    )


def test_packages_for_other_pythons_are_named(tmp_path: Path, home: Home, lab: Runtime) -> None:
    write(tmp_path / "p", {"pyproject.toml": "[project]\nname = 'a'\nrequires-python = '<3.0'\n", "a.py": ""})

    report = check(tmp_path / "p", home=home, runtime="lab")

    assert report.rows == (Row("python <3.0", lab.version, Verdict.OTHER_PYTHON, "no such Python here"),)


def test_runtime_packages_that_a_replacement_breaks_are_named(
    tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path
) -> None:
    install(Path(lab.interpreter.site_dirs[0]), "frames", "3.0", requires=["numpy>=2"])
    make_wheel(wheelhouse, "numpy", "1.26.4")

    report = checked(tmp_path, home, "numpy<2")

    assert report.notes == ("The runtime's frames wants numpy>=2, and this job has 1.26.4.",)


def test_archive_can_be_checked(tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "smaller", "2.5")
    wheel = make_wheel(tmp_path, "trainer", "0.1", requires=["torch", "smaller"])

    report = check(wheel, home=home, runtime="lab")

    assert report.rows == (Row(wheel.name, None, Verdict.INSTALL),)
    assert report.also == ("smaller==2.5",)


def test_command_prints_a_table_and_exits_by_the_verdict(
    tmp_path: Path, home: Home, lab: Runtime, wheelhouse: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = write(tmp_path / "p", {"trainer/task.py": "", "requirements.txt": "torch\n"})
    before = contents(root)

    assert main(["check", str(root / "trainer"), "--runtime-version", "lab"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0].split() == ["REQUIREMENT", "VERDICT", "RUNTIME", "HAS", "DETAIL"]
    assert out.splitlines()[1].split() == ["torch", "ok", "2.13.0+cpu"]
    assert "can run on the runtime lab" in err

    write(root, {"requirements.txt": "nosuch\n"})
    assert main(["check", str(root / "trainer"), "--runtime", "lab"]) == 2
    assert "cannot run on the runtime lab" in capsys.readouterr().err
    write(root, {"requirements.txt": "torch\n"})
    assert contents(root) == before


def test_command_prints_json(tmp_path: Path, home: Home, lab: Runtime, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "p", {"trainer/task.py": "", "requirements.txt": "torch\n"})

    assert main(["check", str(tmp_path / "p/trainer"), "--runtime", "lab", "--json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert found["can_run"] is True
    assert found["requirements"] == [
        {"requirement": "torch", "runtime_has": "2.13.0+cpu", "verdict": "ok", "detail": ""}
    ]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["check", "nowhere"], "No such directory: nowhere"),
        (["check", ".", "--runtime", "tf9"], "No runtime 'tf9' here"),
        (["check", ".", "--python-version", "2.7"], "There is no Python 2.7 here"),
        (["runtimes", "add", "x", "--python", "/nothing"], "There is no Python at /nothing"),
        (["runtimes", "remove", "x"], "No runtime 'x' was added"),
        (["runtimes", "add", "x"], "--python"),
    ],
)
def test_misuse_is_one_line_and_exit_2(
    words: list[str],
    complaint: str,
    tmp_path: Path,
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert main(words) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert complaint in err


def test_runtimes_are_listed_added_and_removed(
    tmp_path: Path, home: Home, lab: Runtime, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runtimes", "add", "1.15", "--python", str(tmp_path / "lab")]) == 0
    out, err = capsys.readouterr()
    assert out == "1.15\n"
    assert "--runtime-version 1.15" in err

    assert main(["runtimes", "list"]) == 0
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert {"RUNTIME", "default", "lab", "1.15"} <= rows.keys()
    assert "torch 2.13.0+cpu" in rows["lab"]

    assert main(["runtimes", "remove", "1.15"]) == 0
    capsys.readouterr()
    assert main(["runtimes", "list", "--json"]) == 0
    found = {runtime["name"]: runtime for runtime in json.loads(capsys.readouterr().out)}
    assert "1.15" not in found
    assert found["lab"]["installed"] == {"numpy": "2.4.6", "torch": "2.13.0+cpu"}
    assert found["default"]["origin"] == "default"
