"""How routes answer: schema models as JSON, errors as one shape."""

from collections.abc import Iterable

from fastapi import Response
from starlette.responses import JSONResponse

from stoker.errors import ConfigError, StokerError
from stoker.schema.model import Model

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
