"""What submission gives unasked: remembered by content, and told by `stoker migrate` as it will be."""

import os
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest
from packaging.requirements import Requirement

import stoker
from stoker.compat.eras import supply
from stoker.compat.migrate.assess import assess
from stoker.compat.migrate.findings import Verdict
from stoker.errors import UsageError
from stoker.host.home import Home
from stoker.origin import Platform
from stoker.packaging.environment.distributions import Installed
from stoker.packaging.environment.layer import make_layer, patch_environment, provided_folder, site_packages
from stoker.packaging.environment.runtimes import default_runtime
from stoker.packaging.package.tree import source_of_directory
from stoker.submission.legacy import add_legacy_environment
from stoker.submission.shipment import scan_package

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
