"""Jobs that name an image: its Dockerfile, where there is one, says what to run and what that needs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.atomic import replace_file
from stoker.errors import UsageError
from stoker.submission.reading import Values, overlay
from stoker.terminal.output import say

if TYPE_CHECKING:
    from stoker.host.home import Home
    from stoker.submission.shipment import Code


def of_image(
    values: Values, image: str, *, home: "Home", command: Sequence[str] = (), args: Sequence[str] = ()
) -> tuple[Values, "Code"]:
    """The job with the command of the image's Dockerfile, and the code that it copies. UsageError without one.

    `command` and `args` are the job file's own: containerCommand and containerArgs of its masterConfig.
    """
    from stoker.compat.migrate.containers import find_dockerfile, job_of, read_dockerfile
    from stoker.compat.migrate.image_layout import lay_out
    from stoker.packaging.package.tree import source_of_directory
    from stoker.submission.shipment import look_at

    context, dockerfile = built(image, home=home) or (Path.cwd(), find_dockerfile(Path.cwd()))
    if dockerfile is None:
        raise UsageError(
            f"{image}: container images are not run here, and there is no Dockerfile in {context} to say what is in"
            " it. Submit from the directory it was built of, or give the code by --package-path and --module-name."
        )
    if args:
        values = {**values, "args": list(args)}
    container = read_dockerfile(dockerfile, context=context).started(command, has_args=bool(values.get("args")))
    if not container.command:
        raise UsageError(
            f"{dockerfile} has no ENTRYPOINT and no CMD, so what {image} runs is not known. Give the code by"
            " --package-path and --module-name."
        )
    code = look_at(source_of_directory(context), values, home=home)
    laid = lay_out(container, set(code.tree.paths))
    found = laid[1] if laid is not None else job_of(container, context)
    say(f"{image} is not run: its Dockerfile is, as `{' '.join(found['command'])}` with its requirements.")
    if container.system:
        say(f"The image has {', '.join(container.system)} of apt: what the code calls of it, this machine must have.")
    return overlay(found, values), code if laid is None else _laid_out(code, laid[0])


def _laid_out(code: "Code", places: Mapping[str, str]) -> "Code":
    """The code with its files where the image would have them."""
    entries = {entry.path: entry for entry in code.tree.entries}
    moved = [replace(entries[path], path=place) for place, path in sorted(places.items()) if place]
    tree = replace(code.tree, entries=tuple(moved))
    return replace(code, tree=tree, project=replace(code.project, import_roots=(".",)))


def built(image: str, *, home: "Home") -> tuple[Path, Path] | None:
    """The directory and the Dockerfile that a script said it builds the image of."""
    kept = _read(home).get(_plain(image))
    if kept is None or not Path(kept[1]).is_file():
        return None
    return Path(kept[0]), Path(kept[1])


def remember_build(image: str, context: Path, dockerfile: Path, *, home: "Home") -> None:
    _write(home, {**_read(home), _plain(image): [str(context.resolve()), str(dockerfile.resolve())]})


def remember_tag(image: str, other: str, *, home: "Home") -> None:
    kept = _read(home)
    if _plain(image) in kept:
        _write(home, {**kept, _plain(other): kept[_plain(image)]})


def _plain(image: str) -> str:
    return image.removesuffix(":latest")


def _file(home: "Home") -> Path:
    return home.shim / "images.json"


def _read(home: "Home") -> dict[str, list[str]]:
    try:
        found: dict[str, list[str]] = json.loads(_file(home).read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def _write(home: "Home", images: dict[str, list[str]]) -> None:

    _file(home).parent.mkdir(parents=True, exist_ok=True)
    replace_file(_file(home), json.dumps(images, indent=1), mode=0o600)
