"""Every command in the docs is run.

A block marked ```console run``` holds commands (`$ …`) and what they print. They are run in order, each page in a
directory of its own with examples/taxi in it. Printed lines are compared one by one; `…` in a line stands for
anything, and a line that is only `…` for any number of lines.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.conftest import kill_server
from tests.processes import kill_all_with_environment

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```console run\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def commands(page: Path, blocks: re.Pattern[str] = BLOCK) -> Iterator[tuple[str, list[str]]]:
    """Commands and the lines they should print."""
    for block in blocks.findall(page.read_text()):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            command = [lines.pop(0)]
            while command[-1].endswith("\\"):
                command.append(lines.pop(0))
            if end := re.search(r"<<'(\w+)'$", command[-1]):
                while command[-1] != end[1]:
                    command.append(lines.pop(0))
            yield "\n".join(command), lines


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    root = tmp_path / "home"
    monkeypatch.setenv("STOKER_HOME", str(root))
    monkeypatch.delenv("STOKER_SERVER", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    shutil.copytree(ROOT / "examples" / "taxi", tmp_path / "taxi", ignore=shutil.ignore_patterns("__pycache__"))
    yield tmp_path / "taxi"
    kill_server(Home(root))
    kill_all_with_environment("STOKER_HOME", str(root))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_print_what_the_page_says(page: Path, place: Path) -> None:
    for command, expected in commands(page):
        done = subprocess.run(
            ["bash", "-c", command], cwd=place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        pattern = "".join(_pattern(line) for line in expected)
        assert re.fullmatch(pattern, done.stdout), f"$ {command}\n{done.stdout}"


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.rstrip().split("…"))) + r" *\n"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md"], ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    missing = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert missing == []


def test_the_readme_begins_with_two_commands() -> None:
    first_screen = (ROOT / "README.md").read_text().split("\n## ")[0]

    assert re.findall(r"^\s*(make \w+)", first_screen, flags=re.MULTILINE) == ["make quickstart", "make test"]
