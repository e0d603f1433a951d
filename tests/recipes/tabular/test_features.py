"""Stats from the training data, and the layer that makes inputs by them."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from stoker.errors import UsageError
from stoker.recipes.tabular import (
    Categorical,
    DNNLinearCombinedClassifier,
    DNNLinearCombinedRegressor,
    FeatureLayer,
    Features,
    Metadata,
    Numeric,
    fit,
    load,
)
from stoker.recipes.tabular.models import MODELS, embedding_size
from tests.recipes.tabular.conftest import CENSUS

MIXED = Metadata(
    task="regression",
    header=("x", "amount", "fixed", "c", "y"),
    target="y",
    numeric=(
        Numeric("x", buckets=4),
        Numeric("amount", log=True, buckets=0),
        Numeric("fixed", mean=1.0, std=2.0, boundaries=(0.0, 10.0)),
    ),
    categorical=(Categorical("c", vocabulary=("u", "v")),),
    crosses=(("x", "c"),),
)


@pytest.fixture
def features(tmp_path: Path) -> Features:
    rows = [f"{x},{10 ** (x % 3)},{x - 5},{'uv'[x % 2]},{2 * x}" for x in range(1, 101)]
    (tmp_path / "t.csv").write_text("\n".join(["x,amount,fixed,c,y", *rows, ",1,1,u,0", ""]))
    return fit(load([str(tmp_path / "t.csv")], MIXED), MIXED)


def test_stats_are_those_of_the_training_data_unless_given(features: Features) -> None:
    x, amount, fixed = features.numeric
    logs = [math.log1p(10 ** (x % 3)) for x in range(1, 101)] + [math.log1p(1)]

    assert (x.mean, x.std) == (pytest.approx(50.5), pytest.approx(np.std(range(1, 101))))
    assert x.has_missing
    assert not amount.has_missing
    assert (amount.mean, amount.std) == (pytest.approx(np.mean(logs)), pytest.approx(np.std(logs), rel=1e-5))
    assert (fixed.mean, fixed.std, fixed.boundaries) == (1.0, 2.0, (0.0, 10.0))
    assert x.boundaries == (26.0, 51.0, 76.0)
    assert features.target_mean == pytest.approx(100.0, abs=0.01)


def test_the_layer_normalises_fills_gaps_buckets_and_crosses(features: Features) -> None:
    layer = FeatureLayer(features)
    numbers = torch.tensor([[50.5, 9.0, 5.0], [float("nan"), 0.0, -1.0]])

    inputs = layer(numbers, torch.tensor([[2, 2], [3, 0]][:2])[:, :1].int())

    x, amount, fixed = features.numeric
    assert inputs.dense[0].tolist() == pytest.approx(
        [0.0, (math.log(10) - amount.mean) / amount.std, 2.0, 0.0], abs=1e-5
    )
    assert inputs.dense[1].tolist() == pytest.approx([0.0, -amount.mean / amount.std, -1.0, 1.0], abs=1e-5)
    # x: 5 places (missing and four quarters), fixed: 4, c: 4 (missing, unseen, u, v), x times c: 20
    assert layer.num_wide == 5 + 4 + 4 + 20
    assert inputs.wide.tolist() == [[2, 5 + 2, 9 + 2, 13 + 2 * 4 + 2], [0, 5 + 1, 9 + 3, 13 + 0 * 4 + 3]]


def test_more_boundaries_than_a_byte_can_count(tmp_path: Path) -> None:
    many = Numeric("x", boundaries=tuple(float(at) for at in range(300)))
    metadata = Metadata(task="regression", header=("x", "y"), target="y", numeric=(many,))
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,5\n")
    layer = FeatureLayer(fit(load([str(tmp_path / "t.csv")], metadata), metadata))

    wide = layer(torch.tensor([[-1.0], [0.0], [255.5], [400.0]]), torch.zeros(4, 0, dtype=torch.int32)).wide

    assert wide[:, 0].tolist() == [1, 2, 257, 301]


def test_the_layer_leaves_what_it_is_given_as_it_was(tmp_path: Path) -> None:
    metadata = Metadata(task="regression", header=("x", "y"), target="y", numeric=(Numeric("x", log=True),))
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,5\n")
    layer = FeatureLayer(fit(load([str(tmp_path / "t.csv")], metadata), metadata))
    numbers = torch.tensor([[1.0], [100.0]])

    layer(numbers, torch.zeros(2, 0, dtype=torch.int32))

    assert numbers.tolist() == [[1.0], [100.0]]


def test_crosses_too_many_for_their_buckets_are_spread_over_them(people: Path) -> None:
    narrow = Metadata.from_json({**CENSUS.to_json(), "cross_buckets": 16}, source="test")
    table = load([str(people / "eval.csv")], narrow)
    layer = FeatureLayer(fit(table, narrow))

    wide = layer(table.numbers, table.codes).wide

    assert wide[:, -1].min() >= layer.num_wide - 16
    assert wide.max() < layer.num_wide
    assert len(wide[:, -2].unique()) == 16


def test_features_survive_json(features: Features) -> None:
    import json

    assert Features.from_json(json.loads(json.dumps(features.to_json())), source="test") == features


@pytest.mark.parametrize("name", MODELS)
def test_models_take_gaps_and_unseen_values_and_give_finite_answers(name: str, features: Features) -> None:
    if name == "DNNLinearCombinedClassifier":
        with pytest.raises(UsageError, match="Use DNNLinearCombinedRegressor"):
            DNNLinearCombinedClassifier(features)
        return
    net = MODELS[name](features, hidden=(8,), dropout=0.1)

    outputs = net(torch.tensor([[float("nan")] * 3, [1.0, 2.0, 3.0]]), torch.tensor([[0], [1]], dtype=torch.int32))

    assert outputs.shape == (2, 1)
    assert outputs.isfinite().all()
    assert DNNLinearCombinedRegressor is MODELS["DNNLinearCombinedRegressor"]


def test_embeddings_grow_with_the_vocabulary() -> None:
    assert [embedding_size(size) for size in (2, 40, 10_000, 10**6)] == [3, 13, 50, 50]
