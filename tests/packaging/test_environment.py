"""Environments: layered on a runtime, cached by content, made once, with uv and package indexes that are folders."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import StokerError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment import cache as environment_module
from stoker.packaging.environment.cache import PreparedEnvironment, prepare, resolve
from stoker.packaging.environment.layer import provided_commands
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.runtimes import Runtime, add_runtime
from stoker.packaging.package.archive import hash_of
from stoker.schema.launch import Archive, EnvironmentSpec
from tests.packaging.made import install, make_runtime, make_sdist, make_wheel, python_of, write

pytestmark = pytest.mark.slow


@pytest.fixture
def lab(home: Home, tmp_path: Path) -> Runtime:
    """A runtime with a heavy library in it, one that came from no index."""
    return make_runtime(home, tmp_path / "lab", {"torch": "2.13.0+cpu", "numpy": "2.4.6"}, requires={"torch": "numpy"})


def run(environment: PreparedEnvironment, code: str) -> str:
    """What code prints when the environment's Python runs it."""
    done = subprocess.run([environment.python, "-c", code], capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def on_lab(*requirements: str, **fields: Any) -> EnvironmentSpec:
    return EnvironmentSpec(runtime="lab", requirements=requirements, **fields)


def forbid_processes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))


def a_wheel_stored(home: Home, wheel: Path) -> Archive:
    """An archive, where the supervisor would have put it."""
    archive = Archive(hash=hash_of(wheel), filename=wheel.name)
    stored = home.archive_file(archive.hash, archive.filename)
    stored.parent.mkdir(parents=True)
    shutil.copy(wheel, stored)
    return archive


def test_user_code_sees_the_runtimes_libraries_stoker_and_hypertune(home: Home, lab: Runtime) -> None:
    environment = prepare(on_lab(), home=home)

    assert run(environment, "import torch; print(torch.version)") == "2.13.0+cpu"
    assert run(environment, "import stoker, hypertune; print(stoker.init, hypertune.HyperTune)")
    assert run(environment, "import sys; print(sys.prefix)") == str(environment.python.parent.parent)
    assert environment.installed == ()


def test_nothing_is_started_when_the_runtime_has_it_all(
    home: Home, lab: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(on_lab(), home=home)
    forbid_processes(monkeypatch)

    environment = prepare(
        on_lab("torch>=2", "numpy; python_version > '3'", "pywin32; sys_platform == 'win32'"), home=home
    )

    assert environment.installed == ()
    assert not environment.cached


def test_what_the_runtime_lacks_is_installed_and_nothing_else(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "torch", "2.14.0")
    make_wheel(wheelhouse, "tiny", "1.0", requires=["torch", "smaller>=2"])
    make_wheel(wheelhouse, "smaller", "2.5")
    said: list[str] = []

    environment = prepare(on_lab("tiny", "torch>=2"), home=home, say=said.append)

    assert environment.installed == ("smaller 2.5", "tiny 1.0")
    assert run(environment, "import tiny, smaller, torch; print(torch.version)") == "2.13.0+cpu"
    assert "Installing on top of lab" in said[0]
    assert "tiny==1.0" in said[0]


def test_second_job_with_the_same_requirements_starts_and_says_nothing(
    home: Home, lab: Runtime, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheelhouse, "tiny", "1.0")
    first = prepare(on_lab("tiny", "torch"), home=home)
    forbid_processes(monkeypatch)
    said: list[str] = []

    second = prepare(on_lab("torch", "tiny"), home=home, say=said.append)

    assert second.cached
    assert not first.cached
    assert (second.python, second.key, second.installed) == (first.python, first.key, first.installed)
    assert said == []


def test_version_that_goes_with_the_runtime_is_chosen_over_the_newest(
    home: Home, lab: Runtime, wheelhouse: Path
) -> None:
    make_wheel(wheelhouse, "torch", "2.14.0")
    make_wheel(wheelhouse, "vision", "1.0", requires=["torch==2.13.0"])
    make_wheel(wheelhouse, "vision", "2.0", requires=["torch==2.14.0"])

    environment = prepare(on_lab("vision"), home=home)

    assert environment.installed == ("vision 1.0",)


def test_package_that_insists_gets_its_own_version(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "numpy", "1.26.4")

    environment = prepare(on_lab("numpy<2", "torch"), home=home)

    assert environment.installed == ("numpy 1.26.4",)
    assert run(environment, "import numpy, torch; print(numpy.version, torch.version)") == "1.26.4 2.13.0+cpu"


def test_new_package_that_insists_moves_the_runtimes_version_aside(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "numpy", "1.26.4")
    make_wheel(wheelhouse, "old", "1.0", requires=["numpy<2"])

    assert prepare(on_lab("old"), home=home).installed == ("numpy 1.26.4", "old 1.0")


def test_runtime_that_does_not_meet_its_own_metadata_is_left_as_it_is(
    home: Home, lab: Runtime, wheelhouse: Path
) -> None:
    packages = Path(lab.interpreter.site_dirs[0])
    install(packages, "lightning", "1.0", requires=["torch<2", "neverheard"])
    make_wheel(wheelhouse, "tiny", "1.0", requires=["lightning"])

    assert prepare(on_lab("tiny"), home=home).installed == ("tiny 1.0",)


def test_prefer_runtime_takes_what_is_there_for_what_is_pinned_otherwise(
    home: Home, lab: Runtime, wheelhouse: Path
) -> None:
    make_wheel(wheelhouse, "tiny", "1.0", requires=["numpy==1.0", "smaller"])
    make_wheel(wheelhouse, "smaller", "2.5")
    spec = on_lab("torch==1.11.0", "tiny", prefer_runtime=True)

    assert prepare(spec, home=home).installed == ("smaller 2.5", "tiny 1.0")


def test_requirement_that_cannot_be_met_is_one_line_with_uvs_reason(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "picky", "1.0", tag="cp27-cp27m-win32")

    with pytest.raises(UsageError, match=r"cannot be met on lab \(Python .*\): nosuch was not found") as caught:
        resolve(on_lab("nosuch"), home=home)
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="--prefer-runtime would take torch 2.13.0"):
        prepare(on_lab("torch==1.11.0"), home=home)
    with pytest.raises(UsageError, match="picky"):
        prepare(on_lab("picky"), home=home)
    assert not list(home.environments.glob("*/bin"))


def test_resolve_installs_nothing_and_spares_prepare_the_work(
    home: Home, lab: Runtime, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheelhouse, "tiny", "1.0")

    assert resolve(on_lab("tiny"), home=home).lines == ("tiny==1.0",)
    assert not list(home.environments.glob("*/bin"))

    with monkeypatch.context() as patch:
        forbid_processes(patch)
        assert resolve(on_lab("tiny"), home=home).lines == ("tiny==1.0",)
        assert resolve(on_lab("torch"), home=home).installer == "none"
    assert prepare(on_lab("tiny"), home=home).installed == ("tiny 1.0",)


def test_environment_changes_with_the_runtime(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "tiny", "1.0")
    first = prepare(on_lab("tiny"), home=home)

    install(Path(lab.interpreter.site_dirs[0]), "tiny", "1.1")
    second = prepare(on_lab("tiny"), home=home)

    assert first.key != second.key
    assert second.installed == ()


def test_archive_is_installed_with_what_it_needs(home: Home, lab: Runtime, wheelhouse: Path, tmp_path: Path) -> None:
    make_wheel(wheelhouse, "smaller", "2.5")
    files = {"trainer/__init__.py": "", "trainer/task.py": "print('trained')\n"}
    wheel = make_wheel(tmp_path, "trainer", "0.1", requires=["torch", "smaller"], files=files)
    archive = Archive(hash=hash_of(wheel), filename=wheel.name)

    resolution = resolve(on_lab(archives=(archive,)), home=home, archives=[Path(os.path.relpath(wheel))])
    assert resolution.lines == ("smaller==2.5", "trainer @ archive:trainer-0.1-py3-none-any.whl")

    with pytest.raises(StokerError, match="is not here"):
        prepare(on_lab(archives=(archive,)), home=home)
    environment = prepare(on_lab(archives=(a_wheel_stored(home, wheel),)), home=home)
    assert environment.installed == ("smaller 2.5", "trainer 0.1")
    assert run(environment, "import runpy; runpy.run_module('trainer.task')") == "trained"


def test_archive_whose_name_leads_elsewhere_is_refused(home: Home, lab: Runtime) -> None:
    with pytest.raises(ValueError, match="filename must be letters"):
        # Plain values, as the supervisor has them: a spec with such a name cannot be made.
        prepare({"runtime": "lab", "archives": [{"hash": "ab" * 32, "filename": "../../x.whl"}]}, home=home)


def test_sdist_is_built_though_the_runtimes_libraries_are_mere_shadows(
    home: Home, lab: Runtime, wheelhouse: Path, tmp_path: Path
) -> None:
    install(Path(lab.interpreter.site_dirs[0]), "backend", "1.0")  # an empty one; the build must not get it
    make_wheel(wheelhouse, "backend", "1.0", files={"backend.py": BACKEND})
    toml = '[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n'
    sdist = make_sdist(tmp_path, "trainer", "0.1", {"pyproject.toml": toml})

    environment = prepare(on_lab(archives=(a_wheel_stored(home, sdist),)), home=home)

    assert environment.installed == ("trainer 0.1",)


def test_commands_of_the_environment_and_the_runtime_are_on_path(
    home: Home, lab: Runtime, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(wheelhouse, "tiny", "1.0", files={"tiny.py": "def main(): print('hi')\n"}, entry_points=SCRIPT)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)

    environment = prepare(on_lab("tiny"), home=home)

    folder = environment.python.parent.parent
    assert environment.variables == {
        "VIRTUAL_ENV": str(folder),
        "PATH": f"{folder}/bin:{lab.python.parent}:{provided_commands(home)}:/usr/bin:/bin",
    }
    monkeypatch.setenv("PATH", f"/usr/bin:{lab.python.parent}:/bin")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/key.json")  # then the machine's own gsutil is meant
    places = f"{folder}/bin:/usr/bin:{lab.python.parent}:/bin:{provided_commands(home)}"
    assert prepare(on_lab("tiny"), home=home).variables["PATH"] == places
    done = subprocess.run(["tiny-command"], env=environment.variables, capture_output=True, text=True, check=True)
    assert done.stdout == "hi\n"


def test_installed_hypertune_and_stoker_win_over_the_provided(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    make_wheel(wheelhouse, "cloudml-hypertune", "0.1.0", files={"hypertune/__init__.py": "mine = True\n"})
    write(Path(lab.interpreter.site_dirs[0]), {"stoker/__init__.py": "mine = True\n"})

    environment = prepare(on_lab("cloudml-hypertune"), home=home)

    assert run(environment, "import hypertune, stoker; print(hypertune.mine, stoker.mine)") == "True True"


def test_editable_installs_of_the_runtime_work(home: Home, lab: Runtime, tmp_path: Path) -> None:
    write(tmp_path / "project", {"mine.py": "x = 5\n"})
    write(Path(lab.interpreter.site_dirs[0]), {"mine.pth": f"{tmp_path}/project\n"})

    assert run(prepare(on_lab(), home=home), "import mine; print(mine.x)") == "5"


def test_hashes_are_checked(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    wheel = make_wheel(wheelhouse, "tiny", "1.0")
    good = f"tiny==1.0 --hash=sha256:{hash_of(wheel)}"

    with pytest.raises(StokerError, match="(?i)hash"):
        prepare(on_lab(good.replace(hash_of(wheel), "0" * 64)), home=home)
    assert not list(home.environments.glob("*/bin"))
    assert prepare(on_lab(good), home=home).installed == ("tiny 1.0",)


def test_constraints_and_indexes_of_a_requirement_file_count(
    home: Home, lab: Runtime, wheelhouse: Path, tmp_path: Path
) -> None:
    make_wheel(tmp_path / "other", "tiny", "1.0")
    make_wheel(tmp_path / "other", "tiny", "2.0")

    environment = prepare(on_lab("tiny", "-c tiny<2", f"--find-links {tmp_path}/other"), home=home)

    assert environment.installed == ("tiny 1.0",)
    with pytest.raises(UsageError, match="cannot be met"):
        prepare(on_lab("torch", "-c torch<2"), home=home)


def test_failed_install_leaves_nothing_and_is_tried_again(home: Home, lab: Runtime, wheelhouse: Path) -> None:
    wheel = make_wheel(wheelhouse, "tiny", "1.0")
    resolve(on_lab("tiny"), home=home)
    kept = wheel.read_bytes()
    wheel.unlink()

    with pytest.raises(StokerError, match="Installing on top of lab .* failed"):
        prepare(on_lab("tiny"), home=home)
    assert not list(home.environments.glob("*/bin"))

    wheel.write_bytes(kept)
    assert prepare(on_lab("tiny"), home=home).installed == ("tiny 1.0",)


def test_half_made_environment_is_never_used(home: Home, lab: Runtime) -> None:
    whole = prepare(on_lab(), home=home)
    folder = whole.python.parent.parent
    (folder / "environment.json").unlink()
    write(folder, {"lib/junk.py": ""})

    again = prepare(on_lab(), home=home)

    assert not again.cached
    assert not (folder / "lib/junk.py").exists()
    assert run(again, "print(1)") == "1"


def test_environment_whose_python_is_gone_is_made_anew(home: Home, lab: Runtime) -> None:
    environment = prepare(on_lab(), home=home)
    environment.python.unlink()

    assert not prepare(on_lab(), home=home).cached
    assert run(environment, "print(1)") == "1"


def test_two_at_once_make_it_once(home: Home, lab: Runtime, wheelhouse: Path, tmp_path: Path) -> None:
    spec = on_lab("slow", f"--find-links {tmp_path}/slow")
    gate = slow_sdist(tmp_path)
    first = prepare_in_a_process(spec)
    wait_for(gate / "building")
    second = prepare_in_a_process(spec)
    assert second.stdout is not None
    assert second.stdout.readline() == "Waiting for another run that makes the same environment\n"

    (gate / "go").touch()
    outcomes = [process.communicate(timeout=60)[0].splitlines()[-1] for process in (first, second)]

    assert outcomes == ["cached False ('slow 1.0',)", "cached True ('slow 1.0',)"]


def test_kill_half_way_leaves_nothing_that_is_used(home: Home, lab: Runtime, wheelhouse: Path, tmp_path: Path) -> None:
    spec = on_lab("slow", f"--find-links {tmp_path}/slow")
    gate = slow_sdist(tmp_path)
    process = prepare_in_a_process(spec)
    wait_for(gate / "building")
    assert list(home.environments.glob("*/bin/python"))

    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    (gate / "go").touch()

    environment = prepare(spec, home=home)
    assert not environment.cached
    assert run(environment, "import slow; print(slow.x)") == "1"


def test_spec_may_be_plain_values(home: Home, lab: Runtime) -> None:
    spec = on_lab(
        "torch", archives=(Archive(hash="ab" * 32, filename="x.whl"),), prefer_runtime=True, variables={"A": "b"}
    )

    assert Needs.of(asdict(spec)) == Needs.of(spec)
    assert set(Needs.__dataclass_fields__) == set(EnvironmentSpec.__dataclass_fields__) - {"variables"}


def test_environments_of_an_older_stoker_are_patched_when_found(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    made = prepare({}, home=home)
    patched: list[Path] = []
    monkeypatch.setattr(
        environment_module, "patch_environment", lambda folder, runtime, installed: patched.append(folder)
    )
    prepare({}, home=home)
    monkeypatch.setattr(environment_module, "PATCH_VERSION", environment_module.PATCH_VERSION + 1)
    for _ in range(2):
        assert prepare({}, home=home).cached
    assert patched == [made.python.parents[1]]


def test_cached_path_needs_no_pydantic_and_no_packaging(home: Home, lab: Runtime) -> None:
    prepare(on_lab("torch"), home=home)
    code = """
import sys
from stoker.packaging.environment.cache import prepare
from stoker.formats.archive import unpack
from stoker.host.home import Home
assert prepare({"runtime": "lab", "requirements": ["torch"]}, home=Home.find()).cached
print(sorted(name for name in ("pydantic", "packaging", "importlib.metadata", "pathspec") if name in sys.modules))
"""

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_oldest_python_gets_an_environment(home: Home, wheelhouse: Path) -> None:
    add_runtime(home, "1.15", python=str(python_of("3.7")))
    make_wheel(wheelhouse, "tiny", "1.0", requires=["smaller; python_version < '3.8'"])
    make_wheel(wheelhouse, "smaller", "2.5")

    environment = prepare(EnvironmentSpec(runtime="1.15", python="3.7", requirements=("tiny",)), home=home)

    assert environment.installed == ("smaller 2.5", "tiny 1.0")
    code = "import sys, tiny, stoker, hypertune; print(sys.version_info[:2], stoker.init().trial)"
    assert run(environment, code) == "(3, 7) 1"


def test_pip_takes_over_where_uv_cannot_read_the_metadata_of_the_time(home: Home, wheelhouse: Path) -> None:
    add_runtime(home, "old", python=str(python_of("3.7")))
    make_wheel(wheelhouse, "antique", "0.24", requires=["zone (>=2011k)"])
    make_wheel(wheelhouse, "zone", "2019.3")
    spec = EnvironmentSpec(runtime="old", requirements=("antique==0.24",))

    assert resolve(spec, home=home).installer == "pip"
    environment = prepare(spec, home=home)

    assert environment.installed == ("antique 0.24", "zone 2019.3")
    assert run(environment, "import antique, zone; print(zone.version)") == "2019.3"
    assert prepare(spec, home=home).cached


@pytest.mark.parametrize("line", ["-r more.txt", "--user", "six=1"])
def test_line_that_is_no_requirement_is_refused(home: Home, lab: Runtime, wheelhouse: Path, line: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be a requirement|cannot be met .*(six=1|parse)"):
        prepare(on_lab(line), home=home)


def test_upgrade_of_stoker_keeps_environments(home: Home, lab: Runtime) -> None:
    first = prepare(on_lab("torch"), home=home)

    install(Path(lab.interpreter.site_dirs[0]), "stoker", "9.9")

    assert prepare(on_lab("torch"), home=home).key == first.key


def test_note_on_the_runtime_is_said(home: Home) -> None:
    said: list[str] = []

    prepare(EnvironmentSpec(runtime="2.1"), home=home, say=said.append)

    assert said[0].startswith("There is no runtime '2.1' here; using default")


def test_real_index_is_reached_with_pips_settings(home: Home, lab: Runtime) -> None:
    try:
        environment = prepare(on_lab("six"), home=home)
    except UsageError as error:
        pytest.skip(f"no package index can be reached: {error}")

    assert environment.installed[0].startswith("six 1.")
    assert run(environment, "import six; print(six.PY3)") == "True"


def test_a_pinned_build_tool_does_not_bring_another_torch(home: Home, tmp_path: Path, wheelhouse: Path) -> None:
    has = {"torch": "2.13.0+cpu", "setuptools": "84.2.1"}
    make_runtime(home, tmp_path / "lab", has, requires={"torch": "setuptools>=77.0.3"})
    make_wheel(wheelhouse, "setuptools", "59.5.0")
    make_wheel(wheelhouse, "torch", "2.13.0", requires=["nvidia-everything"])  # which no setuptools troubles
    make_wheel(wheelhouse, "nvidia-everything", "13.0")

    resolution = resolve(on_lab("setuptools==59.5.0", "torch"), home=home)

    assert resolution.lines == ("setuptools==59.5.0",)


SCRIPT = "[console_scripts]\ntiny-command = tiny:main\n"

BACKEND = '''
"""A build backend that needs nothing, and waits for a file where it is told to."""
import os, time, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    stem = os.path.basename(os.getcwd())
    gate = open("gate").read() if os.path.exists("gate") else None
    if gate:
        open(os.path.join(gate, "building"), "w").close()
        while not os.path.exists(os.path.join(gate, "go")):
            time.sleep(0.02)
    name, version = open("PKG-INFO").read().split("Name: ")[1].split("\\nVersion: ")
    stem = "%s-%s" % (name, version.split()[0])
    with zipfile.ZipFile(os.path.join(folder, stem + "-py3-none-any.whl"), "w") as wheel:
        wheel.writestr(name + ".py", "x = 1\\n")
        wheel.writestr(stem + ".dist-info/METADATA", open("PKG-INFO").read())
        wheel.writestr(stem + ".dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(stem + ".dist-info/RECORD", "")
    return stem + "-py3-none-any.whl"
'''


def slow_sdist(tmp_path: Path) -> Path:
    """An sdist whose build says that it began, and ends when it is let go. Returns the folder of these two files."""
    gate = tmp_path / "gate"
    gate.mkdir()
    toml = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    toml += '[project]\nname = "slow"\nversion = "1.0"\n'
    make_sdist(tmp_path / "slow", "slow", "1.0", {"pyproject.toml": toml, "backend.py": BACKEND, "gate": str(gate)})
    return gate


def prepare_in_a_process(spec: EnvironmentSpec) -> "subprocess.Popen[str]":
    code = f"""
from stoker.host.home import Home
from stoker.packaging.environment.cache import prepare
made = prepare({asdict(spec)!r}, home=Home.find(), say=lambda line: print(line, flush=True))
print("cached", made.cached, made.installed)
"""
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def wait_for(file: Path) -> None:
    give_up = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < give_up, f"{file} did not appear"
        time.sleep(0.02)
