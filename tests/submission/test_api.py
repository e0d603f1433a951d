"""`stoker.submit`: what a target means, and the handle, over a fake client."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import stoker
from stoker.errors import ConfigError, StokerError, UsageError, WaitTimeoutError
from stoker.schema.state import JobState
from stoker.submission import api
from stoker.submission.handle import JobHandle
from stoker.submission.pipeline import Submission
from tests.cli.records import a_job


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Submission]:
    """What would be submitted."""
    submissions: list[Submission] = []

    def take(submission: Submission, **_: Any) -> dict[str, Any]:
        submissions.append(submission)
        return {"id": "x_1"}

    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(api, "submit_job", take)
    monkeypatch.setattr(api, "handle_of", lambda job, *, home, notes: JobHandle(FakeClient(), job["id"]))  # type: ignore[arg-type]
    return submissions


class FakeClient:
    """A client of one job; `wait` runs out of time."""

    address = SimpleNamespace(url="http://here:1")

    def __init__(self, **fields: Any) -> None:
        self.record = a_job().model_copy(update={"id": "x_1", "state": JobState.RUNNING, **fields})

    def close(self) -> None:
        """Nothing is open."""

    def job(self, job: str) -> Any:
        assert job == "x_1"
        return self.record

    def wait(self, job: str, *, timeout_s: float | None) -> Any:
        if timeout_s is not None:
            raise TimeoutError(f"Job {job!r} is still RUNNING after {timeout_s:g} s.")
        return self.record

    def logs(self, job: str, after: int = 0) -> Any:
        pages = {0: ["one\ntwo\n", "three\n"], 2: ["four\n"]}
        return SimpleNamespace(blocks=[SimpleNamespace(text=text) for text in pages.get(after, [])], cursor=after + 2)


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "fares"
    folder.mkdir()
    for name in ("train.py", "2-fast.py", "run.sh"):
        (folder / name).touch()
    return folder


@pytest.mark.parametrize(
    ("target", "options", "fields"),
    [
        ("train.py", {}, {"module": "train", "name": "train"}),
        ("train.py", {"args": ["--epochs", 3]}, {"module": "train", "args": ["--epochs", "3"], "name": "train"}),
        ("2-fast.py", {}, {"kind": "command", "command": ["python", "2-fast.py"], "name": "job_2_fast"}),
        ("run.sh", {}, {"kind": "command", "command": ["sh", "run.sh"], "name": "run"}),
        (".", {"module": "trainer.task", "pool": "gpus"}, {"module": "trainer.task", "pool": "gpus", "name": "fares"}),
        (".", {"command": ["ls"]}, {"kind": "command", "command": ["ls"], "name": "fares"}),
    ],
)
def test_target_says_what_runs(
    sent: list[Submission], code: Path, target: str, options: dict[str, Any], fields: dict[str, Any]
) -> None:
    job = stoker.submit(code / target, **options)

    assert job.id == "x_1"
    assert sent[0].values == fields
    assert (sent[0].source.root, sent[0].is_numbered) == (code, True)  # type: ignore[union-attr]


def test_arguments_replace_fields_of_a_stoker_yaml(sent: list[Submission], code: Path) -> None:
    (code / "stoker.yaml").write_text("name: taxi\nmodule: a.b\nenvironment: {python: '3.11', variables: {A: '1'}}\n")

    stoker.submit(code, environment={"requirements": ["six"]}, labels={"team": "fares"})

    assert sent[0].values == {
        "name": "taxi",
        "module": "a.b",
        "environment": {"python": "3.11", "variables": {"A": "1"}, "requirements": ["six"]},
        "labels": {"team": "fares"},
    }
    assert not sent[0].is_numbered


@pytest.mark.parametrize(
    ("target", "options", "error", "match"),
    [
        ("nothing.py", {}, UsageError, "No such file or directory: .*nothing.py"),
        (".", {}, UsageError, r"has no stoker.yaml .*a module, like trainer.task"),
        ("train.py", {"module": "other"}, UsageError, "names another"),
        ("train.py", {"flavor": 1, "priority": -1}, ConfigError, "(?s)flavor.*priority|priority.*flavor"),
    ],
)
def test_what_cannot_be_submitted_is_refused(
    sent: list[Submission], code: Path, target: str, options: dict[str, Any], error: type[StokerError], match: str
) -> None:
    with pytest.raises(error, match=match):
        stoker.submit(code / target, **options)
    assert sent == []


def test_handle_reads_as_a_line_and_as_a_table() -> None:
    client: Any = FakeClient(state=JobState.FAILED, reason="<exit> 3", metrics={"loss": 0.25})
    job = JobHandle(client, "x_1", notes=("A note.",))

    assert repr(job) == "<stoker job x_1: FAILED (<exit> 3)>"
    table = job._repr_html_()
    for part in ("x_1", "FAILED", "loss 0.25", "&lt;exit&gt; 3", "A note.", "href='http://here:1/jobs/x_1'"):
        assert part in table


def test_log_is_read_to_its_end() -> None:
    client: Any = FakeClient()

    assert list(JobHandle(client, "x_1").logs()) == ["one", "two", "three", "four"]


def test_wait_that_takes_too_long_is_a_stoker_error() -> None:
    client: Any = FakeClient(state=JobState.SUCCEEDED)

    assert JobHandle(client, "x_1").wait() == "SUCCEEDED"
    with pytest.raises(WaitTimeoutError, match=r"still RUNNING after 2 s\. It continues"):
        JobHandle(client, "x_1").wait(timeout_s=2)


def test_unknown_name_is_still_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'submitt'"):
        _ = stoker.submitt
