"""When things go wrong before a job exists: one line, exit 2, and nothing half-made."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.command import stoker, write_package
from tests.e2e.conftest import kill_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One home and one server for all of these: none of them may leave anything in it."""
    folder = tmp_path_factory.mktemp("refusals")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STOKER_HOME", str(folder / "home"))
        patch.delenv("STOKER_SERVER", raising=False)
        home = Home(folder / "home").make()
        write_package(folder / "good", task="print('hello')\n")
        broken = write_package(folder / "broken", task="")
        (broken / "setup.py").write_text("from setuptools import setup\nsetup(name='x'\n")
        unmet = write_package(folder / "unmet", task="")
        (unmet / "requirements.txt").write_text("no-such-package-of-stokers-tests==9.9\n")
        (folder / "bad.yaml").write_text("trainingInput:\n  scaletier: BASIC\n  workerCount: two\n  region: [a]\n")
        (folder / "search.yaml").write_text(
            "trainingInput:\n  hyperparameters:\n    params:\n"
            "    - {parameterName: lr, type: DOUBLE, minValue: 1, maxValue: 0}\n"
        )
        (folder / "thousands.yaml").write_text(
            "trainingInput: {scaleTier: CUSTOM, masterType: standard, workerType: standard, workerCount: 4000}\n"
        )
        (folder / "own.yaml").write_text("module: trainer.task\nresources: {slots: 0}\nlabel: x\n")
        (folder / "a-file").touch()
        assert stoker("server", "start").code == 0
        yield folder
        kill_server(home)


GOOD = ("--package-path", "good/trainer", "--module-name", "trainer.task")
REFUSED = {
    "no such directory": (("--package-path", "nowhere", "--module-name", "trainer.task"), "No such directory: nowhere"),
    "a file for a directory": (("--package-path", "a-file", "--module-name", "trainer.task"), "a-file is a file"),
    "module not in the package": (
        ("--package-path", "good/trainer", "--module-name", "trainer.tusk"),
        "Did you mean trainer.task?",
    ),
    "no module": (("--package-path", "good/trainer"), "--module-name"),
    "no package": (("--module-name", "trainer.task"), "Non-custom jobs must have packages."),
    "a syntax error in setup.py": (
        ("--package-path", "broken/trainer", "--module-name", "trainer.task"),
        "setup.py, line 2: SyntaxError",
    ),
    "a requirement that cannot be resolved": (
        ("--package-path", "unmet/trainer", "--module-name", "trainer.task"),
        "no-such-package-of-stokers-tests",
    ),
    "an unknown pool": ((*GOOD, "--region", "mars"), "No pool named 'mars'. Pools: local."),
    "an unknown runtime": ((*GOOD, "--runtime-version", "mars"), "No runtime 'mars' here."),
    "an unknown Python": ((*GOOD, "--python-version", "3.99"), "There is no Python 3.99 here."),
    "an unknown tier": ((*GOOD, "--scale-tier", "mega"), "has no scale tier MEGA"),
    "machines that never fit": ((*GOOD, "--config", "thousands.yaml"), "can never hold it"),
    "a job-dir that cannot be made": ((*GOOD, "--job-dir", "/proc/nowhere/out"), "--job-dir /proc/nowhere/out"),
    "a job-dir that is a file": ((*GOOD, "--job-dir", "a-file"), "is a file"),
    "a bad label": ((*GOOD, "--labels", "Team=a"), "label Team=a"),
    "a missing config": ((*GOOD, "--config", "none.yaml"), "Cannot read none.yaml"),
    "a space with nothing in it": ((*GOOD, "--config", "search.yaml"), "hyperparameters.params.0"),
    "a missing archive": ((*GOOD, "--packages", "none.whl"), "No such file: none.whl"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_in_one_line_and_nothing_is_left(place: Path, what: str) -> None:
    words, says = REFUSED[what]
    job_dir = () if "--job-dir" in words else ("--job-dir", "made/for/it")

    result = stoker("jobs", "submit", "training", "refused", *words, *job_dir, cwd=place)

    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("error: ")
    assert says in line
    assert_nothing_was_made(place)


@pytest.mark.parametrize("name", ["taxi-1", "1taxi", "taxi 1", "täxi"])
def test_a_badly_formed_name_is_refused_with_the_rule(place: Path, name: str) -> None:
    result = stoker("jobs", "submit", "training", name, *GOOD, cwd=place)

    assert result.code == 2
    (line,) = result.err.splitlines()
    assert "letters, digits and underscores, starting with a letter" in line
    assert_nothing_was_made(place)


def test_every_bad_field_of_a_config_is_named_with_its_path(place: Path) -> None:
    result = stoker("jobs", "submit", "training", "refused", *GOOD, "--config", "bad.yaml", cwd=place)
    own = stoker("jobs", "create", "own.yaml", "good", cwd=place)

    assert result.code == 2
    assert [line.split(":")[0].strip() for line in result.err.splitlines()[1:]] == [
        "trainingInput.workerCount",
        "trainingInput.region",
        "trainingInput.scaletier",
    ]
    assert own.code == 2
    assert [line.split(":")[0].strip() for line in own.err.splitlines()[1:]] == ["resources.slots", "label"]
    assert_nothing_was_made(place)


def test_what_is_wrong_here_is_wrong_for_local_train_too(place: Path) -> None:
    for what in ("no such directory", "module not in the package", "a syntax error in setup.py", "an unknown Python"):
        words, says = REFUSED[what]
        result = stoker("local", "train", *words, cwd=place)
        assert (result.code, result.out) == (2, "")
        assert says in result.err
    unmet = stoker("local", "train", *REFUSED["a requirement that cannot be resolved"][0], cwd=place)
    assert unmet.code == 2
    assert unmet.err.splitlines()[-1].startswith("error: The requirements cannot be met")


@pytest.mark.parametrize("verb", ["describe", "stream-logs", "logs", "metrics", "wait", "cancel", "pause", "resume"])
def test_a_job_that_is_not_there(place: Path, verb: str) -> None:
    result = stoker("jobs", verb, "nobody", cwd=place)

    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("error: No job 'nobody'")


def test_a_name_that_is_taken(tmp_path: Path, home: Home) -> None:
    project = write_package(tmp_path / "project", task="print('one')\n")
    flags = ("--package-path", "trainer", "--module-name", "trainer.task")
    assert stoker("jobs", "submit", "training", "taken", *flags, cwd=project).code == 0

    other_flags = stoker("jobs", "submit", "training", "taken", *flags, "--", "--epochs", "3", cwd=project)
    (project / "trainer" / "task.py").write_text("print('two')\n")
    other_code = stoker("jobs", "submit", "training", "taken", *flags, "--job-dir", "made", cwd=project)

    for result in (other_flags, other_code):
        assert result.code == 2
        (line,) = result.err.splitlines()
        assert "taken" in line
    assert len(list(home.packages.glob("*.tar.gz"))) == 1
    assert not (project / "made").exists()


def assert_nothing_was_made(place: Path) -> None:
    assert json.loads(stoker("jobs", "list", "--json").out) == []
    home = Home(place / "home")
    assert not list(home.packages.rglob("*.*"))
    assert not (place / "made").exists()
    for name in ("good", "broken", "unmet"):
        assert not list((place / name).rglob("*.pyc"))
        assert not list((place / name).rglob("*.egg-info"))
