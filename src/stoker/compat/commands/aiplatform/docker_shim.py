"""`docker` where there is none: it remembers what an image would be built of, and runs what its Dockerfile says."""

import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.errors import UsageError
from stoker.terminal.output import say

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.schema.launch import Launch

_BUILD_VALUED = ("--build-arg", "--platform", "--target", "--network", "--cache-from", "--label", "--progress")
_RUN_VALUED = (
    "--add-host --cpus --device --entrypoint --env-file --gpus --hostname --ipc --label --memory --mount --name --net"
    " --network --platform --publish --pull --runtime --shm-size --user --workdir -h -l -m -p -u -w"
).split()
_CLOUD_VALUED = ("--config", "--timeout", "--machine-type", "--project", "--region", "--substitutions", "--disk-size")
_NOTHING = frozenset(
    "commit container cp image images info inspect kill login logout logs network ps pull push rm rmi start stop"
    " system version volume wait".split()
)
_LONG = {"-t": "--tag", "-f": "--file", "-e": "--env", "-v": "--volume"}


def docker(words: list[str]) -> int:
    """What `docker …` means here; UsageError for what cannot be done without it."""
    from stoker.host.home import Home

    home = Home.find().make()
    match words[:1]:
        case ["build"] | ["buildx"]:
            _build(words[2:] if words[0] == "buildx" else words[1:], home=home)
            return 0
        case ["tag"] if len(words) == 3:
            from stoker.compat.aiplatform.containers import remember_tag

            remember_tag(words[1], words[2], home=home)
            return 0
        case ["run"]:
            return _run(_Run.of(words[1:]), home=home)
        case [verb] if verb in _NOTHING:
            say(f"docker {' '.join(words)}: nothing to do here.")
            return 0
    raise UsageError(
        f"docker {' '.join(words[:2])} has no meaning here: containers are not run. Submit the job, or run its code by"
        " `stoker local train`."
    )


def cloud_build(words: list[str]) -> int:
    """`gcloud builds submit --tag IMAGE DIR`; with a --config of steps, each `docker build` of it."""
    options, places = _split(words, valued=("--tag", *_CLOUD_VALUED), until_place=False)
    if "--config" not in options:
        return docker(["build", *(f"--tag={tag}" for tag in options.get("--tag", [])), *places])
    for step in _steps(Path(options["--config"][-1])):
        if step[:1] == ["build"]:
            docker(step)
    return 0


def _steps(file: Path) -> Iterator[list[str]]:
    from stoker.compat.dialects.document import load

    steps = load(file).get("steps")
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and str(step.get("name", "")).endswith("docker"):
            yield [str(word) for word in step.get("args", ())]


def _build(words: list[str], *, home: "Home") -> None:
    from stoker.compat.aiplatform.containers import remember_build

    options, places = _split(words, valued=("--tag", "--file", *_BUILD_VALUED), until_place=False)
    context = Path(places[-1] if places else ".")
    file = Path(options["--file"][-1]) if "--file" in options else context / "Dockerfile"
    tags = options.get("--tag", [])
    for tag in tags:
        remember_build(tag, context, file, home=home)
    say(f"docker build: nothing is built; a job of {', '.join(tags) or 'it'} runs what its Dockerfile says.")


@dataclass(frozen=True, slots=True)
class _Run:
    """The words of `docker run`."""

    image: str
    args: tuple[str, ...]
    entrypoint: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    volumes: tuple[tuple[str, str], ...] = ()  # a path in the container, and where it is outside

    @classmethod
    def of(cls, words: list[str]) -> "_Run":
        options, places = _split(words, valued=("--env", "--volume", *_RUN_VALUED), until_place=True)
        if not places:
            raise UsageError("docker run: which image? Give one that a `docker build` of yours names.")
        if options.keys() & {"-d", "--detach"}:
            raise UsageError(f"docker run -d {places[0]}: nothing is run behind your back here. Leave -d out.")
        variables = dict(_variable(text) for text in options.get("--env", []))
        volumes = [text.split(":") for text in options.get("--volume", [])]
        bound = tuple((part[1], part[0]) for part in volumes if len(part) > 1)
        entrypoint = tuple(shlex.split(options.get("--entrypoint", [""])[-1]))
        return cls(places[0], tuple(places[1:]), entrypoint, variables, bound)

    def outside(self, word: str) -> str:
        """An argument that names a path of a volume, as the path that is bound there."""
        for inside, there in self.volumes:
            name, has_value, value = word.rpartition("=")
            if value == inside or value.startswith(inside.rstrip("/") + "/"):
                return f"{name}{has_value}{there}{value[len(inside.rstrip('/')) :]}"
        return word


def _run(asked: _Run, *, home: "Home") -> int:
    """In the foreground, as `stoker local train` runs a package."""
    from stoker.cli.local import name_here
    from stoker.compat.aiplatform.containers import built, of_image
    from stoker.submission.legacy import with_old_times
    from stoker.supervisor.here import run_here

    if built(asked.image, home=home) is None:
        raise UsageError(
            f"docker run {asked.image}: containers are not run here, and of this one no Dockerfile is known. Build it"
            " first (`docker build -t`), or run its code by `stoker local train`."
        )
    args = [asked.outside(word) for word in asked.args]
    values, code = of_image({}, asked.image, home=home, command=asked.entrypoint, args=args)
    values = with_old_times(values, code, home=home)
    name = name_here("docker")
    run_dir = home.local_run_dir(name)
    folder = run_dir.package
    for entry in code.tree.entries:
        place = folder / entry.path
        (place if entry.is_dir else place.parent).mkdir(parents=True, exist_ok=True)
        if not entry.is_dir and entry.link is None:
            shutil.copy2(entry.file, place)
    launch = _launch(name, values, folder, variables=asked.variables, requirements=code.project.requirements)
    return run_here(launch, run_dir, home=home, out=sys.stdout.buffer, err=sys.stderr.buffer)


def _launch(
    name: str, values: dict[str, Any], folder: Path, *, variables: dict[str, str], requirements: tuple[str, ...]
) -> "Launch":
    from stoker.cli.local import launch_here
    from stoker.origin import Origin
    from stoker.schema.launch import EnvironmentSpec, Replica, Role

    environment = values.get("environment", {})
    own = {**environment.get("variables", {}), **variables}
    lines = tuple(dict.fromkeys([*requirements, *environment.get("requirements", ())]))
    return launch_here(
        name,
        source=str(folder),
        environment=EnvironmentSpec(python=environment.get("python"), requirements=lines, variables=own),
        command=tuple(values["command"]),
        args=tuple(values.get("args", ())),
        origin=Origin.from_json(values["origin"]),
        replicas=(Replica(role=Role.CHIEF, index=0, rank=0),),
    )


def _split(words: list[str], *, valued: tuple[str, ...], until_place: bool) -> tuple[dict[str, list[str]], list[str]]:
    """Options by their long names, and the rest; with `until_place`, all that follows the first of the rest is rest."""
    options: dict[str, list[str]] = {}
    places: list[str] = []
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            places.append(word)
            if until_place:
                places += rest
            continue
        given, has_value, value = word.partition("=")
        name = _LONG.get(given, given)
        if name in valued and not has_value:
            value = next(rest, "")
        options.setdefault(name, []).append(value)
    return options, places


def _variable(text: str) -> tuple[str, str]:
    """`A=1`, or `A` for what it is here."""
    name, has_value, value = text.partition("=")
    return name, value if has_value else os.environ.get(name, "")
