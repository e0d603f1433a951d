"""Lines of metrics in blocks, as charts read them, beside the reports; and where a trial's reports are."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("trials", sa.Column("packed", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("trials", sa.Column("unpacked", sa.Integer, nullable=False, server_default="0"))
    op.create_index("metrics_of_run", "metrics", ["run", "number"])
    op.create_table(
        "series",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("trial", _NUMBER, sa.ForeignKey("trials.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("replica", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("count", sa.Integer, nullable=False),
        sa.Column("low_step", sa.BigInteger, nullable=False),
        sa.Column("high_step", sa.BigInteger, nullable=False),
        sa.Column("low_time", sa.Float, nullable=False),
        sa.Column("high_time", sa.Float, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("brief", sa.LargeBinary, nullable=False),
    )
    op.create_index("series_of_trial", "series", ["trial", "number"])
    # What was said before this step is packed when somebody looks at it.
    op.execute("UPDATE trials SET unpacked = 1 WHERE metrics <> '{}'")
