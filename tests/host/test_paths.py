"""Names from outside stay below the folder they are joined to."""

import pytest

from stoker.errors import UsageError
from stoker.host.paths import check_relative


@pytest.mark.parametrize("name", ["..", "../x", "a/../../x", "/etc/passwd", "a//b", "./x", "", "a/", "a\0b"])
def test_name_that_leads_out_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="not a relative path"):
        check_relative(name, where="/folder")


@pytest.mark.parametrize("name", ["x", "a/b", "..x", "a/...", "a b", "ä"])
def test_plain_name_is_itself(name: str) -> None:
    assert check_relative(name, where="/folder") == name
