"""`stoker recipes`: what the recipes can find out about your data."""

import json
from pathlib import Path

from stoker.errors import ConflictError, UsageError
from stoker.terminal.output import say, table
from stoker.terminal.parser import Arguments, Parser


def build(parser: Parser) -> None:
    inferring = parser.add_command(
        "infer",
        infer,
        help="look at a table and write a first metadata.py for the tabular recipe",
        example="stoker recipes infer data.csv --target income -o trainer/metadata.py",
    )
    inferring.add_argument("file", metavar="FILE", help="CSV (also gzipped) or Parquet; a path or a URL")
    inferring.add_argument("--target", metavar="COLUMN", help="what is to be predicted; guessed if not given")
    inferring.add_argument("-o", "--output", metavar="FILE", help="write it there instead of printing it")
    inferring.add_argument("--force", action="store_true", help="overwrite the output")
    inferring.add_argument("--json", action="store_true", help="print the metadata and the reasons as JSON")


def infer(arguments: Arguments) -> None:
    try:
        from stoker.recipes.tabular.files import find_files
        from stoker.recipes.tabular.infer import guess, source_of
    except ImportError as error:
        raise UsageError(f"This needs {error.name}: pip install 'stoker[tabular]'.") from error
    from stoker.host.home import Home
    from stoker.storage import Storage

    output = None if arguments.output is None else Path(arguments.output)
    if output is not None and output.exists() and not arguments.force:
        raise ConflictError(f"{output} is there already, and nothing is overwritten. Give another name, or --force.")
    storage = Storage(Home.find().root)
    file = find_files([arguments.file], storage)[0]
    found = guess(file, storage, target=arguments.target)
    if arguments.json:
        reasons = [dict(zip(("column", "taken_for", "why"), row, strict=True)) for row in found.reasons]
        print(json.dumps({"metadata": found.metadata.to_json(), "reasons": reasons}, indent=2))
        return
    say(table(["COLUMN", "TAKEN FOR", "WHY"], [list(row) for row in found.reasons]))
    source = source_of(found, url=file.url)
    if output is None:
        print(source, end="")
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(source, encoding="utf-8")
    say(f"Wrote {output}. Look it over: these are guesses from the first rows.")
