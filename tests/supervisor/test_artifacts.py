"""Checkpoints and models kept at a URL, and fetched from there, without a cluster."""

import json
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.errors import ServerError, StokerError
from stoker.host.home import Home
from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica
from stoker.storage import Storage
from stoker.storage.buckets import Buckets
from stoker.storage.gcs_api.http import HttpServer, Request, Response
from stoker.storage.gcs_api.listening import listen, url_of
from stoker.storage.gcs_api.service import Service
from stoker.supervisor.artifacts import Artifacts, fetch_checkpoint
from stoker.supervisor.inputs import Inputs
from stoker.supervisor.spool import Spool
from tests.processes import DEADLINE_S, wait_until
from tests.supervisor.conftest import RUN, Lab, Supervised


def a_launch(**fields: object) -> Launch:
    chief = Replica(role="chief", index=0, rank=0)
    values = {"run": "job.1.2", "job": "job", "trial": 1, "trial_id": 1, "attempt": 2, "replicas": (chief,), **fields}
    return Launch(**values)  # type: ignore[arg-type]


class SlowStorage(Storage):
    """Begins to copy at once, and is done when it is let go."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        self.may_go_on.set()
        self.refuses = ""

    def copy(self, *places: Any, **options: Any) -> Any:
        self.is_asked.set()
        assert self.may_go_on.wait(DEADLINE_S)
        return super().copy(*places, **options)

    def remove(self, *places: Any, **options: Any) -> int:
        if self.refuses:
            raise ServerError(self.refuses)
        return super().remove(*places, **options)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home").make()
    home.config.write_text(f'[storage.buckets]\n"gs://*" = "{tmp_path / "buckets"}"\n')
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    RunDir(tmp_path / "run").write_launch('{"run": "job.1.2", "latest_checkpoint": "gs://kept/job/1/1/step-3"}')
    return home


@pytest.fixture
def storage(home: Home) -> SlowStorage:
    return SlowStorage(home.root)


class Node:
    """What a supervisor has on its node: a run directory, the spool, and what reads into it."""

    def __init__(self, home: Home, run_dir: RunDir, storage: Storage) -> None:
        self.run_dir = run_dir
        self.spool = Spool(run_dir.spool)
        self.inputs = Inputs(run_dir, self.spool)
        self.artifacts = self.inputs.artifacts = Artifacts(
            a_launch(artifacts="gs://kept/runs/"), run_dir, home=home, say=self.inputs.say, storage=storage
        )
        self.inputs.open(())

    def save(self, step: int) -> Path:
        """As user code does."""
        path = self.run_dir.checkpoints / f"step-{step}"
        path.mkdir()
        (path / "state").write_text(str(step))
        self.report({"type": "checkpoint", "step": step, "path": str(path)})
        return path

    def report(self, event: dict[str, Any]) -> None:
        with self.run_dir.events.open("a") as file:
            file.write(json.dumps({"time": 1.0, **event}) + "\n")

    def tell(self) -> list[str]:
        """Take in what is there until all of it is told; what is in the spool then."""
        self.inputs.read()
        while self.inputs._waiting:
            self.inputs._wait_for_copy()
            self.inputs.read()
        return self.told()

    def told(self) -> list[str]:
        events = [json.loads(line) for line in self.run_dir.spool.read_text().splitlines()]
        return [event.get("path") or event.get("text") or f"step {event['step']}" for event in events]

    def acknowledge(self) -> None:
        self.run_dir.spool_ack.write_text(f"{self.spool.seq}\n")


@pytest.fixture
def node(home: Home, tmp_path: Path, storage: SlowStorage) -> Iterator[Node]:
    node = Node(home, RunDir(tmp_path / "run"), storage)
    yield node
    storage.may_go_on.set()
    node.spool.close()


def url(step: int) -> str:
    return f"gs://kept/runs/job/1/2/checkpoints/step-{step}"


def copies(tmp_path: Path) -> list[str]:
    return sorted(path.parent.name for path in (tmp_path / "buckets").rglob("state"))


@pytest.mark.parametrize("is_folder", [True, False])
def test_what_was_kept_at_a_url_is_fetched_by_the_run_that_goes_on_from_it(
    home: Home, tmp_path: Path, is_folder: bool
) -> None:
    saved = tmp_path / "checkpoints" / "step-3"
    saved.parent.mkdir()
    if is_folder:
        (saved / "deep").mkdir(parents=True)
    (saved / "deep" / "state" if is_folder else saved).write_text("3")
    artifacts = Artifacts(a_launch(artifacts="gs://kept/runs/"), RunDir(tmp_path / "run"), home=home, say=print)

    copy = artifacts.keep({"type": "checkpoint", "step": 3, "path": str(saved)})
    assert copy.wait(DEADLINE_S)
    fetch_checkpoint(a_launch(latest_checkpoint=copy.event["path"]), RunDir(tmp_path / "run"), home=home)

    assert copy.event == {"type": "checkpoint", "step": 3, "path": url(3)}
    fetched = Path(RunDir(tmp_path / "run").read_launch()["latest_checkpoint"])
    assert (fetched / "deep" / "state" if is_folder else fetched).read_text() == "3"
    assert fetched.is_relative_to(tmp_path / "run")


def test_checkpoint_that_cannot_be_kept_is_told_where_it_is_and_the_log_says_why(
    node: Node, storage: SlowStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*places: Any, **options: Any) -> None:
        raise ServerError("the bucket is full")

    monkeypatch.setattr(storage, "copy", refuse)
    path = node.save(1)

    assert node.tell() == [f"{path} could not be kept at {url(1)}: the bucket is full", str(path)]


def test_checkpoint_on_a_disk_that_is_not_here_is_told(home: Home, tmp_path: Path) -> None:
    with pytest.raises(StokerError, match=r"is not on this machine\. .* artifacts = URL under the pool"):
        fetch_checkpoint(a_launch(latest_checkpoint="/lost/disk/step-3"), RunDir(tmp_path / "run"), home=home)

    fetch_checkpoint(
        a_launch(latest_checkpoint="4f0c-an-id"), RunDir(tmp_path / "run"), home=home
    )  # for user code to find


def test_reports_wait_for_a_copy_before_them_and_nothing_else_does(node: Node, storage: SlowStorage) -> None:
    storage.may_go_on.clear()
    node.report({"type": "metric", "step": 1, "values": {"loss": 1.0}})
    node.save(1)
    node.report({"type": "metric", "step": 2, "values": {"loss": 0.5}})

    node.inputs.read()
    assert storage.is_asked.wait(DEADLINE_S)
    node.inputs.say("meanwhile")
    node.inputs.read()
    assert node.told() == ["step 1", "meanwhile"]

    storage.may_go_on.set()
    node.inputs.finish()
    assert node.told() == ["step 1", "meanwhile", url(1), "step 2"]


def test_what_waited_for_a_copy_is_told_once_by_the_next_supervisor(
    home: Home, node: Node, storage: SlowStorage
) -> None:
    """As after kill -9 in the midst of a copy: nothing behind it was told, so nothing is told twice."""
    storage.may_go_on.clear()
    node.report({"type": "metric", "step": 1, "values": {"loss": 1.0}})
    node.save(1)
    node.report({"type": "metric", "step": 2, "values": {"loss": 0.5}})
    node.inputs.read()
    node.spool.close()

    storage.may_go_on.set()
    node.spool = (drained := Node(home, node.run_dir, storage)).spool
    drained.inputs.finish()

    assert drained.told() == ["step 1", url(1), "step 2"]


def test_copy_that_takes_too_long_for_a_run_that_must_end_is_not_told_as_one(node: Node, storage: SlowStorage) -> None:
    """The trial is to go on from the one before it, not from one that is nowhere."""
    node.save(1)
    node.tell()
    storage.may_go_on.clear()
    path = node.save(2)
    node.inputs.is_hurried = lambda: True

    node.inputs.finish()
    storage.may_go_on.set()

    assert node.told() == [url(1), f"{path} is not kept at {url(2)}: the run had to end before it was there."]


def test_copy_goes_with_its_checkpoint_once_the_server_has_heard_of_a_later_one(node: Node, tmp_path: Path) -> None:
    paths = [node.save(step) for step in (1, 2, 3)]
    node.tell()
    for path in paths:
        shutil.rmtree(path)  # user code keeps none of them, not even the newest

    node.artifacts.finish()
    assert copies(tmp_path) == ["step-1", "step-2", "step-3"], "a lost node's trial goes on from what the server knows"

    node.acknowledge()
    node.artifacts._delete_deleted(at_once=True)
    assert copies(tmp_path) == ["step-3"]


def test_copies_are_deleted_while_the_run_goes_on(node: Node, tmp_path: Path) -> None:
    first = node.save(1)
    node.save(2)
    node.tell()
    node.acknowledge()

    shutil.rmtree(first)

    wait_until(lambda: copies(tmp_path) == ["step-2"], what="the copy to go")


def test_checkpoint_that_is_saved_again_keeps_its_copy(node: Node, tmp_path: Path) -> None:
    """It is missing for a moment then; and its older event must not take the newest copy with it."""
    path = node.save(1)
    node.save(2)
    node.tell()
    node.acknowledge()
    wait_until(lambda: len(node.artifacts._told) == 2, what="the thread to know")
    path.rename(path.with_name("old"))
    node.artifacts._delete_deleted()
    path.with_name("old").rename(path)
    node.artifacts._delete_deleted()
    path.rename(path.with_name("old"))
    node.artifacts._delete_deleted()

    assert copies(tmp_path) == ["step-1", "step-2"]

    path.with_name("old").rename(path)
    node.report({"type": "checkpoint", "step": 1, "path": str(path)})
    node.tell()
    node.acknowledge()
    shutil.rmtree(path)
    node.artifacts.finish()

    assert copies(tmp_path) == ["step-1", "step-2"]


def test_copies_stay_when_the_run_directory_is_removed(node: Node, tmp_path: Path) -> None:
    for step in (1, 2):
        node.save(step)
    node.tell()
    wait_until(lambda: len(node.artifacts._told) == 2, what="the thread to know")

    shutil.rmtree(node.run_dir.checkpoints)
    node.acknowledge()
    node.artifacts.finish()

    assert copies(tmp_path) == ["step-1", "step-2"]


def test_log_says_which_copy_could_not_be_deleted(node: Node, storage: SlowStorage) -> None:
    path = node.save(1)
    node.save(2)
    node.tell()
    node.acknowledge()
    storage.refuses = "Access denied."

    shutil.rmtree(path)
    node.artifacts.finish()

    assert node.told()[-1] == (
        f"{path} was deleted, but not its copy at {url(1)}: Access denied."
        f" Delete that with `stoker storage rm -r {url(1)}`."
    )


@pytest.mark.parametrize("is_copied", [True, False])
def test_checkpoint_that_is_deleted_before_its_copy_is_whole_is_not_told(
    node: Node, storage: SlowStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    def copy(*places: Any, **options: Any) -> None:
        """User code deletes it before the first file is read, or after the last."""
        if is_copied:
            Storage.copy(storage, *places, **options)
        shutil.rmtree(places[0])
        if not is_copied:
            Storage.copy(storage, *places, **options)

    monkeypatch.setattr(storage, "copy", copy)
    path = node.save(1)

    assert node.tell() == [f"{path} was deleted before it was kept at {url(1)}: it is not listed."]
    assert copies(tmp_path) == []


# --- whole runs, with a store that takes its time


class SlowStore:
    """Google's storage API over a folder; what is sent to it is taken in when it is let go."""

    def __init__(self, home: Home) -> None:
        self._service = Service(Buckets.of_home(home.root))
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        listening = listen()
        self.url = url_of(listening)
        self._server = HttpServer(listening, self.answer, admits=lambda connection: True)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, request: Request) -> Response:
        if request.method == "POST":
            self.is_asked.set()
            assert self.may_go_on.wait(DEADLINE_S)
        return self._service.answer(request)

    def close(self) -> None:
        self.may_go_on.set()
        self._server.shutdown()
        self._server.server_close()


SAVES = """
    import os, pathlib, signal, threading, stoker
    told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: told.set())
    ctx = stoker.init()
    pathlib.Path("state").write_text("1")
    ctx.save_checkpoint("state", step=1)
    told.wait()
    print("ended as told", flush=True)
"""


@pytest.fixture
def slow_store(lab: Lab, tmp_path: Path) -> Iterator[SlowStore]:
    (tmp_path / "buckets" / "kept").mkdir(parents=True)
    store = SlowStore(Home(tmp_path / "home"))
    lab.home.config.write_text(
        f'[storage.buckets]\n"gs://kept" = {{ root = "gcs", endpoint_url = "{store.url}", anonymous = true }}\n'
    )
    yield store
    store.close()


@pytest.fixture
def saving(lab: Lab, slow_store: SlowStore) -> Callable[[], Supervised]:
    """A run whose checkpoint is being copied."""

    def start() -> Supervised:
        run = lab.start(lab.launch(SAVES, artifacts="gs://kept/runs"))
        assert slow_store.is_asked.wait(DEADLINE_S), run.log
        return run

    return start


@pytest.mark.slow
def test_stop_is_obeyed_while_a_checkpoint_is_copied_and_the_copy_is_waited_for(
    lab: Lab, slow_store: SlowStore, saving: Callable[[], Supervised], tmp_path: Path
) -> None:
    run = saving()

    lab.server.order_stop("pause")
    wait_until(lambda: run.lines() == ["ended as told"], what="user code to hear of it")
    assert lab.server.of(RUN, "checkpoint") == []
    slow_store.may_go_on.set()
    ended = run.wait()

    assert (ended["stop"], ended["code"]) == ("pause", 0)
    (checkpoint,) = lab.server.of(RUN, "checkpoint")
    assert checkpoint["path"] == "gs://kept/runs/taxi/1/1/checkpoints/step-000000001"
    assert (tmp_path / "buckets" / checkpoint["path"].removeprefix("gs://")).read_text() == "1"


@pytest.mark.slow
def test_supervisor_that_is_told_twice_does_not_wait_for_a_copy(lab: Lab, saving: Callable[[], Supervised]) -> None:
    run = saving()
    lab.server.order_stop("cancel")
    wait_until(lambda: run.lines() == ["ended as told"], what="user code to end")

    def has_left() -> bool:
        run.process.send_signal(signal.SIGTERM)  # the first may have come before all was ended
        return run.process.poll() is not None

    wait_until(has_left, what="the supervisor to leave")

    assert lab.server.of(RUN, "checkpoint") == []
