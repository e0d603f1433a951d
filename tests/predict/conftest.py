"""Models really trained, small, once for all tests of this folder."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # read when keras is first imported


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(home))
    monkeypatch.delenv("STOKER_TRUST_PICKLES", raising=False)
    return home


@pytest.fixture(scope="session")
def rows() -> "np.ndarray[Any, Any]":
    return np.random.default_rng(0).normal(size=(60, 3))


Export = Callable[..., Path]


@pytest.fixture
def export(tmp_path: Path) -> Export:
    """Writes a bundle in the test's own folder."""

    def write(model: Any, name: str = "m", **details: Any) -> Path:
        from stoker.predict.exporters import export

        export(model, tmp_path / "bundles" / name, name=name, **details)
        return tmp_path / "bundles" / name

    return write
