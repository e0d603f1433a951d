"""What came of a search: the best trials, the front of several objectives, the curve of the best so far."""

from collections.abc import Sequence
from operator import itemgetter

from stoker.schema.search import Goal, SearchSpec
from stoker.search.samplers import TrialResult


def best_trials(spec: SearchSpec, results: Sequence[TrialResult], *, count: int = 1) -> list[TrialResult]:
    """The best by the first objective, best first; those without a finite value are never among them."""
    sign = -1.0 if spec.goal is Goal.MAXIMIZE else 1.0
    ranked = [
        (sign * value, result.trial, result)
        for result in results
        if result.values and (value := result.values[0]) is not None
    ]
    return [result for _, _, result in sorted(ranked, key=itemgetter(0, 1))[:count]]


def pareto_front(spec: SearchSpec, results: Sequence[TrialResult]) -> list[TrialResult]:
    """Trials that no other beats in every objective at once, by trial number."""
    points = [(_signed(spec, result), result) for result in results if _is_whole(result)]
    # In this order nobody is beaten by one that comes later, so each is compared with the front alone.
    points.sort(key=lambda item: (item[0], item[1].trial))
    front: list[tuple[tuple[float, ...], TrialResult]] = []
    for point, result in points:
        if not any(_dominates(other, point) for other, _ in front):
            front.append((point, result))
    return sorted((result for _, result in front), key=lambda result: result.trial)


def best_so_far(spec: SearchSpec, results: Sequence[TrialResult]) -> list[tuple[int, float]]:
    """(trial, the best value of the first objective up to it), for trials that have one."""
    curve: list[tuple[int, float]] = []
    better = max if spec.goal is Goal.MAXIMIZE else min
    for result in sorted(results, key=lambda result: result.trial):
        value = result.values[0] if result.values else None
        if value is not None:
            curve.append((result.trial, better(value, curve[-1][1]) if curve else value))
    return curve


def _is_whole(result: TrialResult) -> bool:
    return bool(result.values) and all(value is not None for value in result.values)


def _signed(spec: SearchSpec, result: TrialResult) -> tuple[float, ...]:
    signs = [-1.0 if objective.goal is Goal.MAXIMIZE else 1.0 for objective in spec.objectives]
    return tuple(sign * value for sign, value in zip(signs, result.values, strict=True) if value is not None)


def _dominates(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))
