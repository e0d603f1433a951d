"""`stoker storage` as a person or a script uses it."""

import json
import os
import pty
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from stoker.cli.main import main
from stoker.cli.storage import in_words


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/a.csv").write_text("1,2\n")
    (tmp_path / "data/deep/b.csv").write_text("3,4\n")
    return tmp_path / "home"


def test_folder_is_copied_and_listed(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert main(["storage", "cp", "-r", "data", "gs://taxi/in"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines()[0].startswith(f"gs://taxi is folder {home}/buckets/taxi, because")
    assert said.err.splitlines()[1] == "Copied 2 objects, 8 B."

    assert main(["storage", "ls", "gs://taxi/in"]) == 0
    assert capsys.readouterr().out == "gs://taxi/in/a.csv\ngs://taxi/in/deep/\n"
    assert main(["storage", "ls", "-lr", "gs://taxi"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["SIZE", "UPDATED", "URL"]
    assert lines[2].split()[-1] == "gs://taxi/in/deep/b.csv"
    assert main(["storage", "ls", "--json", "gs://taxi/in"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(item["url"], item["size_bytes"]) for item in found] == [
        ("gs://taxi/in/a.csv", 4),
        ("gs://taxi/in/deep/", None),
    ]


def test_second_copy_says_what_was_there(capsys: pytest.CaptureFixture[str]) -> None:
    main(["storage", "cp", "-r", "data", "gs://taxi/in"])
    capsys.readouterr()

    assert main(["storage", "cp", "-r", "data", "gs://taxi/in"]) == 0
    assert capsys.readouterr().err.splitlines()[1] == "Copied 2 objects, 8 B; 2 of them were there already."


def test_several_sources_go_into_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "cp", "data/a.csv", "data/deep/b.csv", "gs://taxi/all"]) == 2
    assert "gs://taxi/all/" in capsys.readouterr().err

    assert main(["storage", "cp", "data/a.csv", "data/deep/b.csv", "gs://taxi/all/"]) == 0
    assert main(["storage", "cat", "gs://taxi/all/*.csv"]) == 0
    assert capsys.readouterr().out == "1,2\n3,4\n"


def test_buckets_are_listed_with_where_they_are(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    home.mkdir()
    (home / "config.toml").write_text('[storage.buckets]\n"s3://old" = "/data/old"\n')
    main(["storage", "cp", "data/a.csv", "gs://taxi"])
    capsys.readouterr()

    assert main(["storage", "ls"]) == 0
    assert capsys.readouterr().out == "gs://taxi/\ns3://old/\n"
    assert main(["storage", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "url": "s3://old",
        "where": "s3://old is folder /data/old (config.toml: s3://old)",
    }


def test_sizes_are_summed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["storage", "du", "--json", "data", "data/a.csv"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert [item["size_bytes"] for item in found] == [4, 4, 8, 4]
    assert main(["storage", "du", "data"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["8", "B", "data"]


def test_objects_are_removed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["storage", "cp", "-r", "data", "gs://taxi/in"])
    capsys.readouterr()

    assert main(["storage", "rm", "gs://taxi/in"]) == 2
    assert "folder of 2 objects" in capsys.readouterr().err
    assert main(["storage", "rm", "-r", "gs://taxi/in"]) == 0
    assert capsys.readouterr().err == "Removed 2 objects.\n"
    assert main(["storage", "ls", "gs://taxi"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["ls", "gs://none"],
        ["cat", "gs://none/x"],
        ["cat", "data"],
        ["cp", "missing", "gs://taxi"],
        ["cp", "data", "gs://taxi"],
        ["rm", "missing"],
        ["du", "gs://none"],
        ["ls", "ftp://host/x"],
        ["cp", "data/a.csv"],
    ],
)
def test_misuse_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["storage", *words]) in (1, 2)

    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("gs://taxi is folder")]
    assert len(said) == 1
    assert said[0].startswith("error: ")


def read_screen(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # how a terminal says that its last writer is gone
        return b""


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal_alone(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(50_000_000))
    command = [sys.executable, "-m", "stoker.cli.main", "storage", "cp", "big", "gs://taxi/"]
    screen, terminal = pty.openpty()
    with subprocess.Popen(command, stderr=terminal, cwd=tmp_path, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(terminal)
        shown = b"".join(iter(lambda: read_screen(screen), b""))
    os.close(screen)

    assert process.returncode == 0
    assert b"MB" in shown
    assert b"\x1b[" in shown
    quiet = subprocess.run(command, capture_output=True, check=True, cwd=tmp_path)
    assert b"\x1b" not in quiet.stderr


@pytest.mark.slow
def test_gateway_is_served_until_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stoker.cli.main", "storage", "serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with urllib.request.urlopen(url, timeout=60) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 0
    assert f"export STORAGE_EMULATOR_HOST={url}" in said


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (123_456, "123 kB"), (999_900, "1.0 MB"), (5 * 10**12, "5.0 TB")],
)
def test_size_in_words(size: int, said: str) -> None:
    assert in_words(size) == said
