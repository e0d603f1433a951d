"""What pages ask for, over HTTP: lines, columns, windows of a log, files, lists, and the stream."""

import gzip
import hashlib
import io
import json
import math
import tarfile
import time
from typing import Any

import pytest

from stoker.schema.event import Checkpoint as CheckpointEvent
from stoker.schema.event import Event, EventBatch, Exited, Log, Metric, Phase
from stoker.schema.job import Share
from stoker.server.live.wakeups import Wakeups
from stoker.server.searches.rungs import find_rungs
from stoker.server.store.store import Store, open_store
from stoker.server.store.values import NewJob
from tests.contracts.store import a_spec, add, finish
from tests.server.asking import API, BEARER, Answer, Said, ask, stream
from tests.server.conftest import Served
from tests.server.searching import Cluster
from tests.server.test_search import cluster  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

PLANTED = "<script>alert(1)</script>"


def get(served: Served, path: str, **headers: str) -> Answer:
    return ask(served, "GET", API + path, headers={**BEARER, **headers})


def say(served: Served, run: str, *events: Event) -> None:
    body = json.loads(EventBatch(events=events).model_dump_json())
    assert ask(served, "POST", f"{API}/runs/{run}/events", body=body).status == 200


def metric(seq: int, step: int, **values: float) -> Metric:
    return Metric(seq=seq, time=1000.0 + step, step=step, values=values)


def lines_of(seq: int, first: int, count: int, **fields: Any) -> Log:
    text = "\n".join(f"line {number}" for number in range(first, first + count))
    given = {"seq": seq, "time": 1.0, "replica": "chief-0", "stream": "stdout", "line": first, "count": count}
    return Log.model_validate({**given, "text": text, **fields})


# --- series


def test_series_of_a_long_line_keeps_its_spikes(served: Served, store: Store) -> None:
    run = add(store)
    values = [math.sin(step / 50) for step in range(5000)]
    values[3333] = 99.0
    values[77] = math.nan
    for at in range(0, 5000, 250):
        say(served, run, *(metric(step + 1, step, loss=values[step]) for step in range(at, at + 250)))

    whole = get(served, "/jobs/taxi/series?points=400").json
    part = get(served, "/jobs/taxi/series?points=20000&start=3300&end=3400").json
    news = get(served, f"/jobs/taxi/series?after={whole['cursor'] - 3}").json

    (line,) = whole["series"]
    assert (line["trial"], line["group"], line["name"], line["total"]) == (1, "training", "loss", 5000)
    assert len(line["x"]) == len(line["y"]) <= 400
    assert not line["exact"]
    assert line["x"] == sorted(line["x"])
    assert (line["x"][0], line["x"][-1]) == (0, 4999)
    assert line["y"][line["x"].index(3333)] == 99.0
    assert whole["names"] == [{"group": "training", "name": "loss"}]
    assert part["series"][0]["x"] == list(range(3300, 3401))
    assert part["series"][0]["y"] == values[3300:3401]
    assert part["series"][0]["exact"]
    assert news["series"][0]["step"] == [4997, 4998, 4999]


def test_series_before_and_after_packing_are_the_same(served: Served, store: Store) -> None:
    run = add(store)
    say(served, run, *(metric(step + 1, step, loss=step / 7) for step in range(100)))
    before = get(served, "/jobs/taxi/series").json["series"]

    say(served, run, Exited(seq=101, time=1.0, phase=Phase.USER_CODE, code=0))

    assert get(served, "/jobs/taxi/series").json["series"] == before
    assert before[0]["y"] == [step / 7 for step in range(100)]


def test_steps_done_again_count_once(served: Served, store: Store) -> None:
    run = add(store)

    say(served, run, metric(1, 1, loss=3.0), metric(2, 2, loss=2.0), metric(3, 2, loss=1.5), metric(4, 1, loss=9.0))

    (line,) = get(served, "/jobs/taxi/series").json["series"]
    assert (line["x"], line["y"], line["total"]) == ([1, 2], [9.0, 1.5], 2)


def test_what_a_run_uses_is_a_line_and_no_report(served: Served, store: Store) -> None:
    run = add(store)

    say(served, run, Metric(seq=1, time=1.0, group="system", step=5, values={"cpu": 1.5}))

    assert get(served, "/jobs/taxi/series").json["series"] == []
    assert get(served, "/jobs/taxi/series?group=system&x=time").json["series"][0]["y"] == [1.5]
    assert get(served, "/jobs/taxi/metrics").json == []
    assert store.job("taxi").trials[0].metrics == {}


def test_series_on_postgresql_are_the_same(database: str, tmp_path: Any) -> None:
    """The same reports in both databases give the same lines."""
    from stoker.server.store.values import SeriesFilter

    answers = []
    for where in (database, f"sqlite:///{tmp_path / 'other.db'}"):
        store = open_store(where)
        run = add(store)
        for at in range(0, 3000, 500):
            events = tuple(metric(n + 1, n, loss=n % 97, acc=n / 3) for n in range(at, at + 500))
            store.append_events(run, EventBatch(events=events), now=1.0)
        found = store.pages.series("taxi", SeriesFilter([1], points=200, start=10, end=2900))
        answers.append([(p.line, list(p.xs), list(p.ys), p.total) for p in found.points])
        store.close()

    assert answers[0] == answers[1]
    assert [points[3] for points in answers[0]] == [2891, 2891]


# --- trials


def test_columns_tell_of_all_trials_and_change_their_tag(served: Served, store: Store) -> None:
    run = add(store, hparams={"lr": 0.1, "model": {"width": 8}, "evil": PLANTED})

    first = get(served, "/jobs/taxi/trials/columns", **{"Accept-Encoding": "br, gzip"})
    plain = get(served, "/jobs/taxi/trials/columns")
    again = get(served, "/jobs/taxi/trials/columns", **{"If-None-Match": first.headers["etag"]})
    say(served, run, metric(1, 1, loss=0.5))
    later = get(served, "/jobs/taxi/trials/columns?fields=number,metrics", **{"If-None-Match": first.headers["etag"]})

    body = json.loads(gzip.decompress(first.body))
    assert first.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert plain.json == body
    assert body["columns"]["number"] == [1]
    assert body["columns"]["state"] == ["QUEUED"]
    assert body["hparams"] == {"lr": [0.1], "model.width": [8], "evil": [PLANTED]}
    assert first.headers["x-content-type-options"] == "nosniff"
    assert first.headers["content-type"] == "application/json"
    assert (again.status, again.body) == (304, b"")
    assert later.json["metrics"] == {"loss": [0.5]}
    assert get(served, "/jobs/taxi/trials/columns?fields=nope").status == 400


def test_columns_and_rungs_keep_their_tag_while_trials_are_the_same(served: Served, store: Store) -> None:
    finish(store, add(store))
    paths = ("/jobs/taxi/trials/columns", "/jobs/taxi/rungs")
    before = [get(served, path).headers["etag"] for path in paths]

    changed = ask(served, "PATCH", f"{API}/jobs/taxi", body={"priority": 7})
    after = [get(served, path, **{"If-None-Match": tag}) for path, tag in zip(paths, before, strict=True)]

    assert changed.json["priority"] == 7
    assert [answer.status for answer in after] == [304, 304]


def test_columns_have_no_value_that_is_not_finite(served: Served, store: Store) -> None:
    say(served, add(store), metric(1, 1, loss=float("nan"), acc=0.5))

    whole = get(served, "/jobs/taxi/trials/columns").json
    part = get(served, "/jobs/taxi/trials/columns?fields=metrics").json

    assert whole["metrics"] == part["metrics"] == {"loss": [None], "acc": [0.5]}
    assert set(whole) - set(part) == {"hparams"}
    assert part["columns"] == {}


def test_rungs_say_who_was_stopped_where(cluster: Cluster) -> None:  # noqa: F811
    stopping = {"name": "asha", "max_time": 16, "divisor": 4, "max_rungs": 3, "mode": "aggressive"}
    cluster.submit({"metric": "loss", "max_trials": 12, "max_concurrent_trials": 2, "stopping": stopping})
    cluster.run()

    rungs = find_rungs(cluster.store, "job").brackets[0].rungs

    at_first = {trial.trial: trial.outcome for trial in rungs[0].trials}
    stopped = {trial.number for trial in cluster.store.job("job").trials if trial.stopped.startswith("pruned")}
    assert set(at_first) == set(range(1, 13))
    assert stopped
    assert {trial.trial for rung in rungs for trial in rung.trials if trial.outcome == "stopped"} == stopped
    promoted = {trial for trial, outcome in at_first.items() if outcome == "promoted"}
    assert promoted == {trial.trial for trial in rungs[1].trials}


# --- logs


def test_window_of_a_log_is_found_anywhere(served: Served, store: Store) -> None:
    run = add(store)
    say(served, run, *(lines_of(seq, 1 + (seq - 1) * 7, 7) for seq in range(1, 51)))

    middle = get(served, "/jobs/taxi/logs/lines?from=100&count=10").json
    end = get(served, "/jobs/taxi/logs/lines?from=-3").json
    hit = get(served, "/jobs/taxi/logs/lines?text=LINE%2034&from=1&count=2").json
    from_line = get(served, "/jobs/taxi/logs/lines?regex=7$&at=300&count=1").json
    while not from_line["complete"]:  # a slow machine looks through a log in several slices
        assert from_line["scanned"] < 350
        from_line = get(served, "/jobs/taxi/logs/lines?regex=7$&at=300&count=1").json

    assert middle["text"] == [f"line {number}" for number in range(101, 111)]
    assert middle["n"] == list(range(101, 111))
    assert (middle["lines"], middle["matches"], middle["complete"]) == (350, 350, True)
    assert middle["sources"][middle["source"][0]]["replica"] == "chief-0"
    assert end["text"] == ["line 348", "line 349", "line 350"]
    assert hit["matches"] == 11
    assert hit["n"] == [340, 341]
    assert from_line["text"] == ["line 307"]


def test_lines_of_a_level_and_replica_are_counted(served: Served, store: Store) -> None:
    run = add(store)
    worker = {"replica": "worker-0", "levels": {1: "ERROR", 2: "DEBUG"}}
    say(served, run, lines_of(1, 1, 5), lines_of(2, 6, 4, **worker), lines_of(3, 10, 2, levels={0: "WARNING"}))

    assert get(served, "/jobs/taxi/logs/lines?level=WARNING").json["n"] == [7, 10]
    assert get(served, "/jobs/taxi/logs/lines?level=INFO").json["matches"] == 10
    assert get(served, "/jobs/taxi/logs/lines?replica=worker-0&level=error").json["text"] == ["line 7"]
    assert get(served, "/jobs/taxi/logs/lines?replica=worker-0").json["n"] == [1, 2, 3, 4]
    assert get(served, "/jobs/taxi/logs/lines?trial=9").status == 404
    assert get(served, "/jobs/taxi/logs/lines?regex=(").status == 400


def test_log_is_downloaded_as_text(served: Served, store: Store) -> None:
    run = add(store)
    say(served, run, lines_of(1, 1, 3, text=f"{PLANTED}\ntwo\nthree"))

    found = get(served, "/jobs/taxi/logs/download")
    stamped = get(served, "/jobs/taxi/logs/download?text=two&stamps=true")

    assert found.body.decode() == f"{PLANTED}\ntwo\nthree\n"
    assert found.headers["content-type"].startswith("text/plain")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert "attachment" in found.headers["content-disposition"]
    assert stamped.body == b"1970-01-01T00:00:01Z chief-0 two\n"


# --- code


def upload(served: Served, files: dict[str, bytes]) -> str:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    package = hashlib.sha256(buffer.getvalue()).hexdigest()
    assert ask(served, "PUT", f"{API}/packages/{package}", body=buffer.getvalue()).status == 201
    return package


def test_package_is_browsed_and_compared(served: Served, store: Store) -> None:
    one = upload(served, {"t/a.py": f"x = '{PLANTED}'\n".encode(), "blob": b"\0\1", "gone.txt": b"g\n"})
    two = upload(served, {"t/a.py": b"x = 2\n", "blob": b"\0\2", "new.txt": b"n\n"})
    add(store, "one", package=one, hparams={"lr": 0.1})
    add(store, "two", package=two, hparams={"lr": 0.2})

    listed = get(served, "/jobs/one/package/files").json["files"]
    text = get(served, "/jobs/one/package/files/t/a.py")
    binary = get(served, "/jobs/one/package/files/blob").json
    diff = get(served, "/jobs/one/diff/two").json

    assert [(file["path"], file["is_text"]) for file in listed] == [
        ("blob", False),
        ("gone.txt", True),
        ("t/a.py", True),
    ]
    assert text.json["text"] == f"x = '{PLANTED}'\n"
    assert text.headers["content-type"] == "application/json"
    assert text.headers["x-content-type-options"] == "nosniff"
    assert (binary["text"], binary["reason"]) == (None, "it is not text")
    changes = {file["path"]: file for file in diff["files"]}
    assert {path: file["change"] for path, file in changes.items()} == {
        "blob": "changed",
        "gone.txt": "removed",
        "new.txt": "added",
        "t/a.py": "changed",
    }
    assert "+x = 2" in changes["t/a.py"]["diff"]
    assert {"path": "hparams.lr", "a": 0.1, "b": 0.2} in diff["config"]


@pytest.mark.parametrize("path", ["../../token", "..%2f..%2ftoken", "/etc/passwd", "%2fetc%2fpasswd", "t/../t/a.py"])
def test_no_path_leads_out_of_a_package(served: Served, store: Store, path: str) -> None:
    add(store, "one", package=upload(served, {"t/a.py": b"1\n"}))

    assert get(served, f"/jobs/one/package/files/{path}").status == 404


def test_environment_and_commands(served: Served, store: Store) -> None:
    add(store, args=("--name", "a b"), environment={"requirements": ["numpy"]})

    commands = get(served, "/jobs/taxi/commands").json["commands"]

    assert get(served, "/jobs/taxi/environment").json["requirements"] == ["numpy"]
    assert any(one["command"].endswith("--module-name trainer.task -- --name 'a b'") for one in commands)


def test_checkpoints_of_a_trial_have_their_metrics(served: Served, store: Store) -> None:
    run = add(store)
    say(served, run, *(metric(step + 1, step, loss=10.0 - step) for step in range(5)))
    say(served, run, CheckpointEvent(seq=6, time=1.0, step=3, path="/c/3", size_bytes=7))

    (found,) = get(served, "/jobs/taxi/checkpoints?trial=1").json

    assert (found["size_bytes"], found["metrics"]) == (7, {"loss": 7.0})


# --- lists


def test_jobs_are_searched_sorted_and_paged(served: Served, store: Store) -> None:
    for number in range(7):
        new = NewJob(
            spec=a_spec(f"job_{number}", priority=number % 3, labels={"team": "fares" if number % 2 else "maps"}),
            owner="ada" if number < 4 else "bob",
            pool="local",
            need=Share(),
        )
        store.add_job(new, now=100.0 + number)

    seen: list[str] = []
    cursor = ""
    while True:
        page = get(served, f"/jobs?sort=-priority&limit=3{cursor}").json
        seen += [job["id"] for job in page["jobs"]]
        if page["cursor"] is None:
            break
        cursor = f"&cursor={page['cursor'].replace(' ', '%20')}"
    words = get(served, "/jobs?q=FARES%20bob&sort=name&counts=true").json

    assert seen == ["job_5", "job_2", "job_4", "job_1", "job_6", "job_3", "job_0"]
    assert [job["id"] for job in words["jobs"]] == ["job_5"]
    assert words["counts"] == {"QUEUED": 1}
    assert get(served, "/jobs?counts=true&state=RUNNING").json == {
        "jobs": [],
        "cursor": None,
        "counts": {"QUEUED": 7},
    }
    assert get(served, "/jobs?sort=colour").status == 400
    assert get(served, "/jobs?cursor=%7B%7D").status == 400


@pytest.mark.parametrize(
    "path",
    [
        "series",
        "trials/columns",
        "rungs",
        "logs/lines",
        "logs/download",
        "package/files",
        "package/files/x",
        "diff/other",
        "environment",
        "commands",
        "checkpoints",
    ],
)
def test_unknown_job_is_not_found_in_one_line(served: Served, path: str) -> None:
    answer = get(served, f"/jobs/nope/{path}")

    assert answer.status == 404
    assert answer.json["error"].startswith("No job 'nope'")
    assert "\n" not in answer.json["error"]


def test_pools_tell_who_waits_and_why(served: Served, store: Store) -> None:
    add(store)

    (pool,) = get(served, "/pools").json

    assert [(one["job"], bool(one["reason"])) for one in pool["waiting"] or pool["holders"] if "reason" in one] in (
        [("taxi", True)],
        [],
    )
    (history,) = get(served, "/pools/history").json
    assert len(history["time"]) == len(history["cpus"]) == len(history["queued"])


# --- the stream


def until(said: Any, event: str) -> Said:
    deadline = time.monotonic() + 60
    for one in said:
        assert time.monotonic() < deadline
        if one.event == event:
            return one
    raise AssertionError(f"the stream ended without {event}")


def test_stream_tells_each_topic_once_and_takes_up_again(served: Served, store: Store, wakeups: Wakeups) -> None:
    run = add(store)
    said = stream(served, f"{API}/stream?topics=jobs,job:taxi,logs:taxi")
    hello = next(said)

    say(served, run, metric(1, 1, loss=0.5), lines_of(2, 1, 2, text=f"{PLANTED}\nb"))

    seen: dict[str, Said] = {}
    while not {"trials", "metrics", "log", "job"} <= set(seen):
        one = next(said)
        seen[one.event] = one
    assert hello.event == "hello"
    assert hello.data["boot"] == wakeups.boot
    assert seen["metrics"].data["series"][0]["y"] == [0.5]
    assert seen["trials"].data["trials"][0]["metrics"] == {"loss": 0.5}
    assert (seen["log"].data["from"], seen["log"].data["text"]) == (0, [PLANTED, "b"])
    said.close()  # type: ignore[attr-defined]

    say(served, run, metric(3, 2, loss=0.4))
    headers = {**BEARER, "Last-Event-ID": max((one.id for one in seen.values()), key=lambda id: int(id.split("-")[1]))}
    again = stream(served, f"{API}/stream?topics=jobs,job:taxi,logs:taxi", headers=headers)

    assert until(again, "metrics").data["series"][0]["y"] == [0.4]


def test_stream_of_an_older_server_is_resynced_and_ends_with_the_server(
    served: Served, store: Store, wakeups: Wakeups
) -> None:
    add(store)
    headers = {**BEARER, "Last-Event-ID": f"{wakeups.boot}-0"}
    add(store, "other")
    first = stream(served, f"{API}/stream?topics=job:taxi")
    next(first)
    say(served, "taxi.1.1", metric(1, 1, loss=1.0))
    until(first, "metrics")

    late = stream(served, f"{API}/stream?topics=job:other", headers=headers)

    assert next(late).event == "hello"
    assert next(late).data == {"topics": ["job:other"]}
    wakeups.close()
    assert list(late) == []
    list(first)


@pytest.mark.parametrize(("topics", "status"), [("job:nope", 404), ("weather", 400), ("", 400), ("trial:taxi:x", 400)])
def test_topic_that_there_is_not_is_refused(served: Served, topics: str, status: int) -> None:
    assert get(served, f"/stream?topics={topics}").status == status
