"""How routes answer: schema models as JSON, errors as one shape, server-sent events."""

from collections.abc import Iterable

from fastapi import Response
from starlette.responses import JSONResponse, StreamingResponse

from stoker.errors import ConfigError, StokerError
from stoker.schema.model import Model

KEEP_ALIVE_S = 15.0
KEEP_ALIVE = ": still here\n\n"
_JSON = "application/json"


class ErrorReply(Model):
    """Every error of this API: what happened, and one line for each bad field if there are any."""

    error: str
    problems: tuple[str, ...] = ()
    code: str | None = None  # which error it is, where the status does not say


def reply(model: Model, *, status: int = 200) -> Response:
    """Pydantic writes the JSON itself: NaN and the infinities as strings, and once only."""
    return Response(model.model_dump_json(), status_code=status, media_type=_JSON)


def reply_many(models: Iterable[Model]) -> Response:
    return Response(f"[{','.join(model.model_dump_json() for model in models)}]", media_type=_JSON)


def reply_error(error: StokerError) -> JSONResponse:
    problems = error.problems if isinstance(error, ConfigError) else ()
    # A ConfigError's text repeats its problems for terminals; here they have a field of their own.
    message = str(error).removesuffix("".join(f"\n  {problem}" for problem in problems))
    body = ErrorReply(error=message, problems=tuple(problems), code=error.code)
    return JSONResponse(body.model_dump(mode="json", exclude_none=True), status_code=error.http_status)


def event_message(event: str, data: str, *, id: int | None = None) -> str:
    """One server-sent event; `data` is JSON, which has no line breaks."""
    head = f"id: {id}\n" if id is not None else ""
    return f"{head}event: {event}\ndata: {data}\n\n"


class EventStream(StreamingResponse):
    """Server-sent events, passed on at once by whatever is in between."""

    media_type = "text/event-stream"

    def init_headers(self, headers: object = None) -> None:
        super().init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
