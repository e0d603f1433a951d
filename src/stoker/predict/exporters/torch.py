"""Torch modules: the program itself by torch.export (model.pt2), its weights as safetensors; ONNX when asked for."""

import contextlib
import copy
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from stoker.errors import ConfigError
from stoker.predict.exporters import Details, Exported, no_such_format
from stoker.predict.instances.signatures import of_array, of_columns
from stoker.schema.bundle import FieldSpec, Signature

Inputs = dict[str, torch.Tensor]


def export(model: torch.nn.Module, *, example: Any, format: str | None, details: Details) -> Exported:
    if format not in (None, "pt2", "onnx"):
        raise no_such_format(format, "torch", ["pt2", "onnx"])
    if example is None:
        raise ConfigError(
            "A torch module cannot be saved without an example of its inputs: save_model(model, example=batch), with"
            " the tensor (or tuple, or dict of tensors by argument) that forward() takes."
        )
    inputs = _inputs(model, example)
    with _ready(model) as ready:
        outputs = _outputs(ready, inputs)
        program = None if format == "onnx" else _program(ready, inputs)

    def fill(folder: Path) -> None:
        if program is None:
            with _ready(model) as ready:
                _write_onnx(ready, inputs, [spec.name or "output" for spec in outputs], folder / "model.onnx")
            return
        torch.export.save(program, folder / "model.pt2")
        _write_weights(model, folder / "model.safetensors")

    signature = Signature(inputs=of_columns(inputs), outputs=outputs)
    packages = ("onnxruntime", "numpy") if program is None else ("torch", "numpy")
    return Exported("onnx" if program is None else "torch", fill, signature, packages=packages)


def _inputs(model: torch.nn.Module, example: Any) -> Inputs:
    """The example's tensors by the names of forward()'s arguments, each a batch of two at least."""
    names = list(inspect.signature(model.forward).parameters)
    if isinstance(example, Mapping):
        given = dict(example)
    else:
        values = example if isinstance(example, tuple | list) else (example,)
        if len(values) > len(names):
            raise ConfigError(
                f"The example has {len(values)} inputs; forward() takes {len(names)}: {', '.join(names)}."
            )
        given = dict(zip(names, values, strict=False))
    return {name: _batch(name, value) for name, value in given.items()}


def _batch(name: str, value: Any) -> torch.Tensor:
    try:
        tensor = torch.as_tensor(value).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"The example's {name!r} is a {type(value).__name__}, not a tensor.") from error
    if tensor.ndim == 0 or tensor.shape[0] == 0:
        raise ConfigError(f"The example's {name!r} is no batch: its first axis must count instances.")
    # With a single one, torch.export would take 1 for a constant of the model.
    return tensor if tensor.shape[0] > 1 else tensor.repeat(2, *[1] * (tensor.ndim - 1))


@contextlib.contextmanager
def _ready(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The model in evaluation mode on the CPU; the caller's own is afterwards as it was."""
    if any(tensor.device.type != "cpu" for tensor in [*model.parameters(), *model.buffers()]):
        yield copy.deepcopy(model).cpu().eval()
        return
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield model
    finally:
        for module, was in training.items():
            module.training = was


def _outputs(model: torch.nn.Module, inputs: Inputs) -> tuple[FieldSpec, ...]:
    try:
        with torch.inference_mode():
            found = model(**inputs)
    except Exception as error:  # noqa: BLE001  it is the user's code
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ConfigError(f"The model does not take the example: {what}") from error
    if isinstance(found, torch.Tensor):
        return (of_array("", found),)
    if isinstance(found, tuple | list):
        found = {f"output_{at}": value for at, value in enumerate(found)}
    return of_columns({name: value for name, value in dict(found).items() if isinstance(value, torch.Tensor)})


def _program(model: torch.nn.Module, inputs: Inputs) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch", min=1)
    try:
        return torch.export.export(model, (), kwargs=inputs, dynamic_shapes={name: {0: batch} for name in inputs})
    except Exception as error:  # noqa: BLE001  tracing runs the user's code, and raises anything
        what = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(
            f"torch.export cannot take this model with any batch size: {what.strip()[:300]}. Save it yourself, with a"
            " predictor.py beside it, and give the folder."
        ) from error


def _write_weights(model: torch.nn.Module, path: Path) -> None:
    try:
        from safetensors.torch import save_model  # noqa: PLC0415  an extra, of use to others than us
    except ModuleNotFoundError as error:
        raise ConfigError("Saving a torch model needs safetensors: pip install 'stoker[pytorch]'.") from error
    save_model(model, str(path))


def _write_onnx(model: torch.nn.Module, inputs: Inputs, outputs: list[str], path: Path) -> None:
    batch = torch.export.Dim("batch", min=1)
    try:
        torch.onnx.export(
            model,
            (),
            str(path),
            kwargs=inputs,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_shapes={name: {0: batch} for name in inputs},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(f"Saving as ONNX needs {error.name}: pip install onnx onnxscript.") from error
    except Exception as error:  # noqa: BLE001  tracing runs the user's code, and raises anything
        what = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise ConfigError(f"torch.onnx cannot take this model: {what.strip()[:300]}") from error
