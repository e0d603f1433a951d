"""What the platforms' images had in them, so that packages never declared it; and what the name of an image says."""

import re
from collections.abc import Collection
from dataclasses import dataclass, field

# Module: requirement. What is not here was never provided, and its absence is the package's own error.
SHIPPED = {
    "PIL": "pillow",
    "absl": "absl-py",
    "attrdict": "attrdict",
    "boto3": "boto3",
    "cloudpickle": "cloudpickle",
    "cv2": "opencv-python-headless",
    "dill": "dill",
    "filelock": "filelock",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "h5py": "h5py",
    "joblib": "joblib",
    "keras": "keras",
    "matplotlib": "matplotlib",
    "nltk": "nltk",
    "numpy": "numpy",
    "pandas": "pandas",
    "pkg_resources": "setuptools<81",  # the last releases that have it
    "psutil": "psutil",
    "pyarrow": "pyarrow",
    "pytorch_lightning": "pytorch-lightning",
    "requests": "requests",
    "ruamel": "ruamel.yaml",
    "scipy": "scipy",
    "six": "six",
    "sklearn": "scikit-learn",
    "tabulate": "tabulate",
    "tensorboard": "tensorboard",
    "tensorflow": "tensorflow<2.16",  # the last releases with the Keras that the images had
    "tensorflow_datasets": "tensorflow-datasets",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "termcolor": "termcolor",
    "torch": "torch",
    "torchmetrics": "torchmetrics",
    "torchvision": "torchvision",
    "tqdm": "tqdm",
    "xgboost": "xgboost",
    "yaml": "pyyaml",
}
_PYTHON = re.compile(r"(?:^|/)python:(\d+\.\d+)")
_TENSORFLOW = re.compile(r"(?:^|/)tensorflow/tensorflow:(\d+)\.(\d+)(\.\d+)?")
# gcr.io/deeplearning-platform-release/tf2-cpu.2-1, …/vertex-ai/training/scikit-learn-cpu.0-23:latest
_OF_GOOGLE = re.compile(r"/(tf2?|tensorflow|sklearn|scikit-learn|xgboost)(?:-ent)?-[cg]pu\.(\d+)-(\d+)")
_MODULES = {"scikit-learn": "sklearn", "sklearn": "sklearn", "xgboost": "xgboost"}


@dataclass(frozen=True, slots=True)
class Image:
    """What its name says. `date` is only known here where the releases alone would give a wrong one."""

    name: str = ""
    python: str | None = None
    libraries: dict[str, str] = field(default_factory=dict)  # requirements by module
    date: str | None = None


# AI Platform's last runtime for TensorFlow 1, for all code of that time: releases before 1.15 have no wheels for a
# Python that stoker runs. The date is that of its image; TensorFlow 1.15.5 is a year younger than what went with it.
RUNTIME_1 = Image("runtime 1.15", libraries={"tensorflow": "tensorflow==1.15.*"}, date="2020-01-15")


def image_of_runtime(version: str | None) -> Image:
    """Of AI Platform's `--runtime-version 2.4`: that was TensorFlow's version."""
    if version is None or not re.fullmatch(r"[12]\.\d+", version):
        return Image()
    if version.startswith("1."):
        return RUNTIME_1
    return Image(f"runtime {version}", libraries={"tensorflow": f"tensorflow=={version}.*"})


def image_of(name: str | None) -> Image:
    """Of a Dockerfile's FROM. Most names say nothing, and torch's version is not taken: the runtime has torch."""
    if not name:
        return Image()
    if found := _PYTHON.search(name):
        return Image(name, python=found[1])
    if found := _TENSORFLOW.search(name):
        return _with(name, "tensorflow", f"{found[1]}.{found[2]}{found[3] or '.*'}")
    if found := _OF_GOOGLE.search(name):
        return _with(name, _MODULES.get(found[1], "tensorflow"), f"{found[2]}.{found[3]}.*")
    return Image(name)


def shipped(modules: Collection[str]) -> dict[str, str]:
    """By module, the requirement for each that the images had, of those that a program imports."""
    return {
        module: line
        for module, line in SHIPPED.items()
        if any(name == module or name.startswith(f"{module}.") for name in modules)
    }


def _with(name: str, module: str, version: str) -> Image:
    if module == "tensorflow" and version.startswith("1."):
        return Image(name, libraries=RUNTIME_1.libraries, date=RUNTIME_1.date)
    return Image(name, libraries={module: f"{SHIPPED[module].partition('<')[0]}=={version}"})
