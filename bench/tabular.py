"""What the tabular recipe costs: `python -m bench.tabular [--rows 1000000] [--repetitions 5] [--quick]`.

A census of so many rows (7 numbers, 4 categories, a label) is written as CSV, and then, contenders taking turns:

    file to tensors    polars, pyarrow and pandas parsing with declared types, each alone, beside the recipe's load():
                       parsed, encoded, on disk as tensors; and load() again, from the cache, every byte touched
    one epoch          wide and deep at batch 1,024, one thread: the recipe's trial on stoker.pytorch; a loop that cuts
                       whole tensors by hand; a DataLoader over a TensorDataset; and rows by iloc as in the old sample
                       (measured on a slice of batches, and scaled)
    memory             the highest resident size of a process that loads and touches all, over its size before, as a
                       multiple of the tensors
    quality            AUC on rows never seen, beside that of the truth itself

Figures are ratios of medians of wall time (and of CPU time), so that a busy machine slows all alike.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from bench.measure import write_results
from stoker import pytorch
from stoker.recipes import synthetic
from stoker.recipes.tabular import Categorical, Features, Metadata, Numeric, Settings, Table, fit, load, train
from stoker.recipes.tabular.models import wide_deep
from stoker.recipes.tabular.trial import TableTrial, loss_of, optimizers

CATEGORIES = ("workclass", "education", "occupation", "region")
TARGET = "income_bracket"
HEADER = tuple(synthetic.make("census", rows=1).column_names)
NUMBERS = tuple(name for name in HEADER if name not in (*CATEGORIES, TARGET))
METADATA = Metadata(
    task="binary",
    header=HEADER,
    target=TARGET,
    labels=synthetic.LABELS,
    numeric=tuple(Numeric(name, log=name.startswith("capital")) for name in NUMBERS),
    categorical=tuple(map(Categorical, CATEGORIES)),
    crosses=(("education", "occupation"),),
)
BATCH = 1024

Times = dict[str, list[tuple[float, float]]]  # wall and CPU seconds by contender


def rounds(contenders: dict[str, Callable[[], Any]], repetitions: int) -> Times:
    """Each contender once per round; the first round only warms up."""
    times: Times = {name: [] for name in contenders}
    for number in range(repetitions + 1):
        for name, run in contenders.items():
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            if number:
                times[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return times


def median(times: Times, name: str, which: int = 0) -> float:
    return statistics.median(sample[which] for sample in times[name])


def in_seconds(times: Times) -> dict[str, Any]:
    return {name: {"wall": round(median(times, name), 4), "cpu": round(median(times, name, 1), 4)} for name in times}


def parsing(path: Path, cache: Path, repetitions: int) -> dict[str, Any]:
    texts = {*CATEGORIES, TARGET}
    dictionary = pa.dictionary(pa.int32(), pa.string())
    options = pacsv.ConvertOptions(
        column_types={name: dictionary if name in texts else pa.float32() for name in HEADER}, strings_can_be_null=True
    )
    frames = {name: "category" if name in texts else "float32" for name in HEADER}

    def polars() -> Any:
        kinds = {name: pl.Categorical(pl.Categories.random()) if name in texts else pl.Float32() for name in HEADER}
        return pl.read_csv(path, schema=kinds)

    def cached() -> Any:
        return [tensor.sum() for tensor in load([str(path)], METADATA, cache=cache).tensors]

    load([str(path)], METADATA, cache=cache)
    times = rounds(
        {
            "polars": polars,
            "pyarrow": lambda: pacsv.read_csv(path, convert_options=options),
            "pandas": lambda: pd.read_csv(path, dtype=frames),
            "stoker": lambda: load([str(path)], METADATA, use_cache=False),
            "stoker, cached": cached,
        },
        repetitions,
    )
    fastest = min(("polars", "pyarrow", "pandas"), key=lambda name: median(times, name))
    cheapest = min(("polars", "pyarrow", "pandas"), key=lambda name: median(times, name, 1))
    return {
        "seconds": in_seconds(times),
        "fastest parser": fastest,
        "file to tensors over the fastest parser alone": round(median(times, fastest) / median(times, "stoker"), 3),
        "the same in CPU time": round(median(times, cheapest, 1) / median(times, "stoker", 1), 3),
        "cached over parsing": round(median(times, fastest) / median(times, "stoker, cached"), 1),
    }


class RowsByIloc(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Each row looked up in a data frame by its number, features and target apart, as the original sample did."""

    def __init__(self, table: Table) -> None:
        columns = {"target": table.target.numpy()}
        columns |= {f"n{place}": table.numbers[:, place].numpy() for place in range(table.numbers.shape[1])}
        columns |= {f"c{place}": table.codes[:, place].numpy() for place in range(table.codes.shape[1])}
        self.frame = pd.DataFrame(columns)

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor(self.frame.iloc[row, 1:].values), torch.tensor(self.frame.iloc[row, :1].values)


def from_rows(rows: RowsByIloc, numeric: int) -> Any:
    for features, target in DataLoader(rows, BATCH, shuffle=True):
        yield features[:, :numeric].float(), features[:, numeric:].int(), target[:, 0].float()


def by_hand(features: Features, batches: Any, *, limit: int | None = None) -> int:
    """A plain loop; returns how many batches it took."""
    net = wide_deep(features)
    learners = optimizers(net, Settings())
    count = 0
    for numbers, codes, target in batches:
        loss_of(net(numbers, codes), target, None, features).backward()
        for learner in learners:
            learner.step()
            learner.zero_grad()
        count += 1
        if count == limit:
            break
    return count


def slices(table: Table) -> Any:
    order = torch.randperm(len(table))
    for start in range(0, len(table), BATCH):
        rows = order[start : start + BATCH]
        yield table.numbers[rows], table.codes[rows], table.target[rows]


def by_trainer(table: Table, features: Features) -> None:
    with pytorch.init(seed=0) as context:
        steps = -(-len(table) // BATCH)
        trial = context.build_trial(TableTrial, wide_deep(features), features, Settings(), steps=steps, metrics={})
        loader = pytorch.DataLoader(TensorDataset(*table.tensors), BATCH, shuffle=True)
        context.train(trial, loader, max_length=pytorch.Epoch(1), progress=False)


def epochs(table: Table, repetitions: int) -> dict[str, Any]:
    features = fit(table, METADATA)
    rows = RowsByIloc(table)
    limit = 4
    times = rounds(
        {
            "stoker": lambda: by_trainer(table, features),
            "sliced by hand": lambda: by_hand(features, slices(table)),
            "DataLoader": lambda: by_hand(features, DataLoader(TensorDataset(*table.tensors), BATCH, shuffle=True)),
            "rows by iloc, some batches": lambda: by_hand(
                features, from_rows(rows, table.numbers.shape[1]), limit=limit
            ),
        },
        repetitions,
    )
    scale = len(table) / BATCH / limit
    figures = {"seconds": in_seconds(times), "rows by iloc are scaled by": round(scale, 1)}
    for name, factor in (("sliced by hand", 1.0), ("DataLoader", 1.0), ("rows by iloc, some batches", scale)):
        ratios = [round(factor * median(times, name, which) / median(times, "stoker", which), 2) for which in (0, 1)]
        figures[f"stoker over {name.split(',')[0]}"] = {"wall": ratios[0], "cpu": ratios[1]}
    return figures


_MEMORY = """
import json, sys
from bench.tabular import METADATA
from stoker.recipes.tabular import load
import polars, torch
polars.read_csv(b"a\\n1\\n"); torch.zeros(10).sum()
def resident(which):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(which))
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # the highest size is counted from here on
before = resident("VmRSS")
table = load([sys.argv[1]], METADATA, use_cache=False)
for tensor in table.tensors:
    tensor.nan_to_num_() if tensor.is_floating_point() else tensor.add_(0)
peak = resident("VmHWM")
print(json.dumps({"before": before, "peak": peak, "tensors": table.size_bytes}))
"""


def memory(path: Path) -> dict[str, Any]:
    """In a process of its own; every page of the tensors is touched and made this process's own."""
    done = subprocess.run([sys.executable, "-c", _MEMORY, str(path)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        "tensors, MB": round(found["tensors"] / 1e6, 1),
        "peak, MB": round((found["peak"] - found["before"]) / 1e6, 1),
        "peak over tensors": round((found["peak"] - found["before"]) / found["tensors"], 2),
    }


def quality(path: Path, folder: Path, rows: int) -> dict[str, Any]:
    held_out = synthetic.make("census", rows=rows, seed=7)
    pl.DataFrame(held_out).write_csv(folder / "eval.csv")
    _, best = synthetic.best_score("census", held_out)
    result = train(
        METADATA,
        train_files=[str(path)],
        eval_files=[str(folder / "eval.csv")],
        settings=Settings(num_epochs=3 if rows > 100_000 else 6),
    )
    return {"auc": round(result.metrics["auc"], 4), "best there is": round(best, 4), "rows held out": rows}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--repetitions", type=int, default=5)
    arguments.add_argument("--quick", action="store_true", help="50,000 rows, twice; nothing is written")
    given = arguments.parse_args()
    torch.set_num_threads(1)  # torch's second thread would only wait for its turn, and spin meanwhile
    rows, repetitions = (50_000, 2) if given.quick else (given.rows, given.repetitions)
    folder = Path(tempfile.mkdtemp(prefix="stoker-bench-"))
    try:
        os.environ["STOKER_HOME"] = str(folder / "home")
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[1])
        path = folder / "census.csv"
        pl.DataFrame(synthetic.make("census", rows=rows)).write_csv(path)
        os.chdir(folder)
        figures: dict[str, Any] = {"rows": rows, "file, MB": round(path.stat().st_size / 1e6, 1)}
        figures["file to tensors"] = parsing(path, folder / "cache", repetitions)
        print(json.dumps(figures, indent=2), flush=True)
        figures["memory"] = memory(path)
        figures["one epoch"] = epochs(load([str(path)], METADATA, cache=folder / "cache"), max(1, repetitions // 2))
        figures["quality"] = quality(path, folder, rows=min(200_000, rows))
        print(json.dumps({name: figures[name] for name in ("memory", "one epoch", "quality")}, indent=2))
        if not given.quick:
            print(write_results("tabular", figures))
    finally:
        os.chdir("/")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
