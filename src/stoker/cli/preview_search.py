"""`stoker preview-search`: what a search would do and cost, before it does; no server is asked."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.compat.search_config import add_config_flags, load_config, notify_of, read_search
from stoker.errors import UsageError
from stoker.terminal import flags
from stoker.terminal.output import duration, say, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.schema.search import SearchSpec
    from stoker.search.preview import Preview


def build(parser: Parser) -> None:
    parser.be_command(preview, example="stoker preview-search adaptive.yaml --time-per-unit 40s")
    parser.add_argument("config", metavar="CONFIG", help="Determined's file, a stoker.yaml, or AI Platform's")
    add_config_flags(parser)
    cost = parser.add_mutually_exclusive_group()
    cost.add_argument(
        "--time-per-unit", type=flags.seconds, metavar="TIME", help="what one batch, epoch, … takes: 0.2s, 3m"
    )
    cost.add_argument("--time-per-trial", type=flags.seconds, metavar="TIME", help="what a whole trial takes: 20m, 2h")
    parser.add_argument("--json", action="store_true", help="print JSON")


def preview(arguments: Arguments) -> None:
    from stoker.schema.search import SearchSpec
    from stoker.search.preview import preview_search

    file = Path(arguments.config)
    template = Path(arguments.template) if arguments.template else None
    document = load_config(file, notify=say, template=template, overrides=arguments.overrides)
    reading = read_search(document, source=str(file))
    spec = SearchSpec.parse(reading.values["search"], source=str(file))
    planned = preview_search(spec)
    trial_s = cost_s(planned, unit_s=arguments.time_per_unit, trial_s=arguments.time_per_trial)
    if arguments.json:
        print(json.dumps(_plain(spec, planned, trial_s), indent=2))
        return
    notify_of(reading, say)
    print("\n".join(page(spec, planned, trial_s)))


def cost_s(planned: "Preview", *, unit_s: float | None, trial_s: float | None) -> float | None:
    """Seconds of all trials together, one after the other. None when nothing was said about either."""
    if unit_s is not None:
        if planned.total_time is None:
            raise UsageError(
                "--time-per-unit: this search does not say how long a trial is (no rungs, so each runs to its own"
                " end). Give --time-per-trial."
            )
        return planned.total_time * unit_s
    if trial_s is None:
        return None
    if planned.total_time is None or not planned.full_time:
        return planned.trials * trial_s
    # The time given is a whole trial's: one that is stopped at a rung costs its part of it.
    return planned.total_time / max(planned.ends) * trial_s


def page(spec: "SearchSpec", planned: "Preview", trial_s: float | None) -> Iterator[str]:
    unit = planned.time_metric or "steps"
    yield f"{'sampler:':<16}{spec.sampler.name}"
    yield f"{'stopping:':<16}{spec.stopping.name}"
    if spec.metric is not None:
        yield f"{'objective:':<16}" + ", ".join(f"{o.goal.value} {o.metric}" for o in spec.objectives)
    yield f"{'trials:':<16}{planned.trials}"
    at_once = planned.at_once
    yield f"{'at once:':<16}{f'at most {at_once}' if at_once else 'as many as the pool holds'}"
    if planned.ends:
        yield ""
        rows = [[str(count), f"{time:,} {unit}"] for time, count in planned.ends.items()]
        yield table(["TRIALS", "END AFTER"], rows)
        yield ""
        yield from _brackets(planned)
        yield from _saving(planned, unit)
    if trial_s is not None:
        yield f"{'cost:':<16}{_hours(trial_s)}"
        if at_once > 1:
            yield f"{'takes:':<16}at least {duration(_least_s(planned, trial_s))}, if {at_once} trials fit at once"


def _brackets(planned: "Preview") -> Iterator[str]:
    if len(planned.brackets) > 1:
        yield f"{'brackets:':<16}{len(planned.brackets)}"


def _saving(planned: "Preview", unit: str) -> Iterator[str]:
    total, full = planned.total_time, planned.full_time
    if total and full:
        yield f"{'in all:':<16}{total:,} {unit}; {full:,} if none were stopped early ({full / total:.1f} times as much)"


def _least_s(planned: "Preview", total_s: float) -> float:
    """All of it shared by those that run at once, and never less than the longest trial."""
    longest = max(planned.ends) / planned.total_time if planned.total_time else 1 / planned.trials
    return max(total_s / planned.at_once, total_s * longest)


def _hours(seconds: float) -> str:
    hours = f"{seconds / 3600:.3g}"
    return f"{hours} trial-hour{'' if hours == '1' else 's'} (that is {duration(seconds)} with one trial at a time)"


def _plain(spec: "SearchSpec", planned: "Preview", trial_s: float | None) -> dict[str, Any]:
    return {
        "sampler": spec.sampler.name,
        "stopping": spec.stopping.name,
        "trials": planned.trials,
        "at_once": planned.at_once,
        "time_metric": planned.time_metric,
        "ends": {str(time): count for time, count in planned.ends.items()},
        "brackets": [asdict(bracket) for bracket in planned.brackets],
        "total_time": planned.total_time,
        "full_time": planned.full_time,
        "trial_hours": None if trial_s is None else trial_s / 3600,
    }
