"""`python -m stoker.predict.batch`: one rank of a batch prediction; what to do is in the job's `data.prediction`.

Rank r of n takes shards r, r + n, … of the plan, and leaves out those that are done. Rank 0 makes the plan, tells how
far all ranks are, and ends last.
"""

import logging
import sys
import time
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

import stoker.context
from stoker.context import Context
from stoker.errors import StokerError
from stoker.host.home import Home
from stoker.predict.base import Predictor
from stoker.predict.batch.plan import BatchPlan, DataFormat, make_plan, wait_for_plan
from stoker.predict.batch.rows import ShardPredictor
from stoker.predict.batch.writing import Counts, Output
from stoker.predict.loading import MadeOn, load
from stoker.schema.model import Model
from stoker.storage import Storage

_POLL_S = 0.2
_REPORT_S = 2.0

logger = logging.getLogger(__name__)


class ModelPlace(Model):
    """Which model: where its files are, and what it was registered as."""

    url: str
    reference: str | None = None
    prediction_class: str | None = None
    runtime_version: str | None = None  # those it was made on, if somebody said
    python_version: str | None = None


class BatchSettings(Model):
    """The job's `data.prediction`."""

    model: ModelPlace
    signature_name: str | None = None
    trust_pickle: bool = False
    data_format: DataFormat
    input_paths: Annotated[tuple[str, ...], Field(min_length=1)]
    output_path: str
    batch_size: Annotated[int, Field(ge=1)] = 64
    instance_key: str | None = None


def main() -> int:
    """The rank's exit code: 0 done or told to stop, 1 failed, 2 the request itself is wrong."""
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    context = stoker.context.init()
    try:
        settings = BatchSettings.parse(context.config_data.get("prediction", {}), source="The job's data.prediction")
        return run(settings, context, home=Home.find())
    except StokerError as error:
        logger.error("%s", error)
        return error.exit_code


def run(settings: BatchSettings, context: Context, *, home: Home) -> int:
    """All shards of this rank; of rank 0, until all are done by everybody."""
    storage = Storage(home.root)
    # Rank 0 loads first: a model that cannot be loaded must not leave a plan, which would claim the output.
    predictor = _load(settings, home=home) if context.rank == 0 else None
    plan = _plan(settings, context, storage)
    if plan is None:
        return 0
    output = Output(storage, settings.output_path, plan)
    todo = list(_open_shards(plan, output, context))
    logger.info("%d of %d shards are for rank %d", len(todo), len(plan.shards), context.rank)
    if todo:
        shards = ShardPredictor(
            storage,
            plan,
            predictor or _load(settings, home=home),
            batch_size=settings.batch_size,
            instance_key=settings.instance_key,
        )
        told = _Telling(context, output, len(plan.shards))
        for _ in shards.predict(todo, output, should_stop=context.should_stop):
            told.tell()
        if any(number not in output.done() for number in todo):
            return 0  # told to stop
    return _wait_for_all(context, output, len(plan.shards)) if context.rank == 0 else 0


def _load(settings: BatchSettings, *, home: Home) -> Predictor:
    return load(
        settings.model.url,
        trust_pickle=settings.trust_pickle,
        prediction_class=settings.model.prediction_class,
        signature_name=settings.signature_name,
        made_on=MadeOn(settings.model.runtime_version, settings.model.python_version),
        home=home,
    )


def _plan(settings: BatchSettings, context: Context, storage: Storage) -> BatchPlan | None:
    job = str(context.job or "local")
    if context.rank != 0:
        return wait_for_plan(storage, job=job, output=settings.output_path, should_stop=context.should_stop)
    return make_plan(
        storage,
        job=job,
        data_format=settings.data_format,
        inputs=settings.input_paths,
        output=settings.output_path,
        ranks=context.world_size,
    )


def _open_shards(plan: BatchPlan, output: Output, context: Context) -> Iterator[int]:
    done = output.done()
    return (number for number in range(context.rank, len(plan.shards), context.world_size) if number not in done)


def _wait_for_all(context: Context, output: Output, shards: int) -> int:
    """Rank 0 tells what all ranks made of it. Should one die, the supervisor ends us too."""
    told = _Telling(context, output, shards)
    while len(output.done()) < shards:
        if context.should_stop():
            return 0
        time.sleep(_POLL_S)
        told.tell()
    counts = told.tell(at_once=True)
    logger.info("%d predictions and %d errors are in %s", counts.predictions, counts.errors, output.url)
    return 0


class _Telling:
    """Progress and counts of all ranks, as metrics; rank 0's alone, and not too often."""

    def __init__(self, context: Context, output: Output, shards: int) -> None:
        self._context, self._output, self._shards = context, output, shards
        self._last = 0.0

    def tell(self, *, at_once: bool = False) -> Counts:
        counts = Counts()
        if self._context.rank != 0 or not (at_once or time.monotonic() - self._last >= _REPORT_S):
            return counts
        self._last = time.monotonic()
        done = self._output.done()
        for each in done.values():
            counts = counts.plus(each)
        self._context.report(len(done), predictionCount=counts.predictions, errorCount=counts.errors)
        self._context.progress(len(done) / max(self._shards, 1))
        return counts


if __name__ == "__main__":
    sys.exit(main())
