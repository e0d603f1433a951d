"""Things are made ahead in order, and only so many."""

import threading
from collections.abc import Iterator

import pytest

from stoker.host.prefetch import prefetch


def test_all_come_in_the_order_of_the_items_whichever_is_made_first() -> None:
    second_is_made = threading.Event()

    def make(item: int) -> int:
        if item == 0:
            assert second_is_made.wait(60)
        if item == 1:
            second_is_made.set()
        return item * 10

    assert list(prefetch(make, range(5), at_once=2)) == [0, 10, 20, 30, 40]


def test_no_more_items_are_taken_than_are_to_be_in_the_making() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in range(100):
            taken.append(item)
            yield item

    made = prefetch(lambda item: item, items(), at_once=2)
    assert next(made) == 0
    assert taken == [0, 1, 2]
    made.close()  # type: ignore[attr-defined]
    assert taken == [0, 1, 2]


def test_what_goes_wrong_is_raised_in_its_turn() -> None:
    made = prefetch(lambda item: 1 / item, [1, 2, 0, 4], at_once=3)
    assert [next(made), next(made)] == [1.0, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(made)
