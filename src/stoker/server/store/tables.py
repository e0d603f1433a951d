"""The tables, as the newest of `migrations` leaves them. Plain columns and JSON as text, for any SQL database."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)

metadata = MetaData()

# SQLite numbers rows by itself in a column of type INTEGER alone; it holds 64 bits there too.
Number = BigInteger().with_variant(Integer(), "sqlite")
# Compared byte by byte on every database, so that an index finds what begins with a prefix.
Name = String().with_variant(String(collation="C"), "postgresql")


class Words(TypeDecorator[str]):
    """Text from user code. It may hold NUL, which PostgreSQL cannot keep."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return value if value is None or "\0" not in value else value.replace("\0", "\N{REPLACEMENT CHARACTER}")


meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", String, nullable=False))

# `unfinished`, `started` and `ended` follow from the runs; they are kept here, written in the transaction that changes
# a run, so that the scheduler and `jobs list` need not read every job there ever was.
jobs = Table(
    "jobs",
    metadata,
    Column("number", Number, primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    Column("owner", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("pool", String, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("labels", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("intent", String, nullable=False),
    Column("intent_by", String, nullable=False),
    Column("cpus", Float, nullable=False),
    Column("memory_gb", Float, nullable=False),
    Column("gpus", Float, nullable=False),
    Column("max_restarts", Integer, nullable=False),
    Column("exit_codes", Text),
    Column("max_waiting_s", Float),
    Column("grace_s", Float, nullable=False),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("unfinished", Boolean, nullable=False),
    # Of a job with a search: `open` while more trials may come, then `done` or `failed`; how far it is; why it failed.
    Column("search", String),
    Column("search_progress", Float),
    Column("failure", Words),
    # What its trials come to, kept as they come and end, so that a list need not read ten thousand of them.
    # Of all its running trials together, if it was changed since it was submitted; and how many trials that makes.
    Column("max_slots", Integer),
    Column("max_live", Integer),
    Column("killed", Boolean, nullable=False, server_default=false()),
    Column("metric", String),
    Column("maximize", Boolean, nullable=False, server_default=false()),
    Column("trials_made", Integer, nullable=False, server_default="0"),
    Column("outcomes", Text, nullable=False, server_default="{}"),  # outcome to how many
    Column("best", Float),
    Column("best_trial", Integer),
)
Index("jobs_unfinished", jobs.c.unfinished, jobs.c.number)
Index("jobs_of_pool", jobs.c.pool, jobs.c.number)

# `attempts` is the number of the newest run; `failures` and `losses` count runs that ended so. `over` follows from the
# newest run, and is kept so that a search of ten thousand trials is scheduled by its few live ones alone.
trials = Table(
    "trials",
    metadata,
    Column("id", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("hparams", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("losses", Integer, nullable=False),
    Column("progress", Float),
    Column("metrics", Text, nullable=False),
    Column("checkpoint", Words),
    Column("checkpoint_time", Float),
    Column("over", Boolean, nullable=False, server_default=false()),
    Column("invalid", Words),  # why user code refused its hyperparameters
    # What the search knows of it; all of it follows from the search's records, and is kept to be looked at.
    Column("seed", Number),
    Column("bracket", Integer),
    Column("parent", Integer),
    Column("objective", Float),
    Column("objectives", Text),
    Column("outcome", String),
    Column("stopped", Words),
    # Its reports up to this one are in `series`, too; about how many came since.
    Column("packed", BigInteger, nullable=False, server_default="0"),
    Column("unpacked", Integer, nullable=False, server_default="0"),
    UniqueConstraint("job", "number"),
)
Index("trials_open", trials.c.job, trials.c.over, trials.c.number)
Index("trials_to_end", trials.c.job, trials.c.over, trials.c.outcome, trials.c.number)
Index("trials_best", trials.c.job, trials.c.objective, trials.c.number)

runs = Table(
    "runs",
    metadata,
    Column("number", Number, primary_key=True),
    Column("id", Name, nullable=False, unique=True),
    Column("trial", ForeignKey("trials.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("stop", String),
    Column("stop_time", Float),
    Column("phase", String),
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("ended", Float),
    Column("exit", Text),
    Column("message", Words, nullable=False),
    Column("directory", Text, nullable=False),
    Column("handle", Text),
    # Of a run on several nodes: how many there are, and whether one has failed, so that the others have to stop.
    Column("num_nodes", Integer, nullable=False, server_default="1"),
    Column("broken", Boolean, nullable=False, server_default=false()),
    UniqueConstraint("trial", "attempt"),
)

# How far each node of a run has been heard; and of a run on several nodes, how each ended.
nodes = Table(
    "nodes",
    metadata,
    Column("run", ForeignKey("runs.number"), primary_key=True),
    Column("node", Integer, primary_key=True, autoincrement=False),
    Column("acked", BigInteger, nullable=False),
    Column("exit", Text),
)

# A row is a block of lines; its number is the cursor. `packed` is the text, compressed: logs shrink five to ten times.
logs = Table(
    "logs",
    metadata,
    Column("number", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("run", ForeignKey("runs.number"), nullable=False),
    Column("node", Integer, nullable=False),
    Column("replica", String, nullable=False),
    Column("stream", String, nullable=False),
    Column("time", Float, nullable=False),
    Column("line", BigInteger, nullable=False),
    Column("count", Integer, nullable=False),
    Column("levels", Text),
    Column("packed", LargeBinary, nullable=False),
)
Index("logs_of_job", logs.c.job, logs.c.number)
Index("logs_of_run", logs.c.run, logs.c.number)

metrics = Table(
    "metrics",
    metadata,
    Column("number", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("run", ForeignKey("runs.number"), nullable=False),
    Column("time", Float, nullable=False),
    Column("replica", String, nullable=False),
    Column("kind", String, nullable=False),  # the group: that word is SQL's
    Column("step", BigInteger, nullable=False),
    Column("points", Text, nullable=False),  # name to value
)
Index("metrics_of_job", metrics.c.job, metrics.c.number)
Index("metrics_of_run", metrics.c.run, metrics.c.number)

# The reports once more, a line in blocks, so that a chart of a million points is read in a moment. `data` is its steps,
# times and values as arrays; `brief` the same of those points that are seen from afar. See series.py.
series = Table(
    "series",
    metadata,
    Column("number", Number, primary_key=True),
    Column("trial", ForeignKey("trials.id"), nullable=False),
    Column("kind", Words, nullable=False),
    Column("replica", Words, nullable=False),
    Column("name", Words, nullable=False),
    Column("count", Integer, nullable=False),
    Column("low_step", BigInteger, nullable=False),
    Column("high_step", BigInteger, nullable=False),
    Column("low_time", Float, nullable=False),
    Column("high_time", Float, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("brief", LargeBinary, nullable=False),
)
Index("series_of_trial", series.c.trial, series.c.number)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("number", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("run", ForeignKey("runs.number"), nullable=False),
    Column("time", Float, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("path", Words, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("metadata", Text, nullable=False),
)
Index("checkpoints_of_job", checkpoints.c.job, checkpoints.c.number)

# What a search decided, in order: the searcher is rebuilt from these. `metric` is the report's row that one answers.
search_records = Table(
    "search_records",
    metadata,
    Column("number", Number, primary_key=True),
    Column("job", ForeignKey("jobs.number"), nullable=False),
    Column("metric", BigInteger),
    Column("record", Text, nullable=False),
)
Index("search_records_of_job", search_records.c.job, search_records.c.number)
