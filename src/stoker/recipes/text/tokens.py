"""Texts as token ids: made once, kept by content, and mapped into memory by every run that wants the same again.

CACHE/tokens/KEY/ids.bin          all ids of all rows, int32, one after the other
CACHE/tokens/KEY/offsets.npy      where each row begins, and the end
CACHE/tokens/KEY/documents.npy    which text each row is of: long texts may have several windows
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stoker.errors import UsageError
from stoker.host.home import Home

_FORMAT = 1  # of the files above: part of the key
_TEXTS_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class TokenTable:
    """Rows of token ids, flat. `documents` says which text each row is a window of."""

    ids: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    documents: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.documents)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.diff(self.offsets)


@dataclass(frozen=True, slots=True)
class Cutting:
    """How long a row may be, and what becomes of longer texts: cut off, or several rows that overlap by `stride`."""

    max_length: int
    window: bool = False
    stride: int = 0


def tokenized(texts: Sequence[str], tokenizer: Any, cutting: Cutting, *, cache_dir: str | None = None) -> TokenTable:
    """The texts' tokens, from the cache if these very texts were cut by this very tokenizer before."""
    if cutting.window and not tokenizer.is_fast:
        raise UsageError(
            f"{type(tokenizer).__name__} cannot cut texts into windows: that needs a fast tokenizer (tokenizer.json)."
            " Use long_texts='truncate'."
        )
    folder = cache_root(cache_dir) / "tokens" / _key(texts, tokenizer, cutting)
    if not folder.is_dir():
        _keep(token_rows(texts, tokenizer, cutting), folder)
    return _mapped(folder)


def token_rows(
    texts: Sequence[str], tokenizer: Any, cutting: Cutting
) -> Iterator[tuple[list[list[int]], npt.NDArray[np.int64]]]:
    """Some rows at a time: their ids, and which text each is of."""
    how: dict[str, Any] = {"truncation": True, "max_length": cutting.max_length}
    if cutting.window:
        how |= {"return_overflowing_tokens": True, "stride": cutting.stride}
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = list(texts[start : start + _TEXTS_AT_ONCE])
        made = tokenizer(part, return_attention_mask=False, return_token_type_ids=False, **how)
        ids = made["input_ids"]
        which = made["overflow_to_sample_mapping"] if cutting.window else range(len(ids))
        yield ids, np.asarray(which, np.int64) + start


def cache_root(cache_dir: str | None) -> Path:
    """Where made things are kept: the folder given, STOKER_CACHE, or the home's own."""
    given = cache_dir or os.environ.get("STOKER_CACHE")
    return Path(given).expanduser().absolute() if given else Home.find().cache


def _key(texts: Sequence[str], tokenizer: Any, cutting: Cutting) -> str:
    digest = hashlib.sha256(json.dumps([_FORMAT, cutting.max_length, cutting.window, cutting.stride]).encode())
    digest.update(_described(tokenizer).encode())
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()[:32]


def _described(tokenizer: Any) -> str:
    """All that decides which ids a text becomes."""
    if not tokenizer.is_fast:
        special = sorted(map(str, tokenizer.all_special_tokens))
        return json.dumps([type(tokenizer).__name__, sorted(tokenizer.get_vocab().items()), special])
    said = json.loads(tokenizer.backend_tokenizer.to_str())
    # What the last call happened to ask for; ours asks again.
    said.pop("truncation", None)
    said.pop("padding", None)
    return json.dumps(said, sort_keys=True)


def _keep(rows: Iterator[tuple[list[list[int]], npt.NDArray[np.int64]]], folder: Path) -> None:
    draft = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    draft.mkdir(parents=True)
    try:
        lengths, documents = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
        with (draft / "ids.bin").open("wb") as file:
            for ids, which in rows:
                for row in ids:
                    np.asarray(row, np.int32).tofile(file)
                lengths.append(np.fromiter(map(len, ids), np.int64, len(ids)))
                documents.append(which)
        np.save(draft / "offsets.npy", np.cumsum(np.concatenate(lengths)))
        np.save(draft / "documents.npy", np.concatenate(documents))
        if not folder.is_dir():  # another trial may have been faster
            draft.rename(folder)
    except OSError:
        if not folder.is_dir():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _mapped(folder: Path) -> TokenTable:
    offsets = np.load(folder / "offsets.npy")
    # Copy on write: torch warns of memory that it could not write to.
    ids = np.memmap(folder / "ids.bin", np.int32, mode="c") if offsets[-1] else np.zeros(0, np.int32)
    return TokenTable(ids=ids, offsets=offsets, documents=np.load(folder / "documents.npy"))
