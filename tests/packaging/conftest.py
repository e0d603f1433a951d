"""A home of its own for every test, and package indexes that are folders."""

from pathlib import Path

import pytest

from stoker.host.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("STOKER_HOME", str(tmp_path / "home"))
    return Home.find().make()


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the package index there is, by pip's own settings: nothing reaches the network."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())  # pip splits it at spaces
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    # Wheels of one name and version differ between tests, and uv remembers what it has seen at a path.
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return folder
