"""What shares a call of the model, and that nobody pays for another's bad instance."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from stoker.errors import InstanceError
from stoker.predict.online.batching import Batcher, BusyError
from stoker.predict.online.compute import compute
from stoker.predict.online.settings import Limits
from tests.predict.online.fakes import Adder


async def ask(batcher: Batcher, instances: Sequence[Any]) -> Any:
    answer = asyncio.get_running_loop().create_future()
    batcher.submit(instances, answer.set_result)
    return await answer


def test_requests_of_one_turn_share_a_call_and_get_their_own() -> None:
    model = Adder()

    async def main() -> list[Any]:
        batcher = Batcher(model, limits=Limits())
        return await asyncio.gather(ask(batcher, [[1, 2]]), ask(batcher, [[3, 4], [5, 6]]), ask(batcher, [[7, 8]]))

    assert asyncio.run(main()) == [[3], [7, 11], [15]]
    assert model.batches == [4]


def test_the_next_batch_gathers_while_one_is_computed() -> None:
    model = Adder()
    model.gate.clear()

    async def main() -> list[Any]:
        batcher = Batcher(model, limits=Limits(max_batch=8))
        first = asyncio.ensure_future(ask(batcher, [[0, 0]]))
        await asyncio.to_thread(model.entered.wait, 60)
        rest = [asyncio.ensure_future(ask(batcher, [[n, n]])) for n in range(1, 12)]
        await asyncio.sleep(0)
        model.gate.set()
        return [*await first, *(await asyncio.gather(*rest))]

    assert asyncio.run(main()) == [0, *([2 * n] for n in range(1, 12))]
    assert model.batches == [1, 8, 3]


def test_a_long_request_is_cut_and_short_ones_do_not_wait_for_its_end() -> None:
    model = Adder()
    order: list[str] = []

    async def main() -> None:
        batcher = Batcher(model, limits=Limits(max_batch=4))

        async def one(name: str, instances: list[Any]) -> None:
            found = await ask(batcher, instances)
            assert found == [sum(instance) for instance in instances]
            order.append(name)

        await asyncio.gather(one("long", [[n, 1] for n in range(30)]), one("short", [[1, 1]]))

    asyncio.run(main())

    assert order == ["short", "long"]
    assert max(model.batches) == 4


def test_a_bad_instance_of_a_long_request_is_counted_from_its_start() -> None:
    async def main() -> Any:
        return await ask(Batcher(Adder(), limits=Limits(max_batch=4)), [[1, 1]] * 9 + ["bad"])

    error = asyncio.run(main())

    assert isinstance(error, InstanceError)
    assert (error.index, error.field) == (9, "a")


def test_no_more_than_the_queue_wait() -> None:
    model = Adder()
    model.gate.clear()

    async def main() -> None:
        batcher = Batcher(model, limits=Limits(queue=2))
        waiting = [asyncio.ensure_future(ask(batcher, [[0, 0]]))]
        await asyncio.to_thread(model.entered.wait, 60)
        waiting += [asyncio.ensure_future(ask(batcher, [[0, 0]])) for _ in range(2)]
        await asyncio.sleep(0)

        with pytest.raises(BusyError, match="2 requests are waiting"):
            batcher.submit([[0, 0]], print)

        model.gate.set()
        await asyncio.gather(*waiting)

    asyncio.run(main())


def test_with_a_delay_a_batch_waits_only_while_others_are_served_and_not_when_full() -> None:
    model = Adder()
    model.gate.clear()

    async def main() -> None:
        batcher = Batcher(model, limits=Limits(max_batch=3, max_delay_ms=600_000))
        waiting = [asyncio.ensure_future(ask(batcher, [[0, 0]]))]  # idle: it goes at once
        await asyncio.to_thread(model.entered.wait, 60)
        waiting.append(asyncio.ensure_future(ask(batcher, [[1, 0]])))
        await asyncio.sleep(0)
        model.gate.set()
        await waiting[0]
        assert model.batches == [1]  # the second waits for others, ten minutes if need be
        waiting += [asyncio.ensure_future(ask(batcher, [[n, 0]])) for n in (2, 3)]
        assert await asyncio.gather(*waiting[1:]) == [[1], [2], [3]]

    asyncio.run(main())

    assert model.batches == [1, 3]


def test_each_request_gets_its_own_error() -> None:
    found = compute(Adder(), [[[1, 2]], [[1, 1], "bad"], [[3, 4]], ["bad"]])

    assert (found[0], found[2]) == ([3], [7])
    assert [str(found[at]) for at in (1, 3)] == [
        "instance 1, field 'a': is bad",
        "instance 0, field 'a': is bad",
    ]


def test_what_a_model_raises_for_all_is_raised_for_the_one_it_is_about() -> None:
    found = compute(Adder(), [[[1, 2]], ["bug"], ["value"], [[3, 4]]])

    assert (found[0], found[3]) == ([3], [7])
    assert isinstance(found[1], RuntimeError)
    assert isinstance(found[2], ValueError)


def test_a_model_that_loses_a_prediction_is_found_out() -> None:
    class Loser(Adder):
        def predict(self, instances: Sequence[Any]) -> list[Any]:
            return super().predict(instances)[1:]

    (found,) = compute(Loser(), [[[1, 2]]])

    assert "0 predictions for 1 instances" in str(found)


@pytest.mark.parametrize(
    ("took_s", "quick_size"),
    [
        ([0.001], 8),
        ([0.001, 0.005], 8),  # once, a little: the machine's doing
        ([0.001, 0.005, 0.001, 0.005], 8),
        ([0.001, 0.005, 0.005], 2),  # twice in a row: the model's
        ([0.001, 1.0], 2),  # nobody may wait so long for a second time
    ],
)
def test_one_hiccup_does_not_move_a_quick_model_to_a_thread(took_s: list[float], quick_size: int) -> None:
    async def main() -> int:
        batcher = Batcher(Adder(), limits=Limits())
        for each in took_s:
            batcher._learn(4, each)
        return batcher._quick_size

    assert asyncio.run(main()) == quick_size
