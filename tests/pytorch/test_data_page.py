"""What docs/data.md shows is run."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_examples_on_the_page_run_in_order():
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL))

    exec(compile(code, str(PAGE), "exec"), {"__name__": "page"})  # noqa: S102 - our own page
