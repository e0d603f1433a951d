"""The YAML on docs/search.md is read, whatever its dialect, and its tables leave nothing out."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from stoker.compat.dialects import determined
from stoker.compat.dialects.aiplatform_search import read_hyperparameters
from stoker.schema.search import SAMPLERS, STOPPING_RULES, SearchSpec

PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text()
EXAMPLES = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: next(iter(example)))
def test_example_is_read(example: dict[str, Any]) -> None:
    if "trainingInput" in example:
        assert read_hyperparameters(example["trainingInput"]["hyperparameters"], source="page").max_trials == 20
    elif determined.is_dialect(example):
        assert determined.read(example, source="page").values["search"]["max_trials"] == 16
    else:
        assert SearchSpec.parse(example["search"], source="page").space


def test_every_choice_and_field_is_on_the_page() -> None:
    names = [*SAMPLERS, *STOPPING_RULES, *SearchSpec.model_fields]

    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE)] == []
    assert len(EXAMPLES) == 4
