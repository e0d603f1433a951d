"""Who may speak to the server: the holder of its token, through its own address, in bodies of a bearable size.

Plain ASGI around the whole app, so that no route can forget it and streams pass untouched.
"""

import hmac
import ipaddress
import json
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

API = "/api/v1"
# The page's own addresses: its files hold no secret, and routes/page.py asks who wants its shell.
_OPEN_PATHS = frozenset({f"{API}/health", "/", "/pools", "/models", "/compare", "/login", "/logout"})
_OPEN_FOLDERS = ("/ui/", "/jobs/", "/models/")
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_JSON_BYTES = 4 << 20
_EVENTS_BYTES = 64 << 20


def cookie_name(port: int | None) -> str:
    """Cookies are shared by all ports of a host; the name keeps two servers apart."""
    return f"stoker_{port or 0}"


def is_token(given: str | None, token: str) -> bool:
    return bool(token) and given is not None and hmac.compare_digest(given.encode(), token.encode())


def is_own_page(headers: Headers) -> bool:
    """The request was sent by a page of this very server; browsers say where it comes from, and scripts cannot lie."""
    return headers.get("origin") == f"http://{headers.get('host')}"


class AuthMiddleware:
    """Lets a request through, or answers it with an error."""

    def __init__(
        self, app: ASGIApp, *, token: str, max_package_bytes: int, names: frozenset[str] | None = None
    ) -> None:
        """`names` are those by which other hosts know a server that listens for them; None is loopback alone."""
        self._app = app
        self._token = token
        self._names = names
        self._max_package_bytes = max_package_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _answer(send, *refusal)
            return
        await self._app(scope, _Limited(receive, self._limit(scope["path"])).receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        # A page on another site can make a browser send requests here under a name of its own (DNS rebinding).
        if not self._is_ours(headers.get("host", "")):
            return 421, f"This server answers to {self._own_names()} only."
        if not _is_open(scope["path"]) and not self._is_allowed(scope, headers):
            return (
                401,
                "No or wrong token. It is in server.json in STOKER_HOME; send it as Authorization: Bearer TOKEN.",
            )
        limit = self._limit(scope["path"])
        if int(headers.get("content-length") or 0) > limit:
            return 413, _too_large(limit)
        return None

    def _is_ours(self, host: str) -> bool:
        if _is_loopback(host):
            return True
        # Addresses cannot be made to mean something else; names can, so only those that the owner wrote down count.
        return self._names is not None and (_is_address(host) or _hostname(host) in self._names)

    def _own_names(self) -> str:
        if self._names is None:
            return "127.0.0.1 and localhost"
        return f"its addresses and {', '.join(sorted({*self._names, 'localhost'}))} (server_url in config.toml)"

    def _is_allowed(self, scope: Scope, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return is_token(given, self._token)
        if scope["method"] not in _SAFE_METHODS and not is_own_page(headers):
            return False  # a cookie comes along with requests of other local pages too: only ours may change things
        return has_cookie(headers, scope, self._token)

    def _limit(self, path: str) -> int:
        if path.startswith(f"{API}/packages/"):
            return self._max_package_bytes
        return _EVENTS_BYTES if path.startswith(f"{API}/runs/") else _JSON_BYTES


def has_cookie(headers: Headers, scope: Scope, token: str) -> bool:
    try:
        cookies = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return False
    found = cookies.get(cookie_name(_port(scope)))
    return is_token(found.value if found else None, token)


def _is_open(path: str) -> bool:
    return path in _OPEN_PATHS or path.startswith(_OPEN_FOLDERS)


class TooLargeError(Exception):
    """A body that did not say its size went over the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(_too_large(limit))


def _too_large(limit: int) -> str:
    return f"The request is larger than the {limit:,} bytes this server takes here."


class _Limited:
    """Counts a body that does not say how long it is."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._seen = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._limit:
                raise TooLargeError(self._limit)
        return message


def _is_loopback(host: str) -> bool:
    name = _hostname(host)
    return name == "localhost" or (_is_address(host) and ipaddress.ip_address(name).is_loopback)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(_hostname(host))
    except ValueError:
        return False
    return True


def _hostname(host: str) -> str:
    """Without its port; empty if it is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _port(scope: Scope) -> int | None:
    server = scope.get("server")
    return server[1] if server else None


async def _answer(send: Send, status: int, message: str) -> None:
    body = json.dumps({"error": message, "problems": []}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status != 401:
        headers.append((b"connection", b"close"))  # the body, if any, is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
