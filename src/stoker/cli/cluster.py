"""`stoker cluster`: the nodes there are, who uses them, and why the others wait."""

import json
from typing import TYPE_CHECKING

from stoker.terminal.output import table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.record import JobSummary, PoolStatus


def build(parser: Parser) -> None:
    parser.be_command(show, example="stoker cluster --json")
    parser.add_argument("--pool", help="only this pool")
    parser.add_argument("--json", action="store_true", help="print JSON")


def show(arguments: Arguments) -> None:
    from stoker.cli.pools import named
    from stoker.client.client import connect

    client = connect()
    pools = client.pools() if arguments.pool is None else [named(client.pools(), arguments.pool)]
    jobs = client.jobs(state=("QUEUED", "PREPARING", "RUNNING"))
    if arguments.json:
        lines = [job.model_dump(mode="json") for job in jobs if any(job.pool == pool.name for pool in pools)]
        print(json.dumps({"pools": [pool.model_dump(mode="json") for pool in pools], "jobs": lines}, indent=2))
        return
    for pool in pools:
        print("\n".join(_of_pool(pool, [job for job in jobs if job.pool == pool.name])))


def _of_pool(pool: "PoolStatus", jobs: "list[JobSummary]") -> list[str]:
    used = (
        f"{pool.used.cpus:g} of {pool.capacity.cpus:g} CPUs, {pool.used.gpus:g} of {pool.capacity.gpus:g} GPUs in use"
    )
    found = [f"{pool.name} ({pool.engine}): {pool.trouble or used}"]
    found += [f"  node {number}: {node.in_words}" for number, node in enumerate(pool.nodes)]
    if jobs:
        rows = [[job.id, job.state, job.owner, str(job.priority), job.reason] for job in jobs]
        found.append(table(["JOB", "STATE", "OWNER", "PRIORITY", "WHY IT WAITS"], rows))
    return found
