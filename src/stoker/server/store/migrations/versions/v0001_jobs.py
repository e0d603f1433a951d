"""Jobs, trials, runs and what they say. Takes up the files of stoker 0.1, whose `meta` counts schemas 1 and 2."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    version = _version_of_0_1()
    if version is None:
        _create()
    elif version == "1":
        _upgrade_from_1()


def _version_of_0_1() -> str | None:
    connection = op.get_bind()
    if not sa.inspect(connection).has_table("meta"):
        return None
    found = connection.execute(sa.text("SELECT value FROM meta WHERE key = 'schema_version'")).scalar_one_or_none()
    return None if found is None else str(found)


def _upgrade_from_1() -> None:
    """Searches came: trials and jobs have more columns. What was there before had none."""
    for column in _job_search_columns():
        op.add_column("jobs", column)
    for column in _trial_search_columns():
        op.add_column("trials", column)
    _create_trial_indexes()
    _create_search_records()
    op.execute("UPDATE trials SET over = 1 WHERE job IN (SELECT number FROM jobs WHERE NOT unfinished)")


def _create() -> None:
    op.create_table(
        "meta", sa.Column("key", sa.String, primary_key=True), sa.Column("value", sa.String, nullable=False)
    )
    _create_jobs()
    _create_trials()
    _create_trial_indexes()
    _create_runs()
    _create_said()
    _create_search_records()


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", _NAME, nullable=False, unique=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("pool", sa.String, nullable=False),
        sa.Column("priority", sa.Integer, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("spec", sa.Text, nullable=False),
        sa.Column("intent", sa.String, nullable=False),
        sa.Column("intent_by", sa.String, nullable=False),
        sa.Column("cpus", sa.Float, nullable=False),
        sa.Column("memory_gb", sa.Float, nullable=False),
        sa.Column("gpus", sa.Float, nullable=False),
        sa.Column("max_restarts", sa.Integer, nullable=False),
        sa.Column("exit_codes", sa.Text),
        sa.Column("max_waiting_s", sa.Float),
        sa.Column("grace_s", sa.Float, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("unfinished", sa.Boolean, nullable=False),
        *_job_search_columns(),
    )
    op.create_index("jobs_unfinished", "jobs", ["unfinished", "number"])


def _job_search_columns() -> "list[sa.Column[object]]":
    return [sa.Column("search", sa.String), sa.Column("search_progress", sa.Float), sa.Column("failure", sa.Text)]


def _create_trials() -> None:
    op.create_table(
        "trials",
        sa.Column("id", _NUMBER, primary_key=True),
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("hparams", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("losses", sa.Integer, nullable=False),
        sa.Column("progress", sa.Float),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("checkpoint", sa.Text),
        sa.Column("checkpoint_time", sa.Float),
        *_trial_search_columns(),
        sa.UniqueConstraint("job", "number"),
    )


def _trial_search_columns() -> "list[sa.Column[object]]":
    return [
        sa.Column("over", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("invalid", sa.Text),
        sa.Column("seed", _NUMBER),
        sa.Column("bracket", sa.Integer),
        sa.Column("parent", sa.Integer),
        sa.Column("objective", sa.Float),
        sa.Column("objectives", sa.Text),
        sa.Column("outcome", sa.String),
        sa.Column("stopped", sa.Text),
    ]


def _create_trial_indexes() -> None:
    op.create_index("trials_open", "trials", ["job", "over", "number"])
    op.create_index("trials_to_end", "trials", ["job", "over", "outcome", "number"])


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("id", _NAME, nullable=False, unique=True),
        sa.Column("trial", _NUMBER, sa.ForeignKey("trials.id"), nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("stop", sa.String),
        sa.Column("stop_time", sa.Float),
        sa.Column("phase", sa.String),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("ended", sa.Float),
        sa.Column("exit", sa.Text),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("handle", sa.Text),
        sa.UniqueConstraint("trial", "attempt"),
    )
    op.create_table(
        "nodes",
        sa.Column("run", _NUMBER, sa.ForeignKey("runs.number"), primary_key=True),
        sa.Column("node", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("acked", sa.BigInteger, nullable=False),
    )


def _create_said() -> None:
    """What runs say: logs, metrics, checkpoints."""
    op.create_table(
        "logs",
        *_of_run(),
        sa.Column("node", sa.Integer, nullable=False),
        sa.Column("replica", sa.String, nullable=False),
        sa.Column("stream", sa.String, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("line", sa.BigInteger, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("levels", sa.Text),
        sa.Column("packed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "metrics",
        *_of_run(),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("replica", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("points", sa.Text, nullable=False),
    )
    op.create_table(
        "checkpoints",
        *_of_run(),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("step", sa.BigInteger, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
    )
    for table in ("logs", "metrics", "checkpoints"):
        op.create_index(f"{table}_of_job", table, ["job", "number"])


def _of_run() -> "list[sa.Column[object]]":
    return [
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number"), nullable=False),
        sa.Column("run", _NUMBER, sa.ForeignKey("runs.number"), nullable=False),
    ]


def _create_search_records() -> None:
    op.create_table(
        "search_records",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number"), nullable=False),
        sa.Column("metric", sa.BigInteger),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("search_records_of_job", "search_records", ["job", "number"])
