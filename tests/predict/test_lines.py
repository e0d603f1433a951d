"""Predictions as lines of JSON: whole columns give the text that rows give one by one."""

from typing import Any

import pyarrow
import pytest

from stoker.predict.batch.tables import lines_of
from stoker.predict.online.encoding import encode

LABELS = ["<=50K", 'say "ja"', "día\n"]
CHOSEN = [0, 2, 1, 0, 0, 2, 1, 0, 0, 0, 0, 0]
NUMBERS = [0.1, -2.5, 1e300, 3.0, 0.25, 1 / 3, 5.0, 2.0**-30, 0.0, -0.0, 7.0, 12345678.9]
LISTS = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(NUMBERS * 2, pyarrow.float32()), 2)

TABLES = {
    "one bare value": pyarrow.table({"": NUMBERS}),
    "labels": pyarrow.table({"label": [LABELS[at] for at in CHOSEN], "p": NUMBERS}),
    "coded labels": pyarrow.table({"label": pyarrow.DictionaryArray.from_arrays(CHOSEN, LABELS), "p": NUMBERS}),
    "lists": pyarrow.table({"100%": CHOSEN, "probabilities": LISTS}),
    "gaps": pyarrow.table({"label": pyarrow.DictionaryArray.from_arrays([None, 1], LABELS), "p": [None, 1.5]}),
    "none": pyarrow.table({"p": pyarrow.array([], pyarrow.float64())}),
}


def rows_of(table: pyarrow.Table) -> list[Any]:
    return [row[""] if table.column_names == [""] else row for row in table.to_pylist()]


@pytest.mark.parametrize("name", TABLES)
def test_lines_of_a_table_are_those_of_its_rows(name: str) -> None:
    table = TABLES[name]
    expected = b"".join(encode(row) + b"\n" for row in rows_of(table))

    assert lines_of(table, key=None, keys=None) == expected
    part = table.slice(1, 5)
    assert lines_of(part, key=None, keys=None) == b"".join(expected.splitlines(keepends=True)[1:6])


def test_keys_stand_before_their_predictions() -> None:
    table = TABLES["coded labels"].slice(1, 2)

    lines = lines_of(table, key="id", keys=["a", "b"])

    assert lines == b"".join(
        encode({"id": key, "prediction": row}) + b"\n" for key, row in zip("ab", rows_of(table), strict=True)
    )
