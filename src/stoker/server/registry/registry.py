"""The registry: copies what a job or a person made into the home (or a bucket), whole, and keeps where it came from.

    HOME/models/MODEL/VERSION/      a bundle (predict/bundle.py): files and model.json with their checksums
    HOME/models/.drafts/            copies under way; a version is known, and so visible, once its row is stored

`[models] url` in config.toml moves the first elsewhere: a folder, gs://, s3://.
"""

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from stoker.errors import ConfigError, ConflictError, NotFoundError, UsageError
from stoker.host.home import Home
from stoker.predict import bundle
from stoker.predict.loading import CODE, describe
from stoker.schema.bundle import CARD, ModelCard, Origin
from stoker.schema.registry import CHECKPOINT, NewVersion, Reference, Version
from stoker.server.registry.code import unpack_code
from stoker.server.registry.sources import Source, source_of_job
from stoker.server.store.store import Store
from stoker.storage import Storage, StorageUrl

MAX_FILES = 1000  # AI Platform's own limit


@dataclass(slots=True)
class Registry:
    """One for a server."""

    store: Store
    home: Home
    url: str | None  # where versions go; HOME/models if None
    now: Callable[[], float]
    _busy: set[tuple[str, str]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_swept: bool = False

    def create_version(self, model: str, new: NewVersion) -> Version:
        """Copy, check, and then make it known. Blocks for as long as the copying takes."""
        self._check_free(model, new.name)
        storage = Storage(self.home.root)
        if new.job is not None:
            source = source_of_job(self.store, storage, job=new.job, trial=new.trial, checkpoint=new.checkpoint)
        else:
            source = Source(url=_checked_origin(str(new.origin)))
        number, name = self._numbered(model, new.name)
        with self._alone(model, name), self._draft() as draft:
            card = _described(storage, source, new, draft, model=model)
            url, card = self._put(storage, draft, card, model=model, name=name)
            version = Version(
                model=model,
                name=name,
                number=number,
                url=url,
                source=source.url,
                created=self.now(),
                runtime_version=new.runtime_version,
                python_version=new.python_version,
                prediction_class=new.prediction_class,
                package_uris=new.package_uris,
                description=new.description,
                labels=new.labels,
                size_bytes=bundle.size_bytes(card),
                card=card,
            )
            return self.store.models.add_version(version, alias=new.alias)

    def remove_version(self, which: Reference) -> Version:
        """Forget it, then remove its files: who looks in between finds none rather than half of one."""
        found = self.store.models.check_removable(which)
        with self._alone(found.model, found.name):
            removed = self.store.models.remove_version(which)
            _remove(Storage(self.home.root), removed.url)
        return removed

    def _check_free(self, model: str, name: str | None) -> None:
        self.store.models.model(model)
        if name is None:
            return
        try:
            self.store.models.version(Reference(model=model, version=name))
        except NotFoundError:
            return
        raise ConflictError(f"Model {model!r} has a version {name!r} already. Choose another name.")

    def _numbered(self, model: str, name: str | None) -> tuple[int, str]:
        """The version's number, and its name: if none was given, one made of the number."""
        while True:
            number = self.store.models.next_number(model)
            try:
                self._check_free(model, name or f"v{number}")
            except ConflictError:
                if name is not None:
                    raise
                continue
            return number, name or f"v{number}"

    @contextmanager
    def _alone(self, model: str, name: str) -> Iterator[None]:
        """Two who make or remove the same version would mix their files."""
        with self._lock:
            if (model, name) in self._busy:
                raise ConflictError(f"Somebody else is making or removing {model}/versions/{name} just now.")
            self._busy.add((model, name))
        try:
            yield
        finally:
            with self._lock:
                self._busy.discard((model, name))

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        drafts = self.home.models / ".drafts"
        with self._lock:
            if not self._is_swept:  # what a killed server left
                shutil.rmtree(drafts, ignore_errors=True)
                self._is_swept = True
        draft = drafts / uuid.uuid4().hex
        draft.mkdir(parents=True)
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _put(self, storage: Storage, draft: Path, card: ModelCard, *, model: str, name: str) -> tuple[str, ModelCard]:
        """Where the version's files are from now on, and the card with them. What was there belongs to nobody."""
        folder = self.home.models / model / name if self.url is None else draft / name
        card = bundle.write(folder, card, lambda into: _move(draft / "files", into))
        if self.url is None:
            return str(folder), card
        url = f"{self.url.rstrip('/')}/{model}/{name}"
        _remove(storage, url)
        storage.copy(str(folder), url, recursive=True)
        return url, card


def _described(storage: Storage, source: Source, new: NewVersion, draft: Path, *, model: str) -> ModelCard:
    """Copy the source into the draft, and say what it is. Of a bundle every file is as its card has it."""
    files = draft / "files"
    files.mkdir()
    _copy(storage, source, files)
    if source.is_checkpoint:
        card = ModelCard(name=model, framework=CHECKPOINT, created=datetime.now(UTC))
    else:
        card = _card(files, new, source)
    if card.files:
        (files / CARD).unlink()  # written anew, with the rest of what is known
    else:  # a bare model, called after a folder that nobody will see
        card = card.with_(name=model)
        if (files / CARD).exists():
            raise UsageError(f"{source.url}/{CARD} is no bundle's card. Is it XGBoost's? Save it as model.ubj.")
    if new.package_uris:
        unpack_code(storage, new.package_uris, draft, files / CODE)
    return card.with_(
        origin=_lineage(card.origin, source.origin),
        metadata={**card.metadata, **new.metadata},
        metrics={**source.metrics, **card.metrics},
    )


def _card(files: Path, new: NewVersion, source: Source) -> ModelCard:
    try:
        return describe(files, framework=new.framework, prediction_class=new.prediction_class)
    except ConfigError as error:
        raise ConfigError(str(error).replace(str(files), source.url)) from error


def _copy(storage: Storage, source: Source, into: Path) -> None:
    """The named files of it, the one file that it is, or all of the folder."""
    base = source.url.rstrip("/")
    if source.files:
        for name in source.files:
            storage.copy(f"{base}/{name}", f"{into}/")
        return
    found = list(storage.list(base, recursive=True))
    if len(found) > MAX_FILES:
        raise UsageError(
            f"{source.url} holds {len(found)} files; a model has at most {MAX_FILES}. Give its own folder."
        )
    is_file = len(found) == 1 and found[0].url == str(StorageUrl.parse(base))
    storage.copy(base, f"{into}/", recursive=not is_file)


def _lineage(own: Origin, known: Origin) -> Origin:
    """What the model says of itself, and where it says nothing, what is known of its job."""
    return known.with_(**{name: value for name, value in own if value not in (None, (), {})})


def _move(files: Path, into: Path) -> None:
    for path in files.iterdir():
        path.rename(into / path.name)


def _remove(storage: Storage, url: str) -> None:
    if "://" not in url:
        shutil.rmtree(url, ignore_errors=True)
        return
    with suppress(NotFoundError):
        storage.remove(url, recursive=True)


def _checked_origin(origin: str) -> str:
    if "://" not in origin and not Path(origin).is_absolute():
        raise UsageError(f"The origin {origin!r} must be an absolute path or a URL.")
    return origin
