"""Which directory is a package's top, and which of its files ship."""

import os
import subprocess
from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.packaging.package.tree import Source, source_of_directory, source_of_package, walk
from tests.packaging.made import write

TRAINER = {"trainer/__init__.py": "", "trainer/task.py": ""}


def shipped(root: Path) -> set[str]:
    return set(walk(source_of_directory(root)).paths)


@pytest.mark.parametrize(
    "declaration",
    [
        {"setup.py": "from setuptools import setup; setup()"},
        {"pyproject.toml": "[project]\nname = 'x'\n"},
        {"pyproject.toml": "[tool.poetry]\nname = 'x'\n"},
        {"setup.cfg": "[metadata]\nname = x\n"},
    ],
)
def test_parent_is_the_top_when_it_is_a_project(tmp_path: Path, declaration: dict[str, str]) -> None:
    write(tmp_path / "p", {**TRAINER, **declaration, "config/a.yaml": ""})

    source = source_of_package(tmp_path / "p/trainer", module="trainer.task")

    assert source == Source(tmp_path / "p", package="trainer")
    assert "config/a.yaml" in walk(source).paths


@pytest.mark.parametrize("settings", [{}, {"pyproject.toml": "[tool.ruff]\n"}, {"setup.cfg": "[flake8]\n"}])
def test_package_ships_alone_with_requirements_when_its_parent_is_no_project(
    tmp_path: Path, settings: dict[str, str]
) -> None:
    write(tmp_path / "p", {**TRAINER, **settings, "requirements.txt": "six\n", "huge/data.bin": "x", "other/a.py": ""})

    tree = walk(source_of_package(tmp_path / "p/trainer", module="trainer.task"))

    assert tree.paths == ("requirements.txt", "trainer/__init__.py", "trainer/task.py")


def test_named_project_is_the_top_itself(tmp_path: Path) -> None:
    write(tmp_path / "p", {**TRAINER, "setup.py": ""})

    assert source_of_package(tmp_path / "p") == Source(tmp_path / "p")


def test_named_project_is_the_top_also_inside_another_project(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[project]\nname = 'all'\n", **{f"p/{k}": v for k, v in TRAINER.items()}})
    write(tmp_path / "p", {"setup.py": ""})

    assert source_of_package(tmp_path / "p", module="trainer.task") == Source(tmp_path / "p")


def test_module_decides_when_both_readings_are_possible(tmp_path: Path) -> None:
    write(tmp_path / "p", TRAINER)

    assert source_of_package(tmp_path / "p", module="trainer.task") == Source(tmp_path / "p")
    assert source_of_package(tmp_path / "p", module="p.trainer.task").package == "p"
    assert source_of_package(tmp_path / "p").package == "p"


def test_package_path_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "p", TRAINER)
    monkeypatch.chdir(tmp_path / "p/trainer")

    assert source_of_package(Path()).package == "trainer"


def test_missing_directory_and_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "x.whl").touch()

    with pytest.raises(UsageError, match=r"No such directory: .*nowhere"):
        source_of_package(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="by --packages"):
        source_of_package(tmp_path / "x.whl")


def test_directory_with_nothing_to_ship_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no files to ship"):
        walk(source_of_directory(write(tmp_path / "p", {".git/config": ""})))


def test_caches_environments_and_repositories_stay_out(tmp_path: Path) -> None:
    litter = (".git/HEAD", "__pycache__/a.pyc", "a.pyc", "x.egg-info/PKG-INFO", ".ipynb_checkpoints/n.ipynb")
    more = ("node_modules/a.js", ".mypy_cache/b", "stoker-runs/1/run.json", "old/pyvenv.cfg", "old/lib/python3/x.py")
    write(tmp_path / "p", {**TRAINER, **dict.fromkeys((*litter, *more), "")})

    assert shipped(tmp_path / "p") == set(TRAINER)


def test_sub_packages_and_data_files_are_kept(tmp_path: Path) -> None:
    files = dict.fromkeys(
        ("trainer/sub/deep/m.py", "trainer/data.csv", "build/notes.md", "Makefile", "trainer/.env"), ""
    )

    assert shipped(write(tmp_path / "p", files)) == set(files)


@pytest.mark.parametrize("family", [".gitignore", ".gcloudignore", ".detignore", ".stokerignore"])
def test_every_ignore_file_is_respected(tmp_path: Path, family: str) -> None:
    write(tmp_path / "p", {**TRAINER, family: "*.csv\n/out/\n!keep.csv\n# remark\n"})
    write(tmp_path / "p", dict.fromkeys(("a.csv", "keep.csv", "deep/b.csv", "out/x", "deep/out/y"), ""))

    assert shipped(tmp_path / "p") == {*TRAINER, family, "keep.csv", "deep/out/y"}


def test_nested_ignore_file_speaks_of_its_own_folder(tmp_path: Path) -> None:
    write(
        tmp_path / "p", {"a/.gitignore": "/x\n*.log\n", "a/x": "", "a/b/x": "", "a/b/y.log": "", "x": "", "z.log": ""}
    )

    assert shipped(tmp_path / "p") == {"a/.gitignore", "a/b/x", "x", "z.log"}


def test_stokerignore_brings_back_what_git_leaves_out(tmp_path: Path) -> None:
    write(tmp_path / "p", {".gitignore": "data/\n*.bin\n", ".stokerignore": "!data/\n!model.bin\n"})
    write(tmp_path / "p", dict.fromkeys(("data/train.csv", "model.bin", "other.bin"), ""))

    assert shipped(tmp_path / "p") == {".gitignore", ".stokerignore", "data/train.csv", "model.bin"}


def test_gcloudignore_may_include_gitignore(tmp_path: Path) -> None:
    write(tmp_path / "p", {"git.rules": "*.csv\n", ".gcloudignore": "#!include:git.rules\nnotes\n"})
    write(tmp_path / "p", dict.fromkeys(("a.csv", "notes", "b.py"), ""))

    assert shipped(tmp_path / "p") == {"git.rules", ".gcloudignore", "b.py"}


def test_gitignore_of_the_repository_counts_for_a_package_inside_it(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "*.log\n/p/private/\n"})
    write(tmp_path / "p", {**TRAINER, "a.log": "", "private/x": "", "trainer/private/y": ""})

    assert shipped(tmp_path / "p") == {*TRAINER, "trainer/private/y"}


def test_gitignore_above_does_not_count_when_it_ignores_the_package_itself(tmp_path: Path) -> None:
    write(tmp_path, {".git/HEAD": "", ".gitignore": "scratch/\n*.log\n"})
    write(tmp_path / "scratch/p", {**TRAINER, "a.log": ""})

    assert shipped(tmp_path / "scratch/p") == {*TRAINER, "a.log"}


@pytest.mark.parametrize(
    "rules",
    [
        "*.log\n!important.log\n/build\ndoc/*.txt\ndoc/**/deep.txt\nfoo/\n**/cache\na?c\n[xy].py\n\\#odd\ntrail\\ \n",
        "*\n!.gitignore\n!doc/\n!doc/a.txt\n!doc/s/\n!/sub/ \n!sub/build/\n!sub/build/y\n!x.py\n",
        "*\n!*/\n!*.txt\ncache/\n",
    ],
    ids=["blacklist", "whitelist", "whitelist of kinds"],
)
def test_what_ships_is_what_git_would_add(tmp_path: Path, rules: str) -> None:
    names = (
        "a.log important.log sub/b.log build/x sub/build/y doc/a.txt doc/s/b.txt doc/s/deep.txt foo/z sub/foo/z"
        " cache/1 s/t/cache/2 abc abbc x.py z.py #odd plain"
    ).split()
    write(tmp_path / "p", {".gitignore": rules, "sub/.gitignore": "!b.log\nfoo\n", **dict.fromkeys(names, "")})
    git = ["git", "-C", str(tmp_path / "p")]
    subprocess.run([*git, "init", "-q"], check=True)
    listed = subprocess.run([*git, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)

    assert shipped(tmp_path / "p") == set(listed.stdout.split("\n")) - {""}


def test_link_to_something_that_ships_stays_a_relative_link(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {"versions/2/model.bin": "x"})
    (root / "latest").symlink_to(root / "versions/2")
    (root / "versions/also").symlink_to("2/model.bin")

    links = {entry.path: entry.link for entry in walk(source_of_directory(root)).entries if entry.link}

    assert links == {"latest": "versions/2", "versions/also": "2/model.bin"}


def test_link_to_a_file_elsewhere_becomes_a_copy(tmp_path: Path) -> None:
    root = write(tmp_path / "p", TRAINER)
    (tmp_path / "shared.yaml").write_text("shared")
    (root / "config.yaml").symlink_to("../shared.yaml")

    entry = next(entry for entry in walk(source_of_directory(root)).entries if entry.path == "config.yaml")

    assert entry.link is None
    assert entry.file.read_text() == "shared"


def test_link_to_a_folder_elsewhere_is_refused_with_what_to_do(tmp_path: Path) -> None:
    root = write(tmp_path / "p", TRAINER)
    (root / "data").symlink_to("/usr")

    with pytest.raises(UsageError, match=r"data is a link to a folder outside .*Name data in .stokerignore"):
        walk(source_of_directory(root))

    write(root, {".stokerignore": "data\n"})
    assert shipped(root) == {*TRAINER, ".stokerignore"}


def test_dangling_links_and_sockets_are_left_out_and_named(tmp_path: Path) -> None:
    root = write(tmp_path / "p", TRAINER)
    (root / ".#task.py").symlink_to("nobody@nowhere.1")
    (root / "round").symlink_to("round")
    os.mkfifo(root / "pipe")

    tree = walk(source_of_directory(root))

    assert set(tree.paths) == set(TRAINER)
    assert sorted(note.split()[0] for note in tree.notes) == [".#task.py", "pipe", "round"]


def test_link_to_what_is_ignored_is_left_out_and_named(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {**TRAINER, ".gitignore": "runs/\n", "runs/5/x": ""})
    (root / "latest").symlink_to("runs/5")

    tree = walk(source_of_directory(root))

    assert "latest" not in tree.paths
    assert "latest is a link to runs/5, which is ignored" in tree.notes[0]


def test_bad_pattern_names_its_file(tmp_path: Path) -> None:
    root = write(tmp_path / "p", {**TRAINER, ".gitignore": "!\n"})

    with pytest.raises(UsageError, match=r"\.gitignore has a pattern"):
        walk(source_of_directory(root))
