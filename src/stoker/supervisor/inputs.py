"""All that a node's replicas write, read into the spool: output, reports, hypertune files."""

from collections.abc import Callable, Iterable
from pathlib import Path

from stoker.supervisor.hypertune import HypertuneTail, metric_source
from stoker.supervisor.plan import Replica
from stoker.supervisor.process import STREAMS
from stoker.supervisor.reports import SOURCE, ReportTail, supervisor_log
from stoker.supervisor.spool import Entry, Spool
from stoker.supervisor.tail import OutputTail, output_source

_BLOCKS = 4  # of one stream, before the others have their turn


class Inputs:
    """The tails of one node; what a spool already has is not read again."""

    def __init__(self, run_dir: Path, spool: Spool) -> None:
        self._run_dir = run_dir
        self._spool = spool
        self._outputs: list[OutputTail] = []
        self._reports = ReportTail(run_dir, position=spool.recovered.position(SOURCE))
        self._hypertune: list[HypertuneTail] = []
        self.have_more = False
        self.on_bytes: Callable[[str, str, bytes], None] | None = None  # replica, stream, every byte as it comes

    def open(self, replicas: Iterable[Replica]) -> None:
        recovered = self._spool.recovered
        for replica in replicas:
            for stream in STREAMS:
                position = recovered.position(output_source(replica.name, stream))
                if not (self._run_dir / position.source).exists():
                    continue  # it was never started
                tail = OutputTail(self._run_dir, replica=replica.name, stream=stream, position=position)
                if self.on_bytes is not None:
                    tail.echo = _echo(self.on_bytes, replica.name, stream)
                self._outputs.append(tail)
            source = metric_source(replica.name)
            known = [event for event in recovered.reported if event["read"][0] == source]
            self._hypertune.append(HypertuneTail(self._run_dir, replica=replica.name, reported=known))

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
        entries += self._reports.read()
        self.have_more |= self._reports.has_more
        for metrics in self._hypertune:
            entries += metrics.read()
        if entries:
            self._spool.append(entries)
        return bool(entries)

    def finish(self) -> None:
        """The rest, when nobody writes any more."""
        while self.read() or self.have_more:
            pass
        entries = [entry for tail in self._outputs if (entry := tail.finish()) is not None]
        entries += self._reports.finish()
        if entries:
            self._spool.append(entries)
        for tail in self._outputs:
            tail.close()
        self._reports.close()

    def say(self, text: str) -> None:
        self._spool.append([Entry(supervisor_log(text))])


def _echo(on_bytes: Callable[[str, str, bytes], None], replica: str, stream: str) -> Callable[[bytes], None]:
    return lambda data: on_bytes(replica, stream, data)
