"""`stoker pools`: where jobs run, how full it is, who waits; and adding a cluster to them."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.terminal import flags
from stoker.terminal.output import print_json, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.record import PoolStatus


def build(parser: Parser) -> None:
    command = parser.add_command(
        "list", list_pools, help="list pools: what they have, what is in use", example="stoker pools list --json"
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command = parser.add_command(
        "describe", describe_pool, help="show one pool", example="stoker pools describe cluster --json"
    )
    command.add_argument("name", help="the pool")
    command.add_argument("--json", action="store_true", help="print JSON")
    command = parser.add_command(
        "add",
        add_pool,
        help="add a Ray cluster to config.toml as a pool",
        example="stoker pools add cluster --engine ray --address ray-head:6379",
    )
    command.add_argument("name", help="what jobs call it: --region NAME")
    command.add_argument("--engine", choices=["ray"], default="ray", help="what runs there (default: ray)")
    command.add_argument("--address", required=True, help="HOST:PORT of the cluster's head")
    command.add_argument("--python", help="a Python with the cluster's versions of Ray and Python")
    command.add_argument("--node-python", help="the nodes' Python for supervisors, and so the default runtime")
    command.add_argument("--node-home", help="folder on the nodes; on a shared file system, if there are several hosts")
    command.add_argument("--placement", choices=["pack", "spread"], help="few nodes for a job (default), or many")
    command.add_argument("--server-url", metavar="URL", help="as the nodes reach this server: http://10.0.0.5:8765")
    command.add_argument(
        "--artifacts", metavar="URL", help="where nodes with disks of their own keep checkpoints and models: gs://…"
    )
    command.add_argument(
        "--max-nodes", type=int, help="the cluster grows up to this: jobs may ask for more than it has"
    )
    command.add_argument(
        "--largest-node",
        type=flags.key_values,
        metavar="K=V",
        help="what the largest of them has, if it is not there yet: cpus=8,memory_gb=32,gpus=1",
    )
    command = parser.add_command(
        "remove", remove_pool, help="take a pool out of config.toml", example="stoker pools remove cluster"
    )
    command.add_argument("name", help="the pool")
    command.add_argument(
        "--force", action="store_true", help="give its unfinished jobs up, if its cluster does not answer any more"
    )


def list_pools(arguments: Arguments) -> None:
    from stoker.client.client import connect

    pools = connect().pools()
    if arguments.json:
        print_json(pools)
    else:
        print("\n".join([pools_table(pools), *_troubles(pools)]))


def describe_pool(arguments: Arguments) -> None:
    from stoker.client.client import connect

    found = named(connect().pools(), arguments.name)
    if arguments.json:
        print_json(found)
        return
    print("\n".join([pools_table([found]), *_troubles([found])]))
    for title, jobs in (("running", found.running), ("queued", found.queued)):
        print(f"{title}: {', '.join(jobs) or 'none'}")


def named(pools: "Sequence[PoolStatus]", name: str) -> "PoolStatus":
    from stoker.errors import NotFoundError

    for pool in pools:
        if pool.name == name:
            return pool
    raise NotFoundError(f"No pool named {name!r}. Pools: {', '.join(pool.name for pool in pools)}.")


def add_pool(arguments: Arguments) -> None:
    from stoker.errors import ConflictError, UsageError
    from stoker.host.home import Home

    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", arguments.name):
        raise UsageError(f"A pool cannot be called {arguments.name!r}: letters, digits, _ and -, as in `gpu-pool`.")
    if not re.fullmatch(r"(?:ray://)?[^\s/:]+:\d+", arguments.address):
        raise UsageError(f"--address {arguments.address}: say HOST:PORT of the cluster's head, as in ray-head:6379.")
    if arguments.largest_node and not arguments.max_nodes:
        raise UsageError("--largest-node is for a cluster that grows: say up to how many nodes, with --max-nodes.")
    home = Home.find().make()
    text = _config_text(home.config)
    if _section(arguments.name).search(text):
        raise ConflictError(f"{home.config} has a pool {arguments.name!r} already. Remove it first, or edit it there.")
    values = {
        "engine": arguments.engine,
        "address": arguments.address,
        "python": arguments.python,
        "node_python": arguments.node_python,
        "home": arguments.node_home,
        "placement": arguments.placement,
        "server_url": arguments.server_url,
        "artifacts": arguments.artifacts,
        "autoscale": True if arguments.max_nodes else None,
        "max_nodes": arguments.max_nodes,
    }
    # JSON's strings, numbers and truth values are TOML's too.
    lines = [f"{name} = {json.dumps(value)}" for name, value in values.items() if value is not None]
    if arguments.largest_node:
        sizes = ", ".join(f"{name} = {amount}" for name, amount in arguments.largest_node.items())
        lines.append(f"largest_node = {{ {sizes} }}")
    # A file without pools means this machine; with one pool written down, that has to be as well.
    here = "" if re.search(r"^\s*\[pools\.", text, re.MULTILINE) else '\n[pools.local]\nengine = "local"\n'
    _write_checked(home.config, f"{text.rstrip()}\n{here}\n[pools.{arguments.name}]\n" + "\n".join(lines) + "\n")
    print(arguments.name)


def remove_pool(arguments: Arguments) -> None:
    from stoker.client.client import connect
    from stoker.errors import ConflictError, NotFoundError
    from stoker.host.home import Home

    home = Home.find()
    text = _config_text(home.config)
    section = _section(arguments.name)
    if not section.search(text):
        raise NotFoundError(f"{home.config} has no pool {arguments.name!r}. List them with `stoker pools list`.")
    used = [pool for pool in connect().pools() if pool.name == arguments.name and (pool.running or pool.queued)]
    if used and not (arguments.force and used[0].trouble):
        jobs = ", ".join(dict.fromkeys([*used[0].running, *used[0].queued]))
        hint = "Cancel them, or wait."
        if used[0].trouble:
            hint += (
                f" To give them up: `stoker pools remove {arguments.name} --force`, for its cluster does not answer."
            )
        raise ConflictError(f"Jobs of pool {arguments.name!r} are not over: {jobs}. {hint}")
    _write_checked(home.config, section.sub("", text))


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


def _troubles(pools: "Sequence[PoolStatus]") -> list[str]:
    """Why nothing can be started in some of them, a line each."""
    return [pool.trouble for pool in pools if pool.trouble]


def _config_text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _section(pool: str) -> re.Pattern[str]:
    """The pool's table with those inside it, up to the next table of another."""
    name = re.escape(pool)
    return re.compile(rf"^\s*\[pools\.{name}(?:\.[^\]]*)?\][^\n]*\n(?:(?!\s*\[).*(?:\n|\Z))*", re.MULTILINE)


def _write_checked(path: Path, text: str) -> None:
    """Replace the file whole, once the server's own reader has taken what it will hold; else it stays as it was."""
    import os

    from stoker.engines.local import local_capacity
    from stoker.errors import ConfigError
    from stoker.server.settings import load_settings

    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    try:
        try:
            load_settings(partial, capacity=local_capacity)
        except ConfigError as error:  # of a file that nobody knows by that name
            raise ConfigError(str(error).replace(str(partial), str(path))) from error
        partial.chmod(path.stat().st_mode if path.exists() else 0o600)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
