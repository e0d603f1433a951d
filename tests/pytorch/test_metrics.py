"""Metrics: how batches and ranks combine, and when they are read from the device."""

import math
from typing import Any

import pytest
import torch

from stoker import pytorch
from stoker.errors import UsageError
from stoker.pytorch import Batch, MetricReducer, Reducer
from stoker.pytorch.metrics import FunctionReducer, MetricWindow, WrappedReducers, reduce_values
from tests.pytorch.trials import Watched, events

VALUES = [(1.0, 2), (4.0, 1), (7.0, 1)]


@pytest.mark.parametrize(
    ("reducer", "expected"),
    [(Reducer.AVG, 13 / 4), (Reducer.SUM, 12), (Reducer.MAX, 7), (Reducer.MIN, 1)],
)
def test_reducers_combine_values_by_their_weights(reducer: Reducer, expected: float) -> None:
    assert reduce_values(reducer, VALUES) == (pytest.approx(expected), 4)


@pytest.mark.parametrize("reducer", list(Reducer))
def test_combining_ranks_is_combining_all_their_batches(reducer: Reducer) -> None:
    ranks = [reduce_values(reducer, VALUES[:1]), reduce_values(reducer, VALUES[1:])]

    assert reduce_values(reducer, ranks) == reduce_values(reducer, VALUES)


@pytest.mark.parametrize("reducer", list(Reducer))
def test_nan_is_not_lost(reducer: Reducer) -> None:
    assert math.isnan(reduce_values(reducer, [(1.0, 1), (math.nan, 1), (2.0, 1)])[0])


def test_metrics_that_are_not_scalars_are_averaged_element_by_element() -> None:
    value, _ = reduce_values(Reducer.AVG, [(torch.tensor([1.0, 2.0]), 1), (torch.tensor([5.0, 2.0]), 3)])

    assert value.tolist() == [4.0, 2.0]


def test_what_has_no_weight_counts_for_nothing_even_if_there_is_nothing_else_on_a_rank() -> None:
    empty_rank = reduce_values(Reducer.AVG, [(9.0, 0)])

    assert reduce_values(Reducer.AVG, [(9.0, 0), (1.0, 2)]) == (1.0, 2)
    assert reduce_values(Reducer.AVG, [empty_rank, (1.0, 2)]) == (1.0, 2)


def test_shapes_that_change_are_told() -> None:
    with pytest.raises(UsageError, match=r"Metric 'per_sample' has values of shapes \(1,\), \(2,\)"):
        reduce_values(Reducer.AVG, [(torch.ones(2), 2), (torch.ones(1), 1)], "per_sample")


def test_a_window_gives_back_what_was_added_whatever_it_was() -> None:
    window = MetricWindow("train_batch")
    for n in range(3000):  # more than are packed at once
        window.add({"loss": torch.tensor(float(n), requires_grad=True) * 1, "n": n, "shape": torch.ones(1)}, 1)

    rows = window.read()

    assert [row["loss"] for row in rows] == [float(n) for n in range(3000)]
    assert [row["n"] for row in rows] == [float(n) for n in range(3000)]
    assert rows[-1]["shape"] == 1.0


def test_a_running_total_that_the_user_goes_on_adding_to_keeps_its_values() -> None:
    window, total = MetricWindow("train_batch"), torch.zeros(())
    for _ in range(3):
        window.add({"total": total.add_(1)}, 1)

    assert [row["total"] for row in window.read()] == [1, 2, 3]


def test_adding_never_reads_the_device() -> None:
    class Untouchable(torch.Tensor):
        """Stands in for a tensor on a device: reading it would be a wait."""

        def item(self) -> Any:
            raise AssertionError("read")

        __float__ = __bool__ = tolist = cpu = item

    window = MetricWindow("train_batch")
    value = torch.ones(()).as_subclass(Untouchable)
    for _ in range(2100):
        window.add({"loss": value}, 1)

    with pytest.raises(AssertionError, match="read"):
        window.read()


class Mean(MetricReducer):
    def reset(self) -> None:
        self.values: list[float] = []

    def per_slot_reduce(self) -> Any:
        return sum(self.values), len(self.values)

    def cross_slot_reduce(self, per_slot_metrics: list[Any]) -> Any:
        totals, counts = zip(*per_slot_metrics, strict=True)
        return sum(totals) / sum(counts)


def test_reducers_of_the_users_own_see_each_window_and_each_validation() -> None:
    class Custom(Watched):
        def __init__(self, context: Any) -> None:
            super().__init__(context, length=40)
            self.mean = context.wrap_reducer(Mean(), name="mean")
            self.sums = context.wrap_reducer(lambda values: {"sum": sum(values), "count": len(values)})
            self.quiet = context.wrap_reducer(max, name="largest", for_training=False)

        def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
            self.mean.values.append(float(batch_idx))
            self.sums.update(batch_idx)
            return super().train_batch(batch, epoch_idx, batch_idx)

        def evaluate_batch(self, batch: Any, batch_idx: int) -> Any:
            self.mean.values.append(100.0 + batch_idx)
            self.sums.update(torch.tensor(batch_idx))
            self.quiet.update(batch.max())
            return super().evaluate_batch(batch, batch_idx)

    context = pytorch.init()
    context.fit(context.build_trial(Custom), max_length=Batch(9), reporting_period=Batch(3), validation_period=Batch(6))

    training = [event["values"] for event in events(context.run.run_dir, "metric", "training")]
    validation = events(context.run.run_dir, "metric", "validation")[0]["values"]
    assert [row["mean"] for row in training] == [1, 4, 7]
    assert [(row["sum"], row["count"]) for row in training] == [(3, 3), (12, 3), (21, 3)]
    assert all("largest" not in row for row in training)
    assert (validation["mean"], validation["sum"], validation["largest"]) == (101, 3, 4)


@pytest.mark.parametrize("slots", [1, 3, 9])
def test_a_function_gets_values_in_the_order_of_the_batches(slots: int) -> None:
    order = list(range(20))
    ranks = [FunctionReducer(list) for _ in range(slots)]
    for n in order:
        ranks[n % slots].update(n)

    assert ranks[0].cross_slot_reduce([rank.per_slot_reduce() for rank in ranks]) == order


def test_names_and_dicts_of_reducers_must_agree() -> None:
    def reduce(result: Any, name: str | None) -> Any:
        reducers = WrappedReducers()
        reducers.wrap(FunctionReducer(lambda values: result), name, for_training=True, for_validation=True)
        return reducers.reduce(for_training=True, allgather=lambda mine: [mine])

    assert reduce(1, "one") == reduce({"one": 1}, None) == {"one": 1}
    with pytest.raises(UsageError, match="name=None but it did not return a dict"):
        reduce(1, None)
    with pytest.raises(UsageError, match="with name set but it returned a dict anyway"):
        reduce({"one": 1}, "one")


def test_a_reducer_is_wrapped_once() -> None:
    context, mean = pytorch.init(), Mean()
    context.wrap_reducer(mean, name="mean")

    with pytest.raises(UsageError, match="wrapped already"):
        context.wrap_reducer(mean, name="again")


def test_reducers_by_name_name_all_metrics() -> None:
    class Partly(Watched):
        def evaluation_reducer(self) -> Any:
            return {"n": Reducer.SUM}

    class Each(Watched):
        def evaluation_reducer(self) -> Any:
            return {"n": Reducer.SUM, "loss": Reducer.MAX}

    context = pytorch.init()
    assert context.fit(context.build_trial(Each), max_length=Batch(1))["n"] == 5
    with pytest.raises(UsageError, match="names n, but evaluate_batch returned loss, n"):
        context.fit(context.build_trial(Partly), max_length=Batch(1))
