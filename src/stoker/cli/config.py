"""`stoker config`: the settings in force, and where each comes from."""

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from stoker.cli.output import table
from stoker.cli.parser import Arguments, Parser
from stoker.errors import ConfigError

if TYPE_CHECKING:
    from stoker.home import Home


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
    from stoker.home import Home

    settings = read(Home.find())
    if arguments.json:
        print(json.dumps([asdict(setting) for setting in settings], indent=2))
    else:
        print(table(["SETTING", "VALUE", "ORIGIN"], [[s.name, s.value, s.origin] for s in settings]))


def read(home: "Home") -> list[Setting]:
    """Flag, environment, file, default: what holds now, in the order in which one would look."""
    return [_from_environment("STOKER_HOME", "home", str(home.root)), *_server(home), *_from_file(home)]


def _server(home: "Home") -> list[Setting]:
    found = [_from_environment("STOKER_SERVER", "server", "started on demand")]
    if os.environ.get("STOKER_TOKEN"):
        found.append(Setting("token", "(not shown)", "environment: STOKER_TOKEN"))
    else:
        found.append(Setting("token", "(not shown)", f"file: {home.root / 'token'}"))
    return found


def _from_environment(variable: str, name: str, default: str) -> Setting:
    given = os.environ.get(variable)
    return Setting(name, given or default, f"environment: {variable}" if given else "default")


def _from_file(home: "Home") -> list[Setting]:
    import tomllib

    if not home.config.exists():
        return [Setting("pools.local", "this machine, as found", "default")]
    try:
        values = tomllib.loads(home.config.read_text())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{home.config} is not TOML: {error}.") from error
    return [Setting(name, value, f"file: {home.config}") for name, value in _flat(values)]


def _flat(values: dict[str, object], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", str(value)))
    return found
