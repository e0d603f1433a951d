"""The names in a run directory, and that nobody else writes them out."""

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.run_dir import RunDir

SRC = Path(__file__).parent.parent / "src" / "stoker"
FILES = {
    "launch": "run.json",
    "events": "events.jsonl",
    "spool": "spool.jsonl",
    "spool_ack": "spool.ack",
    "places": "nodes.json",
    "processes": "processes.json",
    "supervisor_log": "supervisor.log",
    "shell": "shell.sock",
}
# Words that mean other things elsewhere: a path may not be joined from them by hand.
PLAIN_WORDS = {
    name: name
    for name in ("package", "logs", "hypertune", "stop", "interrupted",
                 "cancelled", "checkpoints", "models", "predictions", "fetched",
                 "serving", "tensorboard")
}  # fmt: skip


@pytest.mark.parametrize(("name", "file"), {**FILES, **PLAIN_WORDS}.items())
def test_files_have_the_names_that_other_versions_know(name: str, file: str) -> None:
    assert getattr(RunDir("/runs/taxi/1/1"), name) == Path("/runs/taxi/1/1", file)


def test_files_of_replicas_and_nodes_have_the_names_that_other_versions_know() -> None:
    run_dir = RunDir("/r")

    assert run_dir.output("worker-1", "stderr") == Path("/r/logs/worker-1.stderr")
    assert run_dir.metric_file("chief-0") == Path("/r/hypertune/chief-0.metrics")
    assert run_dir.node(2) == RunDir("/r/nodes/2")
    assert run_dir.node(0) == run_dir
    assert run_dir.name_of(run_dir.output("chief-0", "stdout")) == "logs/chief-0.stdout"


def test_every_name_is_in_architecture() -> None:
    page = (SRC.parent.parent / "ARCHITECTURE.md").read_text()
    section = page.partition("## The run directory")[2].partition("\n## ")[0]

    assert [file for file in (*FILES.values(), *PLAIN_WORDS.values()) if file not in section] == []


def test_launch_is_replaced_whole(tmp_path: Path) -> None:
    run_dir = RunDir(tmp_path / "runs" / "taxi" / "1" / "1")

    run_dir.write_launch('{"run": "taxi.1.1"}')
    with run_dir.launch.open() as first:
        run_dir.write_launch('{"run": "taxi.1.1", "seed": 1}')

        assert first.read() == '{"run": "taxi.1.1"}', "who has it open reads what it was"
    assert run_dir.read_launch() == {"run": "taxi.1.1", "seed": 1}
    assert os.listdir(run_dir) == ["run.json"]
    assert list(RunDir.under(tmp_path / "runs")) == [run_dir]


def test_launch_that_is_not_an_object_is_an_error(tmp_path: Path) -> None:
    RunDir(tmp_path).write_launch("[]")

    with pytest.raises(ValueError, match=r"run\.json is not a JSON object"):
        RunDir(tmp_path).read_launch()


def test_nobody_else_writes_these_names_out() -> None:
    found = [
        f"{path.relative_to(SRC)}:{line}: {text!r}"
        for path in sorted(SRC.rglob("*.py"))
        if path.name != "run_dir.py"
        for line, text in _names_in(ast.parse(path.read_text()))
    ]

    assert found == [], "use a property of RunDir"


def _names_in(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if text.rpartition("/")[2] in FILES.values() and "\n" not in text:
                yield node.lineno, text
            case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str(text))) if text in PLAIN_WORDS:
                if "run" in ast.unparse(node.left):
                    yield node.lineno, ast.unparse(node)
            case ast.Call(args=[first, *rest]) if ast.unparse(node.func).endswith("path.join"):
                if "run" in ast.unparse(first) and any(getattr(word, "value", None) in PLAIN_WORDS for word in rest):
                    yield node.lineno, ast.unparse(node)
