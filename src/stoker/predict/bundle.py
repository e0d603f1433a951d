"""A model bundle on disk: written whole or not at all, read with every file's checksum compared.

NAME/model.json     the card (schema/bundle.py), with the sha256 of all the others
NAME/…              the framework's own files
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from stoker.atomic import replace_folder
from stoker.errors import ConfigError, ConflictError, NotFoundError
from stoker.schema.bundle import CARD, BundleFile, ModelCard

_CARD_BYTES = 16 << 20  # a larger model.json is no card, and is not read into memory to find out


def write(folder: Path, card: ModelCard, fill: Callable[[Path], None], *, replace: bool = True) -> ModelCard:
    """Make a bundle: `fill` writes the framework's files into a draft folder, which then gets its card and its name.

    Returns the card with the files in it. An older bundle of that name goes when the new one is whole, or, without
    `replace`, is a ConflictError.
    """
    folder = Path(os.path.abspath(folder))
    if folder.exists() and not (replace and folder.is_dir()):
        raise ConflictError(f"{folder} is there already. Give the model another name, or remove it first.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.draft")
    draft.mkdir()
    try:
        fill(draft)
        card = card.with_(files=_described(draft))
        (draft / CARD).write_text(card.model_dump_json(indent=2) + "\n", encoding="utf-8")
        replace_folder(str(draft), str(folder))
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return card


def is_bundle(folder: Path) -> bool:
    """Whether there is a card, be it a bad one. XGBoost's own model may be called model.json too; it is none."""
    try:
        with (folder / CARD).open("rb") as file:
            start = file.read(1 << 16)
    except OSError:
        return False
    return b'"framework"' in start or b'"learner"' not in start


def read(folder: Path) -> ModelCard:
    """The card alone. NotFoundError without one, ConfigError for one that cannot be read."""
    path = folder / CARD
    try:
        if path.stat().st_size > _CARD_BYTES:
            raise ConfigError(f"{path} is larger than {_CARD_BYTES >> 20} MB: that is no model's card.")
        values = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"No {CARD} in {folder}: it is no model bundle.") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is no JSON object, so it is no model's card.")
    card = ModelCard.parse(values, source=str(path))
    if bad := [file.path for file in card.files if not _is_plain(file.path)]:
        problems = [f"files: {path!r} is not a path inside the bundle" for path in bad]
        raise ConfigError(f"{path} is refused:", problems)
    return card


def verify(folder: Path, card: ModelCard) -> None:
    """Compare the folder with its card; ConfigError names each file that is missing, changed or too many."""
    listed = {file.path: file for file in card.files}
    found = dict(_files(folder))
    found.pop(CARD, None)
    problems = [f"{path}: missing" for path in listed if path not in found]
    problems += [f"{path}: not in {CARD}" for path in found if path not in listed]
    problems += [f"{path}: {why}" for path, file in listed.items() if path in found and (why := _change(folder, file))]
    if problems:
        advice = "It was changed after it was made: get a whole copy."
        raise ConfigError(f"{folder} is not the model that its {CARD} describes. {advice}", sorted(problems))


def read_verified(folder: Path) -> ModelCard:
    """The card of a bundle whose files are all as they were when it was made."""
    card = read(folder)
    verify(folder, card)
    return card


def size_bytes(card: ModelCard) -> int:
    """All files but the card."""
    return sum(file.size_bytes for file in card.files)


def _described(folder: Path) -> tuple[BundleFile, ...]:
    files = []
    for path, entry in _files(folder):
        if not _is_plain(path):
            raise ConfigError(f"{path!r} cannot be in a bundle: its name is not one for every system.")
        size, digest = _digest(entry)
        files.append(BundleFile(path=path, size_bytes=size, sha256=digest))
    if not files:
        raise ConfigError(f"There is nothing to put into the bundle {folder.name}.")
    return tuple(sorted(files, key=lambda file: file.path))


def _change(folder: Path, file: BundleFile) -> str | None:
    path = folder / file.path
    if path.is_symlink() or not path.is_file():
        return "is a link, not a file"
    size = path.stat().st_size
    if size != file.size_bytes:
        return f"changed: {size} bytes instead of {file.size_bytes}"
    return None if _digest(path)[1] == file.sha256 else f"changed: its sha256 is not that of {CARD}"


def _digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
        return file.tell(), digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Every file and link below, by its path inside the bundle. Links to folders are files: nobody follows them."""
    for at, folders, names in os.walk(folder):
        for name in names + [each for each in folders if os.path.islink(os.path.join(at, each))]:
            path = Path(at, name)
            yield path.relative_to(folder).as_posix(), path


def _is_plain(path: str) -> bool:
    """A relative path that stays inside, the same on every system."""
    parts = path.split("/")
    return (
        not set(path) & set('\\:\0\n\r*?"<>|')
        and not PurePosixPath(path).is_absolute()
        and all(part not in ("", ".", "..") for part in parts)
        and path != CARD
    )
