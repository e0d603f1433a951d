"""`stoker gcloud-shim`: a `gcloud` and a `gsutil` for old scripts, which know only AI Platform and storage; a `det`.

Where no docker answers, a `docker` too, whose only job is to say what to do instead.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.atomic import replace_file
from stoker.compat.commands.aiplatform.gsutil_shim import UNDERSTOOD
from stoker.errors import UsageError
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

_EXAMPLE = """
eval "$(stoker gcloud-shim)" && ./scripts/train-cloud.sh
"""
_MAIN = "import sys; from stoker.cli.main import main; sys.exit(main())"
_PROJECT = "GOOGLE_CLOUD_PROJECT"
_TRAINING = ("ai-platform", "ml-engine")
_RELEASES = ("alpha", "beta")
_NOUNS = ("jobs", "local", "models", "predict", "versions")  # `gcloud ml jobs …`, before it was ml-engine
# Global flags that come before the noun.
_ALONE = ("--quiet", "-q", "--no-user-output-enabled", "--log-http")
_VALUED = ("--project", "--account", "--verbosity", "--configuration", "--billing-project", "--format")
# Rights, accounts and installations of a cloud: there is nothing to allow or install here.
_OF_THE_CLOUD = ("auth", "components", "config", "iam", "services")
_OF_PROJECTS = ("add-iam-policy-binding", "get-iam-policy", "remove-iam-policy-binding")
_UNDERSTOOD = f"ai-platform …, storage {UNDERSTOOD}, config get-value project; and gsutil"


_OF_DOCKERFILE = "A job with --master-image-uri runs the entrypoint of the Dockerfile where it is submitted."
_NO_DOCKER = (
    "{what}: stoker does not build or run container images. Run the code itself: in the directory with the Dockerfile,"
    " `stoker jobs submit training JOB --master-image-uri IMAGE` runs its entrypoint as a job, and `stoker local train`"
    " runs a module of it in the foreground. Remove this command from the script, or install docker."
)


def build(parser: Parser) -> None:
    parser.be_command(install, example=_EXAMPLE)


def install(arguments: Arguments) -> None:
    """Make the commands, and print the line that puts them on PATH."""
    from stoker.host.home import Home

    folder = Home.find().make().shim
    folder.mkdir(exist_ok=True)
    for name in ("gcloud", "gsutil", "det", *_docker(folder)):
        command = shlex.join([sys.executable, "-P", "-c", _MAIN, name])
        replace_file(folder / name, f'#!/bin/sh\nexec {command} "$@"\n', mode=0o755)
    print(f"export PATH={shlex.quote(str(folder))}:$PATH")


def _docker(folder: Path) -> list[str]:
    """A stand-in only where there is none that answers: who has docker may mean it."""
    own = folder / "docker"
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if Path(place) != folder]
    is_up = "DOCKER_HOST" in os.environ or Path("/var/run/docker.sock").exists()
    if is_up and shutil.which("docker", path=os.pathsep.join(places)):
        own.unlink(missing_ok=True)
        return []
    return ["docker"]


def call(words: Sequence[str]) -> int:
    """What `gcloud …` or `gsutil …` means here. UsageError for everything else, `docker …` included."""
    command, rest = words[0], list(words[1:])
    if command == "gsutil":
        from stoker.compat.commands.aiplatform.gsutil_shim import gsutil

        return gsutil(rest)
    if command == "docker":
        raise UsageError(_NO_DOCKER.format(what=" ".join(["docker", *rest[:1]])))
    before, rest = _global_flags(rest)
    match rest[:2]:
        case [noun, *_] if noun in _TRAINING:
            return _run([*rest[1:2], *_placed(rest[2:], before)])
        case ["ml", noun] if noun in _NOUNS:
            return _run([noun, *_placed(rest[2:], before)])
        case ["storage", _]:
            from stoker.compat.commands.aiplatform.gsutil_shim import storage

            return storage(rest[1:])
        case ["builds", "submit"] | ["container", "builds"]:
            say(f"gcloud {' '.join(rest[:2])}: no image is built. {_OF_DOCKERFILE}")
            return 0
    return _of_the_cloud(rest)


def _of_the_cloud(rest: list[str]) -> int:
    """What scripts ask or tell a cloud besides: its project has a name, and nothing has to be allowed."""
    text = " ".join(rest)
    match rest[:2]:
        case ["config", "get-value" | "get"]:
            known = {"project": _project(), "account": "stoker", "region": "us-central1"}
            print(known.get(" ".join(rest[2:3]).rpartition("/")[2], ""))
            return 0
        case ["config", "set"] if rest[2:3] in (["project"], ["core/project"]) and len(rest) > 3:
            _file_of_project().write_text(rest[3])
            say(f"Updated property [core/project]: {rest[3]}.")
            return 0
        case ["config", "list"] if "core.project" in text or "core/project" in text or "value(" in text:
            print(_project())
            return 0
        case ["info", *_] if "project" in text:
            print(_project())
            return 0
        case ["projects", "describe" | "list"]:
            print("0" if "number" in text.lower() else _project())
            return 0
        case [noun, *more] if noun in _OF_THE_CLOUD or (noun == "projects" and set(more) & set(_OF_PROJECTS)):
            say(f"gcloud {text}: nothing to do here.")
            return 0
    raise UsageError(f"gcloud {' '.join(rest[:3])} has no meaning here. This gcloud understands: {_UNDERSTOOD}.")


def _project() -> str:
    """The one that was set last, as gcloud keeps it; a variable goes before."""
    file = _file_of_project()
    kept = file.read_text().strip() if file.is_file() else ""
    return os.environ.get(_PROJECT) or kept or "stoker"


def _file_of_project() -> Path:
    from stoker.host.home import Home

    folder = Home.find().make().shim
    folder.mkdir(exist_ok=True)
    return folder / "project"


def _global_flags(words: list[str]) -> tuple[list[str], list[str]]:
    """Those before the noun, and the rest without alpha and beta: `gcloud --project p beta ai-platform …`."""
    before: list[str] = []
    while words:
        name = words[0].partition("=")[0]
        if name in _ALONE or (name in _VALUED and "=" in words[0]):
            before, words = [*before, words[0]], words[1:]
        elif name in _VALUED:
            before, words = [*before, *words[:2]], words[2:]
        elif name in _RELEASES:
            words = words[1:]
        else:
            break
    return before, words


def _placed(words: list[str], flags: list[str]) -> list[str]:
    """Flags of the whole at the end of ours, where every command takes them."""
    cut = words.index("--") if "--" in words else len(words)
    return [*words[:cut], *flags, *words[cut:]]


def _run(words: list[str]) -> int:
    from stoker.cli.main import run

    return run(words)
