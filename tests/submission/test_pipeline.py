"""The steps of a submission, up to the upload, which a fake takes."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ConflictError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment import runtimes
from stoker.packaging.package.tree import source_of_directory
from stoker.schema.job import JobSpec
from stoker.schema.launch import EnvironmentSpec
from stoker.submission import legacy, pipeline, shipment
from stoker.submission.pipeline import Submission, submit_job
from stoker.submission.reading import EnvironmentValues, JobOptions, JobValues
from stoker.submission.shipment import Code, Notify, Shipment
from stoker.submission.upload import SubmitClient


class FakeServer:
    """In the SubmitClient's place: it keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[Shipment] = []
        self.was_packed = False

    def __call__(self, home: Home) -> "FakeServer":
        return self

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def submit(self, shipment: Shipment) -> dict[str, Any]:
        self.sent.append(shipment)
        self.was_packed = shipment.package is not None and shipment.package.file.is_file()
        return {"id": shipment.values["name"], "notes": ["from the server"]}

    def submit_numbered(self, shipment: Shipment) -> dict[str, Any]:
        return {**self.submit(shipment), "id": f"{shipment.values['name']}_1"}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    server = FakeServer()
    monkeypatch.setattr(pipeline, "SubmitClient", server)
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    return server


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").make()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('here')\n")
    return folder


def test_job_values_name_the_fields_of_a_job() -> None:
    assert set(JobValues.__annotations__) | set(JobOptions.__annotations__) == set(JobSpec.model_fields)
    assert set(EnvironmentValues.__annotations__) == {field.name for field in fields(EnvironmentSpec)}


def test_directory_is_packed_checked_and_sent_in_order(server: FakeServer, home: Home, code: Path) -> None:
    notes: list[str] = []
    submission = Submission({"name": "a", "module": "train"}, source_of_directory(code))

    job = submit_job(submission, home=home, notify=notes.append)

    assert (job["id"], notes) == ("a", ["from the server"])
    assert server.was_packed
    assert not server.sent[0].package.file.exists()  # type: ignore[union-attr]  # its folder goes with the submission


def test_foreign_platform_changes_job_and_code_before_legacy_support_sees_them(
    server: FakeServer, home: Home, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def adapt(values: JobValues, code: Code, notify: Notify) -> tuple[JobValues, Code]:
        notify("adapted")
        return {**values, "args": ["--fast"]}, code

    def support(values: JobValues, code: Code, *, home: Home, notify: Notify) -> JobValues:
        notify(f"legacy {values['args']}")
        return values

    monkeypatch.setattr(pipeline, "add_legacy_environment", support)
    notes: list[str] = []
    values: JobValues = {"name": "a", "module": "train", "origin": {"platform": "aiplatform"}}
    submission = Submission(values, source_of_directory(code), adapt=adapt, is_numbered=True)

    job = submit_job(submission, home=home, notify=notes.append)

    assert (job["id"], notes) == ("a_1", ["adapted", "legacy ['--fast']", "from the server"])


def test_native_job_never_asks_for_legacy_support(
    server: FakeServer, home: Home, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked for legacy support")

    monkeypatch.setattr(legacy, "_ask", refuse)
    (code / "train.py").write_text("import tensorflow as tf\ntf.Session()\n")

    submit_job(Submission({"name": "a", "module": "train"}, source_of_directory(code)), home=home, notify=print)

    assert len(server.sent) == 1


def test_runtime_is_chosen_once(server: FakeServer, home: Home, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code / "requirements.txt").write_text("pip\n")
    values: JobValues = {"name": "a", "module": "train", "origin": {"platform": "aiplatform"}}
    submission = Submission(values, source_of_directory(code))
    submit_job(submission, home=home, notify=print)  # what legacy support finds is kept
    chosen: list[str] = []
    choose = runtimes.choose
    for name in ("stoker.packaging.environment.runtimes.choose", "stoker.packaging.environment.cache.choose"):
        monkeypatch.setattr(name, lambda *a, **k: chosen.append("again") or choose(*a, **k))

    submit_job(submission, home=home, notify=print)

    assert len(chosen) == 1


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"name": "a"}, "Missing --module-name"),
        ({"name": "a", "module": "task"}, "task"),
        ({"name": "a", "module": "train", "job_dir": "{code}/train.py"}, "is a file"),
    ],
)
def test_what_cannot_run_is_refused_before_the_server_hears_of_it(
    server: FakeServer, home: Home, code: Path, values: dict[str, Any], match: str
) -> None:
    job: Any = {name: value.format(code=code) for name, value in values.items()}

    with pytest.raises(UsageError, match=match):
        submit_job(Submission(job, source_of_directory(code)), home=home, notify=print)

    assert server.sent == []


def test_number_that_was_taken_meanwhile_is_passed_over(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"mnist_3", "mnist_4"}

    class Connection:
        def request(self, method: str, path: str, *, json: Any = None, params: Any = None) -> Any:
            if method == "GET":
                return {"jobs": [{"id": "mnist_2"}]}
            if json["name"] in taken:
                raise ConflictError("taken")
            return {"id": json["name"]}

    monkeypatch.setattr("stoker.submission.upload._connection", lambda home: Connection())

    job = SubmitClient(home).submit_numbered(shipment.Shipment({"name": "mnist", "module": "x"}))

    assert job["id"] == "mnist_5"


@pytest.mark.slow
def test_submitting_by_flags_loads_no_pydantic() -> None:
    """Importing it takes longer than the rest of a submission; whatever needs it is imported where it is used."""
    modules = ("cli.submit", "submission.pipeline", "submission.legacy", "packaging.environment.cache")
    script = "; ".join([*(f"import stoker.{name}" for name in modules), "import sys; print('pydantic' in sys.modules)"])

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"
