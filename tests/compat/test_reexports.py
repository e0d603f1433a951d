"""The table of modules that only hold names: each place in it exists, and what cannot be had is refused in words."""

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

from stoker.compat.determined import reexports


def _defined(module: str) -> set[str]:
    """The names at the top of a module, without importing what it needs."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    found: set[str] = set()
    for node in ast.parse(Path(spec.origin).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {name.asname or name.name for name in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


@pytest.mark.parametrize("module", reexports.MODULES)
def test_every_name_is_defined_where_the_table_says(module: str) -> None:
    for place in reexports.MODULES[module].values():
        holder, _, name = place.rpartition(".")
        if holder:
            assert name in _defined(holder if holder.startswith("stoker.") else f"stoker.compat.determined.{holder}")
        else:
            assert f"{module}.{name}" in reexports.MODULES


def test_module_has_the_names_of_the_table_and_no_file() -> None:
    module = importlib.import_module("stoker.compat.determined.common.experimental.trial")

    assert set(module.__all__) == set(reexports.MODULES["common.experimental.trial"])
    assert module.TrialReference is module.Trial


@pytest.mark.parametrize("name", ["estimator", "pytorch.deepspeed", "searcher", "tensorpack"])
def test_what_is_not_supported_says_what_to_use(name: str) -> None:
    with pytest.raises(ImportError, match=rf"determined\.{name} is .*Use "):
        importlib.import_module(f"stoker.compat.determined.{name}")


def test_unknown_module_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("stoker.compat.determined.nothing")
