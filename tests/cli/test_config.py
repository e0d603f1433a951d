"""`stoker config show`: what is in force, and no secret in it."""

import json

import pytest

from stoker.host.home import Home
from tests.cli.conftest import Stoker


def setting(stoker: Stoker, name: str) -> tuple[str, str]:
    found = {each["name"]: each for each in json.loads(stoker("config", "show", "--json").out)}
    return found[name]["value"], found[name]["origin"]


def test_database_is_shown_without_its_password(stoker: Stoker, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home.find().make()
    assert setting(stoker, "database") == (str(home.database), "default")

    home.config.write_text('database = "postgresql://ada:secret@db/stoker"\n')
    assert setting(stoker, "database") == ("postgresql://ada:***@db/stoker", f"file: {home.config}")

    monkeypatch.setenv("STOKER_DATABASE", "postgresql://bob:word@db/stoker")
    assert setting(stoker, "database") == ("postgresql://bob:***@db/stoker", "environment: STOKER_DATABASE")


def test_server_without_a_verb_needs_a_database(stoker: Stoker) -> None:
    refused = stoker("server")

    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "Missing: VERB" in refused.err
