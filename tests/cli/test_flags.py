"""The value syntaxes of flags."""

from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from stoker.terminal import flags


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (flags.comma_list, "a.whl,b.tar.gz", ["a.whl", "b.tar.gz"]),
        (flags.comma_list, "a.whl", ["a.whl"]),
        (flags.comma_list, "^:^a,1:b", ["a,1", "b"]),
        (flags.key_values, "a=1,b=x=y,c=", {"a": "1", "b": "x=y", "c": ""}),
        (flags.accelerator, "type=nvidia-tesla-t4,count=2", {"type": "NVIDIA_TESLA_T4", "count": 2}),
        (flags.accelerator, "count=1,type=NVIDIA_TESLA_K80", {"type": "NVIDIA_TESLA_K80", "count": 1}),
        (flags.seconds, "90", 90),
        (flags.seconds, "90s", 90),
        (flags.seconds, "10m", 600),
        (flags.seconds, "1.5h", 5400),
        (flags.seconds, "7d", 604800),
        (flags.boolean, "true", True),
        (flags.boolean, "False", False),
    ],
)
def test_values_are_read(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (flags.key_values, "a"),
        (flags.key_values, "=1"),
        (flags.accelerator, "type=nvidia-tesla-t4"),
        (flags.accelerator, "count=2"),
        (flags.accelerator, "type=x,count=0"),
        (flags.accelerator, "type=x,count=two"),
        (flags.accelerator, "type=x,count=1,size=3"),
        (flags.seconds, "tomorrow"),
        (flags.seconds, "-3s"),
        (flags.positive, "0"),
        (flags.whole, "-1"),
        (flags.whole, "1.5"),
        (flags.boolean, "maybe"),
    ],
)
def test_bad_values_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        parse(text)
