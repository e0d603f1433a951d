"""What batch prediction costs: `python -m bench.batch [--rows 1000000] [--repetitions 3] [--quick]`.

A census of so many rows goes through the tabular recipe's model, contenders taking turns, one thread each:

    batch     CSV to prediction.results, as one rank of `stoker jobs submit prediction` does it, whole columns at a time
    model     the same model on the same rows, which are tensors already: what no batch prediction can be faster than
    epoch     one epoch of training on the same file, from the file on
    ingest    the file parsed and encoded to tensors, nothing else
    pandas    the same as most training code does it: read_csv, and codes of the categories

Figures are ratios of medians of CPU and wall time, so that a busy machine slows all alike.
"""

import argparse
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import torch

from bench.measure import write_results
from bench.tabular import METADATA, median, rounds
from stoker.host.home import Home
from stoker.predict.batch.plan import make_plan
from stoker.predict.batch.rows import ShardPredictor
from stoker.predict.batch.writing import Output
from stoker.predict.loading import load as load_model
from stoker.recipes import synthetic
from stoker.recipes.tabular import Settings, load, train
from stoker.recipes.tabular.inference import exact, infer
from stoker.storage import Storage


def predict(path: Path, model: str, folder: Path) -> None:
    """All that a rank does, but for starting Python."""
    storage = Storage(Home.find().root)
    shutil.rmtree(folder, ignore_errors=True)
    plan = make_plan(storage, job="bench", data_format="csv", inputs=[str(path)], output=str(folder), ranks=1)
    output = Output(storage, str(folder), plan)
    shards = ShardPredictor(storage, plan, load_model(model), batch_size=64, instance_key=None)
    for _ in shards.predict(range(len(plan.shards)), output, should_stop=lambda: False):
        pass
    assert sum(counts.errors for counts in output.done().values()) == 0


def ingest_by_pandas(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    kinds = {item.name: "category" for item in METADATA.categorical}
    frame = pd.read_csv(path, dtype=kinds)
    codes = np.stack([frame[name].cat.codes for name in kinds], axis=1)
    numbers = frame[[item.name for item in METADATA.numeric]].to_numpy(np.float32)
    return torch.from_numpy(numbers), torch.from_numpy(codes)


def forget(folder: Path) -> None:
    """What was encoded before is in the home's cache, and would not be read again."""
    shutil.rmtree(folder / "home", ignore_errors=True)


def measured(folder: Path, rows: int, repetitions: int) -> dict[str, Any]:
    path, inputs = folder / "census.csv", folder / "inputs.csv"
    table = pl.DataFrame(synthetic.make("census", rows=rows))
    table.write_csv(path)
    table.drop(METADATA.target).write_csv(inputs)

    def epoch() -> Any:
        forget(folder)
        settings = Settings(num_epochs=1)
        return train(METADATA, train_files=[str(path)], eval_files=[str(small)], settings=settings, name="census")

    def ingest() -> Any:
        forget(folder)
        return load([str(path)], METADATA, vocabularies=result.features.vocabularies)

    small = folder / "eval.csv"
    table.head(1000).write_csv(small)
    result = epoch()
    net = exact(result.net)
    tensors = load([str(path)], METADATA, vocabularies=result.features.vocabularies)
    contenders = {
        "batch": lambda: predict(inputs, str(result.folder), folder / "out"),
        "model": lambda: infer(net, result.features, tensors.numbers, tensors.codes),
        "epoch": epoch,
        "ingest": ingest,
        "pandas": lambda: ingest_by_pandas(path),
    }
    times = rounds(contenders, repetitions)
    figures: dict[str, Any] = {"rows": rows, "file, MB": round(inputs.stat().st_size / 1e6, 1)}
    for which, kind in enumerate(("wall", "cpu")):
        batch = median(times, "batch", which)
        figures[kind] = {"rows a second": round(rows / batch)}
        for name in ("model", "epoch", "ingest", "pandas"):
            figures[kind][f"batch's rate over {name}'s"] = round(median(times, name, which) / batch, 3)
    return figures


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--repetitions", type=int, default=3)
    arguments.add_argument("--quick", action="store_true", help="20,000 rows, once; nothing is written")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="stoker-bench-"))
    try:
        os.environ["STOKER_HOME"] = str(folder / "home")
        os.chdir(folder)
        rows, repetitions = (20_000, 1) if given.quick else (given.rows, given.repetitions)
        figures = measured(folder, rows, repetitions)
        print(json.dumps(figures, indent=2))
        if not given.quick:
            print(write_results("batch", figures))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
