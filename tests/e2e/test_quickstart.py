"""`make quickstart`, the first command anybody runs."""

import re
import sys
from pathlib import Path

import pytest

from stoker.host.home import Home
from tests.e2e.command import run
from tests.e2e.conftest import kill_server

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
def test_the_quickstart_trains_here_and_as_a_job_and_says_where_everything_is(tmp_path: Path) -> None:
    try:
        result = run([sys.executable, str(ROOT / "examples" / "quickstart.py")], cwd=tmp_path)
    finally:
        kill_server(Home(tmp_path / "quickstart" / "home"))

    assert result.code == 0, result.err
    assert len(re.findall(r"epoch 5: rmse", result.out)) == 2
    places = dict(re.findall(r"^(model|metrics|page) +(\S+)$", result.out, flags=re.MULTILINE))
    assert Path(places["model"]).exists()
    assert Path(places["metrics"]).exists()
    assert places["page"].startswith("http://127.0.0.1:")
