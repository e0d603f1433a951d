"""What a zygote may import for a program, from its source alone."""

from pathlib import Path

import pytest

from stoker.supervisor.warm.launcher import Cold, Program, program
from stoker.supervisor.warm.preload import imports_of, module_files, own_modules

PYTHON = Path("/env/bin/python")


def found(tmp_path: Path, module: str = "trainer.task", **files: str) -> list[str]:
    """Imports of a module as words: "torch", "sklearn.linear_model Ridge,Lasso"."""
    for name, text in files.items():
        path = tmp_path / (name.replace("__in", "/__init__") if name.endswith("__in") else name.replace("_in_", "/"))
        path = path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    wanted = imports_of(module_files(module, [tmp_path]), [tmp_path])
    return [" ".join([one.name, ",".join(one.parts)]).strip() for one in wanted]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch, numpy as np\nfrom sklearn.linear_model import Ridge, Lasso",
         ["torch", "numpy", "sklearn.linear_model Ridge,Lasso"]),
        ("'''Doc.'''\nfrom __future__ import annotations\nLIMIT = 3\nX, Y = 1, [2]\nimport torch", ["torch"]),
        ("import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport keras", ["os"]),
        ("import os\nos.environ.setdefault('A', 'b')\nimport keras", ["os"]),
        ("import warnings\nwarnings.filterwarnings('ignore')\nimport torch", ["warnings"]),
        ("import sys\nsys.path.insert(0, '.')\nimport torch", ["sys"]),
        ("import matplotlib\nmatplotlib.use('Agg')\nimport torch", ["matplotlib"]),
        ("import logging\nlogger = logging.getLogger(__name__)\nimport torch", ["logging", "torch"]),
        ("try:\n    import cupy\nexcept ImportError:\n    cupy = None\nimport torch", ["cupy", "torch"]),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas\nimport torch",
         ["typing TYPE_CHECKING", "torch"]),
        ("def main():\n    import pandas\nclass A:\n    x = 1\n    def f(self): print()\nimport torch", ["torch"]),
        ("import torch\nif __name__ == '__main__':\n    import pandas", ["torch"]),
        ("@register()\ndef f(): ...\nimport torch", []),
        ("for name in 'ab':\n    pass\nimport torch", []),
    ],
)  # fmt: skip
def test_imports_up_to_the_first_act_are_found(tmp_path: Path, source: str, expected: list[str]) -> None:
    assert found(tmp_path, trainer__in="", trainer_in_task=source) == expected


def test_own_modules_are_walked_in_the_order_they_load(tmp_path: Path) -> None:
    task = "import argparse\nfrom trainer import model\nfrom . import data\nfrom .data import rows\nimport scipy"

    names = found(
        tmp_path,
        trainer__in="import json",
        trainer_in_task=task,
        trainer_in_model="import torch\nfrom trainer.data import rows",
        trainer_in_data="import pandas",
    )

    assert names == ["json", "argparse", "torch", "pandas", "scipy"]


def test_act_of_an_own_module_ends_the_list(tmp_path: Path) -> None:
    names = found(
        tmp_path,
        trainer__in="",
        trainer_in_task="import torch\nfrom trainer import setting\nimport keras",
        trainer_in_setting="import os\nos.environ['KERAS_BACKEND'] = 'torch'",
    )

    assert names == ["torch", "os"]


def test_own_modules_are_those_that_would_come_before_installed_ones(tmp_path: Path) -> None:
    for path in ("task.py", "numpy/__init__.py", "data/rows.csv", "fast.cpython-311-x86_64-linux-gnu.so", "notes.txt"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("")

    assert own_modules([tmp_path, tmp_path / "nowhere"]) == ["fast", "numpy", "task"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([str(PYTHON), "-m", "task", "--x", "1"], Program("module", "task", ["--x", "1"])),
        ([str(PYTHON), "-u", "train.py"], Program("script", "train.py", [])),
        (["sh", "-c", "python3 -m pkg.task --lr=1e-3"], Program("module", "pkg.task", ["--lr=1e-3"])),
        (["sh", "-c", "python3 train.py $HOME"], None),
        (["sh", "-c", "python3 train.py && true"], None),
        (["sh", "-c", "FOO=1 python3 train.py"], None),
        (["sh", "-c", ""], None),
        ([str(PYTHON), "-c", "pass"], None),
        ([str(PYTHON), "-X", "dev", "train.py"], None),
        ([str(PYTHON)], None),
        (["torchrun", "train.py"], None),
    ],
)
def test_program_is_known_when_the_words_are_plainly_python(words: list[str], expected: Program | None) -> None:
    if expected is None:
        with pytest.raises(Cold, match="more than a Python program"):
            program(words, PYTHON)
    else:
        assert program(words, PYTHON) == expected
