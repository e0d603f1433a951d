"""Determined's small words for what must be true, and the like: `check.gt_eq(n, 0)`, `util.chunks`, `set_logger`."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from stoker.errors import ConfigError

Check = Callable[..., None]


class CheckFailedError(Exception):
    """Something that a `check` function was asked about is not so."""


def _of(is_so: Callable[..., bool], words: str) -> Check:
    def check(*values: Any, reason: str | None = None) -> None:
        given = values
        count = is_so.__code__.co_argcount
        if len(given) > count:
            reason, given = str(given[count]), given[:count]
        if not is_so(*given):
            raise CheckFailedError(f"CHECK FAILED! {words.format(*map(repr, given))}{f': {reason}' if reason else ''}")

    return check


CHECKS: dict[str, Check] = {
    "true": _of(lambda x: bool(x), "{} is not true"),
    "false": _of(lambda x: not x, "{} is not false"),
    "is_none": _of(lambda x: x is None, "{} is not None"),
    "is_not_none": _of(lambda x: x is not None, "{} is None"),
    "eq": _of(lambda x, y: bool(x == y), "{} is not {}"),
    "not_eq": _of(lambda x, y: bool(x != y), "{} is {}"),
    "gt": _of(lambda x, y: bool(x > y), "{} is not more than {}"),
    "gt_eq": _of(lambda x, y: bool(x >= y), "{} is less than {}"),
    "lt": _of(lambda x, y: bool(x < y), "{} is not less than {}"),
    "lt_eq": _of(lambda x, y: bool(x <= y), "{} is more than {}"),
    "equal_lengths": _of(lambda x, y: len(x) == len(y), "{} is not as long as {}"),
    "len_eq": _of(lambda x, n: len(x) == n, "{} has not the length {}"),
    "is_in": _of(lambda x, y: x in y, "{} is not in {}"),
    "not_in": _of(lambda x, y: x not in y, "{} is in {}"),
    "is_type": _of(lambda x, t: type(x) is t, "{} is not of the type {}"),
    "is_instance": _of(lambda x, t: isinstance(x, t), "{} is no {}"),
    "is_not_instance": _of(lambda x, t: not isinstance(x, t), "{} is a {}"),
    "is_subclass": _of(lambda x, t: issubclass(x, t), "{} is no child of {}"),
}
# The same under the names they had before.
CHECKS |= {
    "check_" + name.removeprefix("is_"): check for name, check in CHECKS.items() if not name.startswith("is_not_")
} | {"check_isinstance": CHECKS["is_instance"], "check_not_none": CHECKS["is_not_none"]}


def set_logger(debug_enabled: bool = False) -> None:
    level = logging.DEBUG if debug_enabled else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s:%(levelname)s: %(message)s")


def chunks(lst: Sequence[Any], chunk_size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(lst), chunk_size):
        yield lst[start : start + chunk_size]


def safe_load_yaml_with_exceptions(yaml_file: Any) -> Any:
    """What is in a YAML text or open file."""
    try:
        return yaml.safe_load(yaml_file)
    except yaml.YAMLError as error:
        raise ConfigError(f"Not YAML: {' '.join(str(error).split())}.") from error


def sizeof_fmt(val: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(val) < 1024:
            return f"{val:3.1f}{unit}"
        val /= 1024
    return f"{val:.1f}TB"


def get_default_master_address() -> str:
    return os.environ.get("DET_MASTER", "http://localhost:8080")


def get_config_path() -> Path:
    """The folder for settings of a person's own."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "determined"


def debug_mode() -> bool:
    return os.environ.get("DET_DEBUG", "").lower() in ("true", "1", "yes")
