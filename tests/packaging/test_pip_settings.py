"""What pip is told, uv is told."""

from pathlib import Path

import pytest

from stoker.packaging.environment.pip_settings import read_pip_settings, uv_settings
from tests.packaging.made import write


@pytest.fixture
def machine(tmp_path: Path) -> dict[str, str]:
    """An environment whose pip.conf files are all in tmp_path."""
    return {
        "HOME": str(tmp_path / "me"),
        "XDG_CONFIG_DIRS": str(tmp_path / "etc"),
        "XDG_CONFIG_HOME": str(tmp_path / "me/c"),
    }


def test_variables_become_uvs(machine: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)  # pip splits places at spaces, and tmp_path may have some
    machine |= {
        "PIP_INDEX_URL": "https://a/simple",
        "PIP_EXTRA_INDEX_URL": "https://b/simple  file:///c",
        "PIP_FIND_LINKS": "wheels gone https://d/links.html",
        "PIP_CERT": "/ca.pem",
        "PIP_TRUSTED_HOST": "a b:8080",
        "PIP_DEFAULT_TIMEOUT": "180",
        "PIP_NO_INDEX": "true",
        "PIP_QUIET": "1",
    }

    settings = uv_settings(machine)

    assert settings.no_index
    assert settings.variables == {
        "UV_DEFAULT_INDEX": "https://a/simple",
        "UV_INDEX": "https://b/simple file:///c",
        "UV_FIND_LINKS": "wheels,https://d/links.html",
        "SSL_CERT_FILE": "/ca.pem",
        "UV_INSECURE_HOST": "a b:8080",
        "UV_HTTP_TIMEOUT": "180",
    }


def test_what_is_set_for_uv_is_left_alone(machine: dict[str, str]) -> None:
    machine |= {"PIP_INDEX_URL": "https://a", "UV_INDEX_URL": "https://mine", "PIP_EXTRA_INDEX_URL": "https://b"}
    machine |= {"UV_INDEX": "https://mine", "PIP_CERT": "/ca.pem", "SSL_CERT_FILE": "/mine.pem"}

    assert uv_settings(machine).variables == {}


def test_files_are_read_from_the_most_general_on(machine: dict[str, str], tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "etc/pip/pip.conf": "[global]\nindex-url = https://wide\ncert = /wide.pem\ntimeout = 5\n",
            "me/.pip/pip.conf": "[global]\nindex_url = https://old-user\n",
            "me/c/pip/pip.conf": "[global]\nextra-index-url =\n  https://one\n  https://two\n[install]\ntimeout = 6\n",
            "venv/pip.conf": "[global]\nindex-url = https://venv\n",
            "named.conf": "[list]\nformat = json\n[install]\nno-index = yes\n",
        },
    )
    machine["PIP_CONFIG_FILE"] = str(tmp_path / "named.conf")

    settings = uv_settings(machine, prefixes=(tmp_path / "venv",))

    # A real /etc/pip.conf, where there is one, is more general than all of these.
    mine = {key: value for key, value in settings.variables.items() if key != "UV_FIND_LINKS"}
    assert mine == {
        "UV_DEFAULT_INDEX": "https://venv",
        "UV_INDEX": "https://one https://two",
        "UV_HTTP_TIMEOUT": "6",
        "SSL_CERT_FILE": mine["SSL_CERT_FILE"],
    }
    assert settings.no_index


def test_variable_beats_file(machine: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, {"me/c/pip/pip.conf": "[global]\nindex-url = https://file\n"})

    assert read_pip_settings({**machine, "PIP_INDEX_URL": "https://variable"})["index-url"] == "https://variable"


def test_dev_null_switches_files_off(machine: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, {"me/c/pip/pip.conf": "[global]\nindex-url = https://file\n"})

    assert uv_settings({**machine, "PIP_CONFIG_FILE": "/dev/null"}).variables == {}


def test_broken_file_sets_nothing(machine: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, {"me/c/pip/pip.conf": "index-url = https://no-section\n"})

    assert "index-url" not in read_pip_settings(machine)
