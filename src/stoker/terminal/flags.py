"""The value syntaxes of flags: gcloud's lists and dictionaries, accelerators, durations, booleans.

Each is an argparse `type`: it returns the value or raises ArgumentTypeError with what was expected.
"""

import re
from argparse import ArgumentTypeError
from datetime import date
from typing import Any

_UNITS_S = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def comma_list(text: str) -> list[str]:
    """`a,b,c`; gcloud's `^:^a:b,c` chooses another separator."""
    separator, body = _separator(text)
    return [item.strip() for item in body.split(separator) if item.strip()]


def key_values(text: str) -> dict[str, str]:
    """`k=v,k2=v2`."""
    found = {}
    for item in comma_list(text):
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise ArgumentTypeError(f"bad syntax for dict arg: [{item}]; write KEY=VALUE,KEY=VALUE")
        found[key] = value
    return found


def accelerator(text: str) -> dict[str, Any]:
    """`type=nvidia-tesla-t4,count=2`, as AI Platform's acceleratorConfig."""
    found = key_values(text)
    unknown = found.keys() - {"type", "count"}
    if unknown or len(found) < 2:
        raise ArgumentTypeError(f"an accelerator is type=TYPE,count=N, both of them (got {text!r})")
    count = positive(found["count"])
    return {"type": found["type"].upper().replace("-", "_"), "count": count}


def positive(text: str) -> int:
    number = whole(text)
    if number < 1:
        raise ArgumentTypeError(f"must be greater than 0 (got {text!r})")
    return number


def whole(text: str) -> int:
    if not re.fullmatch(r"\d+", text):
        raise ArgumentTypeError(f"must be a whole number, 0 or more (got {text!r})")
    return int(text)


def seconds(text: str) -> float:
    """`90`, `90s`, `10m`, `2h`, `7d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if match is None:
        raise ArgumentTypeError(f"a time is like 90s, 10m, 2h or 7d (got {text!r})")
    return float(match[1]) * _UNITS_S[match[2]]


def as_of(text: str) -> str:
    """A day, or `auto` or `today`."""
    if text in ("auto", "today"):
        return text
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise ArgumentTypeError(f"must be a date like 2020-01-15, auto or today (got {text!r})") from error


def boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "1", ""):
        return True
    if text.lower() in ("false", "no", "0"):
        return False
    raise ArgumentTypeError(f"must be true or false (got {text!r})")


def merged(dictionaries: list[dict[str, str]] | None) -> dict[str, str] | None:
    """A dictionary flag may be given several times."""
    if dictionaries is None:
        return None
    return {key: value for each in dictionaries for key, value in each.items()}


def _separator(text: str) -> tuple[str, str]:
    match = re.match(r"\^([^^]+)\^", text)
    return (match[1], text[match.end() :]) if match else (",", text)
