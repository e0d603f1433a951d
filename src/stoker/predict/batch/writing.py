"""What a batch prediction leaves: a file of results and one of errors for each shard, whole or not there at all.

    OUTPUT/prediction.results-00000-of-00012        a prediction a line, in the order of the inputs
    OUTPUT/prediction.errors_stats-00000-of-00012   a line for each row that there is no prediction for: where, and why
    OUTPUT/_stoker/done-00000.json                  written last: the shard is done, with so many of each

Killed at any moment, a shard is done or it is not, and is then done again from its start.
"""

import json
from types import TracebackType
from typing import Any

from stoker.errors import NotFoundError
from stoker.predict.batch.plan import FOLDER, BatchPlan
from stoker.schema.model import Model
from stoker.storage import Storage, StorageUrl
from stoker.storage.draft import Draft

_BUFFER = 1 << 20


class Counts(Model):
    """Rows with a prediction, and rows without."""

    predictions: int = 0
    errors: int = 0

    def plus(self, other: "Counts") -> "Counts":
        return Counts(predictions=self.predictions + other.predictions, errors=self.errors + other.errors)


class Output:
    """The folder that all ranks write to."""

    def __init__(self, storage: Storage, url: str, plan: BatchPlan) -> None:
        self._storage, self._plan = storage, plan
        self.url = url.rstrip("/")
        self._known: dict[int, Counts] = {}

    def done(self) -> dict[int, Counts]:
        """The shards that are done, by whomever. Each is read once."""
        prefix = f"{self.url}/{FOLDER}/done-"
        try:
            found = [item.url for item in self._storage.list(f"{self.url}/{FOLDER}/")]
        except NotFoundError:
            found = []
        for url in found:
            name = url.rpartition("/")[2]
            if name.startswith("done-") and (number := int(name[5:10])) not in self._known:
                with self._storage.open_url(f"{prefix}{number:05d}.json") as stream:
                    self._known[number] = Counts.model_validate_json(stream.read())
        return self._known

    def shard(self, number: int) -> "ShardWriter":
        return ShardWriter(self._storage, self, self._plan, number)

    def mark_done(self, number: int, counts: Counts) -> None:
        with self._storage.open_url(f"{self.url}/{FOLDER}/done-{number:05d}.json", "wb") as stream:
            stream.write(counts.model_dump_json().encode())
        self._known[number] = counts


class ShardWriter:
    """A shard's two files in the making; a `with` block left by an exception leaves neither."""

    def __init__(self, storage: Storage, output: Output, plan: BatchPlan, number: int) -> None:
        self._output, self._number = output, number
        self._results = _File(storage, f"{output.url}/{plan.name('results', number)}", plan.job)
        self._errors = _File(storage, f"{output.url}/{plan.name('errors_stats', number)}", plan.job)
        self.counts = Counts()

    def add_lines(self, lines: bytes, count: int) -> None:
        """Predictions, JSON each, every line with its end."""
        self._results.write(lines)
        self.counts = self.counts.plus(Counts(predictions=count))

    def add_error(self, **what: Any) -> None:
        line = json.dumps({name: value for name, value in what.items() if value is not None}, default=str)
        self._errors.write(f"{line}\n".encode())
        self.counts = self.counts.plus(Counts(errors=1))

    def __enter__(self) -> "ShardWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is not None:
            self._results.discard()
            self._errors.discard()
            return
        self._errors.commit()
        self._results.commit()
        self._output.mark_done(self._number, self.counts)


class _File:
    """A draft under a name that the next try finds again, so that none is left behind for ever."""

    def __init__(self, storage: Storage, url: str, job: str) -> None:
        place = StorageUrl.parse(url)
        self._store, self._key = storage.buckets.store(place), place.key
        self._draft: Draft = self._store.draft(self._key, resume=f"batch {job}")
        if self._draft.size:
            self._draft.start_over()
        self._held: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._held.append(data)
        self._size += len(data)
        if self._size >= _BUFFER:
            self._flush()

    def commit(self) -> None:
        self._flush()
        self._store.commit(self._key, self._draft)

    def discard(self) -> None:
        self._draft.discard()

    def _flush(self) -> None:
        if self._held:
            self._draft.write(b"".join(self._held))
            self._held, self._size = [], 0
