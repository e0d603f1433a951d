"""Which experiment or trial the user means: a job by name or number, a trial as JOB/NUMBER or by its id."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.errors import NotFoundError

if TYPE_CHECKING:
    from stoker.client.client import Client
    from stoker.schema.record import Trial

_ALL_JOBS = 10_000
_PAGE = 1000


def find_job(client: "Client", given: str) -> str:
    """A job's name; names begin with a letter, so a number is always a job's number."""
    if not given.isdecimal():
        return given
    for job in client.jobs(limit=_ALL_JOBS):
        if job.number == int(given):
            return job.id
    raise NotFoundError(f"No job has the number {given}. List experiments with `stoker experiment list`.")


def find_trial(client: "Client", given: str) -> "tuple[str, Trial]":
    """A trial and the name of its job. NotFoundError says how trials are named."""
    job, slash, number = given.rpartition("/")
    if slash and number.isdecimal():
        name = find_job(client, job)
        found = trial_of(client, name, int(number))
        if found is None:
            raise NotFoundError(
                f"Job {name!r} has no trial {number}. List them with `stoker experiment trials {name}`."
            )
        return name, found
    if not given.isdecimal():
        raise NotFoundError(
            f"No trial {given!r}: a trial is JOB/NUMBER, like {given.strip('/') or 'taxi_1'}/3, or its id."
            " See `stoker experiment trials JOB`."
        )
    try:
        known = client.trial(int(given))
    except NotFoundError as error:
        raise NotFoundError(
            f"No trial has the id {given}. A trial is also named by JOB/NUMBER, like taxi_1/3."
        ) from error
    return known.job, known


def trial_of(client: "Client", job: str, number: int) -> "Trial | None":
    """The job's trial of this number, if it has one yet. NotFoundError if there is no such job."""
    try:
        found = client.trials(job, trial=number, limit=1).trials
    except NotFoundError:
        client.job(job)
        return None
    return found[0] if found else None


def all_trials(client: "Client", job: str) -> "Iterator[Trial]":
    """Every trial of a job, by number."""
    after = 0
    while True:
        page = client.trials(job, limit=_PAGE, after=after).trials
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].number
