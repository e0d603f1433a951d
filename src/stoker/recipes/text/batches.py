"""Batches of texts of like length: little padding, few shapes, an order that (seed, epoch) alone decides."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.utils.data

from stoker import pytorch
from stoker.recipes.text.tokens import TokenTable

IGNORED = -100  # a label that counts for nothing: torch's cross_entropy leaves it out of the mean
_WINDOW = 64  # batches whose rows are sorted by length together: enough for little padding, few enough to stay random
_SHAPES = 32  # lengths that batches are padded to, at most
_DEVICE_SHARE = 0.25  # of the GPU's free memory that the ids may take

Batch = dict[str, Any]


class LengthOrder(torch.utils.data.Sampler[int]):
    """Every row once an epoch; each `batch_size` consecutive ones are of like length, the ragged last ones of any.

    The order of the batches is random. It is one order of rows, so the trainer divides it among any number of ranks,
    and resumes it by a number.
    """

    def __init__(self, lengths: npt.NDArray[np.int64], *, batch_size: int, seed: int) -> None:
        self._lengths = lengths
        self._batch_size = batch_size
        self._seed = seed
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(self.order(self._epoch).tolist())

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The rows of an epoch."""
        chance = np.random.default_rng([self._seed, epoch])
        rows = chance.permutation(len(self._lengths))
        whole = len(rows) // self._batch_size * self._batch_size
        window = self._batch_size * _WINDOW
        parts = [rows[start : min(start + window, whole)] for start in range(0, whole, window)]
        in_order = [part[np.argsort(self._lengths[part], kind="stable")] for part in parts]
        batches = np.concatenate([*in_order, rows[:0]]).reshape(-1, self._batch_size)
        return np.concatenate([batches[chance.permutation(len(batches))].reshape(-1), rows[whole:]])


class TokenRows(torch.utils.data.Dataset[Batch]):
    """A table's rows, made into whole padded batches where the ids are: on the GPU if they fit there.

    A batch holds `input_ids`, `attention_mask`, `labels`, `documents`, and `count`: how many of its rows are real. On a
    GPU a short batch is filled up to `full` rows with one that has an ignored label, so that there are few shapes.
    """

    def __init__(  # noqa: PLR0913 - all by name
        self,
        table: TokenTable,
        labels: npt.NDArray[np.int64],
        *,
        pad_id: int,
        max_length: int,
        device: torch.device,
        full: int = 0,
    ) -> None:
        self._starts, self.lengths = table.offsets[:-1], table.lengths
        self._labels, self._documents = labels[table.documents], table.documents
        self._pad_id = pad_id
        self._max_length = max_length
        self._multiple = padding_multiple(max_length)
        self._full = full if device.type == "cuda" else 0
        ids = torch.from_numpy(table.ids)
        self.resident = device.type == "cuda" and ids.nbytes < torch.cuda.mem_get_info(device)[0] * _DEVICE_SHARE
        self.wants_pinning = device.type == "cuda" and not self.resident
        self._ids = ids.to(device) if self.resident else ids

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Batch:
        return self.__getitems__([index])

    def __getitems__(self, indices: Sequence[int]) -> Batch:
        count = len(indices)
        rows = np.full(max(count, self._full), indices[0], np.int64)
        rows[:count] = indices
        labels = self._labels[rows]
        labels[count:] = IGNORED
        length = self._padded(int(self.lengths[rows].max()))
        batch = self._gather(np.stack([self._starts[rows], self.lengths[rows], labels, self._documents[rows]]), length)
        return {**batch, "count": count}

    def longest_batch(self) -> Batch:
        """One as large as batches get, to make ready with."""
        return self.__getitems__([int(self.lengths.argmax())])

    def _padded(self, length: int) -> int:
        return min(-(-length // self._multiple) * self._multiple, self._max_length)

    def _gather(self, about: npt.NDArray[np.int64], length: int) -> Batch:
        device = self._ids.device
        told = torch.from_numpy(about)
        if self.resident:  # without waiting for the GPU
            told = told.pin_memory().to(device, non_blocking=True)
        starts, lengths, labels, documents = told.unbind()
        places = torch.arange(length, device=device)
        real = places < lengths[:, None]
        # Where a row has ended, any place will do: it is padded over.
        where = torch.where(real, starts[:, None] + places, 0)
        ids = self._ids[where].long().masked_fill_(~real, self._pad_id)
        return {"input_ids": ids, "attention_mask": real.long(), "labels": labels, "documents": documents}


def padding_multiple(max_length: int) -> int:
    """Batches are padded to multiples of this: a multiple of 8, as fast kernels like it."""
    return max(8, -(-max_length // _SHAPES // 8) * 8)


def loader(rows: TokenRows, *, batch_size: int, order: LengthOrder | None = None) -> "pytorch.DataLoader[Batch]":
    """For the trainer. `batch_size` is that of one rank; without an order, the rows come as they lie."""
    pin = rows.wants_pinning
    return pytorch.DataLoader(rows, batch_size=batch_size, sampler=order, collate_fn=_as_it_is, pin_memory=pin)


def _as_it_is(batch: Any) -> Any:
    return batch
