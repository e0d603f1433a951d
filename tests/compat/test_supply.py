"""What submission gives unasked: remembered by content, and told by `stoker migrate` as it will be."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from packaging.requirements import Requirement

import stoker
from stoker.compat.eras import supply
from stoker.compat.eras.bases import base_of
from stoker.compat.eras.images import as_in_image, uses_of, went_with
from stoker.compat.migrate.assess import assess
from stoker.compat.migrate.findings import Verdict
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.origin import Platform
from stoker.packaging.environment import runtimes
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.layer import make_layer, patch_environment, provided_folder, site_packages
from stoker.packaging.environment.needs import Needs
from stoker.packaging.environment.resolver import Wanted
from stoker.packaging.environment.runtimes import Runtime, default_runtime
from stoker.packaging.package.tree import source_of_directory
from stoker.submission.legacy import add_legacy_environment
from stoker.submission.shipment import scan_package
from tests.packaging.made import make_runtime

VALUES = {"module": "trainer.task", "environment": {"requirements": ["tensorflow-cpu==2.8.0; python_version < '3'"]}}


def give(code: Path, home: Home) -> Any:
    scanned = scan_package(source_of_directory(code), VALUES, home=home)
    return add_legacy_environment(VALUES, scanned, home=home, notify=print)


def test_an_unchanged_directory_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code" / "trainer").mkdir(parents=True)
    task = tmp_path / "code" / "trainer" / "task.py"
    task.write_text("import json\n")
    home = Home(tmp_path / "home").make()
    first = give(task.parents[1], home)

    def asked(*_: object, **__: object) -> NoReturn:
        raise AssertionError("looked again")

    monkeypatch.setattr(supply, "supply_for", asked)

    assert give(task.parents[1], home) == first
    task.write_text("import json, os\n")
    with pytest.raises(AssertionError, match="looked again"):
        give(task.parents[1], home)


def test_what_could_not_be_had_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code" / "trainer").mkdir(parents=True)
    (tmp_path / "code" / "trainer" / "task.py").write_text("import json\n")
    home = Home(tmp_path / "home").make()
    answers = iter([supply.Supply(is_settled=False), supply.Supply(libraries=("six",), beside=("numpy<2",))])
    monkeypatch.setattr(supply, "supply_for", lambda *_, **__: next(answers))

    assert give(tmp_path / "code", home) == VALUES
    assert give(tmp_path / "code", home)["environment"]["requirements"][1:] == ["six", "numpy<2"]
    assert give(tmp_path / "code", home)["environment"]["requirements"][1:] == ["six", "numpy<2"]


def test_migrate_tells_what_submission_gives_on_either_platform(tmp_path: Path) -> None:
    experiment = "name: x\nentrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n"
    source = "import cv2\nimport nobody_has_this\ntry:\n    import apex\nexcept ImportError:\n    apex = None\n"
    (tmp_path / "const.yaml").write_text(experiment)
    (tmp_path / "train.py").write_text(source)

    found = assess(tmp_path, home=Home(tmp_path / "home").make(), platform=Platform.DETERMINED, look_up=False)

    verdicts = {finding.what: finding.verdict for finding in found.findings}
    assert verdicts["cv2"] is Verdict.NOTE
    assert found.values["environment"]["requirements"] == ["opencv-python-headless"]
    assert verdicts["nobody_has_this"] is Verdict.NEEDS
    assert "apex" not in verdicts


# torchvision as PyPI has it, beside a torch for CPUs: the compiled part cannot be loaded, and the import fails.
TORCHVISION = {
    "__init__.py": "from torchvision import extension, _meta_registrations\n",
    "extension.py": "import torch\ndef _has_ops():\n    return False\n",
    "_meta_registrations.py": (
        "import torch\n@torch.library.register_fake('torchvision::nms')\n"
        "def meta_nms(dets, scores, iou_threshold):\n    return dets\n"
    ),
}


@pytest.mark.slow
def test_torchvision_for_gpus_can_be_imported_beside_torch_for_cpus(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    runtime = default_runtime()
    layer = tmp_path / "layer"
    python = make_layer(layer, runtime, provided=provided_folder(Home(tmp_path / "home").make()))
    folder = site_packages(layer, runtime) / "torchvision"
    folder.mkdir()
    for name, text in TORCHVISION.items():
        (folder / name).write_text(text)
    words = [str(python), "-c", "import torchvision; print('imported')"]

    before = subprocess.run(words, capture_output=True, text=True, timeout=120)
    patch_environment(layer, runtime, ["torchvision 0.29.2"])
    after = subprocess.run(words, capture_output=True, text=True, timeout=120)

    assert "torchvision::nms does not exist" in before.stderr
    assert after.stdout == "imported\n", after.stderr


def test_imports_that_went_away_are_found_again_beside_what_was_installed(tmp_path: Path) -> None:
    runtime = default_runtime()
    layer = tmp_path / "layer"
    python = make_layer(layer, runtime, provided=provided_folder(Home(tmp_path / "home").make()))
    externals = site_packages(layer, runtime) / "sklearn" / "externals"
    externals.mkdir(parents=True)
    for folder in (externals.parent, externals):
        (folder / "__init__.py").touch()
    (site_packages(layer, runtime) / "joblib.py").write_text("def dump(): return 'joblib'\n")
    (externals / "six.py").write_text("own = True\n")
    (site_packages(layer, runtime) / "attrdict.py").write_text("from collections import Mapping, MutableMapping\n")
    source = (
        "import attrdict\nfrom sklearn.externals import joblib, six\nimport sklearn.externals.joblib as other\n"
        "print(joblib.dump(), other is joblib, six.own, attrdict.Mapping.__module__)\n"
    )

    patch_environment(layer, runtime, ["scikit_learn 1.0.2", "attrdict 2.0.1"])
    done = subprocess.run([str(python), "-c", source], capture_output=True, text=True, timeout=120)

    assert (done.stdout, done.stderr) == ("joblib True True collections.abc\n", "")


@pytest.mark.parametrize(
    ("source", "names"),
    [
        (b"for i in xrange(3): print(unicode(i))", "unicode xrange"),
        (b"from six.moves import xrange\nxrange(3)", None),
        (b"try:\n    unicode\nexcept NameError:\n    unicode = str\n", None),
        (b"def f(long): return long\nx.reduce(1)", None),
    ],
)
def test_names_of_python_2_are_there_for_code_that_calls_them(tmp_path: Path, source: bytes, names: str | None) -> None:
    home = Home(tmp_path / "home").make()
    program = supply.Program({"t.py": source}, (), {"module": "t"})

    found = supply.supply_for(program, home=home, look_up=False)

    assert found.variables.get("STOKER_BUILTINS") == names
    if names:
        python = make_layer(tmp_path / "layer", default_runtime(), provided=provided_folder(home))
        words = [str(python), "-c", source.decode()]
        done = subprocess.run(words, env={**os.environ, **found.variables}, capture_output=True, text=True, timeout=60)
        assert (done.stdout, done.stderr) == ("0\n1\n2\n", "")


def test_an_older_layer_comes_to_look_for_them(tmp_path: Path) -> None:
    runtime = default_runtime()
    make_layer(tmp_path / "layer", runtime, provided=tmp_path)
    start = site_packages(tmp_path / "layer", runtime) / "_stoker_runtime.pth"
    whole = start.read_text()
    start.write_text("".join(line for line in whole.splitlines(keepends=True) if "STOKER_BUILTINS" not in line))

    patch_environment(tmp_path / "layer", runtime, [])

    assert start.read_text() == whole


def test_pins_that_the_asked_python_has_no_build_of_get_the_nearest_that_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = default_runtime()
    numbers = own.interpreter.numbers
    others = [
        Runtime(
            f"python{minor}",
            own.python,
            replace(own.interpreter, version=f"{numbers[0]}.{minor}.1"),
            "found",
        )
        for minor in (numbers[1] + 5, numbers[1] + 2, numbers[1] + 1)
    ]
    monkeypatch.setattr(runtimes, "list_runtimes", lambda home: [own, *others])
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: runtime.interpreter.numbers[1] >= numbers[1] + 2)
    program = supply.Program({}, ("pandas==1.4.1",), {"environment": {"python": own.minor}})

    found = supply.supply_for(program, home=Home(tmp_path).make())

    assert found.python == others[1].minor
    assert found.notes == (f"pandas==1.4.1: not built for Python {own.minor}; the job runs on {others[1]}.",)


def test_pins_that_nobody_has_a_build_of_are_loosened_and_python_2s_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: not any("==2.7.0" in pin for pin in pins))
    program = supply.Program({}, ("h5py==2.7.0", "numpy<2", "futures==3.2.0", "sklearn", "gast==0.2.0"), {})

    found = supply.supply_for(program, home=Home(tmp_path).make())

    gone = [f'--override {name}; python_version < "3"' for name in ("futures", "sklearn")]
    overrides = ("--override h5py>=2.7.0,<3", "--override gast>=0.2.0", *gone, "scikit-learn")
    assert found.beside == overrides
    assert "h5py==2.7.0: not built for any Python here" in found.notes[0]
    assert found.notes[1].startswith("futures==3.2.0: left out")
    wanted = Wanted.of(Needs(requirements=(*program.requirements, *overrides)), Installed(default_runtime()))
    assert wanted.requirements == ("numpy<2", "scikit-learn", "h5py>=2.7.0,<3", "gast>=0.2.0")
    assert wanted.options == ()


def test_nothing_is_patched_where_nothing_is_wrong(tmp_path: Path) -> None:
    runtime = default_runtime()
    make_layer(tmp_path / "layer", runtime, provided=Path(stoker.__file__).parents[1])

    patch_environment(tmp_path / "layer", runtime, ["six 1.17.0"])

    assert sorted(path.name for path in site_packages(tmp_path / "layer", runtime).iterdir()) == ["_stoker_runtime.pth"]


@pytest.mark.parametrize(
    ("values", "source", "match"),
    [
        ({"command": ["python3", "-m", "determined.launch.deepspeed", "train.py"]}, "", "not supported on CPUs"),
        ({"command": ["python3", "train.py"]}, "import deepspeed", "deepspeed is imported.*FSDP"),
        ({"command": ["python3", "train.py"]}, "from determined.pytorch.deepspeed import x", "PyTorchTrial with FSDP"),
        (
            {"command": ["python3 -m determined.launch.horovod python3 train.py"], "resources": {"slots": 4}},
            "",
            "Horovod is not supported.*torch_distributed",
        ),
        ({"module": "train", "resources": {"tier": "BASIC_TPU"}}, "", "TPUs cannot be had here.*--scale-tier"),
        ({"module": "train", "resources": {"roles": {"worker": {"gpu_type": "TPU_V2"}}}}, "", "TPUs cannot be had"),
    ],
)
def test_what_cannot_run_is_refused_in_a_sentence(tmp_path: Path, values: Any, source: str, match: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(f"{source}\n")
    home = Home(tmp_path / "home").make()
    code = scan_package(source_of_directory(tmp_path / "code"), values, home=home)

    with pytest.raises(UsageError, match=match) as raised:
        add_legacy_environment(values, code, home=home, notify=print)

    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        {"command": ["python3 -m determined.launch.horovod python3 train.py"], "resources": {"slots": 1}},
        {"command": ["python3", "train.py"], "environment": {"requirements": ["deepspeed"]}},
    ],
)
def test_one_slot_and_declared_libraries_are_not_refused(tmp_path: Path, values: Any) -> None:
    program = supply.Program({"train.py": b"import json"}, ("deepspeed",), values)

    assert supply.supply_for(program, home=Home(tmp_path).make(), look_up=False).refusal is None


def test_pkg_resources_is_given_where_newer_setuptools_lack_it(tmp_path: Path) -> None:
    source = b"import pkg_resources\nimport attrdict\n"
    program = supply.Program({"t.py": source}, ("attrdict==2.0.1",), {"module": "t"})

    found = supply.supply_for(program, home=Home(tmp_path).make(), look_up=False)

    has_it = Installed(default_runtime()).satisfies(Requirement("setuptools<81"))
    assert found.libraries == (() if has_it else ("setuptools<81",))
    assert went_with(["google-cloud-storage==1.26.0"]) == ["setuptools<81"]
    assert went_with(["google-cloud-storage==2.10.0"]) == []


def test_old_code_keeps_the_releases_of_its_image_where_it_allows_them() -> None:
    old = uses_of({"t.py": b"from sklearn.externals import joblib\n"}, entries=["t.py"])
    new = uses_of({"t.py": b"import joblib\n"}, entries=["t.py"])
    declared = ["scikit-learn>=0.20.2", "tensorflow>=2", "xgboost", "gym>=0.10.9"]

    assert as_in_image(old, declared) == ["scikit-learn==0.20.4", "xgboost==0.90", "gym==0.17.3"]
    assert as_in_image(new, declared) == []


def found_of(minor: int) -> Runtime:
    """A Python of another version, as far as choosing goes."""
    own = default_runtime()
    return Runtime(f"python3.{minor}", own.python, replace(own.interpreter, version=f"3.{minor}.1"), "found")


@pytest.mark.parametrize(
    ("base", "source", "own", "python"),
    [
        ("python:3.8-slim", b"import json", (), "3.8"),
        ("docker.io/library/python:3.9.7", b"import json", ("six==1.16",), "3.9"),
        ("python:3.8-slim", b"import torch", (), None),  # the default has it, and it is gigabytes
        ("python:3.8-slim", b"import torch", ("torch==1.8.1",), "3.8"),
        ("python:3", b"import json", (), None),
        ("nvidia/cuda:11.2.0-runtime", b"import json", (), None),
    ],
)
def test_a_dockerfiles_python_is_taken_where_nothing_else_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base: str, source: bytes, own: tuple[str, ...], python: str | None
) -> None:
    known = [default_runtime(), found_of(9), found_of(8), found_of(7)]
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter(known))
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: True)
    values: dict[str, Any] = {
        "command": ["python", "t.py"],
        "origin": {"platform": "aiplatform", "container": True, "image": base},
    }

    def python_of(**environment: str) -> str | None:
        program = supply.Program({"t.py": source}, own, {**values, "environment": environment})
        return supply.supply_for(program, home=Home(tmp_path).make()).python

    assert python_of() == python
    assert python_of(python=default_runtime().minor) is None


@pytest.mark.parametrize(
    ("image", "libraries"),
    [
        ("tensorflow/tensorflow:2.4.1-gpu", {"tensorflow": "tensorflow==2.4.1"}),
        ("tensorflow/tensorflow:latest-py3", {}),
        ("gcr.io/deeplearning-platform-release/tf2-cpu.2-1", {"tensorflow": "tensorflow==2.1.*"}),
        ("us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest", {"sklearn": "scikit-learn==0.23.*"}),
        ("gcr.io/cloud-aiplatform/training/xgboost-cpu.1-1", {"xgboost": "xgboost==1.1.*"}),
        ("gcr.io/deeplearning-platform-release/pytorch-gpu.1-4", {}),
    ],
)
def test_an_images_name_says_which_releases_are_in_it(image: str, libraries: dict[str, str]) -> None:
    assert base_of(image).libraries == libraries


@pytest.mark.parametrize(
    ("own", "requirement"),
    [
        ((), "tensorflow==2.4.*"),
        (("tensorflow",), "tensorflow==2.4.*"),
        (("tensorflow>=2.1",), "tensorflow==2.4.*"),
        (("tensorflow>=2.6",), None),
        (("tensorflow==2.2.0",), None),
        (("tensorflow-gpu",), "tensorflow==2.4.*"),
        (("tensorflow-cpu",), None),
    ],
)
def test_a_runtime_version_of_ai_platform_is_its_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: tuple[str, ...], requirement: str | None
) -> None:
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter([default_runtime(), found_of(8)]))
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: runtime.minor == "3.8" or "tensorflow==2.4.*" not in pins)
    monkeypatch.setattr(supply, "_can_be_had", lambda *given, **options: True)
    values = {"module": "t", "environment": {"runtime": "2.4"}}
    program = supply.Program({"t.py": b"import tensorflow as tf\n"}, own, values)

    found = supply.supply_for(program, home=Home(tmp_path).make())

    assert found.python == ("3.8" if requirement else None)
    assert ("tensorflow==2.4.*" in found.requirements) is (requirement is not None)


def test_code_of_tensorflow_1_has_it_whatever_a_requirements_txt_pins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter([default_runtime(), found_of(7)]))
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: True)
    own = ("tensorflow==2.1.0", "tensorboard==2.1.0", "numpy==1.18.1", "six==1.14.0")
    source = b"import tensorflow as tf\nsession = tf.Session()\ntf.compat.v1.logging.set_verbosity('INFO')\n"

    found = supply.supply_for(supply.Program({"t.py": source}, own, {"module": "t"}), home=Home(tmp_path).make())

    wanted = Wanted.of(Needs(requirements=(*own, *found.requirements)), Installed(default_runtime()))
    assert found.python == "3.7"
    assert set(wanted.requirements) >= {"tensorflow==1.15.5", "numpy==1.18.1", "six>=1.14.0"}
    assert not any(line.startswith(("tensorboard", "tensorflow==2")) for line in wanted.requirements)
    assert "tensorflow==2.1.0: the code calls what TensorFlow 1 alone has" in found.notes[1]


@pytest.mark.parametrize("environment", [{}, {"python": "3.7"}])
def test_a_numpy_from_before_tensorflow_1_15_gives_way_to_the_one_that_goes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]
) -> None:
    monkeypatch.setattr(runtimes, "_runtimes", lambda home, hint="": iter([default_runtime(), found_of(7)]))
    monkeypatch.setattr(supply, "_has", lambda runtime, pins: True)
    own = ("tensorflow", "numpy==1.14.5")
    values = {"module": "t", "environment": environment}
    program = supply.Program({"t.py": b"import tensorflow as tf\ntf.Session()\n"}, own, values)

    found = supply.supply_for(program, home=Home(tmp_path).make())

    wanted = Wanted.of(Needs(requirements=(*own, *found.requirements)), Installed(default_runtime()))
    assert set(wanted.requirements) >= {"tensorflow==1.15.5", "numpy>=1.16,<1.19"}
    assert "numpy==1.14.5" not in wanted.requirements


def test_what_the_code_takes_of_the_runtime_is_resolved_with_what_it_requires(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").make()
    make_runtime(home, tmp_path / "lab", {"pandas": "3.0", "matplotlib": "3.11", "torch": "2.13"})
    source = b"import pandas\nimport torch\nimport matplotlib.pyplot\n"

    def beside(*own: str) -> tuple[str, ...]:
        program = supply.Program({"t.py": source}, own, {"module": "t", "environment": {"runtime": "lab"}})
        return supply.supply_for(program, home=home, look_up=False).beside

    assert beside("numpy==1.23.5") == ("matplotlib", "pandas")
    assert beside("numpy==1.23.5", "pandas==1.5") == ("matplotlib",)
    assert beside() == ()


def test_a_requirements_txt_that_cannot_be_met_gives_way_to_setup_py_as_on_ai_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "_goes", lambda program, found, home: "gone==0.1" not in program.requirements)
    home = Home(tmp_path / "home").make()
    make_runtime(home, tmp_path / "lab", {})
    own = ("six==1.16", "gone==0.1", "tqdm==4.1")

    def needed(**environment: str) -> tuple[str, ...]:
        program = supply.Program(
            {"t.py": b"import six\n"}, own, {"module": "t", "environment": environment}, aside=own[1:]
        )
        found = supply.supply_for(program, home=home)
        return Wanted.of(Needs(requirements=(*own, *found.requirements)), Installed(default_runtime())).requirements

    assert needed(runtime="1.12") == ("six==1.16",)
    assert needed(runtime="lab") == own


def test_a_library_of_runtime_1_is_a_later_one_where_the_package_requires_what_came_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supply, "_can_be_had", lambda *given, **options: True)
    monkeypatch.setattr(supply, "_goes", lambda program, found, home: "scikit-learn==0.20.4" not in found.requirements)
    home = Home(tmp_path / "home").make()
    values = {"module": "t", "environment": {"python": "3.7"}}

    def libraries(*own: str) -> tuple[str, ...]:
        program = supply.Program({"t.py": b"from sklearn.externals import joblib\n"}, own, values)
        return supply.supply_for(program, home=home).libraries

    assert libraries("scikit-survival>=0.14") == ("scikit-learn",)
    assert libraries() == ("scikit-learn==0.20.4",)
