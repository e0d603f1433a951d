"""Tokens are made once and kept by content; batches are of like length, in an order that can be resumed anywhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from stoker.pytorch.data.loader import open_training
from stoker.recipes.text import Cutting, tokenized
from stoker.recipes.text.batches import IGNORED, LengthOrder, TokenRows, loader, padding_multiple

TEXTS = [" ".join(["kalo"] * n) for n in (3, 30, 1, 12, 7, 25, 2, 18)]


@pytest.fixture
def tokenizer(encoder_dir: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(encoder_dir)


def test_tokens_come_from_the_cache_when_texts_tokenizer_and_cutting_are_the_same(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tokenized(TEXTS, tokenizer, Cutting(64))
    calls: list[int] = []
    call = type(tokenizer).__call__
    monkeypatch.setattr(type(tokenizer), "__call__", lambda *a, **k: calls.append(1) or call(*a, **k))

    again = tokenized(TEXTS, tokenizer, Cutting(64))
    assert not calls
    assert isinstance(again.ids, np.memmap)
    np.testing.assert_array_equal(again.ids, made.ids)

    tokenized(TEXTS, tokenizer, Cutting(32))
    tokenized([*TEXTS[:-1], "other"], tokenizer, Cutting(64))
    tokenizer.add_tokens(["kalokalo"])
    tokenized(TEXTS, tokenizer, Cutting(64))
    assert len(calls) == 3
    assert len(list((tmp_path / "home" / "cache" / "tokens").iterdir())) == 4


def test_rows_are_what_the_tokenizer_says_and_windows_overlap_by_the_stride(tokenizer: Any) -> None:
    whole = tokenized(TEXTS, tokenizer, Cutting(512))
    windows = tokenized(TEXTS, tokenizer, Cutting(12, window=True, stride=4))

    for number, text in enumerate(TEXTS):
        row = whole.ids[whole.offsets[number] : whole.offsets[number + 1]]
        assert row.tolist() == tokenizer(text)["input_ids"]
        assert (row[0], row[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
        own = np.flatnonzero(windows.documents == number)
        inner = [windows.ids[windows.offsets[each] + 1 : windows.offsets[each + 1] - 1].tolist() for each in own]
        assert inner[0] + [token for part in inner[1:] for token in part[4:]] == row[1:-1].tolist()
    assert windows.lengths.max() == 12
    assert len(windows) > len(TEXTS)


def test_each_row_comes_once_an_epoch_and_batches_are_of_like_length() -> None:
    lengths = np.random.default_rng(0).integers(5, 500, 1000)
    order = LengthOrder(lengths, batch_size=16, seed=7)

    first, second = order.order(0), order.order(1)

    assert sorted(first) == sorted(second) == list(range(1000))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, LengthOrder(lengths, batch_size=16, seed=7).order(0))
    batches = lengths[first[:992]].reshape(-1, 16)
    assert np.mean(batches.max(1) / batches.mean(1)) < 1.1  # a random order pads four fifths more
    assert not (np.diff(batches.mean(1)) > 0).all()  # and the batches are shuffled
    order.set_epoch(1)
    assert list(order) == second.tolist()


def test_a_batch_is_padded_to_few_lengths_and_holds_what_the_tokenizer_pads(tokenizer: Any) -> None:
    table = tokenized(TEXTS, tokenizer, Cutting(20))
    rows = TokenRows(table, np.arange(8), pad_id=0, max_length=20, device=torch.device("cpu"))

    batch = rows.__getitems__([3, 0, 1])

    expected = tokenizer(
        [TEXTS[n] for n in (3, 0, 1)], truncation=True, max_length=20, padding="max_length", return_tensors="pt"
    )
    torch.testing.assert_close(batch["input_ids"], expected["input_ids"])
    torch.testing.assert_close(batch["attention_mask"], expected["attention_mask"])
    assert batch["labels"].tolist() == batch["documents"].tolist() == [3, 0, 1]
    assert rows[2]["input_ids"].shape == (1, 8)
    assert rows.longest_batch()["input_ids"].shape == (1, 20)
    assert [padding_multiple(n) for n in (64, 512, 4096)] == [8, 16, 128]


def test_a_short_batch_is_filled_with_rows_that_count_for_nothing(tokenizer: Any) -> None:
    table = tokenized(TEXTS, tokenizer, Cutting(20))
    rows = TokenRows(table, np.arange(8), pad_id=0, max_length=20, device=torch.device("cpu"))
    rows._full = 4  # what it is on a GPU

    batch = rows.__getitems__([5, 6])

    assert batch["count"] == 2
    assert batch["labels"].tolist() == [5, 6, IGNORED, IGNORED]
    assert batch["input_ids"].shape == (4, 20)


def test_every_number_of_ranks_sees_the_same_texts_at_each_step_and_goes_on_from_anywhere(tokenizer: Any) -> None:
    table = tokenized(TEXTS * 5, tokenizer, Cutting(20))
    rows = TokenRows(table, np.zeros(40, np.int64), pad_id=0, max_length=20, device=torch.device("cpu"))

    def stream(rank: int, size: int, **start: Any) -> Any:
        order = LengthOrder(rows.lengths, batch_size=12, seed=1)
        data = loader(rows, batch_size=12 // size, order=order)
        return open_training(data, seed=0, rank=rank, size=size, device="cpu", **start)

    def texts(*streams: Any, steps: int) -> list[list[int]]:
        return [sorted(n for each in streams for n in next(each)["documents"].tolist()) for _ in range(steps)]

    whole = texts(stream(0, 1), steps=9)  # two epochs of four steps, the last of four texts, and one more
    parts = [stream(rank, 2) for rank in range(2)]
    first = texts(*parts, steps=6)
    state = parts[0].state_dict()

    assert first == whole[:6]
    assert texts(stream(0, 1, state=state), steps=3) == whole[6:]
    assert texts(*(stream(rank, 2, state=state) for rank in range(2)), steps=3) == whole[6:]
