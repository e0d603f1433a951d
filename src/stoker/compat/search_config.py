"""The file of a search, in any dialect: laid over a template, and under what the command line overrides."""

from argparse import ArgumentTypeError
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.errors import ConfigError, UsageError
from stoker.submission.reading import Document, Reading
from stoker.submission.shipment import Notify
from stoker.terminal.parser import Parser


@dataclass(frozen=True, slots=True)
class Override:
    """`--config searcher.max_trials=20`: the way to a field, and its new value."""

    path: tuple[str, ...]
    value: Any


def override(text: str) -> Override:
    """`key.below=value`; the value is YAML, so that numbers, lists and `{type: log, …}` are what they look like."""
    import yaml

    key, equals, value = text.partition("=")
    path = tuple(key.strip().split("."))
    if not equals or not all(path):
        raise ArgumentTypeError(f"an override is key.below=value, like searcher.max_trials=20 (got {text!r})")
    try:
        return Override(path, yaml.safe_load(value))
    except yaml.YAMLError as error:
        raise ArgumentTypeError(f"the value of {key} is not YAML (got {value!r})") from error


def add_override_flag(command: Parser) -> None:
    command.add_argument(
        "--config",
        dest="overrides",
        action="append",
        default=[],
        type=override,
        metavar="KEY=VALUE",
        help="instead of what the file says: searcher.max_trials=20; may be given several times",
    )


def add_config_flags(command: Parser) -> None:
    add_override_flag(command)
    command.add_argument("--template", metavar="FILE", help="a file that says what CONFIG leaves out")


def load_config(
    file: Path | Document, *, notify: Notify, template: Path | None = None, overrides: Sequence[Override] = ()
) -> Document:
    """The file (or what is in it) as plain values, with all that is laid under and over it."""
    from stoker.submission.job_file import load

    document = load(file) if isinstance(file, Path) else file
    if template is not None:
        document = laid_over(load(template), document)
    return out_of_container(with_overrides(document, overrides), notify)


def out_of_container(document: Document, notify: Notify) -> Document:
    """Determined's file with the paths of this machine, with a note for each; another file unchanged."""
    from stoker.compat.dialects.document import is_determined

    if not is_determined(document):
        return document
    from stoker.compat.mounts import outside

    translated = outside(document)
    for note in translated.notes:
        notify(f"Note: {note}.")
    return translated.document


def overrides_of(document: Mapping[str, Any], *above: str) -> list[Override]:
    """A file's fields as overrides, each for itself; what has a type or a name stands for itself alone."""
    found: list[Override] = []
    for name, value in document.items():
        if isinstance(value, Mapping) and value and not {"type", "name"} & set(value):
            found += overrides_of(value, *above, str(name))
        else:
            found.append(Override((*above, str(name)), value))
    return found


def with_overrides(document: Mapping[str, Any], overrides: Sequence[Override]) -> Document:
    """UsageError where a field is to be set below one that has no fields."""
    changed = dict(document)
    for each in overrides:
        changed = _with_one(changed, each.path, each.value, seen="")
    return changed


def laid_over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    """`below`, and over it, field by field, `above`; sections of another kind are replaced and not mixed."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        mixes = isinstance(old, Mapping) and isinstance(value, Mapping) and _same_kind(old, value)
        merged[key] = laid_over(old, value) if mixes else value  # type: ignore[arg-type]
    return merged


def read_search(document: Document, *, source: str) -> Reading:
    """The job of a search, in the shape of stoker.yaml. ConfigError names every bad field, in the file's own words."""
    from stoker.compat.dialects import aiplatform, determined
    from stoker.submission import job_file as stoker_yaml

    if aiplatform.is_dialect(document):
        reading = aiplatform.read(document, source=source)
    elif determined.is_dialect(document):
        reading = determined.read(document, source=source)
    else:
        reading = stoker_yaml.read(document, source=source)
    if not reading.values.get("search"):
        raise ConfigError(
            f"{source} has no search: expected `searcher:` and `hyperparameters:` (Determined's), `search:` (ours) or"
            " `trainingInput.hyperparameters` (AI Platform's). Submit a job without one by `stoker jobs create`."
        )
    return reading


def notify_of(reading: Reading, notify: Notify) -> None:
    """Report what of the file is ignored here, or means something else than it seems."""
    if reading.ignored:
        notify(f"Without meaning here, and ignored: {', '.join(reading.ignored)}.")
    for note in reading.notes:
        notify(f"Note: {note}.")


def _with_one(section: Mapping[str, Any], path: tuple[str, ...], value: Any, *, seen: str) -> Document:
    name, *rest = path
    if not rest:
        return {**section, name: value}
    below = section.get(name)
    if below is not None and not isinstance(below, Mapping):
        raise UsageError(
            f"--config {seen}{'.'.join(path)}: {seen}{name} is {below!r} and has no fields."
            f" Set it whole, like --config '{seen}{name}={{{rest[0]}: …}}'."
        )
    return {**section, name: _with_one(below or {}, tuple(rest), value, seen=f"{seen}{name}.")}


def _same_kind(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """A searcher of another name, or a parameter, stands for itself alone."""
    if "type" in new:
        return False
    return "name" not in old or "name" not in new or old["name"] == new["name"]
