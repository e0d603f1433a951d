"""Packages and archives: bytes known by their hash, whole or not there."""

import asyncio
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect
from starlette.responses import FileResponse

from stoker.errors import NotFoundError, UsageError
from stoker.host.home import Home

_HASH = re.compile(r"[0-9a-f]{64}")
_FILENAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,199}")
_WRITE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class PackageRoutes:
    """What the routes of packages need."""

    home: Home

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/packages", tags=["packages"])
        for method in ("GET", "HEAD"):
            router.add_api_route("/{hash}", self.get_package, methods=[method], response_class=FileResponse)
            router.add_api_route("/{hash}/{filename}", self.get_archive, methods=[method], response_class=FileResponse)
        router.add_api_route("/{hash}", self.put_package, methods=["PUT"], status_code=201)
        router.add_api_route("/{hash}/{filename}", self.put_archive, methods=["PUT"], status_code=201)
        return router

    def get_package(self, hash: str) -> Response:
        """A package's archive, tar.gz."""
        return _file(self._package(hash))

    async def put_package(self, hash: str, request: Request) -> Response:
        """Upload a package. Its hash is the sha256 of the archive; what does not match is not kept."""
        return await _receive(request, self._package(hash), hash)

    def get_archive(self, hash: str, filename: str) -> Response:
        """A prebuilt wheel, sdist or zip."""
        return _file(self._archive(hash, filename))

    async def put_archive(self, hash: str, filename: str, request: Request) -> Response:
        """Upload a prebuilt wheel, sdist or zip."""
        return await _receive(request, self._archive(hash, filename), hash)

    def _package(self, hash: str) -> Path:
        return self.home.package_file(_checked(hash))

    def _archive(self, hash: str, filename: str) -> Path:
        if not _FILENAME.fullmatch(filename):
            raise UsageError(f"{filename!r} is not a file name for an archive: letters, digits and ._+!- only.")
        return self.home.archive_file(_checked(hash), filename)


def _checked(hash: str) -> str:
    if not _HASH.fullmatch(hash):
        raise UsageError(f"{hash[:80]!r} is not a sha256: 64 hexadecimal digits, in lower case.")
    return hash


def _file(path: Path) -> Response:
    if not path.is_file():
        raise NotFoundError(f"No package file {path.name} on this server.")
    return FileResponse(path, media_type="application/octet-stream")


async def _receive(request: Request, path: Path, hash: str) -> Response:
    """Write under another name, check, rename: never half there, though everything may be killed at any moment."""
    partial = await run_in_threadpool(_open_partial, path)
    try:
        found = await _copy(request, partial)
        if found != hash:
            raise UsageError(f"The upload's sha256 is {found}, not {hash}: it was cut short or is another file.")
        await run_in_threadpool(_keep, partial, path)
    except ClientDisconnect:
        raise UsageError("The upload broke off; nothing was kept.") from None
    finally:
        partial.close()
        Path(partial.name).unlink(missing_ok=True)
    return Response(status_code=201)


async def _copy(request: Request, file: BinaryIO) -> str:
    digest = hashlib.sha256()
    waiting: list[bytes] = []
    size = 0

    def write() -> None:
        for chunk in waiting:
            digest.update(chunk)
            file.write(chunk)
        waiting.clear()

    async for chunk in request.stream():
        waiting.append(chunk)
        size += len(chunk)
        if size >= _WRITE_BYTES:
            await asyncio.shield(run_in_threadpool(write))
            size = 0
    await run_in_threadpool(write)
    return digest.hexdigest()


def _open_partial(path: Path) -> BinaryIO:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return tempfile.NamedTemporaryFile(dir=path.parent, prefix=".partial-", delete=False)  # type: ignore[return-value]


def _keep(partial: BinaryIO, path: Path) -> None:
    partial.flush()
    os.fsync(partial.fileno())
    os.replace(partial.name, path)
