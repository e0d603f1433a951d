"""What each address answers: AI Platform's predict, the Open Inference Protocol, and what operators look at."""

import hmac
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version as version_of
from urllib.parse import unquote

from stoker.predict.base import Predictor
from stoker.predict.online import bodies, inference
from stoker.predict.online.batching import Batcher
from stoker.predict.online.compute import Outcome
from stoker.predict.online.encoding import encode
from stoker.predict.online.failures import Refusal, in_words
from stoker.predict.online.http import Request
from stoker.predict.online.metrics import Metrics
from stoker.predict.online.openapi import document

logger = logging.getLogger(__name__)

_MODEL = r"/models/(?P<model>[^/:]+)(?:/versions/(?P<version>[^/:]+))?"
_PATTERNS = (
    ("predict", "POST", re.compile(r"/predict")),
    ("predict", "POST", re.compile(rf"/v1(?:/projects/[^/:]+)?{_MODEL}:predict")),
    ("describe", "GET", re.compile(rf"/v1(?:/projects/[^/:]+)?{_MODEL}")),
    ("infer", "POST", re.compile(rf"/v2{_MODEL}/infer")),
    ("model_ready", "GET", re.compile(rf"/v2{_MODEL}/ready")),
    ("metadata", "GET", re.compile(rf"/v2{_MODEL}")),
    ("server", "GET", re.compile(r"/v2/?")),
    ("live", "GET", re.compile(r"/v2/health/live")),
    ("ready", "GET", re.compile(r"/v2/health/ready")),
    ("health", "GET", re.compile(r"/health|/")),
    ("metrics", "GET", re.compile(r"/metrics")),
    ("openapi", "GET", re.compile(r"/openapi\.json")),
)
# What a load balancer asks, and what tells nothing of the model.
_OPEN = frozenset({"live", "ready", "health"})
_KNOWN_PATHS = 1024
_METRICS_KIND = b"text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Served:
    """A loaded model under its name, with its queue."""

    name: str
    version: str | None
    predictor: Predictor
    batcher: Batcher


@dataclass(frozen=True, slots=True)
class Route:
    """An address, taken apart."""

    action: str
    method: bytes
    model: str | None
    version: str | None


class App:
    """Answers requests with the model that is served just then."""

    def __init__(self, served: Served, *, metrics: Metrics, token: str | None) -> None:
        self.served = served
        self._metrics = metrics
        self._token = None if token is None else b"Bearer " + token.encode()
        self._routes: dict[bytes, Route] = {}
        self._actions: dict[str, Callable[[Request], None]] = {
            "predict": self._predict,
            "infer": self._infer,
            "describe": self._describe,
            "metadata": self._metadata,
            "model_ready": self._model_ready,
            "server": self._server,
            "live": self._health,
            "ready": self._health,
            "health": self._health,
            "metrics": self._show_metrics,
            "openapi": self._openapi,
        }

    def refuse(self, request: Request) -> tuple[int, str] | None:
        """Before the body is read: who may not, what is not there, what is not understood."""
        try:
            route = self._route(request.target)
            if self._token is not None and route.action not in _OPEN:
                self._check_token(request.headers.get(b"authorization", b""))
            if request.method != route.method and (request.method, route.method) != (b"HEAD", b"GET"):
                raise Refusal(405, f"Use {route.method.decode()} here, not {request.method.decode()}.")
            encoding = request.headers.get(b"content-encoding", b"identity").lower()
            if encoding != b"identity":
                raise Refusal(415, f"Content-Encoding {encoding.decode('latin-1')} is not taken: send the body plain.")
        except Refusal as refusal:
            return refusal.status, str(refusal)
        return None

    def answer(self, request: Request) -> None:
        route = self._route(request.target)
        try:
            if route.model is not None:
                self._check_model(route)
            self._actions[route.action](request)
        except Exception as error:  # noqa: BLE001  the worker must survive whatever a request brings
            self._fail(request, error)

    def fail(self, request: Request, status: int, message: str) -> None:
        headers = b"retry-after: 1\r\n" if status == 429 else b""
        if status == 401:
            headers = b"www-authenticate: Bearer\r\n"
        elif status == 405:
            headers = b"allow: %b\r\n" % self._route(request.target).method
        request.reply(status, encode({"error": message}), headers=headers)

    def _predict(self, request: Request) -> None:
        request.route = "predict"
        served = self.served
        instances = bodies.instances_of(request, served.predictor.card)
        served.batcher.submit(instances, partial(self._predicted, request))

    def _predicted(self, request: Request, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, BaseException):
                self._fail(request, outcome)
            else:
                request.reply(200, b'{"predictions": ' + encode(outcome) + b"}")
        except Exception as error:  # noqa: BLE001  a prediction that JSON cannot hold
            self._fail(request, error)

    def _infer(self, request: Request) -> None:
        request.route = "infer"
        served = self.served
        infer = inference.read(bodies.json_of(request.body), served.predictor.card.signature)
        served.batcher.submit(infer.instances, partial(self._inferred, request, served, infer))

    def _inferred(self, request: Request, served: Served, infer: inference.InferRequest, outcome: Outcome) -> None:
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            outputs = inference.outputs_of(outcome, infer, served.predictor.card.signature)
            reply = {"model_name": served.name, "model_version": served.version, "id": infer.id, "outputs": outputs}
            request.reply(200, encode({key: value for key, value in reply.items() if value is not None}))
        except BaseException as error:  # noqa: BLE001  as above
            self._fail(request, error)

    def _describe(self, request: Request) -> None:
        served = self.served
        card = served.predictor.card
        body = {
            "name": served.name,
            "version": served.version,
            "framework": card.framework,
            "signature": card.signature.model_dump(mode="json"),
            "labels": card.labels,
            "metrics": card.metrics,
        }
        request.reply(200, encode(body))

    def _metadata(self, request: Request) -> None:
        served = self.served
        request.reply(200, encode(inference.metadata(served.name, served.version, served.predictor.card)))

    def _model_ready(self, request: Request) -> None:
        request.reply(200, encode({"name": self.served.name, "ready": True}))

    def _server(self, request: Request) -> None:
        request.reply(200, encode({"name": "stoker", "version": version_of("stoker"), "extensions": []}))

    def _health(self, request: Request) -> None:
        served = self.served
        request.reply(
            200, encode({"live": True, "ready": True, "status": "ok", "model": served.name, "version": served.version})
        )

    def _show_metrics(self, request: Request) -> None:
        page = self._metrics.page(model=self.served.name, version=self.served.version or "")
        request.reply(200, page.encode(), kind=_METRICS_KIND)

    def _openapi(self, request: Request) -> None:
        served = self.served
        request.reply(200, encode(document(served.name, served.version, served.predictor.card)))

    def _fail(self, request: Request, error: BaseException) -> None:
        status, message = in_words(error)
        if status >= 500 and not isinstance(error, TimeoutError):
            logger.error("%s", message, exc_info=error)
        self.fail(request, status, message)

    def _route(self, target: bytes) -> Route:
        route = self._routes.get(target)
        if route is None:
            route = _parse(target)
            if len(self._routes) < _KNOWN_PATHS:
                self._routes[target] = route
        return route

    def _check_token(self, given: bytes) -> None:
        assert self._token is not None
        if not hmac.compare_digest(given, self._token):
            raise Refusal(401, "This server needs its token: send the header Authorization: Bearer TOKEN.")

    def _check_model(self, route: Route) -> None:
        served = self.served
        if route.model != served.name:
            raise Refusal(404, f"No model {route.model!r} here; this server has {served.name!r}.")
        if route.version is not None and route.version != served.version:
            which = f"version {served.version!r}" if served.version else "a folder without a version"
            raise Refusal(404, f"No version {route.version!r} here; this server has {which}.")


def _parse(target: bytes) -> Route:
    path = target.partition(b"?")[0].decode("latin-1")
    for action, method, pattern in _PATTERNS:
        if found := pattern.fullmatch(path):
            parts = {name: unquote(value) if value else None for name, value in found.groupdict().items()}
            return Route(action, method.encode(), parts.get("model"), parts.get("version"))
    raise Refusal(404, f"Nothing at {path}. What is there: /openapi.json.")
