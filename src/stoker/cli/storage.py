"""`stoker storage`: files and buckets by URL, and the gateway in the foreground."""

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoker.errors import StokerError, UsageError
from stoker.terminal.flags import whole
from stoker.terminal.output import say, show_bar, table
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    from stoker.storage.storage import Listed, Progress, Storage

_URL_HELP = "a path, file://, gs:// or s3://; * ** ? [a-z] {a,b} match keys"


def build(parser: Parser) -> None:
    listing = parser.add_command(
        "ls",
        ls,
        help="list what is at a URL",
        example="stoker storage ls gs://my-bucket/data\nstoker storage ls -lr data",
    )
    listing.add_argument("urls", nargs="*", metavar="URL", help=f"{_URL_HELP}; none: the buckets known here")
    listing.add_argument("-l", "--long", action="store_true", help="sizes and times too")
    _recursive(listing, "all that is below, not one level")
    _json(listing)
    copying = parser.add_command(
        "cp",
        cp,
        help="copy objects: in parallel, checksums compared, and only what is not there yet",
        example="stoker storage cp train.csv gs://my-bucket/data/\nstoker storage cp -r gs://my-bucket/jobs/taxi_1 out",
    )
    copying.add_argument("sources", nargs="+", metavar="SOURCE", help=_URL_HELP)
    copying.add_argument("target", metavar="TARGET", help="where to; with a slash at its end, a folder to copy into")
    _recursive(copying, "a folder: all that is in it comes to lie under the target")
    removing = parser.add_command(
        "rm", rm, help="remove objects", example="stoker storage rm -r gs://my-bucket/jobs/taxi_1"
    )
    removing.add_argument("urls", nargs="+", metavar="URL", help=_URL_HELP)
    _recursive(removing, "a folder or pattern, and all in it")
    reading = parser.add_command(
        "cat", cat, help="print objects, one after another", example="stoker storage cat gs://my-bucket/metrics.json"
    )
    reading.add_argument("urls", nargs="+", metavar="URL", help=_URL_HELP)
    measuring = parser.add_command(
        "du", du, help="say how much is at a URL, by what is in it", example="stoker storage du gs://my-bucket"
    )
    measuring.add_argument("urls", nargs="+", metavar="URL", help=_URL_HELP)
    _json(measuring)
    serving = parser.add_command(
        "serve",
        serve,
        help="serve gs:// to programs that speak to Google Cloud Storage by themselves, until Ctrl-C",
        example="stoker storage serve --port 9023\nexport STORAGE_EMULATOR_HOST=http://127.0.0.1:9023",
    )
    serving.add_argument("--port", type=whole, default=0, help="on loopback; a free one if not given")


def ls(arguments: Arguments) -> None:
    storage = _storage()
    if not arguments.urls:
        list_buckets(arguments, storage)
        return
    found = [item for url in arguments.urls for item in storage.list(url, recursive=arguments.recursive)]
    if arguments.json:
        print(json.dumps([_plain(item) for item in found], indent=2))
    elif arguments.long:
        print(table(["SIZE", "UPDATED", "URL"], [[_size(item), _updated(item), item.url] for item in found]))
    else:
        print("".join(f"{item.url}\n" for item in found), end="")


def list_buckets(arguments: Arguments, storage: "Storage") -> None:
    """Those known here, and where each is."""
    found = [f"{scheme}://{name}" for scheme in ("gs", "s3") for name in storage.buckets.names(scheme)]
    if arguments.json:
        print(json.dumps([{"url": url, "where": storage.where(url)} for url in found], indent=2))
    elif arguments.long:
        print("".join(f"{storage.where(url)}\n" for url in found), end="")
    else:
        print("".join(f"{url}/\n" for url in found), end="")


def cp(arguments: Arguments) -> None:
    storage = _storage()
    say_where(storage, [*arguments.sources, arguments.target])
    if len(arguments.sources) > 1 and not arguments.recursive and not arguments.target.endswith("/"):
        raise UsageError(f"Several sources go into a folder: write {arguments.target}/ (with a slash).")
    files = size = unchanged = 0
    for source in arguments.sources:
        progress = _progress(source)
        copied = storage.copy(source, arguments.target, recursive=arguments.recursive, progress=progress)
        files += copied.files
        size += copied.size_bytes
        unchanged += copied.unchanged
    there = f"; {unchanged} of them were there already" if unchanged else ""
    say(f"Copied {_counted(files)}, {in_words(size)}{there}.")


def rm(arguments: Arguments) -> None:
    storage = _storage()
    removed = sum(storage.remove(url, recursive=arguments.recursive) for url in arguments.urls)
    say(f"Removed {_counted(removed)}.")


def cat(arguments: Arguments) -> None:
    from stoker.storage.glob import has_magic

    storage = _storage()
    for url in arguments.urls:
        found = [item.url for item in storage.list(url)] if has_magic(url) else [url]
        for each in found:
            with storage.open_url(each) as file:
                shutil.copyfileobj(file, sys.stdout.buffer, 1 << 20)
    sys.stdout.buffer.flush()


def du(arguments: Arguments) -> None:
    storage = _storage()
    rows: list[tuple[int, str]] = []
    for url in arguments.urls:
        found = list(storage.list(url))
        rows += [(storage.size(item.url) if item.is_folder else item.size_bytes or 0, item.url) for item in found]
        if len(found) != 1 or found[0].is_folder or not found[0].url.endswith(url):
            rows.append((storage.size(url), url))
    if arguments.json:
        print(json.dumps([{"size_bytes": size, "url": url} for size, url in rows], indent=2))
    else:
        print(table(["SIZE", "URL"], [[in_words(size), url] for size, url in rows]))


def serve(arguments: Arguments) -> None:
    from stoker.host.home import Home
    from stoker.storage.gcs_api import variables
    from stoker.storage.gcs_api.server import Gateway

    try:
        gateway = Gateway(Home.find().make().root, port=arguments.port)
    except OSError as error:
        raise StokerError(
            f"Port {arguments.port} cannot be had ({error.strerror}). Choose another with --port."
        ) from error
    with gateway:
        print(gateway.url, flush=True)
        say("Lead a program here with:")
        for name, value in variables(gateway.url).items():
            say(f"  export {name}={value}")
        say("Ctrl-C ends it.")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


def in_words(size_bytes: int) -> str:
    """1.5 MB: powers of ten, as disks and clouds count."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.5 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def _recursive(command: Parser, help: str) -> None:
    command.add_argument("-r", "-R", "--recursive", action="store_true", help=help)


def _json(command: Parser) -> None:
    command.add_argument("--json", action="store_true", help="print JSON")


def _storage() -> "Storage":
    from stoker.host.home import Home
    from stoker.storage.storage import Storage

    return Storage(Home.find().root)


def say_where(storage: "Storage", urls: Sequence[str]) -> None:
    """One line for each bucket that is in the home only because nobody said where it is."""
    from stoker.storage.url import StorageUrl

    said = set()
    for url in urls:
        place = StorageUrl.parse(url)
        if place.bucket_url not in said and storage.buckets.is_by_default(place):
            said.add(place.bucket_url)
            say(storage.where(url) + ".")


def _progress(source: str) -> "Progress | None":
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        return None
    began = time.monotonic()

    def show(done: int, total: int) -> None:
        rate = in_words(int(done / max(time.monotonic() - began, 1e-3)))
        show_bar(source, done, total, words=f"{in_words(done)} of {in_words(total)}, {rate}/s")

    return show


def _plain(item: "Listed") -> dict[str, object]:
    return {"url": item.url, "size_bytes": item.size_bytes, "updated": item.updated}


def _size(item: "Listed") -> str:
    return "-" if item.size_bytes is None else in_words(item.size_bytes)


def _updated(item: "Listed") -> str:
    return "-" if item.updated is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(item.updated))


def _counted(count: int) -> str:
    return f"{count} object{'' if count == 1 else 's'}"
