"""The registry's part of the store: models, versions, aliases; and the models that runs said they saved."""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from stoker.errors import ConflictError, NotFoundError
from stoker.schema.job import Labels
from stoker.schema.registry import NewModel, Reference, RegisteredModel, SavedModel, Version
from stoker.server.store import jobs as job_rows
from stoker.server.store.dialect import Writer
from stoker.server.store.failures import transactions
from stoker.server.store.model_tables import aliases, models, saved_models, versions
from stoker.server.store.runs import inserted_key
from stoker.server.store.tables import runs, trials

_APART = {"model", "name", "number", "url", "created", "is_default", "aliases"}  # not in a version's `record`


@transactions
class ModelStore:
    """Registered models. As with all of the store, every method is one transaction, and may be called from any thread.

    1. A model with versions has a default one: the first, until another is made it.
    2. The default cannot be removed while there are others.
    3. Numbers and names are of one version alone; numbers are never used again.
    4. What does not exist is NotFoundError; what the rules forbid is ConflictError; nothing changes then.
    """

    def __init__(self, engine: Engine, write: Writer) -> None:
        self._engine, self._write = engine, write

    def add_model(self, new: NewModel, *, now: float) -> RegisteredModel:
        with self._write() as connection:
            if connection.execute(select(models.c.number).where(models.c.name == new.name)).first() is not None:
                raise ConflictError(f"There is a model {new.name!r} already. See `stoker models describe {new.name}`.")
            values = {"name": new.name, "description": new.description, "labels": _text(new.labels)}
            connection.execute(insert(models), {**values, "created": now, "counted": 0})
            return _model(connection, new.name)

    def model(self, name: str) -> RegisteredModel:
        with self._engine.begin() as connection:
            return _model(connection, name)

    def models(self) -> tuple[RegisteredModel, ...]:
        """By name."""
        with self._engine.begin() as connection:
            rows = connection.execute(select(models).order_by(models.c.name)).fetchall()
            return tuple(_registered(connection, row) for row in rows)

    def change_model(
        self, name: str, *, description: str | None = None, labels: Labels | None = None
    ) -> RegisteredModel:
        given = {"description": description, "labels": None if labels is None else _text(labels)}
        changes = {field: value for field, value in given.items() if value is not None}
        with self._write() as connection:
            row = _find(connection, name)
            if changes:
                connection.execute(update(models).where(models.c.number == row.number).values(changes))
            return _model(connection, name)

    def remove_model(self, name: str) -> None:
        """ConflictError while it has versions."""
        with self._write() as connection:
            row = _find(connection, name)
            if _count(connection, row) > 0:
                raise ConflictError(
                    f"Model {name!r} has versions: delete those first, the default one last"
                    f" (`stoker versions list --model {name}`)."
                )
            connection.execute(delete(models).where(models.c.number == row.number))

    def next_number(self, model: str) -> int:
        """A number for a version to come, taken for it alone."""
        with self._write() as connection:
            row = _find(connection, model)
            connection.execute(update(models).where(models.c.number == row.number).values(counted=row.counted + 1))
            return int(row.counted) + 1

    def add_version(self, version: Version, *, alias: str | None = None) -> Version:
        """Make it visible. Its `is_default` and `aliases` are the store's to say."""
        with self._write() as connection:
            row = _find(connection, version.model)
            taken = (versions.c.model == row.number) & (versions.c.name == version.name)
            if connection.execute(select(versions.c.key).where(taken)).first() is not None:
                raise ConflictError(f"Model {version.model!r} has a version {version.name!r} already. Choose another.")
            values = {"model": row.number, "name": version.name, "number": version.number, "url": version.url}
            record = version.model_dump_json(exclude=_APART)
            added = connection.execute(insert(versions), {**values, "created": version.created, "record": record})
            key = inserted_key(added)
            if row.default_version is None:
                connection.execute(update(models).where(models.c.number == row.number).values(default_version=key))
            if alias is not None:
                _point(connection, row, alias, key)
            return _version(connection, Reference(model=version.model, version=version.name))

    def version(self, which: Reference) -> Version:
        with self._engine.begin() as connection:
            return _version(connection, which)

    def versions(self, model: str) -> tuple[Version, ...]:
        """Newest first."""
        with self._engine.begin() as connection:
            row = _find(connection, model)
            query = select(versions).where(versions.c.model == row.number).order_by(versions.c.number.desc())
            return _whole(connection, row, connection.execute(query).fetchall())

    def set_default(self, which: Reference) -> Version:
        with self._write() as connection:
            row = _find(connection, which.model)
            key = _find_version(connection, row, which).key
            connection.execute(update(models).where(models.c.number == row.number).values(default_version=key))
            return _version(connection, which)

    def set_alias(self, model: str, alias: str, which: Reference) -> Version:
        """The alias moves to this version."""
        with self._write() as connection:
            row = _find(connection, model)
            _point(connection, row, alias, _find_version(connection, row, which).key)
            return _version(connection, which)

    def remove_alias(self, model: str, alias: str) -> None:
        with self._write() as connection:
            row = _find(connection, model)
            if connection.execute(delete(aliases).where(_is_alias(row, alias))).rowcount == 0:
                raise NotFoundError(f"Model {model!r} has no alias {alias!r}.")

    def check_removable(self, which: Reference) -> Version:
        """The version, if `remove_version` would remove it."""
        with self._engine.begin() as connection:
            _removable(connection, which)
            return _version(connection, which)

    def remove_version(self, which: Reference) -> Version:
        """With its aliases."""
        with self._write() as connection:
            row, found = _removable(connection, which)
            removed = _version(connection, which)
            connection.execute(delete(aliases).where(aliases.c.version == found.key))
            if row.default_version == found.key:
                connection.execute(update(models).where(models.c.number == row.number).values(default_version=None))
            connection.execute(delete(versions).where(versions.c.key == found.key))
            return removed

    def saved_models(self, job: str) -> tuple[SavedModel, ...]:
        """What a job's runs said they saved, oldest first."""
        with self._engine.begin() as connection:
            query = (
                select(saved_models, runs.c.id.label("run_id"), trials.c.number.label("trial"))
                .join(runs, runs.c.number == saved_models.c.run)
                .join(trials, trials.c.id == runs.c.trial)
                .where(saved_models.c.job == job_rows.number_of(connection, job))
                .order_by(saved_models.c.number)
            )
            return tuple(_saved(row) for row in connection.execute(query))


def _find(connection: Connection, name: str) -> Row[Any]:
    row = connection.execute(select(models).where(models.c.name == name)).one_or_none()
    if row is None:
        raise NotFoundError(f"No model {name!r} on this server. List them with `stoker models list`.")
    return row


def _model(connection: Connection, name: str) -> RegisteredModel:
    return _registered(connection, _find(connection, name))


def _registered(connection: Connection, row: Row[Any]) -> RegisteredModel:
    query = select(versions.c.key, versions.c.name).where(versions.c.model == row.number)
    names = {key: name for key, name in connection.execute(query)}
    return RegisteredModel(
        name=row.name,
        description=row.description,
        labels=json.loads(row.labels),
        created=row.created,
        default_version=names.get(row.default_version),
        aliases={alias: names[key] for alias, key in _aliases(connection, row)},
        num_versions=len(names),
    )


def _aliases(connection: Connection, row: Row[Any]) -> Sequence[tuple[str, int]]:
    query = select(aliases.c.alias, aliases.c.version).where(aliases.c.model == row.number).order_by(aliases.c.alias)
    return [(alias, key) for alias, key in connection.execute(query)]


def _find_version(connection: Connection, row: Row[Any], which: Reference) -> Row[Any]:
    """The one place where a reference becomes a version."""
    query = select(versions).where(versions.c.model == row.number)
    if which.version is not None:
        query = query.where(versions.c.name == which.version)
    elif which.number is not None:
        query = query.where(versions.c.number == which.number)
    elif which.alias is not None:
        query = query.join(aliases, aliases.c.version == versions.c.key).where(_is_alias(row, which.alias))
    else:
        query = query.where(versions.c.key == row.default_version)
    found = connection.execute(query).one_or_none()
    if found is None:
        what = f"no version {which.version or which.number}"
        if which.alias is not None:
            what = f"no alias {which.alias!r}"
        elif which.version is None and which.number is None:
            what = "no version yet"
        raise NotFoundError(f"Model {row.name!r} has {what}. See `stoker versions list --model {row.name}`.")
    return found


def _version(connection: Connection, which: Reference) -> Version:
    row = _find(connection, which.model)
    return _whole(connection, row, [_find_version(connection, row, which)])[0]


def _whole(connection: Connection, row: Row[Any], found: Sequence[Row[Any]]) -> tuple[Version, ...]:
    named: dict[int, list[str]] = defaultdict(list)
    for alias, key in _aliases(connection, row):
        named[key].append(alias)
    return tuple(
        Version.model_validate(
            {
                **json.loads(each.record),
                "model": row.name,
                "name": each.name,
                "number": each.number,
                "url": each.url,
                "created": each.created,
                "is_default": each.key == row.default_version,
                "aliases": tuple(named[each.key]),
            }
        )
        for each in found
    )


def _removable(connection: Connection, which: Reference) -> tuple[Row[Any], Row[Any]]:
    row = _find(connection, which.model)
    found = _find_version(connection, row, which)
    if found.key == row.default_version and _count(connection, row) > 1:
        raise ConflictError(
            f"Version {found.name!r} is the default of model {row.name!r}, and there are others. Make one of them the"
            f" default first: `stoker versions set-default VERSION --model {row.name}`."
        )
    return row, found


def _count(connection: Connection, row: Row[Any]) -> int:
    return len(connection.execute(select(versions.c.key).where(versions.c.model == row.number).limit(2)).fetchall())


def _point(connection: Connection, row: Row[Any], alias: str, key: int) -> None:
    connection.execute(delete(aliases).where(_is_alias(row, alias)))
    connection.execute(insert(aliases), {"model": row.number, "alias": alias, "version": key})


def _is_alias(row: Row[Any], alias: str) -> Any:
    return (aliases.c.model == row.number) & (aliases.c.alias == alias)


def _saved(row: Row[Any]) -> SavedModel:
    return SavedModel(
        run=row.run_id,
        trial=row.trial,
        time=row.time,
        name=row.name,
        path=row.path,
        framework=row.framework,
        metrics=json.loads(row.metrics),
        size_bytes=row.size_bytes,
    )


def _text(labels: Labels) -> str:
    return json.dumps(labels, separators=(",", ":"), sort_keys=True)
