"""`stoker pools`: where jobs run, how full it is, and who waits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.cli.output import print_json, table
from stoker.cli.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.record import PoolStatus


def build(parser: Parser) -> None:
    command = parser.add_command(
        "list", list_pools, help="list pools: what they have, what is in use", example="stoker pools list --json"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def list_pools(arguments: Arguments) -> None:
    from stoker.client import connect

    pools = connect().pools()
    if arguments.json:
        print_json(pools)
    else:
        print(pools_table(pools))


def pools_table(pools: "Sequence[PoolStatus]") -> str:
    head = ["POOL", "ENGINE", "CPUS", "MEMORY GB", "GPUS", "RUNNING", "QUEUED", "TIERS"]
    rows = []
    for pool in pools:
        amounts = [
            f"{used:g}/{has:g}"
            for used, has in (
                (pool.used.cpus, pool.capacity.cpus),
                (pool.used.memory_gb, pool.capacity.memory_gb),
                (pool.used.gpus, pool.capacity.gpus),
            )
        ]
        counts = [str(len(pool.running)), str(len(pool.queued))]
        rows.append([pool.name, pool.engine, *amounts, *counts, " ".join(pool.tiers)])
    return table(head, rows)
