"""`gsutil` and `gcloud storage` do with folders and patterns what scripts expect of them."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from stoker.compat.commands.aiplatform.gcloud_shim import call
from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home
from stoker.packaging.environment.cache import prepare

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    for name in ("data/train.csv", "data/more/eval.csv"):
        (tmp_path / "here" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "here" / name).write_text(f"{name}\n")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def gsutil(line: str) -> int:
    return call(["gsutil", *line.split()])


def listed(url: str, capsys: Captured) -> list[str]:
    capsys.readouterr()
    assert gsutil(f"ls -r {url}") == 0
    return capsys.readouterr().out.split()


@pytest.mark.parametrize(
    ("copies", "there"),
    [
        (["cp -r data gs://bkt"], ["gs://bkt/data/more/eval.csv", "gs://bkt/data/train.csv"]),
        (["cp -r data gs://bkt/x"], ["gs://bkt/x/more/eval.csv", "gs://bkt/x/train.csv"]),
        (["-m cp -R data gs://bkt/x/"], ["gs://bkt/x/data/more/eval.csv", "gs://bkt/x/data/train.csv"]),
        (
            ["cp data/train.csv gs://bkt/x/y", "cp -r data/more gs://bkt/x"],
            ["gs://bkt/x/more/eval.csv", "gs://bkt/x/y"],
        ),
        (["cp -r data/train.csv data/more gs://bkt/y"], ["gs://bkt/y/more/eval.csv", "gs://bkt/y/train.csv"]),
        (["-m rsync -r data gs://bkt/z"], ["gs://bkt/z/more/eval.csv", "gs://bkt/z/train.csv"]),
        (["cp data/train.csv gs://bkt", "mv gs://bkt/train.csv gs://bkt/new.csv"], ["gs://bkt/new.csv"]),
        (["cp -r data gs://bkt", "-m rm -rf gs://bkt/data/m*"], ["gs://bkt/data/train.csv"]),
    ],
)
def test_a_copied_folder_keeps_its_name_in_one_that_is_there(
    copies: list[str], there: list[str], capsys: Captured
) -> None:
    for line in copies:
        assert gsutil(line) == 0
    assert listed("gs://bkt", capsys) == there


def test_patterns_match_folders_too(folder: Path, capsys: Captured) -> None:
    gsutil("cp -r data gs://bkt/export/1")
    gsutil("cp data/train.csv gs://bkt/export/2/model")
    capsys.readouterr()

    assert gsutil("ls -d gs://bkt/export/*") == 0
    assert capsys.readouterr().out.split() == ["gs://bkt/export/1/", "gs://bkt/export/2/"]
    assert gsutil("cp -r gs://bkt/export/* got") == 0
    assert (folder / "got" / "2" / "model").read_text() == (folder / "data" / "train.csv").read_text()
    assert (folder / "got" / "1" / "more" / "eval.csv").is_file()
    with pytest.raises(NotFoundError, match="no URLs matched"):
        gsutil("ls gs://bkt/export/3*")


def test_scripts_ask_whether_something_is_there(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe")))
    assert gsutil("cp - gs://bkt/piped") == 0
    assert gsutil("-q stat gs://bkt/piped") == 0
    assert gsutil("-q stat gs://bkt/none") == 1
    assert gsutil("rm -f gs://bkt/none") == 0
    with pytest.raises(NotFoundError):
        gsutil("rm gs://bkt/none")


@pytest.mark.parametrize(
    "line",
    [
        "gcloud storage buckets create gs://bkt --location=us-central1",
        "gcloud --project p storage buckets describe gs://bkt",
        "gsutil mb -l us-central1 -c regional gs://bkt",
        "gsutil -m acl ch -u someone:R gs://bkt",
        "gcloud services enable ml.googleapis.com",
        "gcloud projects add-iam-policy-binding p --member=x --role=y",
        "gcloud config set ml_engine/local_python python3",
    ],
)
def test_what_only_a_cloud_needs_is_nothing_to_do(line: str) -> None:
    assert call(line.split()) == 0


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("gsutil compose gs://bkt/1 gs://bkt/2 gs://bkt/3", "gsutil compose has no meaning here"),
        ("gsutil cp -I gs://bkt", "gsutil cp -I has no meaning here"),
        ("gcloud compute instances list", "gcloud compute instances list has no meaning here"),
        ("gsutil cp gs://bkt", "Give a source and a target"),
    ],
)
def test_what_has_no_meaning_is_refused(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        call(line.split())


@pytest.mark.slow
def test_code_in_a_job_finds_a_gsutil(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "json.py").write_text("raise SystemExit('gsutil took a module of the job')\n")
    home = Home(tmp_path / "home").make()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    prepared = prepare({}, home=home)
    # As a job has it: its own path, and not a word of stoker's home.
    environment = {**prepared.variables, "PYTHONPATH": str(folder / "code")}
    words = ["sh", "-c", "gsutil cp data/train.csv gs://bkt/x/ && gcloud storage cat gs://bkt/x/train.csv"]

    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120)

    assert (done.returncode, done.stdout) == (0, "data/train.csv\n"), done.stderr
    assert (home.root / "buckets" / "bkt" / "x" / "train.csv").is_file()


@pytest.mark.parametrize("line", ["ls", "ls gs://"])
def test_buckets_are_listed(line: str, capsys: Captured) -> None:
    gsutil("cp data/train.csv gs://mine/")
    capsys.readouterr()

    assert gsutil(line) == 0

    assert capsys.readouterr().out.split() == ["gs://mine/"]
