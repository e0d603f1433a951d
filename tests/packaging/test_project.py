"""What a directory declares of itself, setup.py and all; nothing is written into it."""

import subprocess
import sys
from pathlib import Path

import pytest

from stoker.errors import StokerError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment import cache as environment
from stoker.packaging.environment import runtimes
from stoker.packaging.environment.runtimes import Choice, Runtime
from stoker.packaging.package import project_files
from stoker.packaging.package.project import Project, read_project
from stoker.packaging.package.tree import source_of_directory, source_of_package, walk
from tests.packaging.made import contents, make_runtime, make_wheel, python_of, write


def read(root: Path, home: Home, files: dict[str, str], *, runtime: Runtime | None = None) -> Project:
    write(root, files)
    return read_project(walk(source_of_directory(root)), home=home, runtime=runtime)


def setup(body: str, before: str = "") -> str:
    return f"from setuptools import setup, find_packages\n{before}\nsetup({body})\n"


@pytest.mark.slow
def test_setup_py_is_run_and_recorded(tmp_path: Path, home: Home) -> None:
    needs = "install_requires=['six', 'torch>=2'], python_requires='>=3.7'"
    script = setup(f"name='taxi', version='1.0', package_dir={{'': 'src'}}, {needs}")

    project = read(tmp_path / "p", home, {"setup.py": script, "src/taxi/task.py": ""})

    assert project.name == "taxi"
    assert project.version == "1.0"
    assert project.requirements == ("six", "torch>=2")
    assert project.python_requires == ">=3.7"
    assert project.import_roots == ("src", ".")


@pytest.mark.slow
def test_setup_requires_is_not_installed_and_an_empty_version_is_fine(tmp_path: Path, home: Home) -> None:
    body = "name='bert', version='', install_requires=R, setup_requires=R, packages=find_packages()"

    project = read(tmp_path / "p", home, {"setup.py": setup(body, "R = ['torch==1.11.0', 'transformers']")})

    assert project.version is None
    assert project.requirements == ("torch==1.11.0", "transformers")


@pytest.mark.slow
def test_setup_py_may_read_files_and_import_its_own_package(tmp_path: Path, home: Home) -> None:
    before = """
import os
from pathlib import Path
import taxi
here = os.path.dirname(os.path.abspath(__file__))
readme = open(os.path.join(here, 'README.md')).read()
needs = Path('needs.txt').read_text().split()
"""
    files = {"taxi/__init__.py": "__version__ = '3.1'\n", "README.md": "hi", "needs.txt": "six\n"}
    body = "name='taxi', version=taxi.__version__, long_description=readme, install_requires=needs"

    project = read(tmp_path / "p", home, {**files, "setup.py": setup(body, before)})

    assert project.version == "3.1"
    assert project.requirements == ("six",)


@pytest.mark.slow
def test_nothing_is_written_into_the_directory_even_when_setup_py_writes(tmp_path: Path, home: Home) -> None:
    files = {"setup.py": setup("name='a'", "import a\nopen('version.txt', 'w').write('1')"), "a/__init__.py": ""}
    root = write(tmp_path / "p", files)
    before = contents(root)

    read(root, home, {})

    assert contents(root) == before
    assert not list(root.rglob("__pycache__"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("from setuptools import setup\nsetup(name='a'\n", r"setup\.py, line 2: SyntaxError: '\(' was never closed"),
        ("print 'hello'\n", r"setup\.py, line 1: SyntaxError: "),
        ("import os\n\nimport numpyy\n", r"setup\.py, line 3: ModuleNotFoundError: No module named 'numpyy'"),
        ("import sys\nsys.exit('Python 2 only')\n", r"setup\.py, line 2: SystemExit: Python 2 only"),
        ("import helper\n", r"helper\.py, line 2: ValueError: inside"),
        ("x = 1\n", "never calls setup"),
        ("import os\nos._exit(3)\n", "ended before setup"),
    ],
)
def test_broken_setup_py_is_one_line_with_file_and_line(
    tmp_path: Path, home: Home, script: str, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint) as caught:
        read(tmp_path / "p", home, {"setup.py": script, "helper.py": "\nraise ValueError('inside\\nof it')\n"})

    assert "\n" not in str(caught.value)
    assert str(tmp_path / "p") in str(caught.value)


@pytest.mark.slow
def test_distutils_setup_and_generated_requirements_work(tmp_path: Path, home: Home) -> None:
    script = "from distutils.core import setup\nsetup(name='a', install_requires=(line for line in ['six', 'numpy']))\n"

    assert read(tmp_path / "p", home, {"setup.py": script}).requirements == ("six", "numpy")


@pytest.mark.slow
def test_setup_cfg_fills_in_what_setup_py_leaves_out(tmp_path: Path, home: Home) -> None:
    cfg = "[metadata]\nname = taxi\nversion = 2\n[options]\ninstall_requires = six\npackage_dir =\n  =src\n"

    project = read(tmp_path / "p", home, {"setup.py": setup(""), "setup.cfg": cfg, "src/a.py": ""})

    assert project == Project(name="taxi", version="2", requirements=("six",), import_roots=("src", "."))


@pytest.mark.slow
def test_extension_modules_are_noted(tmp_path: Path, home: Home) -> None:
    script = "from setuptools import setup, Extension\nsetup(name='a', ext_modules=[Extension('a._fast', ['f.c'])])\n"

    assert "a._fast would have to be compiled" in read(tmp_path / "p", home, {"setup.py": script}).notes[0]


@pytest.mark.slow
def test_setup_py_is_run_by_the_runtimes_python(tmp_path: Path, home: Home) -> None:
    runtime = runtimes.add_runtime(home, "old", python=str(python_of("3.7")))
    script = setup("name='a', version='%d.%d' % sys.version_info[:2]", "import sys")

    assert read(tmp_path / "p", home, {"setup.py": script}, runtime=runtime).version == "3.7"


@pytest.mark.slow
def test_stokers_own_python_stands_in_for_one_without_setuptools(tmp_path: Path, home: Home) -> None:
    bare = make_runtime(home, tmp_path / "bare", {})
    script = setup("name=sys.executable.replace('/', '.')", "import sys")

    project = read(tmp_path / "p", home, {"setup.py": script}, runtime=bare)

    assert project.name == sys.executable.replace("/", ".")


@pytest.mark.slow
def test_setuptools_is_installed_for_it_where_no_python_has_it(
    tmp_path: Path, home: Home, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_files, "_has_module", lambda runtime, module: False)
    bare = make_runtime(home, tmp_path / "bare", {})
    monkeypatch.setattr(environment, "choose", lambda *_, **__: Choice(bare))
    root = tmp_path / "p"

    with pytest.raises(StokerError, match=r"takes setuptools, which lab .* lacks, and it could not be installed: "):
        read(root, home, {"setup.py": setup("name=setuptools.mark", "import setuptools")}, runtime=bare)

    fake = "mark = 'fake'\ndef setup(): pass\ndef find_packages(): pass\n"
    make_wheel(wheelhouse, "setuptools", "99.0", files={"setuptools/__init__.py": fake})
    assert read(root, home, {}, runtime=bare).name == "fake"


@pytest.mark.slow
def test_older_setuptools_are_installed_for_a_setup_py_that_imports_pkg_resources(
    tmp_path: Path, home: Home, wheelhouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(project_files, "_has_module", lambda runtime, module: module == "setuptools")
    bare = make_runtime(home, tmp_path / "bare", {})
    monkeypatch.setattr(environment, "choose", lambda *_, **__: Choice(bare))
    files = {"setuptools/__init__.py": "def setup(): pass\ndef find_packages(): pass\n"}
    make_wheel(wheelhouse, "setuptools", "99.0", files=files)
    make_wheel(wheelhouse, "setuptools", "80.9", files={**files, "pkg_resources/__init__.py": "name = 'of old'\n"})

    project = read(
        tmp_path / "p", home, {"setup.py": setup("name=pkg.name", "import pkg_resources as pkg")}, runtime=bare
    )

    assert project.name == "of old"


@pytest.mark.slow
def test_second_reading_starts_nothing_until_a_file_that_was_read_changes(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "p"
    script = setup("name='a', version=a.version, install_requires=open('deep/needs.txt').read().split()", "import a")
    first = read(root, home, {"setup.py": script, "deep/needs.txt": "six", "a.py": "version = '1'", "other.py": ""})

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
        assert read(root, home, {"other.py": "changed = 1"}) == first

    assert read(root, home, {"deep/needs.txt": "six humanize"}).requirements == ("six", "humanize")
    assert read(root, home, {"a.py": "version = '2'"}).version == "2"


def test_requirements_txt_is_added_to_what_is_declared(tmp_path: Path, home: Home) -> None:
    files = {
        "pyproject.toml": "[project]\nname = 'a'\ndependencies = ['six']\n",
        "requirements.txt": "six\nhumanize==4\n",
    }

    assert read(tmp_path / "p", home, files).requirements == ("six", "humanize==4")


def test_requirements_txt_that_changes_is_read_again(tmp_path: Path, home: Home) -> None:
    root = tmp_path / "p"
    assert read(root, home, {"a.py": ""}).requirements == ()

    assert read(root, home, {"requirements.txt": "-r more.txt\n", "more.txt": "six\n"}).requirements == ("six",)
    assert read(root, home, {"more.txt": "humanize\n"}).requirements == ("humanize",)


def test_requirements_txt_in_the_package_and_beside_it_both_count(tmp_path: Path, home: Home) -> None:
    write(
        tmp_path / "p", {"trainer/task.py": "", "requirements.txt": "six\n", "trainer/requirements.txt": "humanize\n"}
    )

    project = read_project(walk(source_of_package(tmp_path / "p/trainer")), home=home)

    assert project.requirements == ("six", "humanize")


def test_ignored_requirements_txt_does_not_count(tmp_path: Path, home: Home) -> None:
    files = {"a.py": "", "requirements.txt": "six\n"}
    assert read(tmp_path / "p", home, files).requirements == ("six",)

    assert read(tmp_path / "p", home, {".stokerignore": "requirements.txt\n"}).requirements == ()


def test_static_pyproject_spares_running_setup_py(tmp_path: Path, home: Home) -> None:
    files = {"pyproject.toml": "[project]\nname = 'a'\ndependencies = ['six']\n", "setup.py": "raise SystemExit(1)"}

    assert read(tmp_path / "p", home, files).requirements == ("six",)


def test_extras_of_the_package_itself_are_brought_in(tmp_path: Path, home: Home) -> None:
    toml = "[project]\nname = 'a'\n[project.optional-dependencies]\ntrain = ['six']\nother = ['no']\n"

    project = read(tmp_path / "p", home, {"pyproject.toml": toml, "requirements.txt": "-e .[train]\n"})

    assert project.requirements == ("six",)


def test_wheels_named_by_requirements_txt_are_archives(tmp_path: Path, home: Home) -> None:
    wheel = make_wheel(tmp_path / "p/wheels", "mine", "1.0")

    project = read(tmp_path / "p", home, {"requirements.txt": f"wheels/{wheel.name}\nsix\n"})

    assert project.archives == (str(wheel),)
    assert project.requirements == ("six",)


def test_bad_requirement_names_its_file(tmp_path: Path, home: Home) -> None:
    toml = "[project]\nname = 'a'\ndependencies = ['six=1']\n"

    with pytest.raises(UsageError, match=r"pyproject\.toml: 'six=1' is not a requirement"):
        read(tmp_path / "p", home, {"pyproject.toml": toml})


@pytest.mark.parametrize(
    ("files", "roots"),
    [
        ({"trainer/task.py": ""}, (".",)),
        ({"src/taxi/task.py": ""}, (".", "src")),
        ({"src/__init__.py": "", "src/task.py": ""}, (".",)),
        ({"src/data.csv": "", "a.py": ""}, (".",)),
    ],
)
def test_import_roots_of_directories_that_declare_none(
    tmp_path: Path, home: Home, files: dict[str, str], roots: tuple[str, ...]
) -> None:
    assert read(tmp_path / "p", home, files).import_roots == roots


def test_determined_is_provided_and_not_installed(tmp_path: Path, home: Home) -> None:
    (tmp_path / "requirements.txt").write_text("determined==0.26.4\nsix\n")
    project = read_project(walk(source_of_directory(tmp_path)), home=home)
    assert project.requirements == ("six",)
    assert "determined==0.26.4 is not installed" in project.notes[0]


def test_requirements_txt_that_contradicts_the_project_gives_way(tmp_path: Path, home: Home) -> None:
    declared = "[options]\ninstall_requires =\n    scipy==1.1.0 # of its time\n    pandas>=0.24\n    six==1.12\n"
    frozen = "scipy==1.2.0\npandas==0.25\nsix>=1.16\ntqdm==4.1\n"

    project = read(tmp_path / "p", home, {"setup.cfg": declared, "requirements.txt": frozen})

    assert project.requirements == ("scipy==1.1.0", "pandas>=0.24", "six==1.12", "pandas==0.25", "tqdm==4.1")
    assert project.notes == (
        "scipy==1.2.0 of a requirements.txt is left out: the project says scipy==1.1.0.",
        "six>=1.16 of a requirements.txt is left out: the project says six==1.12.",
    )
