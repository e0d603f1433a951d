"""gcloud's --filter and --format."""

import json

import pytest

from stoker.compat.aiplatform.gcloud import JobFilter, print_as, read_filter, resource, sort_by
from stoker.errors import UsageError
from stoker.schema.state import JobState
from tests.cli.records import NOW, a_job


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("jobId:census* AND state:FAILED", JobFilter(states=("FAILED",), name="census*")),
        ("state=failed", JobFilter(states=("FAILED",))),
        ("jobId=census_1", JobFilter(name="census_1")),
        ("jobId:census", JobFilter(name="*census*")),
        ("labels.team=a AND labels.kind:'b'", JobFilter(labels={"team": "a", "kind": "b"})),
        ('state = "RUNNING"', JobFilter(states=("RUNNING",))),
    ],
)
def test_filters_are_read(text: str, wanted: JobFilter) -> None:
    assert read_filter(text) == wanted


@pytest.mark.parametrize("text", ["createTime>2020", "state:(FAILED OR RUNNING)", "NOT state:FAILED", ""])
def test_filters_that_are_not_understood_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="What works"):
        read_filter(text)


def test_a_job_has_the_shape_of_the_job_resource() -> None:
    job = a_job(JobState.FAILED, reason="no fares", spec={"args": ["-x"], "job_dir": "gs://b/o"}, created=NOW)

    assert resource(job) == {
        "jobId": "taxi_1",
        "state": "FAILED",
        "createTime": "2027-01-15T08:00:00Z",
        "startTime": "2027-01-15T07:58:30Z",
        "endTime": "2027-01-15T07:59:30Z",
        "errorMessage": "no fares",
        "trainingInput": {"pythonModule": "trainer.task", "args": ["-x"], "jobDir": "gs://b/o", "region": "local"},
    }


def test_formats_of_gcloud(capsys: pytest.CaptureFixture[str]) -> None:
    job = a_job()

    print_as("value(state)", [job], single=True)
    assert capsys.readouterr().out == "SUCCEEDED\n"

    print_as("value(jobId,trainingInput.pythonModule,nothing)", [job], single=True)
    assert capsys.readouterr().out == "taxi_1\ttrainer.task\t\n"

    print_as("json", [job], single=True)
    assert json.loads(capsys.readouterr().out)["jobId"] == "taxi_1"

    print_as("yaml", [job], single=True)
    assert capsys.readouterr().out.startswith("jobId: taxi_1\nstate: SUCCEEDED\n")

    with pytest.raises(UsageError, match="What works"):
        print_as("table(x)", [job], single=True)


def test_jobs_are_sorted_by_fields_of_the_job_resource() -> None:
    old, new = a_job(JobState.FAILED, created=NOW - 50), a_job(created=NOW)

    assert sort_by("createTime", [new, old]) == (old, new)
    assert sort_by("~createTime", [old, new]) == (new, old)
    assert sort_by("state", [new, old]) == (old, new)
    with pytest.raises(UsageError, match="Cannot sort by"):
        sort_by("colour", [])
