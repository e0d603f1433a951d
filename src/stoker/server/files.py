"""The page's files, read once: their digest, their gzip, and which scripts the first paint needs."""

import gzip
import hashlib
import mimetypes
import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_ROOT = Path(__file__).parent / "ui"
_TEMPLATES = ("index.html", "login.html")
_SHELL = "js/app.js"
_COMMENT = re.compile(r"^[ \t]*(?:/\*.*?\*/[ \t]*$|//[^\n]*$)|^[ \t]+", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"""^(?:import|export)\s[^;]*?from\s+"(\.[^"]+)";|^import\s+"(\.[^"]+)";""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file, ready to be sent."""

    content: bytes
    zipped: bytes
    kind: str
    etag: str


@dataclass(frozen=True, slots=True)
class PageFiles:
    """All of them, by path. `base` holds the digest of all, so that browsers may keep them for ever."""

    files: Mapping[str, PageFile]
    templates: Mapping[str, str]
    digest: str
    scripts: Mapping[str, tuple[str, ...]]  # what the first paint of each page needs, by the name of its module

    @property
    def base(self) -> str:
        return f"/ui/{self.digest}"

    def get(self, path: str) -> PageFile | None:
        return self.files.get(path)

    def fill(self, template: str, **values: str) -> str:
        """The values are ours, never a user's: they go in as they are."""
        text = self.templates[template].replace("{{base}}", self.base)
        for name, value in values.items():
            text = text.replace("{{" + name + "}}", value)
        return text


@lru_cache(maxsize=1)
def files_of_page() -> PageFiles:
    """Reads and compresses some tens of small files the first time, so not at the server's start."""
    paths = sorted(path for path in _ROOT.rglob("*") if path.is_file() and path.name not in _TEMPLATES)
    contents = {path.relative_to(_ROOT).as_posix(): path.read_bytes() for path in paths}
    templates = {name: (_ROOT / name).read_text() for name in _TEMPLATES}
    everything = hashlib.sha256()
    for name, content in [*contents.items(), *((name, text.encode()) for name, text in templates.items())]:
        everything.update(f"{name}\0{len(content)}\0".encode() + content)
    return PageFiles(
        files={name: _file(name, content) for name, content in contents.items()},
        templates=templates,
        digest=everything.hexdigest()[:16],
        scripts={
            Path(name).stem: imported(contents, (_SHELL, name)) for name in contents if name.startswith("js/pages/")
        },
    )


def _file(name: str, content: bytes) -> PageFile:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    sent = _without_comments(content) if name.endswith((".js", ".css")) else content
    return PageFile(sent, gzip.compress(sent, mtime=0), kind, etag)


def _without_comments(content: bytes) -> bytes:
    """An eighth less to send; lines keep their numbers. Safe while no text in a script goes over several lines."""
    return _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), content.decode()).encode()


def imported(contents: Mapping[str, bytes], first: tuple[str, ...]) -> tuple[str, ...]:
    """These and what they import, and so on: named in the page, they are fetched together, not one after the other."""
    found: dict[str, None] = {}
    waiting = list(first)
    while waiting:
        name = waiting.pop(0)
        if name in found or name not in contents:
            continue
        found[name] = None
        for match in _IMPORT.finditer(contents[name].decode()):
            waiting.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1] or match[2])))
    return tuple(found)
