"""The tree of errors: what is drawn is what is caught, with its exit code and HTTP status."""

import re

import pytest

from stoker import errors
from stoker.errors import ConfigError, ConflictError, NotFoundError, ServerError, StokerError, UsageError


def drawn() -> dict[str, tuple[str, int | None]]:
    """Each class in the docstring's tree: its parent, and the exit code that stands next to it, if one does."""
    found: dict[str, tuple[str, int | None]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        if (match := re.match(r"    ([│├└─ ]*)(\w+Error)\s+(?:exit (\d))?", line)) is None:
            continue
        depth, name, code = len(match[1]), match[2], match[3]
        above = [one for one in above if one[0] < depth]
        found[name] = (above[-1][1] if above else "Exception", int(code) if code else None)
        above.append((depth, name))
    return found


def test_docstring_draws_the_classes_as_they_derive() -> None:
    classes = {
        name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, StokerError)
    }

    assert {name: kind.__bases__[0].__name__ for name, kind in classes.items()} == {
        name: parent for name, (parent, _) in drawn().items()
    }
    assert {name: classes[name].exit_code for name, (_, code) in drawn().items() if code is not None} == {
        name: code for name, (_, code) in drawn().items() if code is not None
    }


@pytest.mark.parametrize("kind", [NotFoundError, ConflictError])
def test_usage_errors_do_not_include_what_is_missing_or_in_the_way(kind: type[StokerError]) -> None:
    assert not issubclass(kind, UsageError)


def test_exit_codes_and_statuses_tell_errors_apart() -> None:
    kinds = (StokerError, UsageError, ConfigError, NotFoundError, ConflictError, ServerError)

    assert [(kind.exit_code, kind.http_status) for kind in kinds] == [
        (1, 500),
        (2, 400),
        (2, 422),
        (2, 404),
        (2, 409),
        (1, 500),
    ]
