"""How versions of models look on a terminal: a line each, or all of one with where it came from."""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from stoker.cli.storage import in_words
from stoker.terminal.output import ago, table

if TYPE_CHECKING:
    from stoker.schema.registry import Version


def print_versions(versions: "Sequence[Version]") -> None:
    """A line each, the default one marked."""
    rows = []
    for version in versions:
        origin = version.card.origin
        made_by = "" if origin.job is None else f"{origin.job}/{origin.trial}"
        default = "yes" if version.is_default else ""
        created = ago(version.created, now=time.time())
        row = [version.name, str(version.number), default, ", ".join(version.aliases), version.card.framework]
        rows.append([*row, made_by, in_words(version.size_bytes), created])
    print(table(["VERSION", "NUMBER", "DEFAULT", "ALIASES", "FRAMEWORK", "TRIAL", "SIZE", "CREATED"], rows))


def print_version(version: "Version") -> None:
    """All that is known of it."""
    for name, value in (*_facts(version), *_lineage(version)):
        if value:
            print(f"{name + ':':<16}{value}")


def _facts(version: "Version") -> "Iterator[tuple[str, str]]":
    card = version.card
    yield "version", version.reference
    yield "number", str(version.number)
    yield "default", "yes" if version.is_default else "no"
    yield "aliases", ", ".join(version.aliases)
    yield "description", version.description
    yield "labels", _pairs(version.labels)
    yield "created", ago(version.created, now=time.time())
    yield "framework", card.framework
    yield "inputs", ", ".join(f"{field.name or '(row)'} {field.dtype}" for field in card.signature.inputs)
    yield "metrics", "  ".join(f"{name}={value:.6g}" for name, value in sorted(card.metrics.items()))
    yield "metadata", _pairs(card.metadata)
    yield "runtime", " ".join(filter(None, (version.runtime_version, version.python_version)))
    yield "class", version.prediction_class or ""
    yield "files", f"{version.url} ({len(card.files)} files, {in_words(version.size_bytes)})"


def _lineage(version: "Version") -> "Iterator[tuple[str, str]]":
    origin = version.card.origin
    yield "from", version.source
    yield "job", origin.job or ""
    yield "trial", "" if origin.trial is None else str(origin.trial)
    yield "run", origin.run or ""
    yield "package", origin.package or ""
    yield "checkpoint", origin.checkpoint or ""
    yield "hparams", _pairs(origin.hparams)
    yield "data", ", ".join(origin.data)


def _pairs(values: "dict[str, str] | dict[str, object]") -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
