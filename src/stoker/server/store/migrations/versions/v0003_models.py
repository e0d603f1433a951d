"""The registry: models, their versions and aliases, and the models that runs say they saved."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "models",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("name", sa.String, nullable=False, unique=True),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("counted", sa.Integer, nullable=False),
        sa.Column("default_version", _NUMBER),
    )
    op.create_table(
        "versions",
        sa.Column("key", _NUMBER, primary_key=True),
        sa.Column("model", _NUMBER, sa.ForeignKey("models.number"), nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.UniqueConstraint("model", "name"),
        sa.UniqueConstraint("model", "number"),
    )
    op.create_table(
        "aliases",
        sa.Column("model", _NUMBER, sa.ForeignKey("models.number"), primary_key=True),
        sa.Column("alias", sa.String, primary_key=True),
        sa.Column("version", _NUMBER, sa.ForeignKey("versions.key"), nullable=False),
    )
    _create_saved_models()


def _create_saved_models() -> None:
    op.create_table(
        "saved_models",
        sa.Column("number", _NUMBER, primary_key=True),
        sa.Column("job", _NUMBER, sa.ForeignKey("jobs.number"), nullable=False),
        sa.Column("run", _NUMBER, sa.ForeignKey("runs.number"), nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("framework", sa.Text, nullable=False),
        sa.Column("metrics", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("saved_models_of_job", "saved_models", ["job", "number"])
