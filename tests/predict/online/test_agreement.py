"""The same bytes in give the same numbers: the live model, the loaded bundle, and HTTP in whatever batch."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stoker.predict.exporters import export
from stoker.predict.loading import load
from tests.predict.online.fakes import Caller

pytestmark = pytest.mark.slow

Live = Callable[[list[list[float]]], list[Any]]


def sklearn_model(folder: Path) -> Live:
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rows = np.random.default_rng(1).normal(size=(200, 30))
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(rows, rows.sum(axis=1))
    export(model, folder, name="m")
    return lambda instances: model.predict(np.array(instances)).tolist()


def torch_model(folder: Path) -> Live:
    import torch
    from torch.nn import Linear, ReLU, Sequential

    torch.manual_seed(1)
    model = Sequential(Linear(30, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 1)).eval()
    export(model, folder, name="m", example=(torch.zeros(2, 30),))

    def live(instances: list[list[float]]) -> list[Any]:
        with torch.inference_mode():
            found: list[Any] = model(torch.tensor(instances)).tolist()
            return found

    return live


@pytest.mark.parametrize("make", [sklearn_model, torch_model])
def test_live_loaded_and_served_models_agree_to_the_last_bit(make: Callable[[Path], Live], tmp_path: Path) -> None:
    live = make(tmp_path / "m")
    instances = np.random.default_rng(2).normal(size=(64, 30)).tolist()
    expected = live(instances)
    loaded = load(tmp_path / "m", trust_pickle=True)

    assert loaded.predict(instances) == expected
    for size in (1, 3, 7, 17):  # cut anywhere
        assert [value for at in range(0, 64, size) for value in loaded.predict(instances[at : at + size])] == expected
    with served(tmp_path / "m") as call:
        whole = call("POST", "/v1/models/m:predict", {"instances": instances}).body
        alone = asyncio.run(one_by_one(call.port, instances))
        batches = call("GET", "/metrics").body.decode()

    assert whole == json.dumps({"predictions": expected}).encode()
    assert alone == [json.dumps({"predictions": [value]}).encode() for value in expected]
    assert "stoker_serve_batch_instances_sum 128" in batches


async def one_by_one(port: int, instances: list[list[float]]) -> list[bytes]:
    """Each in a request of its own, all at once: they share batches as it happens."""

    async def ask(instance: list[float]) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps({"instances": [instance]}).encode()
        writer.write(b"POST /predict HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        reply = await reader.read()
        writer.close()
        return reply.partition(b"\r\n\r\n")[2]

    return list(await asyncio.gather(*map(ask, instances)))


@contextmanager
def served(folder: Path) -> Iterator[Caller]:
    command = [str(Path(sys.executable).with_name("stoker")), "serve", str(folder), "--port", "0", "--trust"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}, text=True) as process:
        assert process.stdout is not None
        try:
            yield Caller(int(process.stdout.readline().rpartition(":")[2]))
        finally:
            process.terminate()
