"""Directories that were built into images: their Dockerfiles say what to run, and what that needs."""

import subprocess
from pathlib import Path

import pytest

from stoker.compat.aiplatform.containers import submission_of_image
from stoker.compat.commands.aiplatform.gcloud_shim import call
from stoker.compat.migrate.containers import job_of, read_dockerfile
from stoker.compat.migrate.image_layout import lay_out
from stoker.errors import UsageError
from stoker.host.home import Home
from tests.e2e.command import stoker
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here

DOCKERFILE = """
FROM gcr.io/deeplearning-platform-release/tf2-cpu.2-1
WORKDIR /root
# RUN pip install nothing
RUN pip install --upgrade pip && pip install cloudml-hypertune "six>=1.0" $MORE
ENV MODE=fast \\
    GREETING="hello there"
ENV OLD way
COPY src/ /app/
COPY train.py /root/deep/train.py
ENTRYPOINT ["python3", "-u", "/app/main.py"]
"""


def write(folder: Path, text: str, *files: str) -> Path:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print('ran')\n")
    (folder / "Dockerfile").write_text(text)
    return folder / "Dockerfile"


def test_paths_in_the_image_become_paths_of_the_directory(tmp_path: Path) -> None:
    file = write(tmp_path, DOCKERFILE, "src/main.py", "train.py")

    found = job_of(read_dockerfile(file, context=tmp_path), tmp_path)

    assert found["command"] == ["python", "-u", "src/main.py"]
    assert found["environment"]["requirements"] == ["six>=1.0"]
    assert found["origin"]["image"] == "gcr.io/deeplearning-platform-release/tf2-cpu.2-1"
    assert found["environment"]["variables"] == {"MODE": "fast", "GREETING": "hello there", "OLD": "way"}


def test_packages_of_the_system_are_known(tmp_path: Path) -> None:
    lines = "RUN apt-get update && apt-get install -y \\\n  xvfb ffmpeg=7:4.1 xorg-dev wget && rm -rf /var/lib/apt\n"
    file = write(tmp_path, f"FROM x\n{lines}RUN apt install swig\nCMD python a.py\n")

    assert read_dockerfile(file).system == ("xvfb", "ffmpeg", "swig")


@pytest.mark.parametrize(
    ("entry", "command"),
    [
        ('["python", "/root/deep/train.py"]', ["python", "train.py"]),
        ('["python", "deep/train.py"]', ["python", "train.py"]),
        ('["python", "train.py"]', ["python", "train.py"]),
        ('["python", "-m", "trainer.task"]', ["python", "-m", "trainer.task"]),
        ("python train.py --fast", ["sh", "-c", "python train.py --fast"]),
    ],
)
def test_entrypoints_as_people_write_them(tmp_path: Path, entry: str, command: list[str]) -> None:
    text = f"FROM x\nWORKDIR /root\nCOPY train.py /root/deep/train.py\nENTRYPOINT {entry}\n"
    file = write(tmp_path, text, "train.py")

    assert job_of(read_dockerfile(file, context=tmp_path), tmp_path)["command"] == command


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        ("WORKDIR /app\nCOPY src/ .", "src"),
        ("COPY src/ /app/\nWORKDIR /app", "src"),
        ("WORKDIR /app\nCOPY . .\nWORKDIR src", "src"),
        ("WORKDIR /app\nCOPY src/trainer trainer", "src"),
        ("WORKDIR /\nCOPY elsewhere /elsewhere", None),
    ],
)
def test_a_module_is_looked_for_where_the_image_would_have_it(tmp_path: Path, lines: str, root: str | None) -> None:
    text = f'FROM x\n{lines}\nENTRYPOINT ["python", "-u", "-m", "trainer.task"]\n'
    file = write(tmp_path, text, "src/trainer/task.py")

    found = job_of(read_dockerfile(file, context=tmp_path), tmp_path)

    assert found["command"] == ["python", "-u", "-m", "trainer.task"]
    assert found.get("environment", {}).get("variables") == ({"PYTHONPATH": root} if root else None)


def test_a_jobs_own_words_stand_for_the_images(tmp_path: Path) -> None:
    file = write(tmp_path, 'FROM x\nENTRYPOINT ["python", "a.py"]\nCMD ["--epochs", "9"]\n', "a.py")
    container = read_dockerfile(file)
    alone = read_dockerfile(write(tmp_path / "b", "FROM x\nCMD python a.py\n", "b/a.py"))

    assert container.started().command == ("python", "a.py", "--epochs", "9")
    assert container.started(has_args=True).command == ("python", "a.py")
    assert container.started(["python", "b.py"]).command == ("python", "b.py")
    assert alone.started(has_args=True).command == ("sh", "-c", "python a.py")


def test_an_image_of_which_nothing_is_known_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"gcr.io/p/i: container images are not run here.*--package-path"):
        submission_of_image({}, "gcr.io/p/i")
    write(tmp_path, "FROM x\n")
    with pytest.raises(UsageError, match="no ENTRYPOINT and no CMD"):
        submission_of_image({}, "gcr.io/p/i")


@pytest.mark.parametrize("verb", ["build", "run", "push"])
def test_docker_says_what_to_do_instead_in_one_line(verb: str) -> None:
    with pytest.raises(UsageError, match=f"^docker {verb}: .*does not build or run .*--master-image-uri") as refused:
        call(["docker", verb, "-t", "gcr.io/p/box", "."])
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("lines", "laid", "command"),
    [
        (
            'WORKDIR /app\nCOPY src/ .\nENTRYPOINT ["python", "main.py"]',
            {"main.py": "src/main.py", "conf/a.json": "src/conf/a.json"},
            ["python", "main.py"],
        ),
        (
            'WORKDIR /root\nCOPY src/main.py src/conf/*.json /root/\nENTRYPOINT ["python3.7", "/root/main.py"]',
            {"main.py": "src/main.py", "a.json": "src/conf/a.json"},
            ["python", "main.py"],
        ),
        (
            "COPY src /opt/job\nWORKDIR /data\nCMD cd /tmp && python /opt/job/main.py --n 1",
            {"opt/job/main.py": "src/main.py", "opt/job/conf/a.json": "src/conf/a.json"},
            ["sh", "-c", "cd /tmp && python opt/job/main.py --n 1"],
        ),
        (
            'WORKDIR /app\nCOPY . .\nENV PYTHONPATH=/app/src:$PYTHONPATH\nENTRYPOINT ["python", "-m", "src.main"]',
            {"src/main.py": "src/main.py", "src/conf/a.json": "src/conf/a.json", "Dockerfile": "Dockerfile"},
            ["python", "-m", "src.main"],
        ),
    ],
)
def test_files_lie_where_the_image_has_them(
    tmp_path: Path, lines: str, laid: dict[str, str], command: list[str]
) -> None:
    file = write(tmp_path, f"FROM x\n{lines}\n", "src/main.py", "src/conf/a.json")

    found = lay_out(read_dockerfile(file), {"Dockerfile", "src/main.py", "src/conf/a.json"})

    assert found is not None
    assert (found[0], found[1]["command"]) == (laid, command)
    if "PYTHONPATH" in lines:
        assert found[1]["environment"]["variables"] == {"PYTHONPATH": "src"}


def test_a_command_that_is_not_copied_leaves_the_directory_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path, 'FROM x\nCOPY src /app\nRUN git clone x\nENTRYPOINT ["python", "/x/y.py"]\n')
    assert lay_out(read_dockerfile(file), {"src/main.py"}) is None


@pytest.mark.slow
def test_script_that_calls_docker_build_stops_with_that_line(tmp_path: Path, home: Home) -> None:
    script = f"""
    set -e
    {stoker("gcloud-shim").out}
    export PATH={home.root}/shim:/usr/bin:/bin
    cd {tmp_path}
    docker build -t gcr.io/p/box ./
    echo built
    """

    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=240)

    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: docker build: stoker does not build or run container images.")
    assert stoker("docker", "build", ".").err == ran.stderr


@pytest.mark.slow
def test_script_of_a_custom_container_runs_unchanged(tmp_path: Path, home: Home) -> None:
    write(tmp_path, 'FROM python:3.7\nCOPY trainer /trainer\nENTRYPOINT ["python", "/trainer/task.py"]\n')
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer" / "task.py").write_text("import sys, other; print('args', sys.argv[1:], other.X)\n")
    (tmp_path / "trainer" / "other.py").write_text("X = 7\n")
    script = f"""
    set -e
    {stoker("gcloud-shim").out}
    cd {tmp_path}
    gcloud builds submit --tag gcr.io/p/taxi .
    gcloud beta ai-platform jobs submit training box_1 --region us-central1 --master-image-uri gcr.io/p/taxi \\
        --job-dir {tmp_path}/out --stream-logs -- --epochs 3
    """

    ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=240)

    assert f"args ['--epochs', '3', '--job-dir', '{tmp_path}/out'] 7" in ran.stdout, ran.stderr
    assert ran.returncode == 0


@pytest.mark.slow
def test_command_of_a_job_file_runs_in_place_of_the_images(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 'FROM x\nWORKDIR /app\nCOPY src/ .\nENTRYPOINT ["python", "nothing.py"]\n')
    (tmp_path / "src" / "trainer").mkdir(parents=True)
    (tmp_path / "src" / "trainer" / "task.py").write_text("import sys; print('args', sys.argv[1:])\n")
    master = "imageUri: gcr.io/p/i, containerCommand: [python, -m, trainer.task], containerArgs: [--epochs, '3']"
    (tmp_path / "config.yaml").write_text(f"trainingInput: {{masterConfig: {{{master}}}}}\n")
    monkeypatch.chdir(tmp_path)

    ran = stoker("jobs", "submit", "training", "box_2", "--config", "config.yaml", "--stream-logs")

    assert "args ['--epochs', '3']" in ran.out, ran.err
    assert "ignored" not in ran.err


def test_requirements_of_a_dockerfile_are_read_as_others_are(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("six>=1.0.0<1.17  # of then\n\n# none\n-f https://example.org\n")
    (tmp_path / "Dockerfile").write_text('FROM python:3.7\nRUN pip install "tqdm>=4<5" -r requirements.txt\n')

    found = read_dockerfile(tmp_path / "Dockerfile", context=tmp_path)

    assert found.requirements == ("tqdm>=4,<5", "six>=1.0.0,<1.17")
