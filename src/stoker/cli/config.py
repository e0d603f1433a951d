"""`stoker config`: the settings in force, and where each comes from."""

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from stoker.terminal.output import table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.host.home import Home


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str
    origin: str


def build(parser: Parser) -> None:
    command = parser.add_command(
        "show", show, help="show every setting, its value and its origin", example="stoker config show"
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def show(arguments: Arguments) -> None:
    from stoker.host.home import Home

    settings = read(Home.find())
    if arguments.json:
        print(json.dumps([asdict(setting) for setting in settings], indent=2))
    else:
        print(table(["SETTING", "VALUE", "ORIGIN"], [[s.name, s.value, s.origin] for s in settings]))


def read(home: "Home") -> list[Setting]:
    """What holds now: the environment, then config.toml, then what is taken when neither says anything."""
    return [
        _from_environment("STOKER_HOME", "home", str(home.root)),
        _from_environment("STOKER_SERVER", "server", "started when needed"),
        Setting("token", "(not shown)", _token_origin(home)),
        _from_environment("STOKER_PACKAGE_LIMIT_MB", "package limit, MB", "1000"),
        *_of_server(home),
    ]


def _from_environment(variable: str, name: str, default: str) -> Setting:
    given = os.environ.get(variable)
    return Setting(name, given or default, f"environment: {variable}" if given else "default")


def _token_origin(home: "Home") -> str:
    return "environment: STOKER_TOKEN" if os.environ.get("STOKER_TOKEN") else f"file: {home.root / 'token'}"


def _of_server(home: "Home") -> list[Setting]:
    """The server's own settings as it would read them now; ConfigError names every bad one."""
    from stoker.engines.local import local_capacity
    from stoker.server.settings import load_settings

    settings = load_settings(home.config, capacity=local_capacity)
    in_force: dict[str, object] = {
        "default_pool": settings.default_pool,
        "idle_exit_s": settings.idle_exit_s,
        "max_package_bytes": settings.max_package_bytes,
        "database": _without_password(settings.database) if settings.database else str(home.database),
    }
    for name, pool in settings.pools.items():
        in_force[f"pools.{name}.engine"] = pool.engine
        for what, amount in pool.capacity:
            in_force[f"pools.{name}.{what}"] = f"{amount:g}"
        in_force[f"pools.{name}.ignore_accelerators"] = pool.ignore_accelerators
    written = _written(home)
    names = dict.fromkeys([*in_force, *written])
    return [
        Setting(
            name,
            str(in_force.get(name, written.get(name))),
            _origin(name, written, home),
        )
        for name in names
    ]


def _origin(name: str, written: dict[str, str], home: "Home") -> str:
    if name == "database" and os.environ.get("STOKER_DATABASE"):
        return "environment: STOKER_DATABASE"
    return f"file: {home.config}" if name in written else _default_origin(name)


def _without_password(url: str) -> str:
    """postgresql://ada:secret@host/jobs as postgresql://ada:***@host/jobs"""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", url)


def _default_origin(name: str) -> str:
    return "default: what this machine has" if name.endswith((".cpus", ".memory_gb", ".gpus")) else "default"


def _written(home: "Home") -> dict[str, str]:
    import tomllib

    return _flat(tomllib.loads(home.config.read_text())) if home.config.exists() else {}


def _flat(values: dict[str, object], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = str(value)
    return found
