"""Requirement files, with all that people write in them, come to lines that stand alone."""

from pathlib import Path

import pytest

from stoker.errors import UsageError
from stoker.packaging.package.requirements import hashes_of, name_of, read_requirements, without_hashes
from tests.packaging.made import make_wheel, write


def lines(root: Path, text: str, **others: str) -> list[str]:
    write(root, {"requirements.txt": text, **{name.replace("__", "/"): body for name, body in others.items()}})
    return read_requirements(root / "requirements.txt").lines


def test_comments_blank_lines_and_continuations_are_understood(tmp_path: Path) -> None:
    text = (
        "# a comment\n\nsix>=1.16  # why\nrequests[security]\\\n  >=2.8.1 ; python_version < '3.9'\npkg#not-a-comment\n"
    )

    with pytest.raises(UsageError, match=r"requirements\.txt, line 6: 'pkg#not-a-comment' is not a requirement"):
        lines(tmp_path, text)

    assert lines(tmp_path, text.replace("pkg#not-a-comment\n", "")) == [
        "six>=1.16",
        "requests[security] >=2.8.1 ; python_version < '3.9'",
    ]


def test_included_files_are_read_relative_to_the_file_that_names_them(tmp_path: Path) -> None:
    write(tmp_path, {"reqs/base.txt": "six\n-r more.txt\n-r ../requirements.txt\n", "reqs/more.txt": "humanize\n"})

    assert lines(tmp_path, "-r reqs/base.txt\ntorch\n") == ["six", "humanize", "torch"]
    assert len(read_requirements(tmp_path / "requirements.txt").files) == 3


def test_constraints_are_kept_apart(tmp_path: Path) -> None:
    write(tmp_path, {"limits.txt": "six<2  # not yet\n--hash=x\nnumpy==1.26.4 --hash=sha256:abc\n"})

    assert lines(tmp_path, "-c limits.txt\nsix\n") == ["-c six<2", "-c numpy==1.26.4", "six"]


def test_options_are_passed_on_or_dropped(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    text = (
        "--index-url https://a/simple\n--extra-index-url=https://b\n-f wheels\n--pre\n--require-hashes\n-i https://c\n"
    )

    assert lines(tmp_path, text) == [
        "--index-url https://a/simple",
        "--extra-index-url https://b",
        f"--find-links {tmp_path}/wheels",
        "--pre",
        "--index-url https://c",
    ]


def test_hashes_stay_with_their_requirement(tmp_path: Path) -> None:
    (line,) = lines(tmp_path, "six==1.17.0 \\\n  --hash=sha256:aa \\\n  --hash=sha256:bb\n")

    assert without_hashes(line) == "six==1.17.0"
    assert hashes_of(line) == ("sha256:aa", "sha256:bb")


def test_package_itself_is_left_out_and_its_extras_are_noted(tmp_path: Path) -> None:
    write(tmp_path, {"requirements.txt": "-e .\n.\n--editable .[train, gpu]\nsix\n"})

    found = read_requirements(tmp_path / "requirements.txt")

    assert found.lines == ["six"]
    assert found.extras == ["train", "gpu"]


def test_repositories_are_named_by_their_egg(tmp_path: Path) -> None:
    text = "-e git+https://host/a.git@v1#egg=a\ngit+https://host/b.git#egg=b[x]\nc @ git+https://host/c.git\n"

    assert lines(tmp_path, text) == [
        "a @ git+https://host/a.git@v1",
        "b[x] @ git+https://host/b.git",
        "c @ git+https://host/c.git",
    ]


def test_wheels_on_this_disk_become_archives(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "wheels", "mine", "1.0")
    write(tmp_path, {"requirements.txt": f"./wheels/{wheel.name}\nmine @ {wheel.as_uri()}\nwheels/{wheel.name}\n"})

    found = read_requirements(tmp_path / "requirements.txt")

    assert found.lines == []
    assert set(found.archives) == {wheel}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("./lib\n", r"line 1: \./lib is a folder or not there\. Build a wheel"),
        ("six\n\n-e ../other\n", r"line 3: \.\./other is a folder"),
        ("--frobnicate\n", "does not know the option --frobnicate"),
        ("-r missing.txt\n", r"Cannot read the requirement file .*missing\.txt: No such file"),
        ("-r https://host/requirements.txt\n", "is on the network"),
        ("six~1.0\n", "is not a requirement"),
        ("-f nowhere\n", "no .*nowhere to find links in"),
    ],
)
def test_what_cannot_be_shipped_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "lib").mkdir()

    with pytest.raises(UsageError, match=complaint):
        lines(tmp_path, text)


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(b"six\xff\n")

    with pytest.raises(UsageError, match="not UTF-8"):
        read_requirements(tmp_path / "requirements.txt")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("Foo_Bar.baz>=1", "foo-bar-baz"),
        ("six", "six"),
        ("a[b,c] ; python_version < '3'", "a"),
        ("x @ https://h/x.whl", "x"),
        ("https://h/x.whl", None),
        ("--pre", None),
    ],
)
def test_name_of_a_line(line: str, name: str | None) -> None:
    assert name_of(line) == name


def test_pypi_itself_is_the_default_and_not_an_option(tmp_path: Path) -> None:
    text = "--index-url https://pypi.python.org/simple/\n--extra-index-url https://pypi.org/simple\n-i https://other.org/x\n"

    assert lines(tmp_path, text) == ["--index-url https://other.org/x"]


def test_what_other_tools_and_times_wrote_is_read(tmp_path: Path) -> None:
    text = "tensorflow>=1.15.*,<2\nnumpy @ file:///tmp/build/80754af9/numpy_1618\nsix\n"
    (tmp_path / "requirements.txt").write_bytes(text.encode("utf-16"))

    assert read_requirements(tmp_path / "requirements.txt").lines == ["tensorflow>=1.15,<2", "numpy", "six"]


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("xgboost=0.72.1", "xgboost==0.72.1"),
        ("numpy=1.21.2=py39h20f2e39_0", "numpy==1.21.2"),
        ("six = 1.16  # as conda has it", "six==1.16"),
        ("torch==1.8.1", "torch==1.8.1"),
        ("six>=1,<=2", "six>=1,<=2"),
        ("six>=1.0.0<1.17 != 1.5", "six>=1.0.0,<1.17,!= 1.5"),
    ],
)
def test_pins_and_bounds_of_conda_and_of_old_pip_are_read(tmp_path: Path, line: str, read: str) -> None:
    assert lines(tmp_path, f"{line}\n") == [read]
