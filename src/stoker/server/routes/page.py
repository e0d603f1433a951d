"""The page: three files, and the cookie that lets a browser in."""

from dataclasses import dataclass
from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse, PlainTextResponse, RedirectResponse

from stoker.server.auth import cookie_name, has_cookie, is_token

_FILES = Path(__file__).parent.parent / "ui"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_HOW_TO = "This page needs its key. `stoker server status` prints the link that has it.\n"


@dataclass(frozen=True, slots=True)
class PageRoutes:
    """What the page needs."""

    token: str

    def router(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        router.add_api_route("/", self.get_page, methods=["GET"])
        router.add_api_route("/ui/app.js", lambda: _file("app.js"), methods=["GET"])
        router.add_api_route("/ui/style.css", lambda: _file("style.css"), methods=["GET"])
        return router

    def get_page(self, request: Request, token: str | None = None) -> Response:
        if token is not None and is_token(token, self.token):
            # Off the address bar at once: the token stays in a cookie that scripts cannot read.
            response = RedirectResponse("/", status_code=303, headers=_HEADERS)
            name = cookie_name(request.scope["server"][1])
            response.set_cookie(name, self.token, httponly=True, samesite="strict", max_age=30 * 86_400)
            return response
        if not has_cookie(request.headers, request.scope, self.token):
            return PlainTextResponse(_HOW_TO, status_code=401, headers=_HEADERS)
        return _file("index.html")


def _file(name: str) -> Response:
    return FileResponse(_FILES / name, headers=_HEADERS)
