"""What a job is made of: its package's files, its environment, what differs from another's, how to run it again."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Response

from stoker.errors import NotFoundError, StokerError
from stoker.host.home import Home
from stoker.schema.job import JobSpec
from stoker.schema.model import Model
from stoker.schema.record import Job
from stoker.schema.views import (
    Command,
    Commands,
    ConfigChange,
    FileChange,
    JobDiff,
    JobEnvironment,
    PackageFiles,
    PackageText,
    Process,
)
from stoker.server.routes.replies import reply
from stoker.server.scheduling.placement import replicas_for
from stoker.server.settings import Settings
from stoker.server.store.columns import flatten
from stoker.server.store.store import Store
from stoker.server.views.package_files import compare, list_files, read_file


@dataclass(frozen=True, slots=True)
class CodeRoutes:
    """What these routes need."""

    store: Store
    settings: Settings
    home: Home

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/jobs", tags=["code"])
        files = "/{job}/package/files"
        router.add_api_route(files, self.get_files, methods=["GET"], response_model=PackageFiles)
        router.add_api_route(files + "/{path:path}", self.get_file, methods=["GET"], response_model=PackageText)
        router.add_api_route("/{job}/diff/{other}", self.get_diff, methods=["GET"], response_model=JobDiff)
        router.add_api_route("/{job}/environment", self.get_environment, methods=["GET"], response_model=JobEnvironment)
        router.add_api_route("/{job}/commands", self.get_commands, methods=["GET"], response_model=Commands)
        return router

    def get_files(self, job: str) -> Response:
        """The files of a job's package."""
        spec = self.store.job(job).spec
        return _safe(PackageFiles(package=spec.package or "", files=list_files(self._package(spec))))

    def get_file(self, job: str, path: str) -> Response:
        """One of them, if it is text and not too long."""
        return _safe(read_file(self._package(self.store.job(job).spec), path))

    def get_diff(self, job: str, other: str) -> Response:
        """What differs between two jobs: fields of their configuration, and files."""
        a, b = self.store.job(job).spec, self.store.job(other).spec
        return _safe(JobDiff(a=job, b=other, config=_config_changes(a, b), files=self._compare(a, b)))

    def get_environment(self, job: str) -> Response:
        """The Python it runs with, and the processes it is."""
        found = self.store.job(job)
        wanted = found.spec.environment
        return _safe(
            JobEnvironment(
                runtime=wanted.runtime,
                python=wanted.python,
                requirements=wanted.requirements,
                archives=wanted.archives,
                variables=wanted.variables,
                package=found.spec.package,
                pool=found.pool,
                replicas=self._processes(found),
            )
        )

    def get_commands(self, job: str) -> Response:
        """Lines for a terminal: to run it again, to go on from it, to look at it."""
        return _safe(Commands(commands=_commands(self.store.job(job))))

    def _package(self, spec: JobSpec) -> Path:
        if spec.package is None:
            raise NotFoundError(f"Job {spec.name!r} has no package: it runs a command of the environment.")
        return self.home.package_file(spec.package)

    def _compare(self, a: JobSpec, b: JobSpec) -> tuple[FileChange, ...]:
        old, new = (self._package(spec) if spec.package is not None else None for spec in (a, b))
        return compare(old, new)

    def _processes(self, job: Job) -> tuple[Process, ...]:
        pool = self.settings.pools.get(job.pool)
        try:
            replicas = replicas_for(job.spec.resources, pool) if pool is not None else ()
        except StokerError:  # the pool has become smaller since
            replicas = ()
        return tuple(Process(name=r.name, cpus=r.cpus, memory_gb=r.memory_gb, gpus=r.gpus) for r in replicas)


def _safe(model: Model) -> Response:
    """Files are other people's words: never anything but JSON."""
    response = reply(model)
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _config_changes(a: JobSpec, b: JobSpec) -> tuple[ConfigChange, ...]:
    old, new = (flatten(spec.model_dump(mode="json", exclude={"name"})) for spec in (a, b))
    return tuple(
        ConfigChange(path=path, a=old.get(path), b=new.get(path))
        for path in sorted({*old, *new})
        if old.get(path) != new.get(path)
    )


def _commands(job: Job) -> tuple[Command, ...]:
    spec, name = job.spec, shlex.quote(job.id)
    found = []
    if spec.search is not None:
        found.append(Command(title="The same search again", command=f"stoker experiment fork {name}"))
    if spec.kind == "train" and spec.module is not None:
        code = ["--package-path", spec.module.partition(".")[0], "--module-name", spec.module]
        args = ["--", *spec.args] if spec.args else []
        where = ["--job-dir", spec.job_dir] if spec.job_dir else []
        again = ["stoker", "jobs", "submit", "training", f"{job.id}_again", *code, *where, *_flags(spec), *args]
        found.append(Command(title="Submit it again, from its directory", command=shlex.join(again)))
        here = ["stoker", "local", "train", *code, *where, *args]
        found.append(Command(title="Run it here, in the foreground", command=shlex.join(here)))
    elif spec.command is not None:
        found.append(Command(title="Run its command here", command=shlex.join([*spec.command, *spec.args])))
    found += [
        Command(title="Follow its log", command=f"stoker jobs logs {name} --follow"),
        Command(title="All about it", command=f"stoker jobs describe {name}"),
    ]
    return tuple(found)


def _flags(spec: JobSpec) -> list[str]:
    flags = []
    if spec.pool is not None:
        flags += ["--region", spec.pool]
    if spec.resources.tier is not None:
        flags += ["--scale-tier", spec.resources.tier.lower().replace("_", "-")]
    if spec.environment.runtime is not None:
        flags += ["--runtime-version", spec.environment.runtime]
    if spec.environment.python is not None:
        flags += ["--python-version", spec.environment.python]
    if spec.priority:
        flags += ["--priority", str(spec.priority)]
    if spec.restarts.max_restarts:
        flags += ["--max-restarts", str(spec.restarts.max_restarts)]
    return flags
