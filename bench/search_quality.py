"""What early stopping is worth: `python bench/search_quality.py [--timings]`.

A make-believe training whose loss falls towards a quadratic in five hyperparameters, and is reported with noise, is
searched by chance, by ASHA and by both with TPE. Compute is counted in training steps, not in seconds, so the figures
are the same on every machine. `--timings` adds how long a decision takes at 10,000 trials, which is not.
"""

import argparse
import importlib.util
import json
import math
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stoker.schema.search import SearchSpec
from stoker.search.base import Outcome, Suggestion
from stoker.search.searcher import build_searcher

RESULTS = Path(__file__).parent / "results" / "search_quality.json"
PICTURE = Path(__file__).parent.parent / "docs" / "search-quality.svg"

LENGTH = 256  # steps of a whole training
EVERY = 4  # steps between reports
WORKERS = 8
SEEDS = range(21)
TRAININGS = 100  # whole trainings that random search gets
BEST = {"rate": 0.3, "decay": 0.7, "drop": 0.4, "width": 0.6, "depth": 0.2}


def loss(hparams: dict[str, float], step: int) -> float:
    """The loss that training with these reaches after so many steps, without noise."""
    bowl = sum((hparams[name] - best) ** 2 for name, best in BEST.items())
    return 0.1 + bowl + 1.0 / math.sqrt(step)


def noise(seed: int, trial: int, step: int) -> float:
    return random.Random(f"{seed}/{trial}/{step}").gauss(0.0, 0.05)


def spec(seed: int, *, sampler: str, trials: int, asha: bool) -> SearchSpec:
    stopping: Any = {"name": "asha", "max_time": LENGTH} if asha else "none"
    space = {name: {"type": "double", "min": 0, "max": 1} for name in BEST}
    values = {"sampler": sampler, "stopping": stopping, "space": space, "metric": "loss", "max_trials": trials}
    return SearchSpec.parse({**values, "max_concurrent_trials": WORKERS, "seed": seed}, source="bench")


@dataclass(frozen=True, slots=True)
class Found:
    """After so much compute in all, the training one would pick had this loss (the true one)."""

    compute: int
    loss: float


def search(wanted: SearchSpec, budget: int) -> Iterator[Found]:
    """WORKERS trials in step with one another, until the search is over or the compute is spent."""
    searcher = build_searcher(wanted)
    running: dict[int, tuple[Suggestion, int]] = {}  # and the steps each has made
    compute, best = 0, math.inf
    while not searcher.finished and compute < budget:
        while (suggestion := searcher.ask()) is not None:
            running[suggestion.trial] = (suggestion, 0)
        for trial, (suggestion, done) in list(running.items()):
            step = done + EVERY
            running[trial] = (suggestion, step)
            compute += EVERY
            true = loss(suggestion.hparams, step)
            seen = true + noise(wanted.seed, trial, step)
            stop = searcher.report(trial, step=step, values={"loss": seen})
            if seen < best:
                best = seen
                yield Found(compute, true)
            if stop is not None or step >= LENGTH:
                searcher.ended(trial, Outcome.STOPPED if stop is not None else Outcome.COMPLETED)
                del running[trial]


def curve(wanted: SearchSpec, marks: list[int]) -> list[float]:
    """The loss of the pick at each of these amounts of compute."""
    found = [Found(0, math.inf), *search(wanted, marks[-1])]
    values, place = [], 0
    for mark in marks:
        while place + 1 < len(found) and found[place + 1].compute <= mark:
            place += 1
        values.append(found[place].loss)
    return values


def compare() -> dict[str, Any]:
    budget = TRAININGS * LENGTH
    marks = [budget * n // 400 for n in range(1, 401)]
    contenders = {"random": ("random", False), "random + asha": ("random", True)}
    if importlib.util.find_spec("optuna") is not None:
        contenders |= {"tpe": ("tpe", False), "tpe + asha": ("tpe", True)}
    curves: dict[str, list[list[float]]] = {}
    for name, (sampler, asha) in contenders.items():
        trials = 16 * TRAININGS if asha else TRAININGS
        seeds = SEEDS if sampler == "random" else list(SEEDS)[:3]  # Optuna is slow, and the picture the same
        curves[name] = [curve(spec(seed, sampler=sampler, trials=trials, asha=asha), marks) for seed in seeds]
    target = statistics.median(values[-1] for values in curves["random"])
    return {
        "steps of a training": LENGTH,
        "compute of random search": budget,
        "loss it finds": round(target, 4),
        "compute to find as much": {name: _first(marks, _middle(values), target) for name, values in curves.items()},
        "times less compute": {
            name: round(budget / reached, 1) if (reached := _first(marks, _middle(values), target)) else None
            for name, values in curves.items()
        },
        "marks": marks,
        "median loss": {name: [round(x, 5) for x in _middle(values)] for name, values in curves.items()},
    }


def _middle(curves: list[list[float]]) -> list[float]:
    return [statistics.median(values) for values in zip(*curves, strict=True)]


def _first(marks: list[int], values: list[float], target: float) -> int | None:
    return next((mark for mark, value in zip(marks, values, strict=True) if value <= target), None)


def draw(figures: dict[str, Any]) -> str:
    """The curves as SVG: compute across (log), the loss of the pick up."""
    marks, curves = figures["marks"], figures["median loss"]
    width, height, left, bottom, top = 720, 400, 60, 44, 16
    finite = [value for values in curves.values() for value in values if math.isfinite(value)]
    low, high = min(finite) * 0.95, min(max(finite), 1.0)

    def x(mark: float) -> float:
        return left + (width - left - 130) * (math.log(mark / marks[0]) / math.log(marks[-1] / marks[0]))

    def y(value: float) -> float:
        return height - bottom - (height - bottom - top) * (min(value, high) - low) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif"'
        ' font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for trainings in (1, 2, 5, 10, 20, 50, 100):
        at = x(trainings * LENGTH)
        parts.append(f'<line x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{height - bottom}" stroke="#eee"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - bottom + 16}" text-anchor="middle">{trainings}</text>')
    for tenth in range(math.ceil(low * 10), int(high * 10) + 1):
        at = y(tenth / 10)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{width - 130}" y2="{at:.1f}" stroke="#eee"/>')
        parts.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end">{tenth / 10:.1f}</text>')
    target = y(figures["loss it finds"])
    parts.append(
        f'<line x1="{left}" y1="{target:.1f}" x2="{width - 130}" y2="{target:.1f}" stroke="#999" '
        'stroke-dasharray="4 4"/>'
    )
    colours = dict(zip(curves, ("#888", "#c33", "#36c", "#293"), strict=False))
    free = 0.0  # where the next name fits
    for name, values in sorted(curves.items(), key=lambda item: -item[1][-1]):
        points = " ".join(f"{x(m):.1f},{y(v):.1f}" for m, v in zip(marks, values, strict=True) if math.isfinite(v))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="2"/>')
        at = max(y(values[-1]), free)
        free = at + 14
        parts.append(f'<text x="{width - 124}" y="{at + 4:.1f}" fill="{colours[name]}">{name}</text>')
    parts.append(
        f'<text x="{(left + width - 130) / 2}" y="{height - 8}" text-anchor="middle">compute, in whole trainings</text>'
    )
    parts.append(
        f'<text x="14" y="{height / 2}" text-anchor="middle" transform="rotate(-90 14 {height / 2})">loss of '
        "the best so far (median of seeds)</text>"
    )
    return "\n".join([*parts, "</svg>", ""])


def timings(trials: int) -> dict[str, Any]:
    """Milliseconds of CPU that a finished trial costs the searcher: its reports, its end, and the next one."""
    measured: dict[str, Any] = {}
    for sampler, count in (("random", trials), ("tpe", min(trials, 1000))):
        if sampler == "tpe" and importlib.util.find_spec("optuna") is None:
            continue
        wanted = spec(0, sampler=sampler, trials=count, asha=True).with_(max_concurrent_trials=16)
        searcher = build_searcher(wanted)
        live: list[Suggestion] = []
        taken: list[float] = []
        spent = 0.0
        while not searcher.finished:
            began = time.thread_time()
            suggestion = searcher.ask()
            if suggestion is None:  # all that may run do: the first of them ends
                trial = live.pop(0)
                for step in (1, 4, 16, 64, 256):
                    if searcher.report(trial.trial, step=step, values={"loss": loss(trial.hparams, step)}):
                        break
                searcher.ended(trial.trial, Outcome.STOPPED)
                taken.append((spent + time.thread_time() - began) * 1000)
                spent = 0.0
            else:
                live.append(suggestion)
                spent += time.thread_time() - began
        taken = taken[:-16]  # the last have nobody after them
        last = taken[-max(count // 20, 1) :]
        measured[f"{sampler} + asha, {count} trials"] = {
            "median ms": round(statistics.median(last), 3),
            "99% ms": round(sorted(last)[int(len(last) * 0.99)], 3),
        }
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--timings", action="store_true", help="also time decisions (takes minutes with optuna)")
    arguments = parser.parse_args()
    figures = compare()
    PICTURE.write_text(draw(figures))
    if arguments.timings:
        figures["decision time"] = timings(10_000)
    RESULTS.parent.mkdir(exist_ok=True)
    shown = {name: value for name, value in figures.items() if name not in ("marks", "median loss")}
    RESULTS.write_text(json.dumps(shown, indent=2) + "\n")
    print(json.dumps(shown, indent=2))


if __name__ == "__main__":
    main()
