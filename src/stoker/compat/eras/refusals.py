"""What cannot run here at all, in a sentence each: told at submission, and by `stoker migrate` beforehand."""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

# By the module that code imports, or the launcher that an entrypoint names.
_DEEPSPEED = (
    "DeepSpeed is not supported on CPUs. Use FSDP (determined.launch.torch_distributed), or a GPU pool and a runtime"
    " that has DeepSpeed"
)
_HOROVOD = (
    "Horovod is not supported. Use torch.distributed (ranks are started for you) or TF_CONFIG; a Determined trial runs"
    " as it is with determined.launch.torch_distributed, or with 1 slot"
)
_TPU = "TPUs cannot be had here. Use another --scale-tier, and a strategy for CPUs or GPUs"
UNSUPPORTED = {
    "horovod": _HOROVOD,
    "tensorflow.contrib.tpu": _TPU,
    "tensorflow.distribute.TPUStrategy": _TPU,
    "deepspeed": _DEEPSPEED,
    "determined.pytorch.deepspeed": "DeepSpeedTrial is not supported. Use a PyTorchTrial with FSDP, or the Core API",
    "determined.searcher": "custom searchers were removed from Determined in 0.38. Use a search of the file",
    "determined.estimator": "EstimatorTrial was removed from Determined. Use Keras or the Core API",
    "determined.tensorpack": "TensorpackTrial was removed from Determined in 0.14. Use a PyTorchTrial or the Core API",
}
_LAUNCHERS = {"determined.launch.deepspeed": "deepspeed", "determined.launch.horovod": "horovod"}


def refusal(values: Mapping[str, Any], modules: Collection[str], *, is_installed: Callable[[str], bool]) -> str | None:
    """Why the job cannot run; None where it can. `modules` are those that its entry imports for sure."""
    return next(_reasons(values, modules, is_installed), None)


def _reasons(values: Mapping[str, Any], modules: Collection[str], is_installed: Callable[[str], bool]) -> Iterator[str]:
    resources = values.get("resources", {})
    if "TPU" in str(resources.get("tier", "")).upper() or _has_tpu(resources):
        yield f"{_TPU}."
    words = " ".join(map(str, values.get("command") or ()))
    for launcher, library in _LAUNCHERS.items():
        # One process needs no Horovod, and its launcher here starts it without.
        is_one = library == "horovod" and int(resources.get("slots") or 1) == 1 and not resources.get("cpus")
        if launcher in words and not is_one and not is_installed(library):
            yield f"{launcher}: {UNSUPPORTED[library]}."
    for name, why in UNSUPPORTED.items():
        if any(found == name or found.startswith(f"{name}.") for found in modules) and not is_installed(name):
            yield f"{name} is imported. {why}."


def _has_tpu(resources: Mapping[str, Any]) -> bool:
    roles = (resources.get("roles") or {}).values()
    said = [str(role.get(field, "")) for role in roles for field in ("gpu_type", "machine")]
    return any("tpu" in text.lower() for text in said)
