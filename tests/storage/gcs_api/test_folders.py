"""TensorFlow's gs:// paths, as far as no TensorFlow is needed; with it, tests/e2e/test_packages.py runs them all."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.storage.gcs_api.job_modules.stoker_buckets.paths import VARIABLE, Folders
from stoker.storage.gcs_api.lazy_gateway import FOLDERS, folders

PROVIDED = Path(stoker.__file__).parent / "storage" / "gcs_api" / "job_modules"


@pytest.fixture
def mapped(tmp_path: Path) -> Folders:
    (tmp_path / "own").mkdir()
    entries = {"own-bucket": str(tmp_path / "own"), "*": "/rest", "archive": "gs", "models": "s3://x", "disk": "/none"}
    return Folders(entries)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("gs://any/a/b.csv", "/rest/any/a/b.csv"),
        ("gs://any", "/rest/any"),
        ("gs://any/dir/", "/rest/any/dir/"),
        ("gs://archive/x", "gs://archive/x"),
        ("gs://archive-2/x", "/rest/archive-2/x"),
        ("gs://own-bucket/a", "OWN/a"),
        ("gs://own-bucket", "OWN"),
        ("/plain/gs://any/a", "/plain/gs://any/a"),
        ("s3://any/a", "s3://any/a"),
    ],
)
def test_paths_are_led_the_same_way_in_python_and_in_a_graph(
    url: str, path: str, mapped: Folders, tmp_path: Path
) -> None:
    expected = path.replace("OWN", str(tmp_path / "own"))

    in_graph = url
    for pattern, rewrite in mapped.there():
        in_graph = re.sub(pattern, rewrite, in_graph, count=1)
    back = expected
    for pattern, rewrite in mapped.back():
        back = re.sub(pattern, rewrite, back, count=1)

    assert mapped.local(url) == expected
    assert mapped.local(url.encode()) == expected.encode()
    assert in_graph == expected
    assert mapped.url(expected) == back == url


@pytest.mark.parametrize(
    ("url", "error", "words"),
    [
        ("gs://models/m", NotImplementedError, r"gs://models is s3://x .*stoker storage cp"),
        ("gs://disk/m", FileNotFoundError, r"its folder /none is not there"),
        ("gs://any/../other/m", ValueError, r"no file of the bucket's folder"),
        ("gs://any/.stoker/lock", ValueError, r"no file of the bucket's folder"),
    ],
)
def test_what_cannot_be_led_says_why(url: str, error: type[Exception], words: str, mapped: Folders) -> None:
    with pytest.raises(error, match=words):
        mapped.local(url)


def test_variable_says_what_the_settings_say(tmp_path: Path) -> None:
    assert FOLDERS == VARIABLE
    assert json.loads(folders(tmp_path, {})[FOLDERS]) == {"*": str(tmp_path / "buckets")}

    (tmp_path / "config.toml").write_text(
        '[storage.buckets]\n"gs://own" = "/data/own"\n"gs://archive" = "gcs"\n"gs://models" = "s3://other/p"\n'
        '"gs://minio" = { root = "s3", endpoint_url = "http://m:9000" }\n"s3://else" = "/data/else"\n'
    )
    given = json.loads(folders(tmp_path, {})[FOLDERS])
    with_credentials = json.loads(folders(tmp_path, {"GOOGLE_APPLICATION_CREDENTIALS": "/key.json"})[FOLDERS])

    own = {"own": "/data/own", "archive": "gs", "models": "s3://other", "minio": "s3"}
    assert given == {**own, "*": str(tmp_path / "buckets")}
    assert with_credentials == own


@pytest.mark.slow
def test_watch_waits_for_the_import_and_leaves_a_tensorflow_it_does_not_know_alone(tmp_path: Path) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("print('imported')\n")
    code = (
        "import sys, importlib.util, stoker_buckets\n"
        "assert importlib.util.find_spec('tensorflow').name == 'tensorflow'\n"
        "assert 'stoker_buckets.tensorflow' not in sys.modules, 'loaded though nobody imports tensorflow'\n"
        "import tensorflow\n"
        "assert type(tensorflow.__spec__.loader).__module__ == '_frozen_importlib_external'\n"
    )
    path = os.pathsep.join([str(tmp_path), str(PROVIDED)])

    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path, VARIABLE: '{"*": "/rest"}'},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (ran.returncode, ran.stdout) == (0, "imported\n"), ran.stderr
    assert ran.stderr.startswith("stoker: gs:// paths in this TensorFlow go to Google: ")
    assert ran.stderr.count("\n") == 1


def test_old_google_auth_asks_nobody_for_a_token(tmp_path: Path) -> None:
    package = tmp_path / "google" / "oauth2"
    package.mkdir(parents=True)
    (package / "credentials.py").write_text(
        "class Credentials:\n"
        "    def __init__(self, client_id): self._client_id = client_id\n"
        "    def refresh(self, request): self.token = 'of ' + request\n"
    )
    code = (
        "import stoker_buckets\nfrom google.oauth2.credentials import Credentials\n"
        "for name in ('stoker', 'me'):\n"
        "    one = Credentials(name)\n    one.refresh('Google')\n    print(one.token)\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{PROVIDED}:{tmp_path}"}

    words = [sys.executable, "-S", "-c", code]  # without the google-auth that is installed here
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)

    assert (ran.stdout, ran.stderr) == ("anonymous\nof Google\n", "")
