"""What old code had without declaring it: how its files tell, and the libraries of the images."""

import shutil
from pathlib import Path

import pytest

from stoker.compat.eras.images import shipped
from stoker.compat.eras.uses import python_2, uses_of
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
    wanted = shipped(uses_of(SOURCES, entries=["train.py"]).modules)

    assert wanted == {"pandas": "pandas", "tensorflow": "tensorflow<2.16", "torchvision": "torchvision"}


def test_everything_is_read_where_the_entry_is_not_known() -> None:
    assert "xgboost" in shipped(uses_of(SOURCES, entries=["missing.py"]).modules)


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

    assert uses.is_of_runtime_1 is is_old


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

    if "not available here" in ran.err:
        pytest.skip("the package index cannot be reached, or has no tensorflow==1.15")
    assert "sum 7" in ran.out, ran.err
    assert "Libraries as of 2020-01-15 (runtime 1.15); the job runs on python3.7" in ran.err
    shutil.rmtree(home.root / "environments", ignore_errors=True)  # half a gigabyte
