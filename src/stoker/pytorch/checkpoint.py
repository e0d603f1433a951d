"""A checkpoint on disk: whole or not there, and read without pickle.

step-000000100/
    checkpoint.json      what it is: step, epoch, trial, class, hyperparameters, versions
    model.safetensors    the weights of the first model; model-1.safetensors the next, and so on
    state.json           the rest (optimizers, schedulers, random generators, data position), tensors in
    state.safetensors
    state.pt             only if something in it is neither JSON nor a plain tensor; read with weights_only=True
"""

import io
import json
import os
import pickle
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stoker.errors import UsageError
from stoker.pytorch.tree import Flat, flatten, unflatten
from stoker.pytorch.weights import read_tensors, write_tensors

FORMAT = 1
_DESCRIPTION = "checkpoint.json"


@dataclass(slots=True)
class Checkpoint:
    """All that training needs to go on: a description for people and tools, the models' weights, and the rest."""

    description: dict[str, Any]
    models: list[dict[str, Any]]
    state: dict[str, Any]


def read_checkpoint(path: "str | os.PathLike[str]") -> Checkpoint:
    """Read a checkpoint onto the CPU."""
    folder = Path(path)
    description = read_description(folder)
    flat = Flat(
        skeleton=json.loads((folder / "state.json").read_text()),
        tensors=read_tensors(folder / "state.safetensors"),
        others=_load_others(folder / "state.pt"),
    )
    return Checkpoint(description, read_models(folder), unflatten(flat))


def read_models(path: "str | os.PathLike[str]") -> list[dict[str, Any]]:
    """The weights alone, one state_dict a model."""
    folder = Path(path)
    return [
        {**read_tensors(folder / _model_file(index), mapped=True), **unflatten(Flat(skeleton=plain))}
        for index, plain in enumerate(read_description(folder)["models"])
    ]


def read_description(path: "str | os.PathLike[str]") -> dict[str, Any]:
    """A checkpoint's checkpoint.json; says plainly when there is no checkpoint of ours."""
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError(f"No checkpoint at {folder}: there is no such folder.")
    if not (folder / _DESCRIPTION).is_file():
        raise UsageError(f"{folder} is not a checkpoint of stoker.pytorch: it has no {_DESCRIPTION}.")
    description = json.loads((folder / _DESCRIPTION).read_text())
    if description.get("format") != FORMAT:
        raise UsageError(
            f"{folder} is a checkpoint of format {description.get('format')!r}; this stoker reads format {FORMAT}."
        )
    return dict(description)


@dataclass(slots=True)
class CheckpointFiles:
    """A checkpoint as what goes into its files. Tensors are by file, then by name."""

    description: dict[str, Any]
    state: Any
    others: dict[str, Any]
    tensors: dict[str, dict[str, torch.Tensor]]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "CheckpointFiles":
        """Lay a checkpoint out. Tensors are not copied; whatever could not be read back is refused here."""
        flat = flatten(checkpoint.state)
        _check_others(flat.others)
        tensors = {"state.safetensors": flat.tensors}
        plain = []
        for index, model in enumerate(checkpoint.models):
            weights = {name: value for name, value in model.items() if isinstance(value, torch.Tensor)}
            rest = flatten({name: value for name, value in model.items() if name not in weights})
            if rest.tensors or rest.others:
                raise UsageError(
                    f"Model {index}'s state_dict holds {', '.join({**rest.tensors, **rest.others})}, which is neither a"
                    " tensor nor plain numbers and strings. Make it a buffer, or keep it in a callback's state_dict."
                )
            plain.append(rest.skeleton)
            tensors[_model_file(index)] = weights
        return cls({**checkpoint.description, "format": FORMAT, "models": plain}, flat.skeleton, flat.others, tensors)

    def write(self, path: Path) -> None:
        """Write under a temporary name, make sure it is on disk, rename. Tensors are on the CPU by now."""
        partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
        partial.mkdir(parents=True)
        try:
            for name, tensors in self.tensors.items():
                write_tensors(partial / name, tensors)
            if self.others:
                _write(partial / "state.pt", _dumps(self.others))
            _write(partial / "state.json", json.dumps(self.state).encode())
            _write(partial / _DESCRIPTION, json.dumps(self.description, indent=2, default=str).encode())
            partial.rename(path)
            _sync(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise

    def all_tensors(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        for file, tensors in self.tensors.items():
            for name, tensor in tensors.items():
                yield file, name, tensor


def _model_file(index: int) -> str:
    return "model.safetensors" if index == 0 else f"model-{index}.safetensors"


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_others(others: Mapping[str, Any]) -> None:
    """Find out now, not when resuming, that something cannot be read back safely."""
    for name, value in others.items():
        try:
            _loads(_dumps(value))
        except (pickle.PickleError, AttributeError, TypeError) as error:
            raise UsageError(
                f"The checkpoint cannot hold {name}, a {type(value).__module__}.{type(value).__qualname__}: it could"
                " not be read back without running code. Keep tensors, numbers, strings, and lists and dicts of them"
                " (an array: torch.from_numpy(array), or array.tolist())."
            ) from error


def _load_others(path: Path) -> dict[str, Any]:
    return dict(_loads(path.read_bytes())) if path.exists() else {}


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _loads(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
