"""A small encoder with its tokenizer, as one has them in a folder, and reviews whose truth is known."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from stoker.recipes import synthetic
from stoker.recipes.text.encoder import make_tiny_tokenizer

# Two threads on two busy cores wait for each other.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    for name in ("STOKER_RUN_DIR", "WORLD_SIZE", "RANK", "STOKER_CACHE"):
        monkeypatch.delenv(name, raising=False)
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


@pytest.fixture(scope="session")
def reviews() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = synthetic.make("reviews", rows=120, seed=3).to_pylist()
    return rows


@pytest.fixture
def reviews_csv(tmp_path: Path, reviews: list[dict[str, str]]) -> Path:
    return write_csv(tmp_path / "reviews.csv", reviews)


@pytest.fixture(scope="session")
def encoder_dir(tmp_path_factory: pytest.TempPathFactory, reviews: list[dict[str, str]]) -> Path:
    """Made by the real classes and saved as any encoder is."""
    folder = tmp_path_factory.mktemp("encoder")
    tokenizer = make_tiny_tokenizer([row["text"] for row in reviews], words=400)
    config = a_config(len(tokenizer))
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def a_config(vocabulary: int, **changed: Any) -> Any:
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return transformers.BertConfig(vocab_size=vocabulary, max_position_embeddings=64, **{**size, **changed})


def write_csv(path: Path, rows: list[dict[str, str]]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
