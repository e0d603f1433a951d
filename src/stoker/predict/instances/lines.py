"""Instances as text: one JSON value a line, one text a line, or a whole request."""

import json
import re
from typing import Any

from stoker.errors import ConfigError, InstanceError
from stoker.predict.base import Instance

MAX_BYTES = 1 << 30  # of one file that is read whole; larger ones are for batch prediction, which streams
_BOM = b"\xef\xbb\xbf"
_DECODER = json.JSONDecoder()


def json_instances(data: bytes) -> list[Instance]:
    """One JSON value a line. InstanceError names the line of what is none, or is empty."""
    return [json_value(line, index=index) for index, line in enumerate(_lines(data))]


def text_instances(data: bytes) -> list[Instance]:
    """Each line is a text."""
    return [_text(line, index=index) for index, line in enumerate(_lines(data))]


def json_request(data: bytes) -> tuple[list[Instance], str | None]:
    """The instances of a whole request, and its signature_name. ConfigError for what is no request."""
    data = data.removeprefix(_BOM)
    try:
        request = _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"The request is not UTF-8: byte {error.start}, in line {line}.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(f"The request is not JSON: {error.msg} ({where}).") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"The request is not JSON that can be read: {_deep(error)}.") from error
    if not isinstance(request, dict) or not isinstance(request.get("instances"), list):
        raise ConfigError('The request is no object with a list of instances: {"instances": […]}.')
    name = request.get("signature_name")
    if name is not None and not isinstance(name, str):
        raise ConfigError("signature_name: is no text.")
    return request["instances"], name


def json_value(line: bytes, *, index: int) -> Any:
    """The one JSON value of a line; InstanceError with its place in the line."""
    text = _text(line, index=index)
    if not text.strip():
        raise InstanceError(f"line {index + 1} is empty; expected one JSON value", index=index)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        what = f"line {index + 1} is not JSON: {error.msg} at column {error.colno}"
        raise InstanceError(what, index=index) from error
    except (RecursionError, ValueError) as error:
        what = f"line {index + 1} is not JSON that can be read: {_deep(error)}"
        raise InstanceError(what, index=index) from error


def _lines(data: bytes) -> list[bytes]:
    """Without their ends; a last empty line is none. Only newlines end one: JSON may hold other separators."""
    lines = re.split(rb"\r?\n", data.removeprefix(_BOM))
    return lines[:-1] if lines[-1] == b"" else lines


def _text(line: bytes, *, index: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        what = f"line {index + 1} is not UTF-8: byte {error.start} of the line is 0x{line[error.start]:02x}"
        raise InstanceError(what, index=index) from error


def _deep(error: Exception) -> str:
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
