"""What to predict for, by flags, and how predictions are printed: gcloud's ways, for every command that predicts."""

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import ConfigError, InstanceError, NotFoundError, UsageError
from stoker.terminal.output import table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.bundle import Signature

_FLAGS = {
    "json_instances": "one JSON instance a line",
    "json_request": 'a whole request: {"instances": […]}',
    "text_instances": "one text a line",
    "csv": "CSV, with a header or in the order of the model's fields",
    "tf_example": "tf.Examples in a TFRecord file, gzip or not",
}


@dataclass(frozen=True, slots=True)
class Given:
    """What the user gave: which form, and the bytes."""

    form: str
    name: str  # of the file, for messages
    data: bytes

    @property
    def signature_name(self) -> str | None:
        """What a whole request asks for."""
        from stoker.predict.instances.lines import json_request

        if self.form != "json_request":
            return None
        with self._named():
            return json_request(self.data)[1]

    def instances(self, signature: "Signature") -> list[Any]:
        """At least one. UsageError, with the file's name, for what cannot be read as instances."""
        with self._named():
            found = self._parsed(signature)
        if not found:
            raise UsageError(f"{self.name} holds no instances. Give one at least.")
        return found

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Put the file's name before what is wrong in it."""
        try:
            yield
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {str(error).splitlines()[0]}", error.problems) from error
        except InstanceError as error:
            raise UsageError(f"{self.name}: {error}") from error

    def _parsed(self, signature: "Signature") -> list[Any]:
        import io

        from stoker.predict.instances import csv, example, lines, tfrecord

        match self.form:
            case "json_instances":
                return lines.json_instances(self.data)
            case "json_request":
                return lines.json_request(self.data)[0]
            case "text_instances":
                return lines.text_instances(self.data)
            case "csv":
                return csv.csv_instances(self.data, signature)
        return [
            example.as_instance(example.parse_example(record.data, index=index), signature, index=index)
            for index, record in enumerate(tfrecord.records(io.BytesIO(self.data)))
        ]


def add_instance_flags(command: Parser) -> None:
    group = command.add_argument_group("what to predict for, exactly one (- is stdin)")
    one = group.add_mutually_exclusive_group(required=True)
    for name, help in _FLAGS.items():
        one.add_argument(f"--{name.replace('_', '-')}", metavar="FILE", help=help)


def given(arguments: Arguments) -> Given:
    """The file that one of the flags names. NotFoundError, UsageError."""
    form = next(name for name in _FLAGS if getattr(arguments, name) is not None)
    name = getattr(arguments, form)
    return Given(form, "stdin" if name == "-" else name, _read(name))


def print_predictions(predictions: list[Any], *, as_json: bool) -> None:
    """As gcloud did: objects as a table by their sorted keys, anything else as one list; or the reply as JSON."""
    if as_json:
        print(json.dumps({"predictions": predictions}))
    elif isinstance(predictions[0], dict):
        keys = sorted(predictions[0])
        rows = [[_cell(row, key) for key in keys] for row in predictions]
        print(table([key.upper() for key in keys], rows))
    else:
        print(predictions)


def _cell(row: Any, key: str) -> str:
    return str(row.get(key, "")) if isinstance(row, dict) else str(row)


def _read(name: str) -> bytes:
    from stoker.predict.instances.lines import MAX_BYTES

    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        elif "://" in name:
            data = _read_url(name, MAX_BYTES + 1)
        else:
            with Path(name).expanduser().open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise NotFoundError(f"No file {name!r} to predict for.") from error
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_BYTES:
        size = f"{MAX_BYTES >> 30} GB"
        raise UsageError(f"{name} is larger than {size}. Predict for it with `stoker jobs submit prediction`.")
    return data


def _read_url(url: str, most: int) -> bytes:
    from stoker.host.home import Home
    from stoker.storage import Storage

    with Storage(Home.find().root).open_url(url) as file:
        return file.read(most)
