"""Where a job came from, as a field of its spec: stoker 0.1.0 kept it among the user's own data, as `stoker`."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

from stoker.origin import from_0_1

revision = "0006"
down_revision = "0005"

BATCH = 500  # a spec may hold thousands of hyperparameters
# Few jobs have one, and a spec is large: the database looks for the word, and only those with it are read.
_NEXT = sa.text(
    "SELECT number, spec FROM jobs WHERE number > :after AND spec LIKE '%\"stoker\"%' ORDER BY number LIMIT :most"
)
_KEEP = sa.text("UPDATE jobs SET spec = :spec WHERE number = :number")


def upgrade() -> None:
    connection = op.get_bind()
    for batch in batches(connection):
        changed = [{"number": row.number, "spec": spec} for row in batch if (spec := _moved(row.spec)) is not None]
        if changed:
            connection.execute(_KEEP, changed)


def batches(connection: sa.Connection) -> Iterator[Sequence[sa.Row[Any]]]:
    after = 0
    while batch := connection.execute(_NEXT, {"after": after, "most": BATCH}).fetchall():
        yield batch
        after = batch[-1].number


def _moved(text: str) -> str | None:
    """The spec with its origin in its place; None if there is nothing of ours in its data."""
    spec = json.loads(text)
    moved = from_0_1(spec)
    return None if moved is spec else json.dumps(moved, ensure_ascii=False, separators=(",", ":"))
