"""The registry's tables, beside those of jobs: models, their versions, aliases, and what runs said they saved."""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, String, Table, Text, UniqueConstraint

from stoker.server.store.tables import Number, Words, metadata

# `counted` numbers versions and never goes back, so that a number is never that of another version later.
models = Table(
    "models",
    metadata,
    Column("number", Number, primary_key=True),
    Column("name", String, nullable=False, unique=True),
    Column("description", Text, nullable=False),
    Column("labels", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("counted", Integer, nullable=False),
    Column("default_version", Number),  # its key; no constraint, as the two tables would each wait for the other
)

# `record` is all of schema.registry.Version that only its reader cares for.
versions = Table(
    "versions",
    metadata,
    Column("key", Number, primary_key=True),
    Column("model", ForeignKey("models.number"), nullable=False),
    Column("name", String, nullable=False),
    Column("number", Integer, nullable=False),
    Column("url", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("record", Text, nullable=False),
    UniqueConstraint("model", "name"),
    UniqueConstraint("model", "number"),
)

aliases = Table(
    "aliases",
    metadata,
    Column("model", ForeignKey("models.number"), primary_key=True),
    Column("alias", String, primary_key=True),
    Column("version", ForeignKey("versions.key"), nullable=False),
)

saved_models = Table(
    "saved_models",
    metadata,
    Column("number", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("run", ForeignKey("runs.number"), nullable=False),
    Column("time", Float, nullable=False),
    Column("name", Words, nullable=False),
    Column("path", Words, nullable=False),
    Column("framework", Words, nullable=False),
    Column("metrics", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
)
Index("saved_models_of_job", saved_models.c.job, saved_models.c.number)
