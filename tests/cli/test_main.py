"""The way in: help, version, errors and exit codes."""

import os
import subprocess
import sys

import pytest

from stoker.cli import main as main_module
from stoker.cli.main import NOUNS, in_lines
from stoker.errors import ConfigError, StokerError
from tests.cli.conftest import Stoker


def test_help_names_every_noun(stoker: Stoker) -> None:
    result = stoker("--help")

    assert result.code == 0
    assert all(noun in result.out for noun in NOUNS)


def test_no_words_at_all_is_misuse_and_shows_help(stoker: Stoker) -> None:
    result = stoker()

    assert result.code == 2
    assert "Usage:" in result.out


def test_version(stoker: Stoker) -> None:
    assert stoker("--version").out.startswith("stoker 0.")


def test_an_unknown_noun_is_one_line_and_exit_2(stoker: Stoker) -> None:
    result = stoker("jbos", "list")

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: No command 'jbos'.")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("jobs",),
        ("jobs", "lst"),
        ("jobs", "list", "--colour", "red"),
        ("jobs", "describe"),
        ("jobs", "list", "--limit", "many"),
        ("jobs", "list", "--limit", "0"),
        ("jobs", "submit", "training"),
        ("jobs", "submit", "training", "a", "b"),
        ("jobs", "cancel", "a", "--", "x"),
        ("jobs", "stream-logs", "a", "--since", "yesterday"),
        ("local", "train"),
    ],
)
def test_misuse_is_one_line_that_names_the_help(stoker: Stoker, words: tuple[str, ...]) -> None:
    result = stoker(*words)

    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("error: ")
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("prefix", [("ai-platform",), ("ml-engine",), ("beta", "ai-platform"), ("alpha", "ml-engine")])
def test_gclouds_own_nouns_may_stay_in_front(stoker: Stoker, prefix: tuple[str, ...]) -> None:
    assert stoker(*prefix, "jobs", "--help") == stoker("jobs", "--help")


def test_flags_are_not_abbreviated(stoker: Stoker) -> None:
    result = stoker("jobs", "list", "--lim", "3")

    assert result.code == 2


def test_an_unexpected_exception_keeps_its_traceback(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(words: list[str]) -> int:
        raise RuntimeError("boom")

    monkeypatch.setattr(main_module, "run", explode)

    result = stoker("jobs", "list")

    assert result.code == 1
    assert "RuntimeError: boom" in result.err
    assert "this is a bug in stoker" in result.err


def test_ctrl_c_is_130(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main_module, "run", interrupted)

    assert stoker("jobs", "list").code == 130


def test_a_single_bad_field_is_told_in_one_line() -> None:
    one = ConfigError("a.yaml has 1 bad field:", ["x: no such field"])
    two = ConfigError("a.yaml has 2 bad fields:", ["x: no such field", "y: is required"])

    assert in_lines(one) == "a.yaml has 1 bad field: x: no such field"
    assert in_lines(two).count("\n") == 2
    assert in_lines(StokerError("plain")) == "plain"


def test_every_command_shows_an_example_of_itself(stoker: Stoker) -> None:
    from stoker.cli.completion import all_commands

    for path, parser in all_commands():
        assert parser.example.replace('eval "$(', "").strip().startswith(" ".join(["stoker", *path])), path
        assert "Example:" in stoker(*path, "--help").out


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -m stoker.cli.main --help | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("Usage: stoker")
    assert done.stderr == ""


@pytest.mark.slow
def test_letters_that_the_terminal_lacks_are_escaped() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "stoker.cli.main", "jobs", "list", "--filter", "größe"]

    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    assert done.returncode == 2
    assert r"gr\xf6\xdfe" in done.stderr
