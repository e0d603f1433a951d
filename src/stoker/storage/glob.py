"""Google's patterns for keys: `*` stops at a slash, `**` does not; `?`, `[a-z]` and `{a,b}` too."""

import functools
import re

_MAGIC = re.compile(r"[*?\[{]")


def has_magic(text: str) -> bool:
    return _MAGIC.search(text) is not None


def plain_part(pattern: str) -> str:
    """What every match begins with."""
    found = _MAGIC.search(pattern)
    return pattern if found is None else pattern[: found.start()]


@functools.lru_cache(maxsize=256)
def compiled(pattern: str) -> re.Pattern[str]:
    """Match whole keys with it. A bracket that is never closed is a plain character."""
    return re.compile("".join(_pieces(pattern)), re.DOTALL)


def _pieces(pattern: str) -> list[str]:
    pieces: list[str] = []
    at = 0
    while at < len(pattern):
        rest = pattern[at:]
        closed = re.match(r"\[(!|\^)?(\]?[^\]]*)\]", rest) or re.match(r"\{([^{}]*)\}", rest)
        if rest.startswith("**/"):
            piece, size = "(?:.*/)?", 3
        elif rest.startswith("**"):
            piece, size = ".*", 2
        elif rest[0] in "*?":
            piece, size = ("[^/]*" if rest[0] == "*" else "[^/]"), 1
        elif closed and rest[0] == "[":
            piece = f"[{'^' if closed[1] else ''}{_escaped_set(closed[2])}]"
            size = closed.end()
        elif closed:
            piece = "(?:" + "|".join("".join(_pieces(each)) for each in closed[1].split(",")) + ")"
            size = closed.end()
        else:
            piece, size = re.escape(rest[0]), 1
        pieces.append(piece)
        at += size
    return pieces


def _escaped_set(text: str) -> str:
    return re.sub(r"([\\\[\]^&~|])", r"\\\1", text)
