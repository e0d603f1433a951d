"""What old code had without saying so: libraries of the images, releases that go together, a Python of its time."""

import shutil
from pathlib import Path

import pytest

from stoker.compat.eras.images import compiled_pins, in_images, is_of_runtime_1, loosened, python_2, uses_of, went_with
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.packaging.environment.runtimes import choose
from stoker.packaging.package.tree import source_of_directory
from stoker.submission.legacy import add_legacy_environment
from stoker.submission.shipment import scan_package
from tests.e2e.command import stoker
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

SOURCES = {
    "train.py": b"import os, torchvision\nfrom data import load\nfrom pack import (\n    model,\n)\n",
    "data.py": b"import pandas as pd\ntry:\n    import cv2\nexcept ImportError:\n    cv2 = None\n",
    "pack/__init__.py": b"",
    "pack/model.py": b"from . import layers\n",
    "pack/layers.py": b"import tensorflow as tf\n",
    "other.py": b"import xgboost\n",
}


def test_only_what_the_entry_reaches_and_nothing_guards_is_wanted() -> None:
    wanted = in_images(uses_of(SOURCES, entries=["train.py"]))

    assert wanted == {"pandas": "pandas", "tensorflow": "tensorflow<2.16", "torchvision": "torchvision"}


def test_everything_is_read_where_the_entry_is_not_known() -> None:
    assert "xgboost" in in_images(uses_of(SOURCES, entries=["missing.py"]))


@pytest.mark.parametrize(
    ("line", "is_old"),
    [
        (b"tf.Session()", True),
        (b"from tensorflow.contrib import learn", True),
        (b"from sklearn.externals import joblib", True),
        (b"import tensorflow.compat.v1 as tf\ntf.Session()", False),
        (b"tf.function", False),
    ],
)
def test_code_of_runtime_1_is_known_by_what_it_uses(line: bytes, is_old: bool) -> None:
    uses = uses_of({"task.py": b"import tensorflow as tf\n" + line}, entries=["task.py"])

    assert uses.is_old is is_old
    assert in_images(uses)["tensorflow"] == ("tensorflow==1.15.5" if is_old else "tensorflow<2.16")


@pytest.mark.parametrize(
    ("lines", "also"),
    [
        (["tensorflow==1.15.5"], ["protobuf<3.21", "h5py<3", "numpy<1.20"]),
        (["tensorflow-gpu==2.8.0"], ["protobuf<3.21", "numpy<2"]),
        (["tensorflow==1.15.5", "protobuf==3.19.0", "h5py<3", "numpy"], ["numpy<1.20"]),
        (["tensorflow>=2.0"], []),
        (["torch==1.13.1"], ["numpy<2"]),
        (["scikit-learn<0.21"], ["numpy<2"]),
        (["-c constraints.txt", "six"], []),
    ],
)
def test_old_releases_get_what_went_with_them(lines: list[str], also: list[str]) -> None:
    assert went_with(lines) == also


@pytest.mark.parametrize(
    ("pin", "instead"),
    [
        ("tensorflow==1.4.0", "tensorflow==1.15.5"),
        ("tensorflow>=1.0,<1.5", "tensorflow==1.15.5"),
        ("scikit-learn==0.19.1", "scikit-learn==0.20.4"),
        ("h5py==2.7.0", "h5py>=2.7.0,<3"),
        ("tensorflow==2.1.0", "tensorflow>=2.1.0,<3"),
        ("numpy>=1.0", None),
        ("numpy @ https://example.com/numpy.whl", None),
    ],
)
def test_a_pin_that_is_gone_for_good_is_loosened_within_its_major_version(pin: str, instead: str | None) -> None:
    assert loosened(pin) == instead


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (b"print 'hello'", "Missing parentheses"),
        (b"try:\n    pass\nexcept ValueError, error:\n    pass", "multiple exception types"),
        (b"f = lambda (a, b): a", "cannot be parenthesized"),
        (b"import cPickle as pickle", "imports cPickle"),
        (b"try:\n    import cPickle\nexcept ImportError:\n    import pickle", None),
        (b"x = (1,\n", None),
        (b"import six.moves.urllib\nprint('hello')", None),
    ],
)
def test_python_2_is_told_from_a_slip_of_the_pen(source: bytes, why: str | None) -> None:
    found = python_2({"trainer/task.py": source})
    assert found is None if why is None else found is not None and why in found and "trainer/task.py" in found


def test_modules_that_name_each_other_as_in_python_2_have_their_folder_on_the_path() -> None:
    files = {
        "trainer/task.py": b"import model\nfrom trainer import util\n",
        "trainer/model.py": b"import numpy",
        "trainer/util.py": b"from . import model\n",
        "trainer/__init__.py": b"",
    }
    assert uses_of(files, entries=["trainer/task.py"]).folders == {"trainer"}
    plain = {**files, "trainer/task.py": b"from trainer import model\nfrom . import util\n"}
    assert uses_of(plain, entries=["trainer/task.py"]).folders == set()


@pytest.mark.parametrize(
    ("source", "lines", "runtime", "is_old"),
    [
        (b"import tensorflow as tf\nimport numpy", [], "1.13", True),
        (b"import tensorflow as tf", [], "2.1", False),
        (b"import torch", [], "1.15", False),
        (b"from keras.models import Sequential", ["keras==2.1.2"], None, True),
        (b"from keras.models import Sequential", ["keras==2.8"], None, False),
    ],
)
def test_the_runtime_and_the_keras_of_a_time_tell_it(
    source: bytes, lines: list[str], runtime: str | None, is_old: bool
) -> None:
    assert is_of_runtime_1(uses_of({"a.py": source}, entries=["a.py"]), lines, runtime) is is_old


def test_pins_are_those_of_compiled_libraries() -> None:
    assert compiled_pins(["six==1.0", "numpy==1.16.4", "pandas>=1", "tensorflow<2"]) == [
        "numpy==1.16.4",
        "tensorflow<2",
    ]


def test_a_package_that_needs_nothing_of_the_kind_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import json\n")
    home = Home(tmp_path / "home").make()
    values = {"module": "task", "environment": {"requirements": ["six"]}}

    code = scan_package(source_of_directory(tmp_path), values, home=home)

    assert add_legacy_environment(values, code, home=home, notify=print) == values


@pytest.mark.slow
def test_tensorflow_1_runs_undeclared_on_the_python_of_its_time(tmp_path: Path, home: Home) -> None:
    try:
        choose(home, python="3.7")
    except StokerError:
        pytest.skip("there is no Python 3.7 on this machine")
    trainer = tmp_path / "code" / "trainer"
    trainer.mkdir(parents=True)
    (trainer / "__init__.py").touch()
    (trainer / "task.py").write_text(
        "import tensorflow as tf\nwith tf.Session() as session:\n    print('sum', session.run(tf.constant(3) + 4))\n"
    )

    words = ("--package-path", "trainer", "--module-name", "trainer.task", "--runtime-version", "1.15", "--stream-logs")
    ran = stoker("jobs", "submit", "training", "tf1", *words, cwd=trainer.parent)

    if "not to be had here" in ran.err:
        pytest.skip("the package index cannot be reached, or has no tensorflow==1.15.5")
    assert "sum 7" in ran.out, ran.err
    assert "the job runs on python3.7" in ran.err
    shutil.rmtree(home.root / "environments", ignore_errors=True)  # half a gigabyte
