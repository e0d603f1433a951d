"""The page: one shell for every address of it, its files, and the sign-in that sets the cookie."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from urllib.parse import parse_qs

from fastapi import APIRouter, HTTPException, Request, Response
from starlette.background import BackgroundTask
from starlette.responses import HTMLResponse, RedirectResponse

from stoker.server.auth import cookie_name, has_cookie, is_own_page, is_token
from stoker.server.page_files import files_of_page

_JOB = "/jobs/{job}"
# Those of js/core/route.js.
ADDRESSES = (
    "/",
    _JOB,
    "/jobs/{job}/logs",
    "/jobs/{job}/trials/{number}",
    "/pools",
    "/models",
    "/models/{name}",
    "/compare",
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cache-Control": "no-store",
    # Not no-referrer: then browsers send `Origin: null` with the sign-in form, and we could not tell it from another's.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_VERSION = version("stoker")
_FOREVER = "public, max-age=31536000, immutable"
_COOKIE_S = 30 * 86_400
_FORM_BYTES = 4096
_WRONG = '<p class="notice" role="alert" id="problem">That is not this server\'s token.</p>'


@dataclass(frozen=True, slots=True)
class PageRoutes:
    """What the page needs. All of it is in memory, so nothing is left to a thread, which costs more than the answer.

    `prepare` is called, in a thread, with the job whose page a browser has just got: what that will ask for can be made
    while it still reads the scripts.
    """

    token: str
    prepare: Callable[[str], None]

    def router(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        for address in ADDRESSES:
            router.add_api_route(address, self.get_page, methods=["GET"])
            router.add_api_route(address, self.sign_in, methods=["POST"])
        router.add_api_route("/login", self.get_login, methods=["GET"])
        router.add_api_route("/login", self.sign_in, methods=["POST"])
        router.add_api_route("/logout", self.sign_out, methods=["POST"])
        router.add_api_route("/ui/{digest}/{path:path}", self.get_file, methods=["GET"])
        return router

    async def get_page(self, request: Request, token: str | None = None) -> Response:
        if token is not None and is_token(token, self.token):
            return self._let_in(request, request.url.path)  # off the address bar at once
        if not has_cookie(request.headers, request.scope, self.token):
            return _login(401)
        response = _html(files_of_page().fill("index.html", version=_VERSION), 200)
        if request.scope["route"].path == _JOB:
            response.background = BackgroundTask(self.prepare, request.path_params["job"])
        return response

    async def get_login(self) -> Response:
        return _login(200)

    async def sign_in(self, request: Request) -> Response:
        """The form sends its token to the address it stands at, so there is no `next` that could lead elsewhere."""
        if not is_own_page(request.headers):
            raise HTTPException(403, "Sign in from this server's own page")
        body = await request.body()
        form = parse_qs(body[:_FORM_BYTES].decode("utf-8", "replace"))
        if not is_token(form.get("token", [""])[0].strip(), self.token):
            return _login(401, wrong=True)
        path = "/" if request.url.path == "/login" else request.url.path
        return self._let_in(request, path + (f"?{request.url.query}" if request.url.query else ""))

    def sign_out(self, request: Request) -> Response:
        if not is_own_page(request.headers):
            raise HTTPException(403, "Sign out from this server's own page")
        response = RedirectResponse("/login", status_code=303, headers=_HEADERS)
        response.delete_cookie(cookie_name(request.scope["server"][1]), httponly=True, samesite="strict")
        return response

    async def get_file(self, request: Request, digest: str, path: str) -> Response:
        files = files_of_page()
        file = files.get(path)
        if file is None:
            raise HTTPException(404, "Not Found")
        # The digest of all files is in their address, so they never change; but a page from before an upgrade may ask.
        headers = {**_HEADERS, "Vary": "Accept-Encoding", "ETag": file.etag}
        headers["Cache-Control"] = _FOREVER if digest == files.digest else "no-cache"
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(file.zipped, media_type=file.kind, headers={**headers, "Content-Encoding": "gzip"})
        return Response(file.content, media_type=file.kind, headers=headers)

    def _let_in(self, request: Request, path: str) -> Response:
        response = RedirectResponse(path, status_code=303, headers=_HEADERS)
        name = cookie_name(request.scope["server"][1])
        response.set_cookie(name, self.token, httponly=True, samesite="strict", max_age=_COOKIE_S)
        return response


def _login(status: int, *, wrong: bool = False) -> Response:
    text = files_of_page().fill(
        "login.html", problem=_WRONG if wrong else "", invalid='aria-invalid="true" aria-describedby="problem"' * wrong
    )
    return _html(text, status)


def _html(text: str, status: int) -> Response:
    return HTMLResponse(text, status_code=status, headers=_HEADERS)
