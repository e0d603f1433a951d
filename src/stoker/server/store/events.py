"""Take what runs say: each event once, in order, in one transaction a batch."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from stoker.errors import NotFoundError
from stoker.schema.event import (
    Checkpoint,
    Event,
    EventBatch,
    Exited,
    InvalidHp,
    Log,
    Metric,
    ModelSaved,
    Phase,
    PhaseStarted,
    Progress,
)
from stoker.schema.state import RunState, StopReason
from stoker.server.store import series
from stoker.server.store.logs import pack
from stoker.server.store.model_tables import saved_models
from stoker.server.store.tables import checkpoints, jobs, logs, metrics, nodes, runs, trials
from stoker.server.store.values import Appended

_INT64 = 2**63 - 1

Values = dict[str, Any]

# Built once: to build a statement costs SQLAlchemy more than to run it.
_RUN = (
    select(runs, trials.c.job, jobs.c.id.label("job_id"), jobs.c.search)
    .join(trials, trials.c.id == runs.c.trial)
    .join(jobs, jobs.c.number == trials.c.job)
    .where(runs.c.id == bindparam("run"))
)
_LOCK_JOB = select(jobs.c.number).where(jobs.c.number == bindparam("job")).with_for_update()
_LOST_CONNECTION = re.compile(r"Connection|BrokenPipe|EOFError|Dist(?:Backend|Network|Store)Error|[Gg]loo|NCCL")
_OF_NODE = (nodes.c.run == bindparam("of_run")) & (nodes.c.node == bindparam("of_node"))
_KNOWN = select(trials.c.metrics, trials.c.unpacked).where(trials.c.id == bindparam("of_trial"))
_ACKED = select(nodes.c.acked).where(_OF_NODE)
_ACK = update(nodes).where(_OF_NODE)


def append(connection: Connection, run: str, batch: EventBatch, *, now: float) -> Appended:
    row = find_run(connection, run)
    # Blocks of one job are numbered by one transaction at a time, or a follower could pass one not yet committed.
    connection.execute(_LOCK_JOB, {"job": row.job})
    acked = connection.execute(_ACKED, {"of_run": row.number, "of_node": batch.node}).scalar_one_or_none()
    fresh = _in_order(batch.events, acked or 0)
    moved = _record(connection, row, batch.node, fresh, now=now) if fresh else False
    newest = fresh[-1].seq if fresh else acked or 0
    if acked is None:
        connection.execute(insert(nodes), {"run": row.number, "node": batch.node, "acked": newest})
    elif fresh:
        connection.execute(_ACK, {"of_run": row.number, "of_node": batch.node, "acked": newest})
    ended = next((event for event in fresh if isinstance(event, Exited)), None)
    if ended is not None and row.num_nodes > 1:
        _end_node(connection, row, batch.node, ended)
        row = find_run(connection, run)
    return Appended(job=row.job_id, acked=newest, stop=stop_order(row), moved=moved)


def find_run(connection: Connection, run: str) -> Row[Any]:
    """The run's row with its job's and trial's keys; NotFoundError."""
    row = connection.execute(_RUN, {"run": run}).one_or_none()
    if row is None:
        raise NotFoundError(f"No run {run!r} on this server.")
    return row


def stop_order(row: Row[Any]) -> StopReason | None:
    if row.stop is not None:
        return StopReason(row.stop)
    if row.broken:
        return StopReason.CANCEL  # of no use without the node that failed
    # A supervisor that still speaks for a run that is over (it was thought lost) has to go.
    over = RunState(row.state).is_final and row.exit is None
    return StopReason.CANCEL if over else None


def _in_order(events: Sequence[Event], acked: int) -> list[Event]:
    """What is new and follows on without a gap."""
    fresh: list[Event] = []
    for event in events:
        if event.seq == acked + 1:
            fresh.append(event)
            acked += 1
        elif event.seq > acked:
            break
    return fresh


def _record(connection: Connection, row: Row[Any], node: int, events: Sequence[Event], *, now: float) -> bool:
    keys = {"job": row.job, "run": row.number}
    _insert(connection, logs, ({**keys, "node": node, **_log(e, now)} for e in events if isinstance(e, Log)))
    _insert(connection, metrics, ({**keys, **_metric(e, now)} for e in events if isinstance(e, Metric)))
    _insert(connection, checkpoints, ({**keys, **_checkpoint(e, now)} for e in events if isinstance(e, Checkpoint)))
    _insert(connection, saved_models, ({**keys, **_model(e, now)} for e in events if isinstance(e, ModelSaved)))
    _update_trial(connection, row.trial, events, now=now)
    moved = _update_run(connection, row, node, events, now=now)
    return moved or (row.search == "open" and any(_is_report(event) for event in events))


def _is_report(event: Event) -> bool:
    """Whether user code said it: what a run uses is a metric, too, but nothing to decide or to rank by."""
    return isinstance(event, Metric) and event.group != series.SYSTEM


def _insert(connection: Connection, table: Any, rows: Iterable[Values]) -> None:
    if found := list(rows):
        connection.execute(insert(table), found)


def _log(event: Log, now: float) -> Values:
    return {
        "replica": event.replica,
        "stream": event.stream,
        "time": _finite(event.time, now),
        "line": _int64(event.line),
        "count": event.count,
        "levels": json.dumps(event.levels) if event.levels else None,
        "packed": pack(event.text),
    }


def _metric(event: Metric, now: float) -> Values:
    return {
        "time": _finite(event.time, now),
        "replica": event.replica,
        "kind": event.group,
        "step": _int64(event.step),
        "points": json.dumps(event.values),  # with NaN and Infinity, which Python's json writes and reads
    }


def _checkpoint(event: Checkpoint, now: float) -> Values:
    return {
        "time": _finite(event.time, now),
        "step": _int64(event.step),
        "path": event.path,
        "size_bytes": _int64(event.size_bytes),
        "metadata": json.dumps(event.metadata),
    }


def _model(event: ModelSaved, now: float) -> Values:
    return {
        "time": _finite(event.time, now),
        "name": event.name,
        "path": event.path,
        "framework": event.framework,
        "metrics": json.dumps(event.metrics),
        "size_bytes": _int64(event.size_bytes),
    }


def _update_trial(connection: Connection, trial: int, events: Sequence[Event], *, now: float) -> None:
    changes: Values = {}
    latest: dict[str, float] = {}
    for event in events:
        match event:
            case Progress():
                changes["progress"] = min(max(_finite(event.fraction, 0.0), 0.0), 1.0)
            case Metric() if event.group != series.SYSTEM:
                latest.update(_named(event))
            case Checkpoint():
                _keep_newest(connection, trial, event, now=now)
            case InvalidHp():
                changes["invalid"] = event.reason or "no reason given"
    reports = sum(isinstance(event, Metric) for event in events)
    has_ended = isinstance(events[-1], Exited)
    if reports or has_ended:
        known = connection.execute(_KNOWN, {"of_trial": trial}).one()
        changes["unpacked"] = waiting = known.unpacked + reports
        if latest:
            changes["metrics"] = json.dumps({**json.loads(known.metrics), **latest})
    if changes:
        connection.execute(update(trials).where(trials.c.id == trial).values(changes))
    if (reports or has_ended) and waiting >= (1 if has_ended else series.PACK_AT):
        series.pack(connection, trial)


def _named(event: Metric) -> dict[str, float]:
    """A training metric goes by its own name, another by its group's and its own: `loss`, `validation/loss`."""
    prefix = "" if event.group == "training" else f"{event.group}/"
    return {prefix + name: value for name, value in event.values.items()}


def _keep_newest(connection: Connection, trial: int, event: Checkpoint, *, now: float) -> None:
    """The checkpoint to go on from is the one saved last, though a lost run's may be heard of later."""
    time = _finite(event.time, now)
    older = (trials.c.checkpoint_time.is_(None)) | (trials.c.checkpoint_time <= time)
    connection.execute(
        update(trials).where(trials.c.id == trial, older).values(checkpoint=event.path, checkpoint_time=time)
    )


def _update_run(connection: Connection, row: Row[Any], node: int, events: Sequence[Event], *, now: float) -> bool:
    """A run is where its first node is; it has ended when all its nodes have (`_end_node`)."""
    changes: Values = {}
    for event in events:
        match event:
            case PhaseStarted() if node == 0:
                changes["phase"] = event.phase.value
                if event.phase is Phase.USER_CODE and row.started is None:
                    changes["started"] = _finite(event.time, now)
            case Exited() if row.exit is None and row.num_nodes == 1:
                changes["exit"] = event.model_dump_json()
    if not changes:
        return row.num_nodes > 1 and any(isinstance(event, Exited) for event in events)
    connection.execute(update(runs).where(runs.c.number == row.number).values(changes))
    if "started" in changes:
        first = (jobs.c.number == row.job) & jobs.c.started.is_(None)
        connection.execute(update(jobs).where(first).values(started=changes["started"]))
    return True


def _end_node(connection: Connection, row: Row[Any], node: int, ended: Exited) -> None:
    """Note how a node ended; a failure breaks the run, and the last to end says how the run did."""
    this = (nodes.c.run == row.number) & (nodes.c.node == node)
    connection.execute(update(nodes).where(this).values(exit=ended.model_dump_json()))
    known = select(nodes.c.node, nodes.c.exit).where(nodes.c.run == row.number, nodes.c.exit.is_not(None))
    exits = {found.node: Exited.model_validate_json(found.exit) for found in connection.execute(known)}
    changes: Values = {"broken": row.broken or _has_failed(ended)}
    if len(exits) == row.num_nodes and row.exit is None:
        changes["exit"] = exit_of(exits, was_told=row.stop is not None).model_dump_json()
    connection.execute(update(runs).where(runs.c.number == row.number).values(changes))


def exit_of(exits: Mapping[int, Exited], *, was_told: bool) -> Exited:
    """How a run ended whose nodes ended so; `was_told` if the run was ordered to stop.

    The first failure is named, but for one that complains of a lost connection alone: it may follow from another's.
    A node that was taken from under its supervisor ends as preempted, and the run then is.
    """
    in_time = sorted(exits.values(), key=lambda end: end.time)
    failures = [end for end in in_time if _has_failed(end)]
    own = [end for end in failures if end.signal is not None or not _LOST_CONNECTION.search(end.message)]
    # Nodes are told to stop when another has failed, too: that is not how the run ended.
    stops = [end for end in in_time if end.stop is not None and (was_told or end.stop is StopReason.PREEMPT)]
    first = exits[min(exits)]
    if own:
        return own[0]
    if not failures and first.stop is None:
        return first  # parameter servers are stopped when the chief has ended well
    return next(iter(stops or failures), first)


def _has_failed(end: Exited) -> bool:
    return end.stop is None and end.code != 0


def _finite(value: float, instead: float) -> float:
    """One odd number from user code must not make its whole batch unacceptable for ever."""
    return value if math.isfinite(value) else instead


def _int64(value: int) -> int:
    return min(max(value, -_INT64), _INT64)
