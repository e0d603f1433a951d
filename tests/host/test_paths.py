"""Names from outside stay below the folder they are joined to."""

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.host.paths import join_below


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "./x", "", "a/", "a\0b"])
def test_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a relative path"):
        join_below(Path("/folder"), name)


@pytest.mark.parametrize("name", ["x", "a/b", "..x", "a/...", "a b", "ä"])
def test_plain_name_is_joined(name: str) -> None:
    assert join_below(Path("/folder"), name) == Path("/folder") / name
