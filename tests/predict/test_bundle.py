"""A bundle is whole or not there, and says by name what is wrong with it."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stoker.errors import ConfigError, ConflictError, NotFoundError
from stoker.predict import bundle
from stoker.schema.bundle import ModelCard

CARD = ModelCard(name="m", framework="custom", created=datetime(2026, 1, 1, tzinfo=UTC), metrics={"loss": float("nan")})


def fill(folder: Path) -> None:
    (folder / "weights").mkdir()
    (folder / "weights" / "a.bin").write_bytes(b"abc")
    (folder / "predictor.py").write_text("def predict(instances): return instances\n")


@pytest.fixture
def made(tmp_path: Path) -> Path:
    bundle.write(tmp_path / "models" / "m", CARD, fill)
    return tmp_path / "models" / "m"


def test_bundle_holds_a_card_with_every_file(made: Path) -> None:
    card = bundle.read_verified(made)

    assert [file.path for file in card.files] == ["predictor.py", "weights/a.bin"]
    assert bundle.size_bytes(card) == 3 + len("def predict(instances): return instances\n")
    assert os.listdir(made.parent) == ["m"]
    assert json.loads((made / "model.json").read_text())["metrics"] == {"loss": "NaN"}


def test_tampered_bundle_is_refused_with_the_files_names(made: Path) -> None:
    (made / "weights" / "a.bin").write_bytes(b"abd")
    (made / "predictor.py").unlink()
    (made / "__pycache__").mkdir()
    (made / "__pycache__" / "predictor.cpython-311.pyc").write_bytes(b"evil")

    with pytest.raises(ConfigError) as caught:
        bundle.read_verified(made)

    assert [problem.partition(" instead")[0] for problem in caught.value.problems] == [
        "__pycache__/predictor.cpython-311.pyc: not in model.json",
        "predictor.py: missing",
        "weights/a.bin: changed: its sha256 is not that of model.json",
    ]


def test_links_are_not_followed(made: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"abc")
    (made / "weights" / "a.bin").unlink()
    (made / "weights" / "a.bin").symlink_to(tmp_path / "elsewhere")
    (made / "more").symlink_to(tmp_path)

    with pytest.raises(ConfigError) as caught:
        bundle.read_verified(made)

    assert caught.value.problems == ("more: not in model.json", "weights/a.bin: is a link, not a file")


@pytest.mark.parametrize(
    "path", ["../m/predictor.py", "/etc/passwd", "weights/../../x", "a//b", "c:\\x", "model.json", ""]
)
def test_card_cannot_name_files_outside(made: Path, path: str) -> None:
    values = json.loads((made / "model.json").read_text())
    values["files"][0]["path"] = path
    (made / "model.json").write_text(json.dumps(values))

    with pytest.raises(ConfigError, match="is not a path inside the bundle"):
        bundle.read(made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ("[]", "no JSON object"),
        ('{"framework": 3}', "bad field"),
        ('{"format": 2, "name": "m", "framework": "x", "created": "2026-01-01T00:00:00Z"}', "format"),
    ],
)
def test_unreadable_card_is_refused_by_its_name(made: Path, text: str, message: str) -> None:
    (made / "model.json").write_text(text)

    assert bundle.is_bundle(made)
    with pytest.raises(ConfigError, match=message) as caught:
        bundle.read(made)
    assert str(made / "model.json") in str(caught.value)


def test_failed_write_leaves_the_old_bundle(made: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        bundle.write(made, CARD, fail)

    bundle.verify(made, bundle.read(made))
    assert os.listdir(made.parent) == ["m"]


def test_bundle_is_replaced_only_when_that_is_meant(made: Path) -> None:
    bundle.write(made, CARD, lambda folder: (folder / "new").write_bytes(b"n") and None)
    assert [file.path for file in bundle.read_verified(made).files] == ["new"]

    with pytest.raises(ConflictError, match="is there already"):
        bundle.write(made, CARD, fill, replace=False)
    with pytest.raises(ConfigError, match="nothing to put"):
        bundle.write(made, CARD, lambda folder: None)
    with pytest.raises(NotFoundError):
        bundle.read(made / "new")
