"""Making experiments: names with numbers, what ships, forks and continuations."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.compat.commands.determined.experiment_create import base_of, forked
from stoker.compat.dialects import determined
from stoker.compat.search_config import override
from stoker.errors import ConfigError, UsageError
from stoker.host.home import Home
from stoker.packaging.package.archive import pack
from stoker.packaging.package.tree import source_of_directory
from stoker.schema.state import JobState
from stoker.submission.shipment import scan_package
from stoker.submission.upload import next_number
from tests.cli.conftest import Stoker
from tests.cli.recorded import Recorded, recorded_server
from tests.cli.records import a_job, a_search_job, a_trial

EXPERIMENT = {
    "name": "mnist",
    "entrypoint": "python3 train.py",
    "data": {"path": "/data"},
    "hyperparameters": {"lr": {"type": "double", "minval": 0.0, "maxval": 1.0}},
    "searcher": {"name": "random", "metric": "loss", "max_trials": 5},
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    (folder / "search.yaml").write_text(
        "name: mnist\ncommand: [python, train.py]\n"
        "search: {metric: loss, max_trials: 2, space: {x: {type: double, min: 0, max: 1}}}\n"
    )
    return folder


@pytest.fixture
def server(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    def listed(query: dict[str, str]) -> Any:
        return {"jobs": []}

    with recorded_server({"GET /jobs": listed}) as recorded:
        monkeypatch.setenv("STOKER_SERVER", recorded.url)
        yield recorded


def plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def submitted(server: Recorded) -> Any:
    return next(body for question, body in server.asked if question == "POST /jobs" and body)


@pytest.mark.parametrize(
    ("taken", "number"),
    [([], 1), (["mnist_1"], 2), (["mnist_9", "mnist_10"], 11), (["mnist_1_2", "mnist_x", "mnist_grid_7"], 1)],
)
def test_the_next_number_is_one_more_than_the_highest(taken: list[str], number: int) -> None:
    assert next_number("mnist", taken) == number


@pytest.mark.parametrize(("name", "base"), [("mnist_3", "mnist"), ("mnist", "mnist"), ("a_1_2", "a_1"), ("a_b", "a_b")])
def test_a_fork_keeps_the_name_and_gets_another_number(name: str, base: str) -> None:
    assert base_of(a_search_job(name)) == base


def test_create_ships_the_directory_and_prints_the_id(stoker: Stoker, server: Recorded, project: Path) -> None:
    server.replies["POST /jobs"] = plain(a_search_job())
    server.replies[f"HEAD /packages/{_hash(project)}"] = {}

    result = stoker("experiment", "create", str(project / "search.yaml"), str(project))

    assert (result.code, result.out) == (0, "mnist_1\n"), result.err
    assert "stoker experiment describe mnist_1" in result.err
    body = submitted(server)
    assert (body["name"], body["kind"], body["command"]) == ("mnist_1", "command", ["python", "train.py"])
    assert body["package"] == _hash(project)
    assert body["search"]["max_trials"] == 2


def test_create_uploads_what_the_server_lacks_and_pauses_if_asked(
    stoker: Stoker, server: Recorded, project: Path
) -> None:
    server.replies["POST /jobs"] = plain(a_search_job())
    server.replies[f"PUT /packages/{_hash(project)}"] = {}
    server.replies["POST /jobs/mnist_1/pause"] = plain(a_search_job(state=JobState.PAUSED))

    result = stoker("e", "create", str(project / "search.yaml"), "--paused", "--config", "search.max_trials=7")

    assert result.code == 0, result.err
    questions = [question for question, _ in server.asked]
    assert f"PUT /packages/{_hash(project)}" in questions
    assert questions[-1] == "POST /jobs/mnist_1/pause"
    assert submitted(server)["search"]["max_trials"] == 7


def test_included_files_ship_at_the_top(project: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    (shared / "deep").mkdir(parents=True)
    (shared / "deep" / "model.py").write_text("x = 1\n")
    (tmp_path / "words.txt").write_text("words\n")
    home = Home(tmp_path / "home").make()

    code = scan_package(source_of_directory(project), {}, home=home, include=[shared, tmp_path / "words.txt"])

    package = pack(code.tree, out=tmp_path)
    with tarfile.open(fileobj=io.BytesIO(package.file.read_bytes())) as archive:
        files = {member.name for member in archive.getmembers() if member.isfile()}
    assert files == {"search.yaml", "shared/deep/model.py", "train.py", "words.txt"}


def test_what_cannot_be_included_is_refused(project: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    (tmp_path / "train.py").touch()

    with pytest.raises(UsageError, match="has a train.py already"):
        scan_package(source_of_directory(project), {}, home=home, include=[tmp_path / "train.py"])
    with pytest.raises(UsageError, match="No such file or directory"):
        scan_package(source_of_directory(project), {}, home=home, include=[tmp_path / "nothing"])


def test_a_fork_is_overridden_in_the_words_of_its_file() -> None:
    values = determined.read(EXPERIMENT, source="x").values
    shipped = {"package": "a" * 64, "environment": {"requirements": ["numpy"], "variables": {}}}
    source = a_job(spec={**values, **shipped, "module": None})

    forked_values = forked(source, [override("searcher.max_trials=9"), override("hyperparameters.lr=0.5")])

    assert forked_values["search"]["max_trials"] == 9
    assert forked_values["search"]["space"]["lr"]["value"] == 0.5
    assert forked_values["data"]["path"] == "/data"
    assert forked_values["package"] == "a" * 64
    assert forked_values["environment"]["requirements"] == ["numpy"]


def test_a_fork_of_our_own_file_is_overridden_in_our_words() -> None:
    assert forked(a_search_job(), [override("search.max_trials=9")])["search"]["max_trials"] == 9
    with pytest.raises(ConfigError, match="search.max_trials"):
        forked(a_search_job(), [override("search.max_trials=0")])


def test_a_job_without_a_search_is_not_forked() -> None:
    with pytest.raises(UsageError, match="has no search"):
        forked(a_job(), [])


def test_fork_submits_the_stored_code_again(stoker: Stoker, server: Recorded) -> None:
    server.replies["GET /jobs/mnist_1"] = plain(a_search_job())
    server.replies["POST /jobs"] = plain(a_search_job("mnist_2"))

    result = stoker("experiment", "fork", "mnist_1", "--config", "search.seed=5")

    assert (result.code, result.out) == (0, "mnist_2\n"), result.err
    assert submitted(server)["search"]["seed"] == 5


@pytest.mark.parametrize(
    ("search", "wanted"),
    [
        ({"sampler": "tpe"}, {"resume_from": "mnist_1", "warm_start": None}),
        ({"sampler": "single"}, {"resume_from": None, "warm_start": {"trial": 101}}),
    ],
)
def test_continue_begins_with_what_was_learnt(
    stoker: Stoker, server: Recorded, search: dict[str, Any], wanted: dict[str, Any]
) -> None:
    trial = a_trial(1, latest_checkpoint="/runs/step-1")
    server.replies["GET /jobs/mnist_1"] = plain(a_search_job(**search))
    server.replies["GET /jobs/mnist_1/trials"] = {"trials": [plain(trial)], "total": 1}
    server.replies["POST /jobs"] = plain(a_search_job("mnist_2"))

    result = stoker("experiment", "continue", "mnist_1")

    assert result.code == 0, result.err
    body = submitted(server)["search"]
    assert {name: body.get(name) for name in ("resume_from", "warm_start")} == wanted


@pytest.mark.parametrize(
    ("job", "trials", "complaint"),
    [
        (a_search_job(state=JobState.RUNNING), [], "only one that has ended is continued"),
        (a_search_job(sampler="random"), [], "learns nothing from trial to trial"),
        (a_search_job(sampler="single"), [a_trial(1)], "left no checkpoint"),
    ],
)
def test_continue_says_why_it_cannot(
    stoker: Stoker, server: Recorded, job: Any, trials: list[Any], complaint: str
) -> None:
    server.replies["GET /jobs/mnist_1"] = plain(job)
    server.replies["GET /jobs/mnist_1/trials"] = {"trials": [plain(each) for each in trials], "total": len(trials)}

    result = stoker("experiment", "continue", "mnist_1")

    assert result.code == 2
    assert complaint in result.err


def _hash(project: Path) -> str:
    out = project.parent / "packed"
    out.mkdir(exist_ok=True)
    home = Home(project.parent / "hashing").make()
    return pack(scan_package(source_of_directory(project), {}, home=home).tree, out=out).hash
