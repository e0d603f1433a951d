"""What `stoker init` lays down, and what it refuses."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.errors import ConflictError, NotFoundError, UsageError
from stoker.templates import TEMPLATES, available, lay_down
from stoker.templates import project as project_module

NAMES = [template.name for template in available()]
COMMON = {
    ".gitignore",
    "Makefile",
    "README.md",
    "requirements.txt",
    "scripts/train-cloud.sh",
    "scripts/train-local.sh",
    "setup.py",
    "stoker.yaml",
}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_every_template_of_the_list_is_there() -> None:
    assert NAMES == list(TEMPLATES)


@pytest.mark.parametrize("template", NAMES)
def test_a_project_has_its_files_and_no_placeholder(template: str, tmp_path: Path) -> None:
    project = lay_down(template, name="my-fares")

    assert project == tmp_path / "my-fares"
    assert files(project) >= COMMON
    assert any(name.startswith("tests/test_") for name in files(project))
    assert {name for name in files(project) if os.access(project / name, os.X_OK)} == {
        "scripts/train-cloud.sh",
        "scripts/train-local.sh",
    }
    for name in files(project):
        text = (project / name).read_text()
        assert not any(left in text for left in ("${name}", "${package}", "PACKAGE/", ".tmpl")), name
    assert list(tmp_path.iterdir()) == [project]


@pytest.mark.slow
def test_laid_down_code_is_clean(tmp_path: Path) -> None:
    style = ["--isolated", "--no-cache", "--line-length", "120"]
    ruff = [sys.executable, "-m", "ruff"]

    for template in NAMES:
        project = lay_down(template, name="my-fares", directory=tmp_path / template)
        for command in (["check", *style, "--select", "E,F,I,UP,B"], ["format", "--check", *style]):
            done = subprocess.run([*ruff, *command, "."], cwd=project, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{template}: {done.stdout}"


def test_init_prints_the_next_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(["init", "my-fares", "--template", "sklearn"])

    shown = capsys.readouterr()
    assert code == 0
    assert shown.out == f"{tmp_path / 'my-fares'}\n"
    assert "$ cd my-fares && make run_locally" in shown.err
    assert (tmp_path / "my-fares" / "my_fares" / "trainer.py").exists()


def test_init_lists_the_templates(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["TEMPLATE", *NAMES]

    assert main(["init", "--list", "--json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == NAMES


def test_init_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 2
    assert capsys.readouterr().err.startswith("error: Missing: NAME, --template.")


def test_an_empty_directory_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    lay_down("sklearn", name="fares", directory=Path("."))

    assert files(tmp_path / "here") >= COMMON
    assert Path("Makefile").exists()  # the directory is still the one we are in


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "fares").mkdir()
    (tmp_path / "fares" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to("nowhere")

    for place, why in (("fares", "is not empty"), ("file", "is not a directory"), ("dangling", "is not a directory")):
        with pytest.raises(ConflictError, match=why):
            lay_down("sklearn", name="fares", directory=tmp_path / place)

    assert files(tmp_path / "fares") == {"notes.txt"}
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["", "2fast", "a b", "naïve", "-x", "a/b", "..", "class", "json", "torch", "Keras", "x" * 65, "a.b"]
)
def test_a_bad_name_is_refused_with_the_rule(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="starting with a letter"):
        lay_down("sklearn", name=name)

    assert list(tmp_path.iterdir()) == []


def test_an_unknown_template_is_refused() -> None:
    with pytest.raises(NotFoundError, match="No template 'spark'. There are: .*sklearn"):
        lay_down("spark", name="fares")


@pytest.mark.parametrize("exists", [False, True])
def test_a_project_is_there_whole_or_not_at_all(exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if exists:
        (tmp_path / "fares").mkdir()
    write, written = project_module._write, []

    def write_three(path: Path, text: str) -> None:
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(path)
        write(path, text)

    monkeypatch.setattr(project_module, "_write", write_three)

    with pytest.raises(UsageError, match="No space left on device"):
        lay_down("sklearn", name="fares")

    assert len(written) == 3
    assert files(tmp_path) == set()
    assert (tmp_path / "fares").exists() == exists


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for place in (tmp_path / "file" / "fares", tmp_path / ("x" * 300)):
        with pytest.raises(UsageError, match="^Cannot write .*Choose another place with --dir"):
            lay_down("sklearn", name="fares", directory=place)


@pytest.mark.slow
def test_the_wheel_holds_the_templates(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]

    subprocess.run(build, cwd=root, check=True, capture_output=True)

    (wheel,) = tmp_path.glob("*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    source = root / "src"
    ours = [path.relative_to(source).as_posix() for path in (source / "stoker" / "templates").rglob("*.tmpl")]
    assert [name for name in ours if name not in held] == []
