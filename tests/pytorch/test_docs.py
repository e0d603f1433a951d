"""Every Python example in the trainer's pages runs, one after the other, as a reader would type them."""

import re
from pathlib import Path
from typing import Any

import pytest

from stoker import pytorch

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["trainer.md", "from-determined.md", "from-lightning.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": "__main__"}

    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_all_public_names_are_written_about() -> None:
    text = (DOCS / "trainer.md").read_text()

    assert [name for name in pytorch.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_the_public_names_are_sorted_and_there() -> None:
    assert all(hasattr(pytorch, name) for name in pytorch.__all__)
    assert len(set(pytorch.__all__)) == len(pytorch.__all__)
