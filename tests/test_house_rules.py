"""The rules of the house that no linter knows."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stoker.cli.completion import all_commands

ROOT = Path(__file__).parent.parent
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text()
SOURCES = sorted((ROOT / "src" / "stoker").rglob("*.py"))
os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras cannot be imported without the backend it is set to

HEAVY = ("torch", "ray", "optuna", "sqlalchemy", "fastapi", "pandas", "numpy")

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_DEPENDENCIES = 10


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "src"))


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in SOURCES}


def test_a_module_is_short_and_says_what_it_is_for(trees: dict[Path, ast.Module]) -> None:
    long = {name_of(path): n for path in SOURCES if (n := len(path.read_text().splitlines())) > MAX_MODULE_LINES}
    without_docstring = [name_of(path) for path, tree in trees.items() if not ast.get_docstring(tree)]

    assert long == {}
    assert without_docstring == []


def test_a_function_fits_a_screen(trees: dict[Path, ast.Module]) -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name}: {length} lines"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (length := lines_of(node)) > MAX_FUNCTION_LINES
    ]

    assert long == []


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is None:
        return lines
    return lines - ((node.body[0].end_lineno or 0) - node.body[0].lineno + 1)


def test_all_names_what_is_there(trees: dict[Path, ast.Module]) -> None:
    """That it is sorted is ruff's to see (RUF022)."""
    missing = {}
    for path, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["__all__"]:
                module = importlib.import_module(
                    name_of(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                )
                names = ast.literal_eval(node.value)
                missing[name_of(path)] = [name for name in names if not hasattr(module, name)]

    assert {path: names for path, names in missing.items() if names} == {}


def test_the_core_has_few_dependencies() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert len(project["dependencies"]) <= MAX_DEPENDENCIES


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import stoker",
        "import stoker.client.client",
        "import stoker.cli.main",
        "from stoker.cli.main import main; main(['--help'])",
        "from stoker.cli.main import main; main(['jobs', 'submit', 'training', '--help'])",
        "import stoker.supervisor.__main__",
    ],
)
def test_heavy_libraries_stay_in_their_rooms(code: str) -> None:
    script = f"{code}\nimport sys; sys.stderr.write(' '.join(name for name in {HEAVY!r} if name in sys.modules))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stderr == ""


@pytest.mark.slow
def test_help_loads_next_to_nothing() -> None:
    """It is what people wait for most often: no models, no tables, no HTTP."""
    script = "from stoker.cli.main import main; main(['--help']); import sys; sys.stderr.write(repr(set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = ast.literal_eval(done.stderr)
    assert not loaded & {"pydantic", "yaml", "http.client", "rich", "argparse", "stoker.client.client", "stoker.schema"}


def test_the_layers_of_the_architecture_are_those_of_the_linter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(contract["layers"] for contract in settings["contracts"] if contract["type"] == "layers")
    block = ARCHITECTURE.partition("Imports point down")[2].split("```")[1]

    drawn = [re.sub(r"^ *\d+ +", "", line) for line in block.strip().splitlines()]

    assert [members(layer) for layer in drawn] == [members(layer) for layer in layers]


def members(layer: str) -> set[str]:
    return {name.strip().removeprefix("stoker.") for name in layer.split("|")}


def test_the_files_that_answer_the_architectures_questions_exist() -> None:
    table = ARCHITECTURE.partition("## Where is it?")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", table, re.MULTILINE)
    paths = {path: question for question, files in rows for path in re.findall(r"`([^`]+)`", files)}

    missing = [f"{question} {path}" for path, question in paths.items() if not (ROOT / "src/stoker" / path).exists()]

    assert len(rows) >= 30
    assert missing == []


def test_every_command_is_documented() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)

    missing = [command for path, _ in all_commands() if (command := " ".join(["stoker", *path])) not in text]

    assert missing == []
