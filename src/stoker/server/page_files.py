"""The page's files, read once: their digest, their gzip, and all scripts and all styles as one file each."""

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from stoker.server.page_bundle import bundle

_ROOT = Path(__file__).parent / "ui"
_TEMPLATES = ("index.html", "login.html")
_FIRST = "js/theme-first.js"  # stays alone: it runs before anything is drawn
_SHELL = "js/app.js"
_STYLES = ("css/tokens.css", "css/base.css", "css/components.css", "css/pages.css")
_COMMENT = re.compile(r"^[ \t]*(?:/\*.*?\*/[ \t]*$|//[^\n]*$)|^[ \t]+", re.MULTILINE | re.DOTALL)


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


class _Prepared(Mapping[str, PageFile]):
    """Each is made ready when it is first asked for: a browser asks for four of them."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        self._contents = contents
        self._made: dict[str, PageFile] = {}

    def __getitem__(self, name: str) -> PageFile:
        if name not in self._made:
            self._made[name] = _file(name, self._contents[name])
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)


@lru_cache(maxsize=1)
def files_of_page() -> PageFiles:
    """Reads some tens of small files the first time, so not at the server's start."""
    paths = sorted(path for path in _ROOT.rglob("*") if path.is_file() and path.name not in _TEMPLATES)
    contents = {path.relative_to(_ROOT).as_posix(): path.read_bytes() for path in paths}
    templates = {name: (_ROOT / name).read_text() for name in _TEMPLATES}
    everything = hashlib.sha256()
    for name, content in [*contents.items(), *((name, text.encode()) for name, text in templates.items())]:
        everything.update(f"{name}\0{len(content)}\0".encode() + content)
    scripts = {name: content.decode() for name, content in contents.items() if name.endswith(".js") and name != _FIRST}
    contents["js/all.js"] = bundle(scripts, first=_SHELL).encode()
    contents["css/all.css"] = b"\n".join(contents[name] for name in _STYLES)
    return PageFiles(_Prepared(contents), templates, digest=everything.hexdigest()[:16])


def _file(name: str, content: bytes) -> PageFile:
    kind = "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    sent = _without_comments(content) if name.endswith((".js", ".css")) else content
    return PageFile(sent, gzip.compress(sent, mtime=0), kind, etag)


def _without_comments(content: bytes) -> bytes:
    """An eighth less to send; lines keep their numbers. Safe while no text in a script goes over several lines."""
    return _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), content.decode()).encode()
