"""Jobs that name an image: its Dockerfile, where there is one, says what to run and what that needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.errors import UsageError
from stoker.submission.reading import JobValues, overlay

if TYPE_CHECKING:
    from stoker.submission.pipeline import Submission
    from stoker.submission.shipment import Code, Notify


def submission_of_image(
    values: JobValues, image: str, *, command: Sequence[str] = (), args: Sequence[str] = ()
) -> "Submission":
    """The job of the image's Dockerfile in this directory, and the code that it copies. UsageError without one.

    `command` and `args` are the job file's own: containerCommand and containerArgs of its masterConfig.
    """
    from stoker.compat.migrate.containers import find_dockerfile, job_of, read_dockerfile
    from stoker.compat.migrate.image_layout import lay_out
    from stoker.packaging.package.tree import source_of_directory
    from stoker.submission.pipeline import Submission

    context = Path.cwd()
    dockerfile = find_dockerfile(context)
    if dockerfile is None:
        raise UsageError(
            f"{image}: container images are not run here, and there is no Dockerfile in {context} to say what is in"
            " it. Submit from the directory it was built of, or give the code with --package-path and --module-name."
        )
    if args:
        values = {**values, "args": list(args)}
    container = read_dockerfile(dockerfile, context=context).started(command, has_args=bool(values.get("args")))
    if not container.command:
        raise UsageError(
            f"{dockerfile} has no ENTRYPOINT and no CMD, so what {image} runs is not known. Give the code with"
            " --package-path and --module-name."
        )

    def adapt(values: JobValues, code: "Code", notify: "Notify") -> "tuple[JobValues, Code]":
        laid = lay_out(container, set(code.tree.paths))
        job = laid[1] if laid is not None else job_of(container, context)
        notify(f"{image} is not run: its Dockerfile is, as `{' '.join(job['command'])}` with its requirements.")
        if container.system:
            names = ", ".join(container.system)
            notify(f"The image has {names} of apt: what the code calls of it, this machine must have.")
        return overlay(job, values), code if laid is None else _laid_out(code, laid[0])

    return Submission(values, source_of_directory(context), adapt=adapt)


def _laid_out(code: "Code", places: Mapping[str, str]) -> "Code":
    """The code with its files where the image would have them."""
    entries = {entry.path: entry for entry in code.tree.entries}
    moved = [replace(entries[path], path=place) for place, path in sorted(places.items()) if place]
    tree = replace(code.tree, entries=tuple(moved))
    return replace(code, tree=tree, project=replace(code.project, import_roots=(".",)))
