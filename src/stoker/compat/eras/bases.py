"""What an image's name says of its Python and of the libraries in it: a Dockerfile's FROM, or AI Platform's own."""

import re
from dataclasses import dataclass, field

_PYTHON = re.compile(r"(?:^|/)python:(\d+\.\d+)")
_TENSORFLOW = re.compile(r"(?:^|/)tensorflow/tensorflow:(\d+)\.(\d+)(\.\d+)?")
# gcr.io/deeplearning-platform-release/tf2-cpu.2-1, …/vertex-ai/training/scikit-learn-cpu.0-23:latest
_OF_GOOGLE = re.compile(r"/(tf2?|tensorflow|sklearn|scikit-learn|xgboost)(?:-ent)?-[cg]pu\.(\d+)-(\d+)")
_LIBRARIES = {
    "scikit-learn": ("sklearn", "scikit-learn"),
    "sklearn": ("sklearn", "scikit-learn"),
    "xgboost": ("xgboost", "xgboost"),
}


@dataclass(frozen=True, slots=True)
class Base:
    """`libraries` are requirements by the module that they bring; `runtime` is the version of TensorFlow."""

    image: str = ""
    python: str | None = None
    libraries: dict[str, str] = field(default_factory=dict)
    runtime: str | None = None


def is_ai_platforms(runtime: str | None) -> bool:
    """Whether a runtime has the name of one of AI Platform's: a version."""
    return re.fullmatch(r"[12]\.\d+", runtime or "") is not None


def base_of_runtime(version: str | None) -> Base:
    """Of AI Platform's `--runtime-version 2.4`: that was TensorFlow's version. Those before 2 are another matter."""
    if version is None or not re.fullmatch(r"2\.\d+", version):
        return Base()
    return Base(f"runtime {version}", libraries={"tensorflow": f"tensorflow=={version}.*"}, runtime=version)


def base_of(image: str | None) -> Base:
    """Read off its name and tag. Nothing is known of most, and of torch's nothing is taken: the runtime has one."""
    if not image:
        return Base()
    if found := _PYTHON.search(image):
        return Base(image, python=found[1])
    if found := _TENSORFLOW.search(image):
        version = f"{found[1]}.{found[2]}{found[3] or '.*'}"
        return Base(image, libraries={"tensorflow": f"tensorflow=={version}"}, runtime=f"{found[1]}.{found[2]}")
    if found := _OF_GOOGLE.search(image):
        module, library = _LIBRARIES.get(found[1], ("tensorflow", "tensorflow"))
        version = f"{found[2]}.{found[3]}"
        return Base(
            image, libraries={module: f"{library}=={version}.*"}, runtime=version if module == library else None
        )
    return Base(image)
