"""Bring a database to this stoker's schema: make an empty one, take an older one along by `migrations`.

The newest revision is the newest file there, and each file's number is its revision, so that a database that is up to
date is known to be without loading Alembic, which would make every start of the server slower.
"""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, String, Table, insert, inspect, select

from stoker.errors import ServerError
from stoker.server.store import model_tables  # noqa: F401 - so that `metadata` knows its tables
from stoker.server.store.tables import meta, metadata

MIGRATIONS = Path(__file__).parent / "migrations"

# Alembic's own table, in the words it would use.
_REVISION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
_FOR_0_1 = "3"  # what stoker 0.1 looks at: one that it does not know, so that it keeps away


def migrate(connection: Connection) -> None:
    """In the caller's transaction, which must keep other writers out; ServerError if a newer stoker wrote it."""
    revisions = known_revisions()
    newest, found = revisions[-1], revision_of(connection)
    if found == newest:
        return
    if found is None and not inspect(connection).has_table("meta"):
        _create(connection, newest)
        return
    if found is not None and found not in revisions:
        raise ServerError(
            f"{_shown(connection)} was written by another stoker (its schema is {found}, this one's is {newest})."
            " Use that stoker, or another STOKER_HOME or --database."
        )
    upgrade(connection)


def known_revisions() -> list[str]:
    return sorted(path.name[1:5] for path in (MIGRATIONS / "versions").glob("v[0-9]*.py"))


def revision_of(connection: Connection) -> str | None:
    """The schema's revision; None if there is none, or if stoker 0.1 wrote it."""
    if not inspect(connection).has_table(_REVISION.name):
        return None
    return connection.execute(select(_REVISION.c.version_num)).scalar_one_or_none()


def upgrade(connection: Connection) -> None:
    """Run the steps that this database has not had."""
    from alembic import command  # noqa: PLC0415 - 0.2 s, for the one start in a hundred that needs it
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.execute(meta.delete().where(meta.c.key == "schema_version"))
    connection.execute(insert(meta).values(key="schema_version", value=_FOR_0_1))


def _create(connection: Connection, revision: str) -> None:
    """What all steps would make, at once."""
    metadata.create_all(connection)
    _REVISION.create(connection)
    connection.execute(insert(_REVISION).values(version_num=revision))
    connection.execute(insert(meta).values(key="schema_version", value=_FOR_0_1))


def _shown(connection: Connection) -> str:
    url = connection.engine.url
    return str(url.database) if url.drivername.startswith("sqlite") else url.render_as_string(hide_password=True)
