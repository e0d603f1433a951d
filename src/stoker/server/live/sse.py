"""Server-sent events: how messages are written, and the response that carries them."""

from starlette.responses import StreamingResponse

KEEP_ALIVE_S = 15.0
KEEP_ALIVE = ": still here\n\n"


def event_message(event: str, data: str, *, id: int | str | None = None) -> str:
    """One server-sent event; `data` is JSON, which has no line breaks."""
    head = f"id: {id}\n" if id is not None else ""
    return f"{head}event: {event}\ndata: {data}\n\n"


class EventStream(StreamingResponse):
    """Server-sent events, passed on at once by whatever is in between."""

    media_type = "text/event-stream"

    def init_headers(self, headers: object = None) -> None:
        super().init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
