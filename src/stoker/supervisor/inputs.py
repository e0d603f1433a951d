"""All that a node's replicas write, read into the spool: output, reports, hypertune files, TensorBoard's at last."""

import json
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.run_dir import RunDir
from stoker.schema.launch import Launch, Replica
from stoker.supervisor.process import STREAMS
from stoker.supervisor.spool import Entry, Spool
from stoker.supervisor.tails.hypertune import HypertuneTail
from stoker.supervisor.tails.output import OutputTail
from stoker.supervisor.tails.reports import ReportTail, supervisor_log

if TYPE_CHECKING:
    from stoker.supervisor.artifacts import Artifacts, Copy
    from stoker.supervisor.tails.eventfiles import EventFileTail

_BLOCKS = 4  # of one stream, before the others have their turn
_COPY_S = 0.1  # how often it is asked, while a copy is waited for, whether to go on


class Inputs:
    """The tails of one node; what a spool already has is not read again."""

    def __init__(self, run_dir: RunDir, spool: Spool) -> None:
        self._run_dir = run_dir
        self._spool = spool
        self._outputs: list[OutputTail] = []
        self._reports = ReportTail(run_dir, position=spool.recovered.position(run_dir.name_of(run_dir.events)))
        self._hypertune: list[HypertuneTail] = []
        self._event_files: EventFileTail | None = None
        self._metric: str | None = None  # what a search looks for, while nobody has reported it
        self.have_more = False
        self._waiting: deque[Entry] = deque()  # reports, in their order, behind one whose copy is not whole
        self._copy: Copy | None = None
        self._copied: list[Copy] = []  # in entries that are not in the spool yet
        self.artifacts: Artifacts | None = None  # keeps each checkpoint and model
        self.is_hurried: Callable[[], bool] = lambda: False  # whether no copy is to be waited for at the end
        self.on_bytes: Callable[[str, str, bytes], None] | None = None  # replica, stream, every byte as it comes

    def open(self, replicas: Iterable[Replica], *, launch: Launch | None = None) -> None:
        """`launch` is the run's, where a metric that nobody reports is to be looked for in event files."""
        replicas = tuple(replicas)
        if launch is not None and launch.metric is not None and any(replica.role == "chief" for replica in replicas):
            self._open_event_files(launch, launch.metric)
        recovered = self._spool.recovered
        for replica in replicas:
            for stream in STREAMS:
                output = self._run_dir.output(replica.name, stream)
                if not output.exists():
                    continue  # it was never started
                position = recovered.position(self._run_dir.name_of(output))
                tail = OutputTail(self._run_dir, replica=replica.name, stream=stream, position=position)
                if self.on_bytes is not None:
                    tail.echo = _echo(self.on_bytes, replica.name, stream)
                self._outputs.append(tail)
            source = self._run_dir.name_of(self._run_dir.metric_file(replica.name))
            known = [event for event in recovered.reported if event["read"][0] == source]
            self._hypertune.append(HypertuneTail(self._run_dir, replica=replica.name, reported=known))

    def _open_event_files(self, launch: Launch, metric: str) -> None:
        if launch.job_dir is None and "AIP_TENSORBOARD_LOG_DIR" not in launch.variables:
            return
        hypertuned = (event.get("values", {}) for event in self._spool.recovered.reported)
        if _has_reported(self._run_dir.events, metric) or any(metric in values for values in hypertuned):
            return
        from stoker.supervisor.tails.eventfiles import EventFileTail, event_folder  # noqa: PLC0415 -- few runs need it

        self._metric = metric
        self._event_files = EventFileTail(
            event_folder(launch.job_dir, launch.variables),
            tag=metric,
            replica="chief-0",
            positions=self._spool.recovered.position,
            since=self._run_dir.launch.stat().st_mtime,
        )

    def read(self) -> bool:
        """Take in what is there, a bounded amount of it; whether there was anything. `have_more` says if to go on."""
        entries: list[Entry] = []
        self.have_more = False
        for tail in self._outputs:
            for _ in range(_BLOCKS):
                if (entry := tail.read()) is not None:
                    entries.append(entry)
                if not tail.has_more:
                    break
            self.have_more |= tail.has_more
        if not self._waiting:  # else they wait in their file, which takes no memory
            self._waiting.extend(self._reports.read())
        entries += self._told_reports()
        self.have_more |= self._reports.has_more and not self._waiting
        for metrics in self._hypertune:
            entries += metrics.read()
        entries += self._from_event_files(entries)
        self._append(entries)
        return bool(entries)

    def _told_reports(self) -> list[Entry]:
        """Those that can be told: none before one that came earlier, and a checkpoint when its copy is whole."""
        found = []
        while self._waiting:
            entry = self._waiting[0]
            if self.artifacts is not None and entry.event["type"] in ("checkpoint", "model"):
                self._copy = copy = self._copy or self.artifacts.keep(entry.event)
                if not copy.is_done:
                    break
                self._copy = None
                self._copied.append(copy)
                entry = Entry(copy.event, entry.position)
            found.append(entry)
            self._waiting.popleft()
        return found

    def _append(self, entries: list[Entry]) -> None:
        if entries:
            self._spool.append(entries)
        for copy in self._copied:
            assert self.artifacts is not None
            self.artifacts.told(copy, seq=self._spool.seq)
        self._copied = []

    def _wait_for_copy(self) -> None:
        while self._copy is not None and not self._copy.wait(_COPY_S):
            if self.is_hurried():
                text = f"{self._copy.path} is not kept at {self._copy.url}: the run had to end before it was there."
                self._copy.finish(supervisor_log(text, level="WARNING"))

    def _from_event_files(self, others: list[Entry], *, at_once: bool = False) -> list[Entry]:
        """The metric, as long as it came in no other way: code that reports it often writes the same to TensorBoard."""
        if self._event_files is None or self._waiting:  # it may be among those that wait
            return []
        if any(entry.event["type"] == "metric" and self._metric in entry.event["values"] for entry in others):
            self._event_files = None
            return []
        found = self._event_files.read(at_once=at_once)
        return found + self._event_files.instead() if at_once else found

    def finish(self) -> None:
        """The rest, when nobody writes any more; and all copies are whole."""
        while self.read() or self.have_more or self._waiting:
            self._wait_for_copy()
        entries = [entry for tail in self._outputs if (entry := tail.finish()) is not None]
        self._waiting.extend(self._reports.finish())
        while self._waiting:
            entries += self._told_reports()
            self._wait_for_copy()
        entries += self._from_event_files(entries, at_once=True)
        self._append(entries)
        for tail in self._outputs:
            tail.close()
        self._reports.close()

    def say(self, text: str) -> None:
        self._spool.append([Entry(supervisor_log(text))])


def _has_reported(path: Path, metric: str) -> bool:
    """Whether user code has reported this already, to a supervisor before this one."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return False
    return any(_is_report(line, metric) for line in lines)


def _is_report(line: bytes, metric: str) -> bool:
    try:
        return metric in json.loads(line)["values"]
    except (ValueError, KeyError, TypeError):
        return False


def _echo(on_bytes: Callable[[str, str, bytes], None], replica: str, stream: str) -> Callable[[bytes], None]:
    return lambda data: on_bytes(replica, stream, data)
