"""A package's startup-hook.sh, as Determined sourced it."""

from pathlib import Path

import pytest

from stoker.compat.migrate.hooks import Hook, split_hook
from stoker.host.home import Home
from tests.compat.conftest import follow_experiment
from tests.e2e.conftest import home

__all__ = ["home"]  # a fixture, for the tests here


@pytest.mark.parametrize(
    ("text", "left", "installed"),
    [
        ("pip install six 'attrs>=19'\n", "", ["six", "attrs>=19"]),
        ("set -e\npython3 -m pip install -q six\n", "", ["six"]),
        ("# nothing\n", "", []),
        ("export A=1\npip install -r extra.txt\n", "export A=1", ["tqdm==4.0"]),
        ("pip install six && echo done\n", "pip install six && echo done", []),
    ],
)
def test_installs_become_requirements(tmp_path: Path, text: str, left: str, installed: list[str]) -> None:
    (tmp_path / "extra.txt").write_text("# more\ntqdm==4.0\n")
    assert split_hook(text, beside=tmp_path) == Hook(left, tuple(installed))


def test_packages_of_the_image_are_named_and_folders_of_the_hook_stay_its_own(tmp_path: Path) -> None:
    text = """apt-get update && apt-get install -y ffmpeg unzip
sudo apt install git  # for the clone
git clone https://example.com/api.git
pip install api/python
/usr/bin/python -m pip install --upgrade pip six
if ! command -v pip; then
    apt-get install -y python3-pip
fi
"""

    hook = split_hook(text, beside=tmp_path)

    assert hook.system == ("ffmpeg", "unzip", "git")
    assert hook.requirements == ("six",)
    assert hook.left.splitlines()[:2] == ["git clone https://example.com/api.git", "pip install api/python"]
    assert "    apt-get install -y python3-pip" in hook.left


@pytest.mark.slow
def test_hook_is_sourced_before_the_entrypoint(tmp_path: Path, home: Home) -> None:
    files = {
        "startup-hook.sh": "export FROM_HOOK=yes\necho hooked\n",
        "train.py": "import os; print('from hook:', os.environ['FROM_HOOK'])\n",
        "const.yaml": "entrypoint: python3 train.py\nsearcher: {name: single, metric: loss}\n",
    }
    ran = follow_experiment(tmp_path / "code", files)
    assert "hooked" in ran.out, ran.err
    assert "from hook: yes" in ran.out
