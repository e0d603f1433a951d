"""The REST API and the page as one ASGI app; everything it needs comes in by `create_app`."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp

from stoker.errors import ConfigError, StokerError
from stoker.host.home import Home
from stoker.server.auth import API, AuthMiddleware, TooLargeError
from stoker.server.live.fanout import Fanout
from stoker.server.live.topics import Topics
from stoker.server.live.wakeups import Wakeups
from stoker.server.registry.registry import Registry
from stoker.server.routes.code import CodeRoutes
from stoker.server.routes.jobs import JobRoutes
from stoker.server.routes.logs import LogRoutes
from stoker.server.routes.models import ModelRoutes
from stoker.server.routes.packages import PackageRoutes
from stoker.server.routes.page import PageRoutes
from stoker.server.routes.predictions import PredictionRoutes
from stoker.server.routes.replies import ErrorReply, reply_error
from stoker.server.routes.runs import RunRoutes
from stoker.server.routes.searches import SearchRoutes
from stoker.server.routes.system import SystemRoutes
from stoker.server.routes.views import ViewRoutes
from stoker.server.scheduling.scheduler import Scheduler
from stoker.server.searches.status import SearchViews
from stoker.server.settings import Settings
from stoker.server.store.store import Store
from stoker.server.views.columns import TrialColumns
from stoker.server.views.log_lines import LogLines
from stoker.server.views.pools import Clusters, NoClusters, PoolViews

_ABOUT = """Submit training packages as jobs, watch and steer them.

Every route but /health needs `Authorization: Bearer TOKEN`; the token is in server.json in STOKER_HOME.
Errors are `{"error": message, "problems": [a line for each bad field]}`."""


@dataclass(frozen=True, slots=True)
class Server:
    """The parts of a running server, put together in `__main__`."""

    store: Store
    scheduler: Scheduler
    wakeups: Wakeups
    settings: Settings
    home: Home
    token: str
    owner: str
    shutdown: Callable[[], None]
    is_local: bool = True  # it listens on loopback alone
    clusters: Clusters = NoClusters()
    now: Callable[[], float] = time.time


def create_app(server: Server) -> ASGIApp:
    """Starts the scheduler with the app and stops it with it; the store is the caller's to close."""
    s = server
    pools = PoolViews(s.store, s.scheduler, s.clusters, s.now)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        s.wakeups.bind(asyncio.get_running_loop())
        s.scheduler.start()
        notes = asyncio.create_task(pools.watch(s.wakeups))
        yield
        notes.cancel()
        await asyncio.to_thread(s.scheduler.stop)

    app = FastAPI(
        title="stoker",
        description=_ABOUT,
        lifespan=lifespan,
        openapi_url=f"{API}/openapi.json",
        docs_url=None,  # FastAPI's page fetches its scripts from another site
        redoc_url=None,
        redirect_slashes=False,
        responses={"default": {"model": ErrorReply, "description": "What went wrong"}},
        telemetry={"tracing": False, "metrics": False, "logs": False, "operation_spans": False},
    )
    columns = TrialColumns(s.store, s.wakeups)
    for router in _routers(s, pools, columns):
        app.include_router(router, prefix=API)
    app.include_router(PageRoutes(s.token, columns.prepare).router())
    _handle_errors(app)
    urls = [s.settings.server_url, *(pool.ray.server_url for pool in s.settings.pools.values() if pool.ray)]
    names = None if s.is_local else frozenset(urlsplit(url).hostname or "" for url in urls if url)
    return AuthMiddleware(app, token=s.token, max_package_bytes=s.settings.max_package_bytes, names=names)


def _routers(s: Server, pools: PoolViews, columns: TrialColumns) -> tuple[APIRouter, ...]:
    lines = LogLines(s.store.pages)
    topics = Topics(s.store, s.scheduler, s.wakeups, lines, pools.status)
    fanout = Fanout(s.wakeups, topics.source)
    return (
        ViewRoutes(s.store, columns, lines, pools, topics, fanout).router(),
        CodeRoutes(s.store, s.settings, s.home).router(),
        LogRoutes(s.store, s.wakeups).router(),
        JobRoutes(s.store, s.scheduler, s.clusters, s.wakeups, s.settings, s.home, s.owner, s.now).router(),
        ModelRoutes(s.store, Registry(s.store, s.home, s.settings.models_url, s.now), s.now).router(),
        PredictionRoutes().router(),
        SearchRoutes(s.store, SearchViews(s.store)).router(),
        RunRoutes(s.store, s.scheduler, s.wakeups, s.now).router(),
        PackageRoutes(s.home).router(),
        SystemRoutes(s.store, s.scheduler, pools, s.wakeups, s.home, s.shutdown).router(),
    )


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(StokerError)
    async def deliberate(_request: Request, error: StokerError) -> JSONResponse:
        return reply_error(error)

    @app.exception_handler(RequestValidationError)
    async def bad_fields(_request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [_problem(item) for item in error.errors()]
        return reply_error(
            ConfigError(f"The request has {len(problems)} bad field{'s'[: len(problems) > 1]}:", problems)
        )

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> JSONResponse:
        body = {"error": f"{error.detail}: {request.method} {request.url.path}", "problems": []}
        return JSONResponse(body, status_code=error.status_code, headers=error.headers)

    @app.exception_handler(TooLargeError)
    async def too_large(_request: Request, error: TooLargeError) -> JSONResponse:
        body = {"error": str(error), "problems": []}
        return JSONResponse(body, status_code=413, headers={"Connection": "close"})

    @app.exception_handler(Exception)
    async def bug(_request: Request, error: Exception) -> JSONResponse:
        body = {"error": f"The server failed: {type(error).__name__}: {error}. See server.log.", "problems": []}
        return JSONResponse(body, status_code=500)


def _problem(item: Mapping[str, object]) -> str:
    """Like `schema.model.config_error`, without the `body` that FastAPI puts in front."""
    location = item["loc"]
    assert isinstance(location, tuple)
    path = ".".join(str(part) for part in location if part != "body") or "(top)"
    if item["type"] == "extra_forbidden":
        return f"{path}: no such field"
    if item["type"] == "missing":
        return f"{path}: is required"
    message = str(item["msg"]).removeprefix("Value error, ")
    got = repr(item.get("input"))
    return f"{path}: {message[:1].lower()}{message[1:]} (got {got if len(got) <= 60 else got[:57] + '...'})"
