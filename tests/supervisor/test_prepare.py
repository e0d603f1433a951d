"""The package comes from this home or from the server, whole or not at all."""

import hashlib
import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stoker.host.home import Home
from stoker.schema.event import Phase
from stoker.schema.launch import EnvironmentSpec
from tests.processes import wait_until
from tests.supervisor.conftest import RUN, Lab


def an_archive(files: dict[str, str]) -> tuple[str, bytes]:
    """A package of these files, and its hash."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return hashlib.sha256(buffer.getvalue()).hexdigest(), buffer.getvalue()


PACKAGE, ARCHIVE = an_archive({"trainer/__init__.py": "", "trainer/task.py": "import os; print(os.getcwd())"})


def keep(home: Home) -> None:
    home.packages.mkdir(parents=True, exist_ok=True)
    home.package_file(PACKAGE).write_bytes(ARCHIVE)


@pytest.mark.slow
def test_package_of_this_home_is_unpacked_and_run_in_the_run_directory(lab: Lab) -> None:
    keep(lab.home)

    run = lab.run("", source=None, package=PACKAGE, module="trainer.task")

    assert run.lines() == [str(run.run_dir.package)]


@pytest.mark.slow
def test_package_that_is_not_here_is_fetched_and_kept(lab: Lab) -> None:
    lab.server.packages[PACKAGE] = ARCHIVE

    run = lab.run("", source=None, package=PACKAGE, module="trainer.task")

    assert run.lines() == [str(run.run_dir.package)]
    assert lab.home.package_file(PACKAGE).read_bytes() == ARCHIVE
    assert [path.name for path in lab.home.packages.iterdir()] == [f"{PACKAGE}.tar.gz"]


@pytest.mark.slow
def test_package_is_fetched_when_a_server_comes_back(lab: Lab) -> None:
    lab.server.packages[PACKAGE] = ARCHIVE
    lab.server.stop()
    run = lab.start(lab.launch("", source=None, package=PACKAGE, module="trainer.task"))
    wait_until(lambda: run.run_dir.spool.exists(), what="the supervisor to begin")

    lab.server.start()

    assert run.wait()["code"] == 0


@pytest.mark.slow
def test_package_that_nobody_has_fails_the_run_in_its_phase(lab: Lab) -> None:
    lab.run("", source=None, package=PACKAGE, module="trainer.task")

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"]) == (Phase.PACKAGE, None)
    assert f"The server does not have /packages/{PACKAGE}" in ended["message"]


@pytest.mark.slow
def test_archive_that_is_not_here_is_fetched(lab: Lab) -> None:
    wheel = b"not really a wheel"
    name = hashlib.sha256(wheel).hexdigest()
    lab.server.packages[f"{name}/thing-1.0-py3-none-any.whl"] = wheel
    spec = EnvironmentSpec.from_json({"archives": [{"hash": name, "filename": "thing-1.0-py3-none-any.whl"}]})

    lab.run("", environment=spec)

    assert lab.home.archive_file(name, "thing-1.0-py3-none-any.whl").read_bytes() == wheel
    assert lab.server.exit_of(RUN)["phase"] is Phase.ENVIRONMENT, "it cannot be installed, being none"


@pytest.mark.slow
def test_damaged_package_fails_the_run_in_its_phase(lab: Lab) -> None:
    lab.home.packages.mkdir(parents=True)
    lab.home.package_file(PACKAGE).write_bytes(ARCHIVE[:-20])

    lab.run("", source=None, package=PACKAGE, module="trainer.task")

    ended = lab.server.exit_of(RUN)
    assert (ended["phase"], ended["code"]) == (Phase.PACKAGE, None)
    assert "damaged" in ended["message"]


@pytest.mark.slow
def test_order_to_stop_is_obeyed_while_the_package_is_awaited(lab: Lab, tmp_path: Path) -> None:
    held = "0" * 64
    spec = EnvironmentSpec.from_json({"archives": [{"hash": "ab" * 32, "filename": "held.whl"}]})
    run = lab.start(lab.launch("", source=None, package=held, environment=spec))
    wait_until(lab.server.asked_for.is_set, what="the archive to be asked for")

    lab.server.order_stop("cancel")
    ended = run.wait()

    assert (ended["phase"], ended["stop"], ended["code"]) == (Phase.PACKAGE, "cancel", None)


HEAVY = ["pydantic", "http.client", "email", "asyncio", "torch", "ray", "optuna", "sqlalchemy", "fastapi", "numpy"]


@pytest.mark.slow
def test_supervisor_starts_without_loading_what_user_code_would_wait_for() -> None:
    code = f"import sys, stoker.supervisor.__main__; print([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_run_is_supervised_without_pydantic(lab: Lab) -> None:
    """Also what is loaded later: 50 supervisors of small runs should not weigh more than the runs."""
    keep(lab.home)
    launch = lab.launch("", source=None, package=PACKAGE, module="trainer.task")
    run_dir = lab.home.run_dir("taxi", 1, 1)
    launch.write(run_dir)
    code = f"""if True:
        import sys
        from stoker.supervisor.__main__ import main
        assert main([{str(run_dir)!r}]) == 0
        print([name for name in ("pydantic", "asyncio", "uv", "packaging") if name in sys.modules])
    """

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
    assert lab.server.exit_of(RUN)["code"] == 0
