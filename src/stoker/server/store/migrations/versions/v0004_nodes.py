"""Runs on several nodes: how many there are, and how each ended."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("runs", sa.Column("num_nodes", sa.Integer, nullable=False, server_default="1"))
    op.add_column("runs", sa.Column("broken", sa.Boolean, nullable=False, server_default=sa.false()))
    op.add_column("nodes", sa.Column("exit", sa.Text))
