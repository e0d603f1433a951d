"""One prediction for the page, passed on to a `stoker serve` on this machine: a page may speak to its own server only.

Nothing is loaded here. The address must be loopback, the path is ours, redirects are not followed.
"""

import http.client
import ipaddress
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Response
from pydantic import Field

from stoker.errors import StokerError, UsageError
from stoker.schema.model import Model
from stoker.schema.registry import checked_name
from stoker.schema.views import Prediction
from stoker.server.routes.replies import reply

_TIMEOUT_S = 60.0
_MAX_ANSWER_BYTES = 4 << 20


class Question(Model):
    """What to ask of which `stoker serve`."""

    url: str = Field(description="where `stoker serve` listens, for example http://127.0.0.1:8080")
    instances: tuple[Any, ...]
    version: str | None = None
    token: str | None = Field(None, description="if it was started with one")


@dataclass(frozen=True, slots=True)
class PredictionRoutes:
    """Needs nothing of the server."""

    def router(self) -> APIRouter:
        router = APIRouter(tags=["models"])
        router.add_api_route("/models/{model}/predict", self.predict, methods=["POST"], response_model=Prediction)
        return router

    def predict(self, model: str, question: Question) -> Response:
        """Ask a `stoker serve` on this machine for predictions."""
        host, port = loopback_of(question.url)
        version = f"/versions/{quote(checked_name(question.version, 'version'))}" if question.version else ""
        path = f"/v1/models/{quote(checked_name(model, 'model'))}{version}:predict"
        headers = {"Content-Type": "application/json"}
        if question.token:
            headers["Authorization"] = f"Bearer {question.token}"
        body = json.dumps({"instances": list(question.instances)})
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            found = answer.read(_MAX_ANSWER_BYTES)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise StokerError(
                f"No answer from {question.url}: {error}. Start it with `stoker serve {model} --port {port}`."
            ) from error
        finally:
            connection.close()
        return reply(Prediction(status=answer.status, answer=_value(found)))


def loopback_of(url: str) -> tuple[str, int]:
    """Host and port. UsageError if it is not a plain address of this machine."""
    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        host, port = parts.hostname or "", parts.port
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here, host, port = False, "", None
    if not is_here or port is None or parts.scheme not in ("", "http") or parts.username or parts.path.strip("/"):
        raise UsageError(f"{url!r} is no `stoker serve` on this machine: give its address, like http://127.0.0.1:8080.")
    return host, port


def _value(found: bytes) -> Any:
    try:
        return json.loads(found)
    except ValueError:
        return found.decode("utf-8", "replace")
