"""Where a Dockerfile's COPY lines put a directory's files, seen from the folder that its command runs in.

A job's files are laid out so, and what a container opens by a relative path, or imports, is where it was.
"""

import fnmatch
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator

from stoker.compat.migrate.containers import Container, as_job
from stoker.submission.reading import JobValues

Layout = dict[str, str]  # where a file comes to lie: the file of the directory

_SCRIPT = re.compile(r"(?<![\w.$/-])/?[\w.-]+(?:/[\w.-]+)*\.(?:py|sh)\b")
_MODULE = re.compile(r"\bpython[\d.]*\s+(?:-\w\s+)*-m\s+([\w.-]+)")


def lay_out(container: Container, paths: Collection[str]) -> tuple[Layout, JobValues] | None:
    """The files as the image has them, and the job there; None where its command's own file is not among them."""
    laid: Layout = {}
    for source, target in container.copies:
        for path, inside in _copied(source, target, paths):
            laid[_place(inside, container.folder)] = path
    words = [_seen_from(word, container) for word in container.command]
    if not laid or not _is_there(words, laid):
        return None
    variables = dict(container.variables)
    if "PYTHONPATH" in variables:
        folders = [folder for folder in variables["PYTHONPATH"].split(":") if folder and "$" not in folder]
        variables["PYTHONPATH"] = ":".join(_place(folder, container.folder) or "." for folder in folders)
    return laid, as_job(words, container, variables)


def _copied(source: str, target: str, paths: Collection[str]) -> Iterator[tuple[str, str]]:
    """Each file that one COPY takes, and its path in the image."""
    if any(letter in source for letter in "*?["):
        known = {*paths, *(folder for path in paths for folder in _folders(path))}
        for found in sorted(known):
            if found.count("/") == source.count("/") and fnmatch.fnmatchcase(found, source):
                yield from _copied(found, f"{target.rstrip('/')}/", paths)
        return
    if source in paths:
        is_folder = target.endswith(("/", "/."))
        yield source, posixpath.join(target, posixpath.basename(source)) if is_folder else target
        return
    for path in paths:
        if source == ".":
            yield path, posixpath.join(target, path)
        elif path.startswith(f"{source}/"):
            yield path, posixpath.join(target, path[len(source) + 1 :])


def _folders(path: str) -> Iterator[str]:
    while path := posixpath.dirname(path):
        yield path


def _place(inside: str, folder: str) -> str:
    """From the folder where the command runs; what lies outside of it, from the top. "" is the folder itself."""
    inside, folder = posixpath.normpath(inside), posixpath.normpath(folder)
    if inside == folder:
        return ""
    prefix = folder.rstrip("/") + "/"
    return inside[len(prefix) :] if inside.startswith(prefix) else inside.lstrip("/")


def _seen_from(word: str, container: Container) -> str:
    """A word of the command, with the image's paths of scripts as they are here."""

    def seen(found: re.Match[str]) -> str:
        return _place(posixpath.join(container.folder, found[0]), container.folder)

    return word if word.startswith("-") else _SCRIPT.sub(seen, word)


def _is_there(words: Iterable[str], laid: Layout) -> bool:
    text = " ".join(words)
    scripts = _SCRIPT.findall(text)
    if scripts:
        return scripts[0] in laid
    module = _MODULE.search(text)
    if module is None:
        return False
    path = module[1].replace(".", "/")
    return f"{path}.py" in laid or f"{path}/__main__.py" in laid
