"""`stoker gcloud-shim`: a `gcloud` and a `gsutil` for old scripts, which know AI Platform and storage alone.

Where there is no docker, a `docker` too, which builds nothing and remembers which directory an image would be of.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.cli.output import say
from stoker.cli.parser import Arguments, Parser
from stoker.errors import UsageError

_EXAMPLE = """
eval "$(stoker gcloud-shim)" && ./scripts/train-cloud.sh
"""
_MAIN = "import sys; from stoker.cli.main import main; sys.exit(main())"
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_TRAINING = ("ai-platform", "ml-engine")
_RELEASES = ("alpha", "beta")
_STORAGE = ("cat", "cp", "du", "ls", "rm")
# gsutil's own flags in front of its verb: parallel, quiet, debug, options, headers.
_ALONE, _VALUED = ("-m", "-q", "-d", "-D"), ("-o", "-h", "-u")
_BUILD_VALUED = ("--build-arg", "--platform", "--target", "--network", "--cache-from", "--label")
_UNDERSTOOD = "ai-platform …, storage cp|ls|rm|cat|du, config get-value project; gsutil cp|ls|rm|cat|du|mb"


def build(parser: Parser) -> None:
    parser.be_command(install, example=_EXAMPLE)


def install(arguments: Arguments) -> None:
    """Make the two commands, and print the line that puts them on PATH."""
    from stoker.home import Home

    folder = Home.find().make().root / "shim"
    folder.mkdir(exist_ok=True)
    for name in ("gcloud", "gsutil", *_docker(folder)):
        partial = folder / f".{name}.{os.getpid()}"
        command = shlex.join([sys.executable, "-P", "-c", _MAIN, name])
        partial.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        partial.chmod(0o755)
        partial.replace(folder / name)
    print(f"export PATH={shlex.quote(str(folder))}:$PATH")


def _docker(folder: Path) -> list[str]:
    """A stand-in only where there is none: who has docker may mean it."""
    own = folder / "docker"
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place) != folder]
    if shutil.which("docker", path=os.pathsep.join(places)):
        own.unlink(missing_ok=True)
        return []
    return ["docker"]


def call(words: Sequence[str]) -> int:
    """What `gcloud …` or `gsutil …` means here. UsageError for all that has no meaning."""
    command, rest = words[0], list(words[1:])
    if command == "gsutil":
        return _gsutil(rest)
    if command == "docker":
        return _call_docker(rest)
    while rest and (rest[0] in _RELEASES or rest[0] in ("--quiet", "-q")):
        rest = rest[1:]
    match rest[:2]:
        case [noun, *_] if noun in _TRAINING:
            return _run(rest[1:])
        case ["storage", verb] if verb in _STORAGE:
            return _run(["storage", verb, *_copy_flags(verb, rest[2:])])
        case ["builds", "submit"]:
            return _call_docker(["build", *_as_docker(rest[2:])])
        case ["config", "get-value" | "get"] if rest[2:3] in (["project"], ["core/project"]):
            print(os.environ.get(_PROJECT, "stoker"))
            return 0
        case ["config", "list"] if "value(core.project)" in " ".join(rest):
            print(os.environ.get(_PROJECT, "stoker"))
            return 0
        case ["config" | "auth" | "components", *_]:
            say(f"gcloud {' '.join(rest)}: nothing to do here.")
            return 0
    raise UsageError(f"gcloud {' '.join(rest[:3])} has no meaning here. This gcloud understands: {_UNDERSTOOD}.")


def _call_docker(words: list[str]) -> int:
    """`build` remembers, `tag` too; `push`, `pull` and `login` have nothing to do."""
    from stoker.cli.containers import remember_build, remember_tag
    from stoker.home import Home

    home = Home.find().make()
    match words[:1]:
        case ["build"]:
            tags, file, context = _build_words(words[1:])
            for tag in tags:
                remember_build(tag, context, file or context / "Dockerfile", home=home)
            say(f"docker build: nothing is built; a job of {', '.join(tags) or 'it'} runs what its Dockerfile says.")
            return 0
        case ["tag"] if len(words) == 3:
            remember_tag(words[1], words[2], home=home)
            return 0
        case ["push" | "pull" | "login" | "rmi"]:
            say(f"docker {' '.join(words)}: nothing to do here.")
            return 0
    raise UsageError(
        f"docker {' '.join(words[:2])} has no meaning here: containers are not run. Submit the job, or run its code by"
        " `stoker local train`."
    )


def _build_words(words: list[str]) -> tuple[list[str], Path | None, Path]:
    """The tags, the Dockerfile if it is named, and the directory."""
    tags: list[str] = []
    file: Path | None = None
    places: list[str] = []
    rest = iter(words)
    for word in rest:
        name, has_value, value = word.partition("=")
        if name in ("-t", "--tag", "-f", "--file", *_BUILD_VALUED):
            value = value if has_value else next(rest, "")
            tags += [value] if name in ("-t", "--tag") else []
            file = Path(value) if name in ("-f", "--file") else file
        elif not word.startswith("-"):
            places.append(word)
    return tags, file, Path(places[-1] if places else ".")


def _as_docker(words: list[str]) -> list[str]:
    """`gcloud builds submit --tag IMAGE DIR` in docker's words."""
    return [word for word in words if word.startswith(("-t", "--tag")) or not word.startswith("-")]


def _gsutil(words: list[str]) -> int:
    while words and words[0].startswith("-"):
        if words[0] in _VALUED:
            words = words[2:]
        elif words[0] in _ALONE:
            words = words[1:]
        else:
            break
    if words[:1] == ["mb"]:
        say("gsutil mb: a bucket is there as soon as something is put into it.")
        return 0
    if not words or words[0] not in _STORAGE:
        raise UsageError(f"gsutil {' '.join(words[:1])} has no meaning here. This gsutil understands: {_UNDERSTOOD}.")
    return _run(["storage", words[0], *_copy_flags(words[0], words[1:])])


def _copy_flags(verb: str, words: list[str]) -> list[str]:
    """Their letters for ours; those about speed and overwriting are the default."""
    renamed = {"-R": "-r", "--recursive": "-r", "-r": "-r"}
    dropped = ("-n", "-c", "-L", "--no-clobber") if verb == "cp" else ("-f",)
    return [renamed.get(word, word) for word in words if word not in dropped]


def _run(words: list[str]) -> int:
    from stoker.cli.main import run

    return run(words)
