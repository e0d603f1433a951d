"""Runtimes: stoker's own Python, named ones, found ones; and which of them a job's words choose."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stoker.errors import ConflictError, NotFoundError, StokerError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment import runtimes
from stoker.packaging.environment.fingerprint import fingerprint
from stoker.packaging.environment.interpreters import Interpreter, find_pythons, probe, this_interpreter
from stoker.packaging.environment.runtimes import (
    Runtime,
    add_runtime,
    choose,
    default_runtime,
    list_runtimes,
    remove_runtime,
)
from tests.packaging.made import install, make_runtime, python_of, write

OWN = ".".join(map(str, sys.version_info[:2]))


def a_runtime(name: str, version: str, origin: str = "found") -> Runtime:
    interpreter = Interpreter(version, "cpython", f"/{name}/python", ())
    return Runtime(name, Path(f"/{name}/python"), interpreter, origin)  # type: ignore[arg-type]


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> list[Runtime]:
    """The runtimes of an imagined machine."""
    listed = [default_runtime(), a_runtime("1.15", "3.7.9", "added"), a_runtime("tf1", "3.7.3", "added")]
    listed += [a_runtime("python3.8", "3.8.18"), a_runtime("python3.7", "3.7.16")]
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter(listed))
    return listed


def test_nothing_asked_for_is_the_default(home: Home, known: list[Runtime]) -> None:
    assert choose(home).runtime.name == "default"
    assert choose(home).note is None


def test_default_is_the_python_stoker_lives_in() -> None:
    runtime = default_runtime()

    assert runtime.python == Path(sys.executable)
    assert runtime.minor == OWN


def test_default_wins_when_its_python_is_the_asked_one(home: Home, known: list[Runtime]) -> None:
    assert choose(home, python=OWN).runtime.name == "default"
    assert choose(home, python=OWN.split(".")[0]).runtime.name == "default"


def test_runtime_version_names_a_runtime(home: Home, known: list[Runtime]) -> None:
    assert choose(home, runtime="1.15").runtime.name == "1.15"
    assert choose(home, runtime="1.15", python="3.7").runtime.name == "1.15"
    assert choose(home, runtime="tf1").note is None


def test_named_runtime_with_another_python_is_refused_with_one_that_would_do(home: Home, known: list[Runtime]) -> None:
    with pytest.raises(UsageError, match=r"tf1 \(Python 3\.7\.3\) is not Python 3\.8\. python3\.8 .* would do"):
        choose(home, runtime="tf1", python="3.8")


def test_python_version_chooses_named_before_found(home: Home, known: list[Runtime]) -> None:
    assert choose(home, python="3.7").runtime.name == "1.15"
    assert choose(home, python="3.7.16").runtime.name == "python3.7"


def test_unknown_ai_platform_version_with_a_python_takes_that_python_and_says_so(
    home: Home, known: list[Runtime]
) -> None:
    choice = choose(home, runtime="2.1", python="3.8")

    assert choice.runtime.name == "python3.8"
    assert choice.note == "There is no runtime '2.1' here; using python3.8 (Python 3.8.18)."


def test_unknown_ai_platform_version_alone_takes_the_default_and_says_so(home: Home, known: list[Runtime]) -> None:
    choice = choose(home, runtime="2.1")

    assert choice.runtime.name == "default"
    assert choice.note is not None
    assert choice.note.startswith("There is no runtime '2.1' here; using default (Python")
    assert "stoker runtimes add 2.1 --python PATH" in choice.note


def test_missing_python_is_refused_with_the_nearest(home: Home, known: list[Runtime]) -> None:
    with pytest.raises(UsageError, match=r"no Python 3\.9 here\. The nearest is 3\.8\.18: say `--python-version 3\.8`"):
        choose(home, python="3.9")
    with pytest.raises(UsageError, match=r"3\.7 and later\. The nearest is 3\.7"):
        choose(home, python="2.7")


def test_pythons_of_old_runtime_versions_are_the_oldest_there_is(home: Home, known: list[Runtime]) -> None:
    choice = choose(home, runtime="1.13", python="3.5")
    assert choice.runtime.minor == "3.7"
    assert choice.note is not None
    assert choice.note.startswith("There is no runtime '1.13' here, nor a Python 3.5, which is too old for stoker;")


def test_pythons_3_that_are_too_old_run_on_the_oldest_there_is(home: Home, known: list[Runtime]) -> None:
    choice = choose(home, python="3.6")
    assert choice.runtime.minor == "3.7"
    assert choice.note == f"There is no Python 3.6 here, which is too old for stoker; using {choice.runtime}."


def test_unknown_name_is_refused_with_the_nearest(home: Home, known: list[Runtime]) -> None:
    with pytest.raises(NotFoundError, match=r"No runtime 'tf2' here\. Did you mean tf1\?"):
        choose(home, runtime="tf2")
    with pytest.raises(NotFoundError, match="There are default, 1.15"):
        choose(home, runtime="zzzzzz")


def test_what_is_no_version_is_refused(home: Home, known: list[Runtime]) -> None:
    with pytest.raises(UsageError, match="'three' is not a version of Python"):
        choose(home, python="three")


@pytest.mark.slow
def test_added_runtime_is_listed_chosen_and_removed(home: Home, tmp_path: Path) -> None:
    runtime = make_runtime(home, tmp_path / "venv", {}, name="lab")

    assert runtime.python == tmp_path / "venv/bin/python"
    assert "lab" in [one.name for one in list_runtimes(home)]
    assert choose(home, runtime="lab").runtime == runtime

    remove_runtime(home, "lab")
    assert "lab" not in [one.name for one in list_runtimes(home)]
    with pytest.raises(NotFoundError, match=r"No runtime 'lab' was added, so none was removed\. Added ones: none"):
        remove_runtime(home, "lab")


@pytest.mark.slow
def test_no_other_python_is_started_for_a_runtime_that_was_added(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_runtime(home, tmp_path / "venv", {}, name="lab")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))

    assert choose(home, runtime="lab", python=OWN).runtime.name == "lab"


@pytest.mark.slow
def test_virtual_environment_is_a_runtime_of_its_own_packages(home: Home, tmp_path: Path) -> None:
    runtime = make_runtime(home, tmp_path / "venv", {"torch": "1.0"})

    assert runtime.interpreter.site_dirs == (str(tmp_path / f"venv/lib/python{OWN}/site-packages"),)
    assert os.path.realpath(runtime.interpreter.base_python) == os.path.realpath(this_interpreter().base_python)


@pytest.mark.slow
def test_name_that_is_taken_by_another_python_is_refused(home: Home, tmp_path: Path) -> None:
    make_runtime(home, tmp_path / "one", {}, name="lab")
    make_runtime(home, tmp_path / "two", {}, name="other")

    assert add_runtime(home, "lab", python=str(tmp_path / "one/bin/python")).name == "lab"
    with pytest.raises(ConflictError, match=r"runtime 'lab' already .*`stoker runtimes remove lab` first"):
        add_runtime(home, "lab", python=str(tmp_path / "two"))


@pytest.mark.parametrize("name", ["default", "", "a b", "-x", "../x"])
def test_bad_names_are_refused(home: Home, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be a runtime's name"):
        add_runtime(home, name, python=sys.executable)


@pytest.mark.slow
def test_what_is_no_python_is_refused(home: Home, tmp_path: Path) -> None:
    script = write(tmp_path, {"python": "#!/bin/sh\necho hello\n"}) / "python"
    script.chmod(0o755)

    with pytest.raises(UsageError, match="no Python at"):
        add_runtime(home, "x", python=str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="does not say what it is"):
        add_runtime(home, "x", python=str(script))
    assert not home.runtimes.exists()


@pytest.mark.slow
def test_python_that_is_too_old_is_refused(home: Home, tmp_path: Path) -> None:
    said = json.dumps({"version": "3.6.15", "implementation": "cpython", "base_python": "/x", "site_dirs": []})
    script = write(tmp_path, {"python": f"#!/bin/sh\necho '{said}'\n"}) / "python"
    script.chmod(0o755)

    with pytest.raises(UsageError, match=r"is Python 3\.6\.15; stoker runs packages on 3\.7 and later"):
        add_runtime(home, "x", python=str(script))


@pytest.mark.slow
def test_runtime_whose_python_is_gone_is_named(home: Home, tmp_path: Path) -> None:
    make_runtime(home, tmp_path / "venv", {}, name="lab")
    (tmp_path / "venv/bin/python").unlink()

    with pytest.raises(NotFoundError, match="'lab' cannot be used: its Python, .* is gone"):
        choose(home, runtime="lab")


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    for name in ("HOME", "PYENV_ROOT", "XDG_DATA_HOME", "UV_PYTHON_INSTALL_DIR"):
        monkeypatch.setenv(name, str(folder / "nowhere"))


@pytest.mark.slow
def test_pythons_are_asked_once_and_again_when_they_change(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = {"version": "3.99.1", "implementation": "cpython", "base_python": "/x", "site_dirs": []}
    script = write(
        tmp_path / "bin", {"python3.99": f"#!/bin/sh\necho x >> '{tmp_path}/asked'\necho '{json.dumps(said)}'\n"}
    )
    (script / "python3.99").chmod(0o755)
    on_path(tmp_path / "bin", monkeypatch)

    assert choose(home, python="3.99").runtime.name == "python3.99"
    assert choose(home, python="3.99").runtime.version == "3.99.1"
    assert (tmp_path / "asked").read_text() == "x\n"

    os.utime(script / "python3.99", (1, 1))
    choose(home, python="3.99")
    assert (tmp_path / "asked").read_text() == "x\nx\n"


def test_pythons_are_found_on_path_and_in_pyenv_but_not_among_shims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["bin/python3.9", "bin/python3", "shims/python3.8", "pyenv/versions/3.7.16/bin/python3", "v/bin/python3.10"]
    write(tmp_path, {name: "" for name in [*names, "v/pyvenv.cfg"]})
    for name in names:
        (tmp_path / name).chmod(0o755)
    on_path(tmp_path, monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:{tmp_path}/bin:{tmp_path}/v/bin:{tmp_path}/none")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))

    found = [str(path.relative_to(tmp_path)) for path in find_pythons() if path.is_relative_to(tmp_path)]

    assert found == ["bin/python3.9", "pyenv/versions/3.7.16/bin/python3"]


@pytest.mark.slow
def test_oldest_python_can_be_asked() -> None:
    assert probe(python_of("3.7")).numbers[:2] == (3, 7)


@pytest.mark.slow
def test_asking_this_python_gives_what_it_says_of_itself() -> None:
    assert probe(Path(sys.executable)) == this_interpreter()


def test_broken_runtimes_file_is_named(home: Home) -> None:
    home.runtimes.write_text("{")

    with pytest.raises(StokerError, match=r"runtimes\.json cannot be read"):
        list_runtimes(home)


@pytest.mark.slow
def test_runtimes_added_at_the_same_time_are_all_kept(home: Home, tmp_path: Path) -> None:
    make_runtime(home, tmp_path / "venv", {}, name="first")
    threads = [
        threading.Thread(target=add_runtime, args=(home, f"r{n}"), kwargs={"python": str(tmp_path / "venv")})
        for n in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert set(json.loads(home.runtimes.read_text())["added"]) == {"first", *(f"r{n}" for n in range(8))}


@pytest.mark.slow
def test_fingerprint_changes_with_what_is_installed_and_starts_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = make_runtime(home, tmp_path / "venv", {"torch": "1.0"})
    packages = Path(runtime.interpreter.site_dirs[0])
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    before = fingerprint(runtime)

    write(packages, {"torch/__pycache__/x.pyc": "", "note.txt": ""})
    assert fingerprint(runtime) == before

    install(packages, "six", "1.17.0")
    assert fingerprint(runtime) != before
