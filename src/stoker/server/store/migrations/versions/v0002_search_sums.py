"""What a search comes to, kept with its job; a limit of slots that can be changed; indexes for lists."""

import json
from collections import Counter

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_BAD = ("failed", "invalid_hp")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("max_slots", sa.Integer))
    op.add_column("jobs", sa.Column("max_live", sa.Integer))
    op.add_column("jobs", sa.Column("killed", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("metric", sa.String))
    op.add_column("jobs", sa.Column("maximize", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("jobs", sa.Column("trials_made", sa.Integer, nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("outcomes", sa.Text, nullable=False, server_default="{}"))
    op.add_column("jobs", sa.Column("best", sa.Float))
    op.add_column("jobs", sa.Column("best_trial", sa.Integer))
    op.create_index("jobs_of_pool", "jobs", ["pool", "number"])
    op.create_index("trials_best", "trials", ["job", "objective", "number"])
    op.create_index("logs_of_run", "logs", ["run", "number"])
    _sum_up()


def _sum_up() -> None:
    connection = op.get_bind()
    for number, spec in connection.execute(
        sa.text("SELECT number, spec FROM jobs WHERE search IS NOT NULL")
    ).fetchall():
        connection.execute(_KEEP, {"number": number, **_sums(connection, number, json.loads(spec)["search"])})


def _sums(connection: sa.Connection, job: int, search: dict[str, object]) -> dict[str, object]:
    found = connection.execute(
        sa.text("SELECT number, outcome, objective FROM trials WHERE job = :job ORDER BY number"), {"job": job}
    ).fetchall()
    maximize = search.get("goal") == "maximize"
    counted = [(row.objective, row.number) for row in found if row.objective is not None and row.outcome not in _BAD]
    best = min(counted, key=lambda one: (-one[0] if maximize else one[0], one[1]), default=(None, None))
    return {
        "metric": search.get("metric"),
        "maximize": maximize,
        "made": len(found),
        "outcomes": json.dumps(dict(Counter(row.outcome for row in found if row.outcome is not None))),
        "best": best[0],
        "best_trial": best[1],
    }


_KEEP = sa.text(
    "UPDATE jobs SET metric = :metric, maximize = :maximize, trials_made = :made, outcomes = :outcomes,"
    " best = :best, best_trial = :best_trial WHERE number = :number"
)
