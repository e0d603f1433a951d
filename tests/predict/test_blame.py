"""The instance a model chokes on is found without trying each."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.errors import InstanceError, StokerError
from stoker.predict.instances.blame import predict_or_blame


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_first_bad_instance_is_blamed(values: list[int]) -> None:
    calls = 0

    def halve(instances: Sequence[int]) -> list[Any]:
        nonlocal calls
        calls += 1
        return [30 / value for value in instances]

    if 0 not in values:
        assert predict_or_blame(halve, values) == [30 / value for value in values]
        return
    with pytest.raises(InstanceError, match="the model refuses it: float division by zero|division by zero") as caught:
        predict_or_blame(halve, values)
    assert caught.value.index == values.index(0)
    assert calls <= 8


def test_faults_that_no_instance_has_alone_are_nobodys() -> None:
    def picky(instances: Sequence[int]) -> list[Any]:
        if len(instances) == 5:
            raise ValueError("five is too many")
        return list(instances)

    with pytest.raises(StokerError, match="on these 5 instances together, on none alone: .*five is too many") as caught:
        predict_or_blame(picky, range(5))
    assert not isinstance(caught.value, InstanceError)
    with pytest.raises(MemoryError):
        predict_or_blame(lambda instances: (_ for _ in ()).throw(MemoryError()), [1])


def test_block_is_filled_up_and_cut_off_again() -> None:
    seen = []

    def same(instances: Sequence[int]) -> list[Any]:
        seen.append(len(instances))
        return list(instances)

    assert predict_or_blame(same, [1, 2, 3], block=4) == [1, 2, 3]
    assert predict_or_blame(same, [], block=4) == []
    assert seen == [4, 0]
