"""`stoker experiment` and `stoker trial` with the real client, against recorded replies."""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.cli.export import rows_of
from stoker.compat.commands.determined.trial import pick_best
from stoker.schema.record import CheckpointRecord, Job, MetricPoint, Trial
from stoker.schema.state import JobState
from tests.cli.conftest import Stoker
from tests.cli.recorded import Recorded, recorded_server
from tests.cli.records import a_block, a_job, a_search_job, a_status, a_trial

TRIALS = [a_trial(number) for number in (1, 2, 3, 4)]


def plain(model: Any) -> Any:
    return model.model_dump(mode="json")


def trials_reply(query: dict[str, str]) -> Any:
    """As the server does it: one alone, or by number after one."""
    found = [t for t in TRIALS if t.number == int(query["trial"])] if "trial" in query else TRIALS
    found = [t for t in found if t.number > int(query.get("after", 0))]
    found = sorted(found, key=lambda t: t.objective or 0) if query.get("sort") == "best" else found
    return {"trials": [plain(t) for t in found[: int(query["limit"])]], "total": len(TRIALS)}


def logs_reply(query: dict[str, str]) -> Any:
    blocks = [
        a_block("one\ntwo", cursor=1, trial=1),
        a_block("other", cursor=2, trial=2),
        a_block("three", cursor=3, trial=1),
    ]
    found = [block for block in blocks if block.cursor > int(query.get("after", 0))]
    if "trial" in query:
        found = [block for block in found if block.trial == int(query["trial"])]
    if "tail" in query:  # as the server would cut it
        found = [a_block("two", cursor=1, trial=1), found[-1]]
    return {"blocks": [plain(block) for block in found], "cursor": 3}


@pytest.fixture
def server(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    job = a_search_job()
    replies = {
        "GET /jobs": {"jobs": [plain(_summary(job)), plain(_summary(a_job()))]},
        "GET /jobs/mnist_1": plain(job),
        "GET /jobs/mnist_1/search": plain(a_status()),
        "GET /jobs/mnist_1/trials": trials_reply,
        "GET /jobs/mnist_1/logs": logs_reply,
        "GET /jobs/mnist_1/metrics": [],
        **{f"GET /trials/{t.id}": {**plain(t), "job": "mnist_1"} for t in TRIALS},
        "GET /jobs/taxi_1": plain(a_job()),
        "GET /jobs/taxi_1/trials": {"trials": [plain(a_job().trials[0])], "total": 1},
        **{f"POST /jobs/mnist_1/{verb}": plain(job) for verb in ("pause", "resume", "cancel", "kill")},
        "PATCH /jobs/mnist_1": plain(job),
    }
    with recorded_server(replies) as recorded:
        monkeypatch.setenv("STOKER_SERVER", recorded.url)
        yield recorded


def _summary(job: Job) -> Any:
    from stoker.schema.record import JobSummary

    return JobSummary.model_validate({name: getattr(job, name) for name in JobSummary.model_fields})


def test_list_shows_searches_alone(stoker: Stoker, server: Recorded) -> None:
    result = stoker("experiment", "list")

    assert [line.split()[0] for line in result.out.splitlines()] == ["EXPERIMENT", "mnist_1"]
    assert [status["job"] for status in json.loads(stoker("e", "list", "--json").out)] == ["mnist_1"]


@pytest.mark.parametrize("given", ["mnist_1", "7"])
def test_describe_takes_a_name_or_a_number(stoker: Stoker, server: Recorded, given: str) -> None:
    result = stoker("experiment", "describe", given)

    assert result.code == 0
    assert result.out.startswith("experiment:     mnist_1 (number 7)\nstate:          SUCCEEDED\n")
    assert "Best trials by val_loss:" in result.out
    assert "Best val_loss so far, by trial:" in result.out
    assert "stoker experiment best mnist_1" in result.err


def test_describe_draws_as_wide_as_the_terminal_and_without_colours(
    stoker: Stoker, server: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    result = stoker("experiment", "describe", "mnist_1")

    drawn = [line for line in result.out.splitlines() if " | " in line or " +--" in line]
    assert max(map(len, drawn)) == 50
    assert "\033" not in result.out


def test_an_unknown_number_is_one_line(stoker: Stoker, server: Recorded) -> None:
    result = stoker("experiment", "describe", "99")

    assert (result.code, result.out) == (2, "")
    assert result.err == "error: No job has the number 99. List experiments with `stoker experiment list`.\n"


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        ((), ["1", "2", "3", "4"]),
        (("--sort", "best", "--limit", "2"), ["4", "3"]),
        (("--sort", "~accuracy", "--limit", "3"), ["4", "3", "2"]),
    ],
)
def test_trials_are_listed_in_the_order_asked_for(
    stoker: Stoker, server: Recorded, words: tuple[str, ...], numbers: list[str]
) -> None:
    result = stoker("experiment", "list-trials", "mnist_1", *words)

    assert [line.split()[0] for line in result.out.splitlines()[1:]] == numbers
    listed = json.loads(stoker("experiment", "trials", "mnist_1", "--json", *words).out)
    assert [str(trial["number"]) for trial in listed] == numbers


def test_best_shows_hyperparameters(stoker: Stoker, server: Recorded) -> None:
    result = stoker("experiment", "best", "mnist_1")

    assert "trial:          mnist_1/4 (id 104)" in result.out
    assert "best value:     val_loss=0.25" in result.out
    assert "  learning_rate  0.04\n  layers         3\n" in result.out
    assert json.loads(stoker("experiment", "best", "mnist_1", "--json").out)["number"] == 4


def test_best_of_several_objectives_is_a_front(stoker: Stoker, server: Recorded) -> None:
    objectives = [{"metric": "accuracy", "goal": "maximize"}, {"metric": "val_loss"}]
    server.replies["GET /jobs/mnist_1/search"] = plain(a_status(objectives=objectives, front=(2, 4)))

    result = stoker("experiment", "best", "mnist_1")

    assert [line.split()[0] for line in result.out.splitlines()] == ["TRIAL", "2", "4"]
    assert [trial["number"] for trial in json.loads(stoker("e", "best", "mnist_1", "--json").out)] == [2, 4]


def test_best_fails_while_there_is_none(stoker: Stoker, server: Recorded) -> None:
    server.replies["GET /jobs/mnist_1/search"] = plain(a_status(best=(), curve=(), importance={}))

    result = stoker("experiment", "best", "mnist_1")

    assert (result.code, result.out) == (1, "")
    assert "No trial of [mnist_1] has reported 'val_loss' yet." in result.err


@pytest.mark.parametrize(
    ("verb", "asked"),
    [("pause", "pause"), ("activate", "resume"), ("resume", "resume"), ("cancel", "cancel"), ("kill", "kill")],
)
def test_steering_asks_the_server(stoker: Stoker, server: Recorded, verb: str, asked: str) -> None:
    result = stoker("experiment", verb, "7")

    assert (result.code, result.out) == (0, "mnist_1  SUCCEEDED\n")
    assert (f"POST /jobs/mnist_1/{asked}", None) in server.asked


def test_set_priority(stoker: Stoker, server: Recorded) -> None:
    assert stoker("experiment", "set", "priority", "mnist_1", "500").code == 0

    assert ("PATCH /jobs/mnist_1", {"priority": 500}) in server.asked


def test_set_max_slots(stoker: Stoker, server: Recorded) -> None:
    assert stoker("experiment", "set", "max-slots", "mnist_1", "4").code == 0

    assert ("PATCH /jobs/mnist_1", {"max_slots": 4}) in server.asked
    assert stoker("experiment", "set", "max-slots", "mnist_1", "0").code == 2


def test_set_weight_is_refused_in_one_line(stoker: Stoker, server: Recorded) -> None:
    refused = stoker("experiment", "set", "weight", "mnist_1", "2")

    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "set priority mnist_1 N" in refused.err


def test_wait_ends_as_the_experiment_did(stoker: Stoker, server: Recorded) -> None:
    assert stoker("experiment", "wait", "7").code == 0

    server.replies["GET /jobs/mnist_1"] = plain(a_search_job(state=JobState.FAILED))
    assert stoker("experiment", "wait", "7").code == 1


def test_logs_name_the_trial_of_each_line(stoker: Stoker, server: Recorded) -> None:
    lines = [line.partition("  ")[2] for line in stoker("experiment", "logs", "mnist_1").out.splitlines()]

    assert lines == ["trial 1     one", "trial 1     two", "trial 2     other", "trial 1     three"]


@pytest.mark.parametrize(
    "words", [("experiment", "logs", "mnist_1", "--trial", "1"), ("trial", "logs", "mnist_1/1"), ("t", "logs", "101")]
)
def test_logs_of_one_trial(stoker: Stoker, server: Recorded, words: tuple[str, ...]) -> None:
    def lines(*more: str) -> list[str]:
        return [line.partition("  ")[2] for line in stoker(*words, *more).out.splitlines()]

    assert lines() == ["one", "two", "three"]
    assert lines("--tail", "2") == ["two", "three"]
    assert lines("--follow") == ["one", "two", "three"]


@pytest.mark.parametrize("given", ["mnist_1/3", "7/3", "103"])
def test_a_trial_is_named_by_job_and_number_or_by_its_id(stoker: Stoker, server: Recorded, given: str) -> None:
    result = stoker("trial", "describe", given)

    assert result.out.startswith("trial:          mnist_1/3 (id 103)\n")


@pytest.mark.parametrize("given", ["mnist_1", "mnist_1/9", "999", "mnist_1/x"])
def test_a_trial_that_is_not_there_is_one_line(stoker: Stoker, server: Recorded, given: str) -> None:
    result = stoker("trial", "describe", given)

    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1)


def test_download_copies_the_newest_checkpoint(stoker: Stoker, server: Recorded, tmp_path: Path) -> None:
    _save(tmp_path / "step-9", "newest")
    _put_trial(server, a_trial(1, latest_checkpoint=str(tmp_path / "step-9")))

    result = stoker("trial", "download", "mnist_1/1", "-o", str(tmp_path / "out"))

    assert (result.code, result.out) == (0, f"{tmp_path / 'out'}\n")
    assert (tmp_path / "out" / "weights").read_text() == "newest"


def test_download_takes_the_checkpoint_where_the_metric_was_best(
    stoker: Stoker, server: Recorded, tmp_path: Path
) -> None:
    for step, loss in ((1, 0.9), (2, 0.1), (3, 0.5)):
        _save(tmp_path / f"step-{step}", str(loss))
    saved = [_checkpoint(step, str(tmp_path / f"step-{step}")) for step in (1, 2, 3)]
    points = [_point(step, val_loss=loss) for step, loss in ((1, 0.9), (2, 0.1), (3, 0.5))]
    server.replies["GET /jobs/mnist_1/checkpoints"] = [plain(each) for each in saved]
    server.replies["GET /jobs/mnist_1/metrics"] = [plain(each) for each in points]

    result = stoker("trial", "download", "mnist_1/1", "--best", "-o", str(tmp_path / "out"))

    assert result.code == 0, result.err
    assert (tmp_path / "out" / "weights").read_text() == "0.1"


def test_download_refuses_to_overwrite_and_says_when_there_is_nothing(
    stoker: Stoker, server: Recorded, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()

    taken = stoker("trial", "download", "mnist_1/1", "-o", str(tmp_path))
    nothing = stoker("trial", "download", "mnist_1/1", "-o", str(tmp_path / "out"))
    _put_trial(server, a_trial(1, latest_checkpoint="/nowhere/step-1"))
    gone = stoker("trial", "download", "mnist_1/1", "-o", str(tmp_path / "out"))

    assert [result.code for result in (taken, nothing, gone)] == [2, 2, 2]
    assert "nothing is overwritten" in taken.err
    assert "has saved no checkpoint" in nothing.err
    assert "/nowhere/step-1, which is not on this machine" in gone.err


def test_the_best_checkpoint_is_never_one_without_a_number() -> None:
    search = a_search_job(goal="maximize", metric="acc", group="validation").spec.search
    assert search is not None
    saved = [_checkpoint(step, f"at-{step}") for step in (1, 2, 3)]
    points = [
        _point(1, group="validation", acc=0.5),
        _point(2, group="validation", acc=float("nan")),
        _point(3, acc=0.9),  # of training, which does not count
    ]

    assert pick_best(search, saved, points) == "at-1"
    assert pick_best(search, saved[1:], points) is None


def test_export_writes_every_trial_as_csv(stoker: Stoker, server: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "trials.csv"

    result = stoker("experiment", "export", "mnist_1", "-o", str(file))

    rows = list(csv.DictReader(file.read_text().splitlines()))
    assert [row["trial"] for row in rows] == ["1", "2", "3", "4"]
    assert rows[3]["val_loss"] == "0.25"
    assert rows[3]["hparams.learning_rate"] == "0.04"
    assert rows[3]["metrics.accuracy"] == "0.2"
    assert f"4 trials of [mnist_1] are in {file}." in result.err
    assert stoker("experiment", "export", "mnist_1", "-o", "-").out.startswith("trial,id,state,outcome,why,val_loss,")


def test_export_leaves_gaps_where_a_hyperparameter_did_not_apply() -> None:
    search = a_search_job().spec.search
    assert search is not None
    trials = [a_trial(1, hparams={"kind": "a"}), a_trial(2, hparams={"kind": "b", "sizes": [1, 2]}, objective=None)]

    head, rows = rows_of(search, trials)

    table = [dict(zip(head, row, strict=True)) for row in rows]
    assert table[0]["hparams.sizes"] is None
    assert table[1]["hparams.sizes"] == [1, 2]
    assert table[1]["val_loss"] is None


def test_export_writes_a_study_that_optuna_reads(stoker: Stoker, server: Recorded, tmp_path: Path) -> None:
    optuna = pytest.importorskip("optuna")
    file = tmp_path / "study.db"

    result = stoker("experiment", "export", "mnist_1", "--format", "optuna", "-o", str(file))

    assert result.code == 0, result.err
    storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
    study = optuna.load_study(study_name="mnist_1", storage=storage)
    assert study.best_params == {"learning_rate": 0.04}
    assert study.best_value == 0.25
    assert study.best_trial.user_attrs == {"number": 4, "id": 104, "hparams.layers": 3}
    storage.engine.dispose()
    again = stoker("experiment", "export", "mnist_1", "--format", "optuna", "-o", str(file))
    assert (again.code, "is there already" in again.err) == (2, True)


def test_export_to_parquet_names_the_library_it_lacks(stoker: Stoker, server: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "trials.parquet"

    result = stoker("experiment", "export", "mnist_1", "--format", "parquet", "-o", str(file))

    try:
        from pyarrow import parquet  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        assert (result.code, "pip install pyarrow" in result.err) == (2, True)
    else:
        assert parquet.read_table(file).column("trial").to_pylist() == [1, 2, 3, 4]


def test_export_to_nowhere_is_one_line(stoker: Stoker, server: Recorded, tmp_path: Path) -> None:
    result = stoker("experiment", "export", "mnist_1", "-o", str(tmp_path / "no" / "trials.csv"))

    assert (result.code, result.err.count("\n")) == (2, 1)


def _put_trial(server: Recorded, trial: Trial) -> None:
    server.replies["GET /jobs/mnist_1/trials"] = {"trials": [plain(trial)], "total": 1}


def _save(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "weights").write_text(text)


def _checkpoint(step: int, path: str) -> CheckpointRecord:
    return CheckpointRecord(run="mnist_1.1.1", trial=1, time=0.0, step=step, path=path, size_bytes=1)


def _point(step: int, *, group: str = "training", **values: float) -> MetricPoint:
    return MetricPoint(run="mnist_1.1.1", trial=1, time=0.0, replica="chief-0", group=group, step=step, values=values)
