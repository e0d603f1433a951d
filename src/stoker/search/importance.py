"""How much each hyperparameter mattered: the share of the objective's spread that goes with its value.

One parameter at a time: trials are grouped by its value (numbers into bins of equal count) and the spread between the
groups is compared with the spread in all, less what chance alone would show. Objectives are taken by rank, so that one
trial that diverged does not drown the rest.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from stoker.schema.search import SearchSpec
from stoker.schema.space import Categorical, Double, Int, Parameter
from stoker.search.samplers import TrialResult
from stoker.search.space import Layout

MIN_TRIALS = 8  # with fewer, nothing can be said
MOST_BINS = 8


def parameter_importance(spec: SearchSpec, results: Sequence[TrialResult]) -> dict[str, float]:
    """Each varied parameter's share, most first; they sum to 1 (or are all 0). Empty when too few trials are known."""
    layout = Layout(spec.space)
    known = [result for result in results if result.values and result.values[0] is not None]
    if len(known) < MIN_TRIALS:
        return {}
    ranks = _ranks([result.values[0] or 0.0 for result in known])
    points = [layout.flatten(result.hparams) for result in known]
    shares = {
        name: _explained(_groups(parameter, [point.get(name) for point in points]), ranks)
        for name, parameter in layout.parameters.items()
        if _varies([point.get(name) for point in points])
    }
    total = sum(shares.values())
    ordered = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
    return {name: share / total if total else 0.0 for name, share in ordered}


def _varies(values: Sequence[Any]) -> bool:
    first = repr(values[0])
    return any(repr(value) != first for value in values)


def _groups(parameter: Parameter, values: Sequence[Any]) -> list[int]:
    """A group number for each trial; those the parameter did not apply to are a group of their own."""
    if isinstance(parameter, Categorical) or not isinstance(parameter, Int | Double):
        names = {text: number for number, text in enumerate(sorted({repr(value) for value in values}))}
        return [names[repr(value)] for value in values]
    present = sorted(value for value in values if value is not None)
    bins = max(min(MOST_BINS, len(present) // 4), 2)
    edges = [present[len(present) * number // bins] for number in range(1, bins)]
    return [0 if value is None else 1 + bisect_right(edges, value) for value in values]


def _explained(groups: Sequence[int], ranks: Sequence[float]) -> float:
    """The share of variance between groups, adjusted for their number (epsilon squared); never below 0."""
    total = _spread(ranks)
    members: dict[int, list[float]] = {}
    for group, rank in zip(groups, ranks, strict=True):
        members.setdefault(group, []).append(rank)
    within = sum(_spread(ranks_of_group) for ranks_of_group in members.values())
    freedom = len(ranks) - len(members)
    if total == 0 or freedom <= 0:
        return 0.0
    return max(1.0 - (within / freedom) / (total / (len(ranks) - 1)), 0.0)


def _spread(ranks: Sequence[float]) -> float:
    mean = sum(ranks) / len(ranks)
    return sum((rank - mean) ** 2 for rank in ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in rising order; equals share the middle one."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for index in order[start : end + 1]:
            ranks[index] = (start + end) / 2
        start = end + 1
    return ranks
