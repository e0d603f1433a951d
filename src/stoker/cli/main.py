"""`stoker NOUN VERB`: find the noun's module, run the verb, and turn how it ended into lines and an exit code.

Nothing is imported here but what every command needs: `stoker --help` is read from the table below, and a noun's
module is loaded only when it is spoken to.
"""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TextIO, cast

from stoker.errors import ConfigError, StokerError, UsageError


@dataclass(frozen=True, slots=True)
class Noun:
    """A word of the command line. Its module's `build(parser)` adds the verbs, or is the command itself."""

    module: str
    help: str


NOUNS: dict[str, Noun] = {
    "run": Noun("stoker.cli.run", "run a script or a directory here, in the foreground"),
    "submit": Noun("stoker.cli.submit_target", "run the same as a job"),
    "init": Noun("stoker.cli.init", "lay down a package of training code to start from"),
    "data": Noun("stoker.cli.data", "make a data set whose truth is known: taxi, census, reviews"),
    "recipes": Noun("stoker.cli.recipes", "what the recipes can find out about your data"),
    "local": Noun("stoker.cli.local", "run a training package here, in the foreground"),
    "jobs": Noun("stoker.cli.jobs", "submit jobs, watch them, steer them"),
    "experiment": Noun(
        "stoker.compat.commands.determined.experiment", "search hyperparameters: many trials of one package"
    ),
    "trial": Noun(
        "stoker.compat.commands.determined.trial", "one trial of an experiment: what it is, its log, its checkpoint"
    ),
    "checkpoint": Noun(
        "stoker.compat.commands.determined.checkpoint", "what trials saved: list, describe, download, delete"
    ),
    "job": Noun("stoker.compat.commands.determined.job", "run any script as a job, from Determined's file; the queue"),
    "cmd": Noun("stoker.compat.commands.determined.cmd", "run any command as a job"),
    "tensorboard": Noun(
        "stoker.compat.commands.determined.tensorboard", "TensorBoard over the event files of experiments"
    ),
    "notebook": Noun("stoker.compat.commands.determined.notebook", "JupyterLab as a job"),
    "shell": Noun("stoker.compat.commands.determined.shell", "a shell as a job, and terminals in it"),
    "models": Noun("stoker.cli.models", "the registry: models, and what jobs made of them"),
    "versions": Noun("stoker.cli.versions", "versions of a registered model"),
    "predict": Noun("stoker.cli.predict", "predict with a registered model, here or by `stoker serve`"),
    "preview-search": Noun("stoker.cli.preview_search", "say what a search would do and cost; no server needed"),
    "migrate": Noun(
        "stoker.compat.commands.aiplatform.migrate", "check how an AI Platform or Determined project will run here"
    ),
    "gcloud-shim": Noun(
        "stoker.compat.commands.aiplatform.gcloud_shim", "a gcloud and a gsutil for scripts that call them"
    ),
    "check": Noun("stoker.cli.check", "say what a package needs, and whether a runtime has it"),
    "runtimes": Noun("stoker.cli.runtimes", "the Pythons that jobs can run on"),
    "pools": Noun("stoker.cli.pools", "where jobs run, and how full it is"),
    "cluster": Noun("stoker.cli.cluster", "the nodes there are, who uses them, and why the others wait"),
    "storage": Noun("stoker.cli.storage", "copy, list, read and remove what is at a path, gs:// or s3://"),
    "serve": Noun("stoker.cli.serve", "a model behind HTTP: AI Platform's predict, Open Inference Protocol"),
    "server": Noun("stoker.cli.server", "start, stop and look at the server (it starts by itself when needed)"),
    "config": Noun("stoker.cli.config", "the settings in force, and where each comes from"),
    "ui": Noun("stoker.cli.ui", "open the page in a browser"),
    "completion": Noun("stoker.cli.completion", "print the completion script of a shell"),
}

# The short words for what people do with jobs most often.
SHORT_FORMS = {
    "ps": ("jobs", "list"),
    "show": ("jobs", "describe"),
    "logs": ("jobs", "logs"),
    "stop": ("jobs", "cancel"),
}

# Determined's short forms, `det e create …`.
NOUN_ALIASES = {
    "c": "checkpoint",
    "command": "cmd",
    "e": "experiment",
    "j": "job",
    "m": "models",
    "model": "models",
    "t": "trial",
    "version": "versions",
}

# `gcloud ai-platform jobs …` becomes `stoker jobs …`; a script that only had `gcloud` replaced works too.
_GCLOUD_PREFIXES = frozenset({"alpha", "beta", "ai-platform", "ml-engine"})

# Nouns of Determined's master, and the flags that name one: `det -m HOST user login` stands in front of many scripts.
_DETERMINED = frozenset(
    "-m --master -u --user a agent auth deploy det dev master p project resource-pool rp s slot task template tpl u"
    " user user-group w workspace".split()
)

_HELP = """\
Usage: stoker COMMAND [flags] [-- args of your code]

Run training code here, run the same code as a job, and keep its logs, metrics, checkpoints and models.

  ps, show, logs, stop    list jobs, show one, print its log, stop it

{nouns}

  --help       this text; `stoker NOUN --help` and `stoker NOUN VERB --help` say more
  --version    the version

Examples:
  stoker run train.py -- --epochs 3
  stoker submit train.py --follow -- --epochs 3
  stoker ps
  stoker local train --package-path trainer --module-name trainer.task -- --epochs 3
  stoker jobs submit training taxi_1 --package-path trainer --module-name trainer.task --stream-logs -- --epochs 3
  stoker jobs list
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The command's exit code: 0 done, 1 failed, 2 misused, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    _print_anything()
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except StokerError as error:
        _complain(in_lines(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except SystemExit as leaving:  # argparse, after --help
        return int(leaving.code or 0)
    except BrokenPipeError:
        # The reader (`| head`) has left; without this Python would complain once more while closing stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception:  # noqa: BLE001  the last line of defence: whatever it is, the user should not have seen it
        traceback.print_exc()
        _complain("this is a bug in stoker. Please report it, with the lines above and the command you gave.")
        return 1


def run(words: list[str]) -> int:
    """Do what the words say. Raises StokerError."""
    if words and words[0] in ("gcloud", "gsutil", "docker"):
        from stoker.compat.commands.aiplatform.gcloud_shim import call

        return call(words)
    if words and words[0] in _DETERMINED:
        from stoker.compat.commands.determined.det import call as call_det

        return call_det(words[1:] if words[0] == "det" else words)
    while words and words[0] in _GCLOUD_PREFIXES:
        words = words[1:]
    if not words or words[0] in ("--help", "-h", "help"):
        print(_HELP.format(nouns=_table()), end="")
        return 0 if words else 2
    if words[0] in ("--version", "version"):
        print(f"stoker {_version()}")
        return 0
    if words[0] == "__complete":
        return _complete(words[1:])
    if words[0] in SHORT_FORMS:
        words = [*SHORT_FORMS[words[0]], *words[1:]]
    name = NOUN_ALIASES.get(words[0], words[0])
    noun = NOUNS.get(name)
    if noun is None:
        raise UsageError(f"No command {words[0]!r}. There are: {', '.join(NOUNS)}. See `stoker --help`.")
    return _run_noun(name, noun, words[1:])


def in_lines(error: StokerError) -> str:
    """The message; one bad field of a file fits on its line."""
    if isinstance(error, ConfigError) and len(error.problems) == 1:
        return " ".join(line.strip() for line in str(error).splitlines())
    return str(error)


def _run_noun(name: str, noun: Noun, words: list[str]) -> int:
    from stoker.terminal.parser import Parser, split_user_args

    parser = Parser(prog=f"stoker {name}", description=f"{noun.help[:1].upper()}{noun.help[1:]}.")
    import_module(noun.module).build(parser)
    # What follows `--` is for the user's code: it is cut off first, so that nothing here can misread it.
    ours, theirs = split_user_args(words)
    arguments = parser.parse_args(ours)
    return parser.run(arguments, theirs)


def _complete(words: list[str]) -> int:
    from stoker.cli.completion import candidates

    print("\n".join(candidates(words)))
    return 0


def _print_anything() -> None:
    """A job's log may hold what this terminal's encoding has no letters for; that must not end the following."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout.isatty():
        from stoker.terminal.output import SafeTerminal

        sys.stdout = cast(TextIO, SafeTerminal(sys.stdout))


def _complain(message: str) -> None:
    from stoker.terminal.output import paint, say

    say(f"{paint('error:', 'red', stream=sys.stderr)} {message}")


def _table() -> str:
    width = max(map(len, NOUNS)) + 3
    return "\n".join(f"  {name:<{width}}{noun.help}" for name, noun in NOUNS.items())


def _version() -> str:
    from importlib.metadata import version

    return version("stoker")


if __name__ == "__main__":
    sys.exit(main())
