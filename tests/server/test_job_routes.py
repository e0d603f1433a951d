"""Jobs over HTTP, by the client and by hand."""

import json

import pytest

from stoker.client.client import Client
from stoker.errors import ConfigError, ConflictError, DoesNotFitError, NotFoundError, UsageError
from stoker.host.home import Home
from stoker.schema.job import JobSpec, Resources
from stoker.schema.launch import Archive, EnvironmentSpec
from stoker.schema.pool import Pool
from stoker.schema.state import JobState
from stoker.server.settings import Settings
from stoker.server.store.store import Store
from stoker.server.store.values import JobQuery
from tests.processes import wait_until
from tests.server.asking import API, ask, stream
from tests.server.conftest import Served
from tests.server.fakes import FakeEngine

pytestmark = pytest.mark.slow

JOBS = f"{API}/jobs"
HASH = "a" * 64


def a_spec(name: str = "taxi", **fields: object) -> JobSpec:
    return JobSpec.model_validate({"name": name, "module": "trainer.task", **fields})


def test_submitted_job_is_stored_and_started(client: Client, engine: FakeEngine) -> None:
    job = client.submit(a_spec(labels={"team": "fares"}))

    assert (job.id, job.owner, job.pool, job.labels) == ("taxi", "ada", "local", {"team": "fares"})
    wait_until(lambda: engine.runs == ["taxi.1.1"], what="the run to start")
    assert client.job("taxi").state is JobState.PREPARING


def test_submitting_again_is_harmless(served: Served, store: Store) -> None:
    body = a_spec().model_dump(mode="json")

    first, second = (ask(served, "POST", JOBS, body=body) for _ in range(2))

    assert (first.status, second.status) == (201, 200)
    assert first.json["number"] == second.json["number"]
    assert len(store.pages.find_jobs(JobQuery()).jobs) == 1


def test_name_that_is_taken_is_a_conflict(client: Client) -> None:
    client.submit(a_spec())

    with pytest.raises(ConflictError, match="'taxi' exists already"):
        client.submit(a_spec(priority=3))


def test_every_bad_field_is_named(served: Served, store: Store) -> None:
    body = {"name": "1bad", "module": "a/b.py", "resources": {"cpus": -1}, "colour": "red"}

    answer = ask(served, "POST", JOBS, body=body)

    assert answer.status == 422
    problems = answer.json["problems"]
    assert {problem.partition(":")[0] for problem in problems} == {"name", "module", "resources.cpus", "colour"}
    assert answer.json["error"] == "The request has 4 bad fields:"
    assert store.pages.find_jobs(JobQuery()).jobs == ()


def test_client_raises_the_same_errors(client: Client) -> None:
    with pytest.raises(NotFoundError, match="No job 'nope'"):
        client.job("nope")
    with pytest.raises(ConfigError, match="priority") as caught:
        client.update(client.submit(a_spec()).id, priority=5000)
    assert len(caught.value.problems) == 1


def test_body_that_is_not_json_is_refused(served: Served) -> None:
    answer = ask(served, "POST", JOBS, body=b"{nope", headers={**served_headers(), "Content-Type": "application/json"})

    assert answer.status == 422
    assert answer.json["problems"]


def served_headers() -> dict[str, str]:
    from tests.server.asking import BEARER

    return dict(BEARER)


def test_unknown_pool_is_refused_with_the_pools_there_are(client: Client, store: Store) -> None:
    with pytest.raises(NotFoundError, match="No pool named 'moon'. Pools: local"):
        client.submit(a_spec(pool="moon"))

    assert store.pages.find_jobs(JobQuery()).jobs == ()


def test_cloud_region_means_the_default_pool(client: Client) -> None:
    job = client.submit(a_spec(pool="us-central1"))
    assert job.pool == "local"
    assert job.notes == ("Region us-central1 is not a pool here: the job runs in pool 'local'.",)
    assert client.job(job.id).notes == ()

    plan = client.dry_run(a_spec("other", pool="europe-west1"))
    assert plan.pool == "local"
    assert plan.notes == ("Region europe-west1 is not a pool here: the job runs in pool 'local'.",)


def test_tier_that_can_never_fit_is_refused(client: Client, store: Store) -> None:
    with pytest.raises(DoesNotFitError, match="can never hold it"):
        client.submit(a_spec(resources=Resources(tier="PREMIUM_1")))
    with pytest.raises(UsageError, match="has no scale tier GIGANTIC"):
        client.submit(a_spec(resources=Resources(tier="gigantic")))

    assert store.pages.find_jobs(JobQuery()).jobs == ()


def test_package_and_archives_must_have_been_uploaded(client: Client, home: Home) -> None:
    spec = a_spec(package=HASH, environment=EnvironmentSpec(archives=(Archive(hash=HASH, filename="x.whl"),)))
    with pytest.raises(NotFoundError, match="Package a"):
        client.submit(spec)
    home.package_file(HASH).parent.mkdir(parents=True)
    home.package_file(HASH).touch()
    with pytest.raises(NotFoundError, match=r"Archive x\.whl"):
        client.submit(spec)
    home.archive_file(HASH, "x.whl").parent.mkdir()
    home.archive_file(HASH, "x.whl").touch()

    assert client.submit(spec).id == "taxi"


def test_dry_run_shows_the_launch_and_stores_nothing(client: Client, store: Store) -> None:
    plan = client.dry_run(a_spec(package=HASH, resources=Resources(slots=2), args=("--epochs", "3")))

    assert plan.launch.run == "taxi.1.1"
    assert plan.launch.args == ("--epochs", "3")
    assert [replica.name for replica in plan.launch.replicas] == ["chief-0", "worker-0"]
    assert plan.notes == ()
    assert store.pages.find_jobs(JobQuery()).jobs == ()


def test_jobs_are_listed_and_filtered(client: Client, served: Served, store: Store) -> None:
    for number in range(4):
        client.submit(a_spec(f"job_{number}", labels={"odd": str(number % 2)}))
    client.cancel("job_3")
    wait_until(lambda: client.job("job_3").state is JobState.CANCELLED, what="the cancel")

    def names(query: str = "") -> list[str]:
        return [job["id"] for job in ask(served, "GET", f"{JOBS}?{query}").json["jobs"]]

    assert names() == ["job_3", "job_2", "job_1", "job_0"]
    assert names("limit=2") == ["job_3", "job_2"]
    assert names("before=job_2") == ["job_1", "job_0"]
    assert names(f"before={store.job('job_1').number}") == ["job_0"]
    assert names("label=odd=1") == ["job_3", "job_1"]
    assert names("state=cancelled,FAILED") == ["job_3"]
    assert names("name=job_*&pool=local&limit=1") == ["job_3"]
    assert names("pool=other") == []


@pytest.mark.parametrize(
    ("query", "words"),
    [("state=ASLEEP", "No job state ASLEEP"), ("label=odd", "key=value"), ("limit=0", "limit"), ("before=x", "No job")],
)
def test_bad_filters_are_refused(served: Served, query: str, words: str) -> None:
    answer = ask(served, "GET", f"{JOBS}?{query}")

    assert 400 <= answer.status < 500
    assert words in json.dumps(answer.json)


def test_waiting_job_says_why(client: Client, engine: FakeEngine) -> None:
    client.submit(a_spec("first", resources=Resources(slots=2)))
    client.submit(a_spec("second"))
    wait_until(lambda: engine.runs == ["first.1.1"], what="the first to start")

    expected = "waits for 1 CPU of pool 'local': none is free"
    wait_until(lambda: client.job("second").reason == expected, what="a reason")
    assert {job.id: job.reason for job in client.jobs()}["second"] == expected
    (pool,) = client.pools()
    assert (pool.running, pool.queued) == (("first",), ("second",))


def test_labels_and_priority_are_replaced(client: Client) -> None:
    client.submit(a_spec(labels={"old": "1"}))

    job = client.update("taxi", labels={"new": "2"})
    assert (job.labels, job.priority) == ({"new": "2"}, 0)
    job = client.update("taxi", priority=10)
    assert (job.labels, job.priority) == ({"new": "2"}, 10)


def test_bad_label_is_refused(client: Client) -> None:
    client.submit(a_spec())

    with pytest.raises(ConfigError, match="Bad"):
        client.update("taxi", labels={"Bad": "1"})


def test_job_is_paused_resumed_and_cancelled(client: Client, settings: Settings, pool: Pool) -> None:
    client.submit(a_spec("blocker", resources=Resources(slots=2)))
    client.submit(a_spec())

    client.pause("taxi")
    wait_until(lambda: client.job("taxi").state is JobState.PAUSED, what="the pause")
    assert client.pause("taxi").state is JobState.PAUSED
    client.resume("taxi")
    wait_until(lambda: client.job("taxi").state is JobState.QUEUED, what="the resumption")
    client.cancel("taxi")
    wait_until(lambda: client.job("taxi").state is JobState.CANCELLED, what="the cancel")

    assert client.cancel("taxi").state is JobState.CANCELLED
    with pytest.raises(ConflictError):
        client.resume("taxi")


def test_states_are_told_as_they_change(client: Client, served: Served) -> None:
    news = stream(served, f"{API}/events")
    client.submit(a_spec("blocker", resources=Resources(slots=2)))

    seen: list[tuple[str, str]] = []
    for said in news:
        assert said.event == "job"
        seen.append((said.data["id"], said.data["state"]))
        if ("blocker", "PREPARING") in seen and ("taxi", "QUEUED") not in seen:
            client.submit(a_spec())
        if ("taxi", "QUEUED") in seen and ("taxi", "CANCELLED") not in seen:
            client.cancel("taxi")
        if ("taxi", "CANCELLED") in seen:
            break


def test_shutdown_asks_the_server_to_end(client: Client, served: Served) -> None:
    client.shutdown()

    assert served.left.wait(60)


def test_api_is_described(served: Served) -> None:
    description = ask(served, "GET", f"{API}/openapi.json").json

    paths = {path.removeprefix(API) for path in description["paths"]}
    assert paths == {
        "/health",
        "/packages/{hash}",
        "/packages/{hash}/{filename}",
        "/jobs",
        "/jobs/{job}",
        "/jobs/{job}/cancel",
        "/jobs/{job}/kill",
        "/jobs/{job}/models",
        "/jobs/{job}/pause",
        "/jobs/{job}/resume",
        "/jobs/{job}/search",
        "/jobs/{job}/trials",
        "/jobs/{job}/logs",
        "/jobs/{job}/metrics",
        "/jobs/{job}/checkpoints",
        "/trials/{trial}",
        "/models",
        "/models/{model}",
        "/models/{model}/predict",
        "/models/{model}/aliases/{alias}",
        "/models/{model}/versions",
        "/models/{model}/versions/{version}",
        "/models/{model}/versions/{version}:setDefault",
        "/jobs/{job}/series",
        "/jobs/{job}/trials/columns",
        "/jobs/{job}/rungs",
        "/jobs/{job}/logs/lines",
        "/jobs/{job}/logs/download",
        "/jobs/{job}/package/files",
        "/jobs/{job}/package/files/{path}",
        "/jobs/{job}/diff/{other}",
        "/jobs/{job}/environment",
        "/jobs/{job}/commands",
        "/pools/history",
        "/stream",
        "/events",
        "/runs/{run}/events",
        "/runs/{run}/orders",
        "/pools",
        "/shutdown",
    }
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation.get("description"), f"{method} {path} is not described"


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/api/v1/nope", 404), ("DELETE", "/api/v1/jobs", 405)])
def test_unknown_routes_answer_in_our_words(served: Served, method: str, path: str, status: int) -> None:
    answer = ask(served, method, path)

    assert answer.status == status
    assert path in answer.json["error"]
