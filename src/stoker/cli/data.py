"""`stoker data`: make a data set whose truth is known, to try a package on."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stoker.errors import UsageError
from stoker.terminal.flags import whole
from stoker.terminal.output import say
from stoker.terminal.parser import Arguments, Parser

if TYPE_CHECKING:
    import polars as pl

    from stoker.storage import Storage

_SETS = {
    "taxi": "taxi rides and their fares: distance times a rate, more by night, and noise",
    "census": "people, and whether they earn much: numbers, categories, missing values",
    "reviews": "texts that praise or blame",
}
_FORMATS = ("csv", "parquet", "jsonl")


def build(parser: Parser) -> None:
    for name, about in _SETS.items():
        command = parser.add_command(
            name,
            make,
            help=about,
            example=f"stoker data {name} --rows 10000 --out {name}.csv\nstoker data {name} --rows 10000 --out data/",
        )
        command.set_defaults(name=name)
        command.add_argument("--rows", type=whole, default=10_000, help="how many (10000)")
        command.add_argument(
            "--out",
            required=True,
            metavar="FILE|DIR",
            help="a file, or a folder (with a slash at its end) that gets train and, a fifth as long, eval; URLs, too",
        )
        command.add_argument("--seed", type=whole, default=0, help="another seed, other rows (0)")
        command.add_argument("--format", choices=_FORMATS, help="by the file's name if not given; csv in a folder")


def make(arguments: Arguments) -> None:
    try:
        import polars as pl

        from stoker.recipes import synthetic
    except ImportError as error:
        raise UsageError(f"This needs {error.name}: pip install 'stoker[data]'.") from error
    from stoker.host.home import Home
    from stoker.storage import Storage

    if arguments.rows < 1:
        raise UsageError(f"--rows {arguments.rows}: expected a whole number of at least 1.")
    storage = Storage(Home.find().root)
    for path, rows, seed in _parts(arguments, storage):
        rows_made = synthetic.make(arguments.name, rows=rows, seed=seed)
        _write(pl.DataFrame(rows_made), path, _format(arguments, path), storage)
        metric, best = synthetic.best_score(arguments.name, rows_made)
        print(path)
        say(f"{rows} rows; the best any model can reach on them: {metric} {best:.4f}.")


def _parts(arguments: Arguments, storage: "Storage") -> Iterator[tuple[str, int, int]]:
    """(path, rows, seed) of each file."""
    out: str = arguments.out
    local = storage.local_path(out)
    if not out.endswith("/") and not (local is not None and local.is_dir()):
        yield out, arguments.rows, arguments.seed
        return
    ending = arguments.format or "csv"
    yield f"{out.rstrip('/')}/train.{ending}", arguments.rows, arguments.seed
    # Far off: no likely seed of a training set gives the rows of this evaluation set.
    yield f"{out.rstrip('/')}/eval.{ending}", max(1, arguments.rows // 5), arguments.seed + 1_000_003


def _format(arguments: Arguments, path: str) -> str:
    if arguments.format:
        return str(arguments.format)
    ending = path.rsplit(".", 1)[-1].lower()
    if ending not in _FORMATS:
        raise UsageError(f"{path}: in which format? Name it .csv, .parquet or .jsonl, or give --format.")
    return ending


def _write(frame: "pl.DataFrame", path: str, format: str, storage: "Storage") -> None:
    import io

    local = storage.local_path(path)
    if local is not None:
        local.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}[format](buffer)
    with storage.open_url(path, "wb") as file:
        file.write(buffer.getvalue())
