"""`gsutil` and `gcloud storage` as scripts know them: a copied folder keeps its name, and patterns match folders too.

`stoker storage` has rules of its own, which depend on nothing that is at the target already.
"""

import os
import posixpath
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stoker.errors import NotFoundError, UsageError
from stoker.storage.glob import compiled, has_magic
from stoker.terminal.output import say

if TYPE_CHECKING:
    from stoker.storage.storage import Listed, Storage

# gsutil's own flags in front of its verb: parallel, quiet, debug; options, headers, the user's project.
_ALONE, _VALUED = ("-m", "-q", "-d", "-D"), ("-o", "-h", "-u", "-i")
# About who may read a bucket, and how Google keeps it.
_OF_THE_CLOUD = frozenset(
    "acl autoclass bucketpolicyonly cors defacl defstorageclass iam kms label lifecycle logging mb notification rb"
    " requesterpays retention rewrite setmeta ubla update version versioning web".split()
)
_LONG = {
    "--recursive": "r",
    "--long": "l",
    "--full": "l",
    "--human-readable": "h",
    "--readable-sizes": "h",
    "--all-versions": "a",
    "--continue-on-error": "f",
    "--no-clobber": "n",
    "--summarize": "s",
    "--buckets": "b",
    "--quiet": "q",
    "--range": "range",
}
UNDERSTOOD = "cp|mv|rsync|ls|rm|cat|du|stat|mb"


@dataclass(frozen=True, slots=True)
class Words:
    """A verb's flags, those of one letter by their letters, and its URLs."""

    flags: frozenset[str]
    urls: tuple[str, ...]
    range: str = ""

    @property
    def is_recursive(self) -> bool:
        return bool(self.flags & {"r", "R"})


def gsutil(words: list[str]) -> int:
    """What `gsutil …` means here; UsageError for a verb without a meaning."""
    while words and words[0].startswith("-"):
        if words[0] not in (*_ALONE, *_VALUED):
            break
        words = words[2:] if words[0] in _VALUED else words[1:]
    verb = {"copy": "cp", "move": "mv", "list": "ls", "remove": "rm"}.get(words[0], words[0]) if words else ""
    return _call("gsutil", verb, words[1:])


def storage(words: list[str]) -> int:
    """What `gcloud storage …` means here."""
    match words[:2]:
        case ["buckets", "list"]:
            return _call("gcloud storage", "ls", [])
        case ["buckets", verb]:
            say(f"gcloud storage buckets {verb}: a bucket is there as soon as something is put into it.")
            return 0
        case ["objects", "list"]:
            return _call("gcloud storage", "ls", words[2:])
        case ["objects", "describe"]:
            return _call("gcloud storage", "stat", words[2:])
        case ["objects", "update"]:
            return _call("gcloud storage", "update", words[2:])
    return _call("gcloud storage", words[0] if words else "", words[1:])


def _call(command: str, verb: str, words: Sequence[str]) -> int:
    if verb in _OF_THE_CLOUD:
        say(f"{command} {verb}: nothing to do here. A bucket is there as soon as something is put into it.")
        return 0
    if verb not in _VERBS:
        raise UsageError(f"{command} {verb} has no meaning here. It understands: {UNDERSTOOD}.")
    function, known = _VERBS[verb]
    from stoker.host.home import Home
    from stoker.storage.storage import Storage

    return function(Storage(Home.find().make().root), _read(f"{command} {verb}", words, known)) or 0


def _read(command: str, words: Sequence[str], known: str) -> Words:
    """`known` are the verb's letters; one that takes a value has a colon behind it."""
    flags: set[str] = set()
    urls: list[str] = []
    wanted = ""
    rest = iter(words)
    for word in rest:
        name, has_value, value = word.partition("=")
        if word == "--":
            urls += rest
        elif word.startswith("--"):
            flags.add(_LONG.get(name, name))  # of other long flags none changes what is copied where
            wanted = (value if has_value else next(rest, "")) if name == "--range" else wanted
        elif word.startswith("-") and len(word) > 1:
            for letter in word[1:]:
                if letter not in known:
                    raise UsageError(f"{command} -{letter} has no meaning here. Leave it out.")
                flags.add(letter)
            if f"{word[-1]}:" in known:
                wanted = next(rest, "")
        else:
            urls.append(word)
    return Words(frozenset(flags), tuple(urls), wanted)


def _cp(storage: "Storage", words: Words) -> int:
    copied = _copy(storage, words, recursive=words.is_recursive)
    say(f"Copied {copied} object{'' if copied == 1 else 's'}.")
    return 0


def _mv(storage: "Storage", words: Words) -> None:
    sources = [each for url in words.urls[:-1] for each in _expanded(storage, url)]
    _copy(storage, Words(words.flags, (*sources, *words.urls[-1:])), recursive=True)
    for source in sources:
        storage.remove(source, recursive=True)


def _rsync(storage: "Storage", words: Words) -> None:
    if len(words.urls) != 2:
        raise UsageError(f"rsync takes a source and a target (got {len(words.urls)} URLs).")
    storage.copy(*words.urls, recursive=True)
    if words.flags & {"d", "--delete-unmatched-destination-objects"}:
        say("rsync -d: what is at the target alone stays there.")


def _copy(storage: "Storage", words: Words, *, recursive: bool) -> int:
    """Each source under the target, by its own name where that is a folder already; how many objects."""
    from stoker.cli.storage import say_where

    if len(words.urls) < 2:
        raise UsageError("What is to be copied, and where to? Give a source and a target.")
    *given, target = words.urls
    if target == "-" or "-" in given:
        return _stream(storage, given, target)
    say_where(storage, words.urls)
    sources = [each for url in given for each in _expanded(storage, url)]
    is_into = len(sources) > 1 or any(map(has_magic, given)) or _is_folder(storage, target, slash=True)
    files = 0
    for source in sources:
        if not _is_folder(storage, source):
            files += storage.copy(source, target.rstrip("/") + "/" if is_into else target).files
        elif recursive:
            is_bucket = "://" in source and source.rstrip("/").count("/") == 2
            is_named = not is_bucket and _name(source) not in ("", ".", "..")
            to = posixpath.join(target, _name(source)) if is_into and is_named else target
            files += storage.copy(source, to, recursive=True).files
        else:
            say(f"Omitting {source}: it is a folder. Copy it with -r.")
    if not files and not recursive:
        raise NotFoundError(f"{', '.join(given)}: no object to copy there.")
    return files


def _stream(storage: "Storage", sources: Sequence[str], target: str) -> int:
    """`cp - URL` writes what comes in, `cp URL -` prints."""
    if target == "-":
        _cat(storage, Words(frozenset(), tuple(sources)))
    else:
        with storage.open_url(target, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
    return len(sources)


def _ls(storage: "Storage", words: Words) -> None:
    if list(words.urls) in ([], ["gs://"]):
        print("".join(f"gs://{name}/\n" for name in storage.buckets.names("gs")), end="")
        return
    found: list[Listed] = []
    for url in words.urls:
        at = _expanded(storage, url)
        for each in at:
            if words.flags & {"d", "b"}:
                found += _beside(storage, each)
                continue
            if len(at) > 1 and _is_folder(storage, each):
                _print(found, words)
                print(f"\n{each}:")
                found = []
            found += storage.list(each, recursive=words.is_recursive)
    _print(found, words)


def _print(found: "Sequence[Listed]", words: Words) -> None:
    for item in found:
        if "l" not in words.flags and "L" not in words.flags:
            print(item.url)
        elif item.is_folder:
            print(f"{'':33}{item.url}")
        else:
            when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(item.updated or 0))
            print(f"{item.size_bytes or 0:>10}  {when}  {item.url}")
    if "l" in words.flags:
        sizes = [item.size_bytes or 0 for item in found if not item.is_folder]
        print(f"TOTAL: {len(sizes)} objects, {sum(sizes)} bytes")


def _rm(storage: "Storage", words: Words) -> None:
    for url in words.urls:
        try:
            for each in _expanded(storage, url):
                storage.remove(each, recursive=words.is_recursive)
        except NotFoundError:
            if "f" not in words.flags:
                raise


def _cat(storage: "Storage", words: Words) -> None:
    first, _, last = words.range.partition("-")
    for url in words.urls:
        for each in _expanded(storage, url):
            with storage.open_url(each) as file:
                if not words.range:
                    shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
                    continue
                data = file.read(int(last) + 1 if last else -1)
                sys.stdout.buffer.write(data[int(first or 0) :])
    sys.stdout.buffer.flush()


def _du(storage: "Storage", words: Words) -> None:
    for url in words.urls:
        if "s" not in words.flags:
            for item in storage.list(url, recursive=True):
                print(f"{item.size_bytes or 0:<12} {item.url}")
        print(f"{storage.size(url):<12} {url}")


def _stat(storage: "Storage", words: Words) -> int:
    missing = [url for url in words.urls if not storage.exists(url)]
    for url in words.urls:
        if url not in missing:
            print(f"{url}:\n    Content-Length:      {storage.size(url)}")
    for url in missing:
        say(f"No URLs matched: {url}")
    return 1 if missing else 0


_Verb = Callable[["Storage", Words], int | None]
_VERBS: dict[str, tuple[_Verb, str]] = {
    "cp": (_cp, "rRncevpDUPMja:s:z:L:"),
    "mv": (_mv, "rRncevpPMa:s:z:L:"),
    "rsync": (_rsync, "rRdncepuUCax:j:"),
    "ls": (_ls, "lLrRdbahep:"),
    "rm": (_rm, "rRfa"),
    "cat": (_cat, "hr:"),
    "du": (_du, "shcaeX:x:"),
    "stat": (_stat, ""),
}


def _expanded(storage: "Storage", url: str) -> list[str]:
    """A pattern's objects and folders; another URL as it is. NotFoundError for a pattern that nothing matches."""
    if not has_magic(url):
        return [url]
    folder, _, last = url.rstrip("/").rpartition("/")
    if "**" in last or has_magic(folder):
        return [item.url for item in storage.list(url)]
    found = [item.url for item in storage.list(f"{folder}/") if compiled(last).fullmatch(_name(item.url))]
    if not found:
        raise NotFoundError(f"{url}: no URLs matched.")
    return found


def _beside(storage: "Storage", url: str) -> "Iterator[Listed]":
    """The object or folder itself, as its folder lists it."""
    folder = url.rstrip("/").rpartition("/")[0]
    if folder.endswith(":/"):
        print(url.rstrip("/") + "/")
        return
    for item in storage.list(f"{folder}/"):
        if item.url.rstrip("/") == url.rstrip("/"):
            yield item


def _name(url: str) -> str:
    return posixpath.basename(url.rstrip("/"))


def _is_folder(storage: "Storage", url: str, *, slash: bool = False) -> bool:
    """Whether something is below it; a bucket always is one. With `slash`, one that only says so counts as well."""
    if slash and (url.endswith("/") or ("://" in url and url.count("/") == 2)):
        return True
    if "://" not in url:
        return os.path.isdir(url)
    try:
        found = next(iter(storage.list(url)), None)
    except NotFoundError:
        return False
    return found is None or found.url.rstrip("/") != url.rstrip("/")
