"""Points of a space: drawn from a seed, taken from a grid, or a step away from another point."""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoker.errors import ConfigError
from stoker.schema.space import (
    Categorical,
    Const,
    Discrete,
    Double,
    Int,
    Parameter,
    Scale,
    Space,
    leaves,
    wanted_values,
)

MAX_CONDITIONAL_GRID = 1_000_000  # combinations we are willing to walk through to find those that differ

Choose = Callable[[str, Parameter], Any]


class Dice:
    """Random numbers of one trial, each from (seed, trial, name) alone.

    No generator carries state from trial to trial, so a suggestion can be made again without those before it, and a
    parameter added to a space leaves the draws of the others as they were.
    """

    def __init__(self, seed: int, trial: int) -> None:
        self._prefix = f"{seed}/{trial}/"

    def unit(self, name: str) -> float:
        """From 0 to 1, without 1."""
        return (self._bits(name) >> 11) / (1 << 53)

    def seed(self, name: str = "seed") -> int:
        """From 0 to 2**31, without the end: what seeds a trial's own generators."""
        return self._bits(name) >> 33

    def _bits(self, name: str) -> int:
        digest = hashlib.blake2b((self._prefix + name).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big")


class Layout:
    """A space in the order its parameters can be chosen in: each after those its `when` names."""

    def __init__(self, space: Space) -> None:
        self._space = space
        found = {".".join(path): parameter for path, parameter in leaves(space).items()}
        self.parameters: dict[str, Parameter] = dict(_by_dependency(found))
        self.names = sorted(found)
        self._when = {
            name: {other: wanted_values(wanted) for other, wanted in parameter.when.items()}
            for name, parameter in found.items()
        }

    def build(self, choose: Choose) -> dict[str, Any]:
        """Hyperparameters as user code sees them: nested as the space is, without those that do not apply."""
        return self.nest(self.choose(choose))

    def choose(self, choose: Choose) -> dict[str, Any]:
        """The same by dotted name."""
        chosen: dict[str, Any] = {}
        for name, parameter in self.parameters.items():
            if all(other in chosen and chosen[other] in wanted for other, wanted in self._when[name].items()):
                chosen[name] = choose(name, parameter)
        return chosen

    def nest(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        return _nest(self._space, chosen, "")

    def flatten(self, hparams: Mapping[str, Any]) -> dict[str, Any]:
        """Values by dotted name; the inverse of `nest`."""
        return dict(_flatten(self._space, hparams, ""))

    def draw(self, dice: Dice) -> dict[str, Any]:
        return self.build(lambda name, parameter: value_at(parameter, dice.unit(name)))


def value_at(parameter: Parameter, unit: float) -> Any:
    """The value that lies at this fraction (0 to 1, without 1) of the parameter's range, on its scale."""
    match parameter:
        case Const():
            return parameter.value
        case Categorical() | Discrete():
            return parameter.values[int(unit * len(parameter.values))]
        case Int():
            return _int_at(parameter, unit)
        case Double():
            return _double_at(parameter.min, parameter.max, parameter.scale, unit)


def grid_values(parameter: Parameter) -> tuple[Any, ...]:
    """A grid's points on this axis: evenly spaced, ends included; the middle alone if there is one."""
    match parameter:
        case Const():
            return (parameter.value,)
        case Categorical() | Discrete():
            return parameter.values
        case Int():
            size = parameter.max - parameter.min + 1
            count = min(parameter.count or size, size)
            found = [_round_half_away(x) for x in _spaced(parameter, count)]
            return tuple(dict.fromkeys(found))  # a log scale can round two points to one
        case Double():
            return tuple(_spaced(parameter, parameter.count or 1))


class GridPoints:
    """All combinations; number 0 is the last of the product, as Determined consumes it from the end."""

    def __init__(self, space: Space) -> None:
        self._layout = Layout(space)
        self._axes = {name: grid_values(self._layout.parameters[name]) for name in self._layout.names}
        self._size = math.prod(len(axis) for axis in self._axes.values())
        self._kept: list[int] | None = None
        if any(parameter.when for parameter in self._layout.parameters.values()):
            self._kept = list(self._distinct())

    def __len__(self) -> int:
        return self._size if self._kept is None else len(self._kept)

    def __getitem__(self, number: int) -> dict[str, Any]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        index = self._size - 1 - number if self._kept is None else self._kept[number]
        places = self._places(index)
        return self._layout.build(lambda name, _: self._axes[name][places[name]])

    def _places(self, index: int) -> dict[str, int]:
        """The position on each axis of the index-th combination, the last axis moving fastest."""
        places = {}
        for name in reversed(self._axes):
            index, places[name] = divmod(index, len(self._axes[name]))
        return places

    def _distinct(self) -> Iterator[int]:
        """Combinations that differ: of those that differ in parameters that do not apply, the first to be met."""
        if self._size > MAX_CONDITIONAL_GRID:
            raise ConfigError(
                f"A grid of {self._size:,} combinations with conditions is too large to walk"
                f" (at most {MAX_CONDITIONAL_GRID:,}). Use fewer points, or `sampler: random`."
            )
        for index in range(self._size - 1, -1, -1):
            places = self._places(index)
            chosen = self._layout.choose(lambda name, _, at=places: self._axes[name][at[name]])  # type: ignore[misc]
            if all(name in chosen or places[name] == len(axis) - 1 for name, axis in self._axes.items()):
                yield index


def explore(
    layout: Layout, hparams: Mapping[str, Any], dice: Dice, *, factors: tuple[float, float], resample: float
) -> dict[str, Any]:
    """A point near another, as population-based training changes a copy."""
    old = layout.flatten(hparams)

    def choose(name: str, parameter: Parameter) -> Any:
        if name not in old or dice.unit(f"{name}/resample") < resample:
            return value_at(parameter, dice.unit(name))
        return _perturb(parameter, old[name], up=dice.unit(f"{name}/up") < 0.5, factors=factors)

    return layout.build(choose)


def _perturb(parameter: Parameter, value: Any, *, up: bool, factors: tuple[float, float]) -> Any:
    match parameter:
        case Int():
            moved = _round_half_away(value * factors[up])
            moved = moved if moved != value else value + (1 if up else -1)
            return min(max(moved, parameter.min), parameter.max)
        case Double():
            return min(max(value * factors[up], parameter.min), parameter.max)
        case Discrete():
            place = parameter.values.index(value) + (1 if up else -1)
            return parameter.values[min(max(place, 0), len(parameter.values) - 1)]
        case _:
            return value


def _double_at(low: float, high: float, scale: Scale, unit: float) -> float:
    if scale is Scale.LINEAR:
        return low + unit * (high - low)
    if scale is Scale.REVERSE_LOG:
        return low + high - _double_at(low, high, Scale.LOG, 1 - unit)
    return min(max(math.exp(math.log(low) + unit * (math.log(high) - math.log(low))), low), high)


def _int_at(parameter: Int, unit: float) -> int:
    low, high = parameter.min, parameter.max
    if parameter.scale is Scale.LINEAR:
        return low + int(unit * (high - low + 1))
    if parameter.scale is Scale.REVERSE_LOG:
        return low + high - min(int(_double_at(low, high + 1, Scale.LOG, 1 - unit)), high)
    return min(int(_double_at(low, high + 1, Scale.LOG, unit)), high)


def _spaced(parameter: Int | Double, count: int) -> list[float]:
    low, high = float(parameter.min), float(parameter.max)
    if parameter.scale is Scale.REVERSE_LOG:
        return [low + high - x for x in reversed(_powers(low, high, count, 10.0))]
    if parameter.scale is Scale.LOG:
        return _powers(low, high, count, parameter.base if isinstance(parameter, Double) else 10.0)
    if count == 1:
        return [(low + high) / 2.0]
    return [low + i * (high - low) / (count - 1) for i in range(count)]


def _powers(low: float, high: float, count: int, base: float) -> list[float]:
    start, end = _exponent(low, base), _exponent(high, base)
    if count == 1:
        return [base ** ((start + end) / 2.0)]
    inner = [base ** (start + i * (end - start) / (count - 1)) for i in range(1, count - 1)]
    return [low, *inner, high]


def _exponent(value: float, base: float) -> float:
    """The logarithm; whole where rounding alone makes it not, so that a grid from 0.001 to 1 has 0.01 and 0.1."""
    exponent = math.log10(value) if base == 10 else math.log(value) / math.log(base)
    return float(round(exponent)) if abs(exponent - round(exponent)) < 1e-12 else exponent


def _round_half_away(value: float) -> int:
    return int(math.copysign(math.floor(abs(value) + 0.5), value))


def _by_dependency(parameters: Mapping[str, Parameter]) -> Iterator[tuple[str, Parameter]]:
    waiting = sorted(parameters)
    done: set[str] = set()
    while waiting:
        # A valid space has no circle, so each turn takes at least one.
        ready = [name for name in waiting if done.issuperset(parameters[name].when)]
        yield from ((name, parameters[name]) for name in ready)
        done.update(ready)
        waiting = [name for name in waiting if name not in done]


def _nest(space: Mapping[str, Any], chosen: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, node in space.items():
        if isinstance(node, dict):
            nested[name] = _nest(node, chosen, f"{prefix}{name}.")
        elif prefix + name in chosen:
            nested[name] = chosen[prefix + name]
    return nested


def _flatten(space: Mapping[str, Any], hparams: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, node in space.items():
        if name not in hparams:
            continue
        if isinstance(node, dict):
            yield from _flatten(node, hparams[name], f"{prefix}{name}.")
        else:
            yield prefix + name, hparams[name]
