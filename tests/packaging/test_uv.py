"""uv's explanations, shortened to what a person needs."""

import pytest

from stoker.packaging.environment.uv import short_reason

NO_WHEEL = """Using Python 3.11.7 environment at: shadow
error: No solution found when resolving dependencies
  cause: Because torch==1.11.0 has no wheels with a matching Python ABI tag (e.g., `cp311`) and you require torch==1.11.0, we can conclude that your requirements are unsatisfiable.

hint: You require CPython 3.11 (`cp311`), but we only found wheels for `torch` (v1.11.0) with the following Python ABI tags: `cp37m`, `cp38`
"""  # noqa: E501
OLDER_DRAWING = """  × No solution found when resolving dependencies:
  ╰─▶ Because nosuch was not found in the package registry and you require
      nosuch, we can conclude that your requirements are unsatisfiable.
"""
STRATEGY = """error: No solution found when resolving dependencies
  cause: Because there is no version of a==2 and you require a==2, we can conclude that your requirements are unsatisfiable.

hint: `a` was found on https://x, but not at the requested version. If all indexes are equally trusted, use `--index-strategy unsafe-best-match`
"""  # noqa: E501
WRONG_PYTHON = """error: No solution found when resolving dependencies
  cause: Because the current Python version (3.7.16) does not satisfy Python>=3.11 and all of:
             pandas>=3.0.0rc0,<=3.0.3
             pandas>=3.0.5
         depend on Python>=3.11, we can conclude that all of:
             pandas>=3.0.0rc0,<=3.0.3
          cannot be used. (1)

         Because the current Python version (3.7.16) does not satisfy Python>=3.8 and pandas>=2.0.0,<=2.0.3 depends on Python>=3.8, we can conclude that pandas>=2.0.0,<=2.0.3 cannot be used.
         And because you require pandas>=2, we can conclude that your requirements are unsatisfiable.
"""  # noqa: E501
PIP = """WARNING: You are using pip version 22
ERROR: Could not find a version that satisfies the requirement nosuch (from versions: none)
ERROR: No matching distribution found for nosuch
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            NO_WHEEL,
            "torch==1.11.0 has no wheels with a matching Python ABI tag (e.g., `cp311`)."
            " There are wheels for cp37m, cp38.",
        ),
        (OLDER_DRAWING, "nosuch was not found in the package registry."),
        (WRONG_PYTHON, "pandas needs Python>=3.8, and this is 3.7.16."),
        (STRATEGY, "there is no version of a==2."),
        (
            PIP,
            "Could not find a version that satisfies the requirement nosuch (from versions: none)."
            " No matching distribution found for nosuch.",
        ),
        ("", "it gave no reason."),
    ],
)
def test_reason_is_one_short_line(said: str, reason: str) -> None:
    assert short_reason(said) == reason


def test_reason_stays_short_when_the_explanation_is_long() -> None:
    assert len(short_reason("error: " + "because of this, " * 500)) < 500
