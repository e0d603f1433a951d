"""Torch programs that torch.export wrote (.pt2); names, kinds and shapes of the inputs are the program's own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from stoker.errors import ConfigError
from stoker.predict.base import Instance, Prediction, Predictor
from stoker.predict.instances.answers import as_predictions
from stoker.predict.instances.arrays import arrays
from stoker.predict.instances.blame import BLOCK, predict_or_blame
from stoker.predict.instances.signatures import kind_of_dtype
from stoker.predict.versions import warn_of_other_versions
from stoker.schema.bundle import FieldSpec, ModelCard

_SMALL = 2_000_000  # parameters


def load(folder: Path, card: ModelCard) -> Predictor:
    warn_of_other_versions(card)
    path = next(iter(sorted(folder.glob("*.pt2"))), None)
    if path is None:
        raise ConfigError(f"No .pt2 file in {folder}: export the model again with torch.export or save_model().")
    try:
        program = torch.export.load(path)
    except Exception as error:  # noqa: BLE001  whatever a file of another version or a broken one makes it raise
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"{path} cannot be loaded by torch {torch.__version__}: {what}") from error
    return TorchPredictor(program, card)


class TorchPredictor:
    """Runs on the CPU, with any number of instances: a program of a fixed batch gets them in such parts."""

    def __init__(self, program: torch.export.ExportedProgram, card: ModelCard) -> None:
        inputs = _inputs(program)
        fields = tuple(_field(name, value) for name, value in inputs.items())
        if tuple(spec.name for spec in card.signature.inputs) != tuple(inputs):
            card = card.with_(signature=card.signature.with_(inputs=fields))
        self.card = card
        self._dtypes = {name: value.dtype for name, value in inputs.items()}
        self._module = program.module()
        self._fixed = _fixed_batch(inputs)
        self._block = 1 if self._fixed else _block(program)
        # torch.export keeps how forward() was called: by name, if save_model() wrote it.
        self._by_name = bool(program.call_spec.in_spec.child(1).num_children) if program.call_spec.in_spec else False

    def predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        return predict_or_blame(self._predict, instances, about=(RuntimeError,), block=self._block)

    def _predict(self, instances: Sequence[Instance]) -> list[Prediction]:
        if not instances:
            return []
        stacked = arrays(instances, self.card.signature)
        tensors = {name: torch.from_numpy(stacked[name]).to(dtype) for name, dtype in self._dtypes.items()}
        if self._fixed is None:
            return self._answers(tensors)
        predictions: list[Prediction] = []
        for start in range(0, len(instances), self._fixed):
            places = torch.arange(start, start + self._fixed).clamp(max=len(instances) - 1)  # the last fills it up
            predictions += self._answers({name: value[places] for name, value in tensors.items()})
        return predictions[: len(instances)]

    def _answers(self, tensors: dict[str, torch.Tensor]) -> list[Prediction]:
        with torch.inference_mode():
            found = self._module(**tensors) if self._by_name else self._module(*tensors.values())
        return as_predictions(_named(found))


def _inputs(program: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """The placeholders that are the caller's to fill, as fake tensors."""
    wanted = set(program.graph_signature.user_inputs)
    return {
        node.name: node.meta["val"]
        for node in program.graph.nodes
        if node.op == "placeholder" and node.name in wanted and isinstance(node.meta.get("val"), torch.Tensor)
    }


def _fixed_batch(inputs: dict[str, torch.Tensor]) -> int | None:
    """The batch size that a program was fixed to, if it was."""
    sizes = [value.shape[0] for value in inputs.values() if value.ndim]
    return sizes[0] if sizes and all(isinstance(size, int) for size in sizes) and len(set(sizes)) == 1 else None


def _block(program: torch.export.ExportedProgram) -> int:
    """Small programs run on whole blocks, so that a row's last bit does not depend on its neighbours. For large ones
    that would cost more than it is worth."""
    return BLOCK if sum(value.numel() for value in program.state_dict.values()) <= _SMALL else 1


def _field(name: str, value: torch.Tensor) -> FieldSpec:
    shape = tuple(size if isinstance(size, int) else None for size in value.shape[1:])
    return FieldSpec(name=name, dtype=kind_of_dtype(str(value.dtype)), shape=shape)


def _named(found: Any) -> Any:
    """Tensors as arrays; a tuple's by their places."""
    if isinstance(found, torch.Tensor):
        return found.numpy()
    if isinstance(found, tuple | list):
        found = {f"output_{at}": value for at, value in enumerate(found)}
    return {name: value.numpy() for name, value in found.items() if isinstance(value, torch.Tensor)}
