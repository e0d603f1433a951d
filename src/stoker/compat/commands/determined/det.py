"""`stoker det …`, and `det …` by `stoker gcloud-shim`: Determined's command line, and what of it was its master's."""

import getpass
import json
from collections.abc import Sequence

from stoker.errors import UsageError
from stoker.terminal.output import say

_VALUED = ("-m", "--master", "-u", "--user")
_SHORT = {
    "a": "agent",
    "auth": "user",
    "p": "project",
    "resource-pool": "rp",
    "s": "slot",
    "tpl": "template",
    "u": "user",
    "w": "workspace",
}
# What scripts do before they submit, and what needs no doing here.
_NOTHING_TO_DO = {
    "project": ("create", "archive", "unarchive"),
    "user": ("login", "logout", "change-password", "activate"),
    "workspace": ("create", "archive", "unarchive"),
}
# What is asked, and the command of ours that answers.
_ANSWERED = {
    ("agent", "list"): ["cluster"],
    ("slot", "list"): ["cluster"],
    ("rp", "list"): ["pools", "list"],
    ("task", "list"): ["jobs", "list"],
    ("task", "logs"): ["jobs", "logs"],
}
# What Determined had of each before anybody made another.
_ONLY = {"project": {"id": 1, "name": "Uncategorized"}, "workspace": {"id": 1, "name": "Uncategorized"}}
_WHY_NOT = {
    "agent": "the machines are the pools': see `stoker cluster` and `stoker pools list`",
    "deploy": "the server starts by itself when it is needed",
    "dev": "the REST API is described in docs/server.md and, by a running server, at /api/v1/openapi.json",
    "master": "settings are files: see `stoker config show`",
    "project": "experiments are not sorted into projects; use labels",
    "rp": "pools are in config.toml: see `stoker pools list`",
    "slot": "what a pool may use is in config.toml: see `stoker pools list`",
    "task": "every task is a job: see `stoker jobs list`",
    "template": "a template is a file: `stoker experiment create --template FILE`",
    "user": "there are no users: whoever has the server's token is one",
    "user-group": "there are no users: whoever has the server's token is one",
    "workspace": "experiments are not sorted into workspaces; use labels",
}
NOUNS = frozenset({*_SHORT, *_WHY_NOT})


def call(words: Sequence[str]) -> int:
    """What `det …` means here. UsageError, in one sentence, for what has no meaning."""
    from stoker.cli.main import run

    rest = _without_master(list(words))
    if not rest or rest[0] not in NOUNS:
        return run(rest)
    noun = _SHORT.get(rest[0], rest[0])
    verb = rest[1] if len(rest) > 1 else "list"
    verb = "list" if verb == "ls" else verb
    if (noun, verb) in _ANSWERED:
        return run([*_ANSWERED[noun, verb], *rest[2:]])
    if noun in _ONLY and verb in ("list", "describe"):
        # Scripts look an id up, to hand it on with --project_id.
        print(json.dumps([_ONLY[noun]]) if "--json" in rest else "  ".join(map(str, _ONLY[noun].values())))
        return 0
    if (noun, verb) == ("user", "whoami"):
        print(f"You are logged in as user '{getpass.getuser()}'")
        return 0
    if verb in _NOTHING_TO_DO.get(noun, ()):
        say(f"det {noun} {verb}: nothing to do here: {_WHY_NOT[noun]}.")
        return 0
    raise UsageError(f"det {noun} {verb} has no meaning here: {_WHY_NOT[noun]}.")


def _without_master(words: list[str]) -> list[str]:
    """The server is found as every command finds it, whichever master the flags in front name."""
    while words and words[0].partition("=")[0] in _VALUED:
        words = words[1:] if "=" in words[0] else words[2:]
    return words
