"""`python -m bench.serve`: requests a second of `stoker serve`, beside bare FastAPI, `mlflow models serve`, LitServe.

All servers are up at once and each is asked in turn by 16 clients on loopback (one process, raw sockets that are kept),
the others paused, so a noisy minute hurts all alike. FastAPI is written as fast as it goes: an async function that
calls the model with no checks and no thread. `mlflow` and `litserve` come from .venv-bench (`.venv-bench/bin/pip
install mlflow litserve torch`) and are left out when they are not there. `echo` answers all with the same bytes and
does nothing else: what clients and machine take. `steal` is the part of the time in which the host ran others.

What was tried for `stoker serve`, and what it gave (two loaded cores, 16 clients, a model that only adds up; requests a
second over FastAPI's): a raw ASGI app on uvicorn with httptools and uvloop 2.9, asyncio protocols on httptools 6.5.
Reading and writing such a body with the standard library's json takes 9 of about 80 microseconds a request, so orjson
would give a tenth at best, and is not worth a dependency. One thread for the numeric libraries instead of two made a
small torch network ten times as fast on these loaded cores.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from bench.measure import cpu_s, write_results

ROOT = Path(__file__).parent.parent
PEERS = ROOT / ".venv-bench" / "bin"
CLIENTS = 16
ROW = [1.5, -2.25, 0.125, 3.0]
BODY = json.dumps({"instances": [ROW]}).encode()

FASTAPI = """
import sys
import uvicorn
from fastapi import FastAPI

kind, path, port = sys.argv[1:]
if kind == "sklearn":
    import joblib, numpy
    model = joblib.load(path)
    def predict(instances):
        return model.predict(numpy.asarray(instances)).tolist()
else:
    import torch
    model = torch.export.load(path).module()
    @torch.inference_mode()
    def predict(instances):
        return model(torch.tensor(instances)).tolist()

app = FastAPI()

@app.post("/predict")
async def answer(body: dict):
    return {"predictions": predict(body["instances"])}

uvicorn.run(app, port=int(port), log_level="warning", access_log=False)
"""

ECHO = """
import asyncio, gc, sys
import uvloop

ANSWER = b'HTTP/1.1 200 OK\\r\\ncontent-length: 20\\r\\n\\r\\n{"predictions": [1]}'

class Echo(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        self.transport.write(ANSWER)

async def serve():
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", int(sys.argv[1]))
    await server.serve_forever()

gc.disable()
uvloop.run(serve())
"""

LITSERVE = """
import sys
import litserve

kind, path, port = sys.argv[1:]

class Api(litserve.LitAPI):
    def setup(self, device):
        if kind == "sklearn":
            import joblib
            self.model = joblib.load(path)
        else:
            import torch
            torch.set_grad_enabled(False)
            self.model = torch.export.load(path).module()
    def decode_request(self, request):
        return request["instances"]
    def predict(self, instances):
        if kind == "sklearn":
            return self.model.predict(instances).tolist()
        import torch
        return self.model(torch.tensor(instances)).tolist()
    def encode_response(self, output):
        return {"predictions": output}

if __name__ == "__main__":
    litserve.LitServer(Api(), accelerator="cpu").run(host="127.0.0.1", port=int(port), generate_client_file=False)
"""

MLFLOW = """
import sys
import mlflow

kind, path, target = sys.argv[1:]
if kind == "sklearn":
    import joblib, mlflow.sklearn
    mlflow.sklearn.save_model(joblib.load(path), target, pip_requirements=[], serialization_format="cloudpickle")
else:
    import torch, mlflow.pyfunc
    class Model(mlflow.pyfunc.PythonModel):
        def load_context(self, context):
            import torch
            self.model = torch.export.load(context.artifacts["program"]).module()
        def predict(self, context, model_input, params=None):
            import numpy, torch
            with torch.inference_mode():
                return self.model(torch.from_numpy(numpy.asarray(model_input, dtype="float32"))).tolist()
    mlflow.pyfunc.save_model(target, python_model=Model(), artifacts={"program": path}, pip_requirements=[])
"""


@dataclass(frozen=True)
class Contender:
    name: str
    command: list[str]
    port: int
    path: str = "/predict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of load for each contender in each repetition")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--models", nargs="*", default=["sklearn", "torch"])
    parser.add_argument("--only", nargs="*", help="contenders (default: all that are installed)")
    parser.add_argument("--load", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.load:
        port, path, seconds = given.load
        print(json.dumps(run_clients(int(port), path, float(seconds))))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that `timeout` leaves no server behind
    figures = {}
    for kind in given.models:
        figures[kind] = measure(kind, given)
        print(json.dumps({kind: figures[kind]}, indent=2), flush=True)
    print(f"written to {write_results('serve', figures)}")


def measure(kind: str, given: argparse.Namespace) -> dict[str, object]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = make_model(kind, folder / kind)
        contenders = list(all_contenders(kind, model, folder, given.only))
        pids = {each.name: stack.enter_context(started(each, folder)) for each in contenders}
        samples: dict[str, list[dict[str, float]]] = {each.name: [] for each in contenders}
        for repetition in range(given.repetitions + 1):
            for each in contenders:
                with paused(pid for name, pid in pids.items() if name != each.name):
                    found = load(each, pids[each.name], given.seconds if repetition else 1.0)
                if repetition:  # the first is for warming up
                    samples[each.name].append(found)
    return figures_of(samples)


def figures_of(samples: Mapping[str, list[dict[str, float]]]) -> dict[str, object]:
    table = {}
    for name, found in samples.items():
        table[name] = {key: round(statistics.median(each[key] for each in found), 3) for key in found[0]}
        table[name]["p99_over_p50"] = round(statistics.median(each["p99_ms"] / each["p50_ms"] for each in found), 2)
        for other in ("fastapi", "mlflow"):
            if other in samples:
                pairs = zip(found, samples[other], strict=True)
                table[name][f"over_{other}"] = round(
                    statistics.median(a["requests_per_s"] / b["requests_per_s"] for a, b in pairs), 2
                )
    return {"clients": CLIENTS, "body": BODY.decode(), "contenders": table}


def make_model(kind: str, folder: Path) -> Path:
    folder.mkdir()
    if kind == "sklearn":
        import joblib
        import numpy as np
        from sklearn.linear_model import LogisticRegression

        rows = np.random.default_rng(0).normal(size=(500, len(ROW)))
        path = folder / "model.joblib"
        joblib.dump(LogisticRegression().fit(rows, rows.sum(axis=1) > 0), path)
        return path
    import torch
    from torch.nn import Linear, ReLU, Sequential

    torch.manual_seed(0)
    model = Sequential(Linear(len(ROW), 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 1)).eval()
    path = folder / "model.pt2"
    dynamic = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(model, (torch.zeros(2, len(ROW)),), dynamic_shapes=dynamic), path)
    return path


def all_contenders(kind: str, model: Path, folder: Path, only: list[str] | None) -> Iterator[Contender]:
    port = free_port()
    if not only or "fastapi" in only:
        yield Contender("fastapi", [sys.executable, "-c", FASTAPI, kind, str(model), str(port)], port)
    for workers in [number for number in (1, 2) if not only or f"stoker_{number}" in only]:
        port = free_port()
        options = ["--trust", f"--port={port}", f"--workers={workers}"]
        stoker = str(Path(sys.executable).with_name("stoker"))
        yield Contender(f"stoker_{workers}", [stoker, "serve", str(model.parent), *options], port)
    if not only or "echo" in only:
        port = free_port()
        yield Contender("echo", [sys.executable, "-c", ECHO, str(port)], port)
    if (not only or "mlflow" in only) and has_peer("mlflow", kind):
        target = folder / f"{kind}-mlflow"
        command = [str(PEERS / "python"), "-c", MLFLOW, kind, str(model), str(target)]
        subprocess.run(command, check=True, cwd=folder, capture_output=True)
        port = free_port()
        serve = [str(PEERS / "mlflow"), "models", "serve", "-m", str(target), "-p", str(port), "--env-manager", "local"]
        yield Contender("mlflow", serve, port, "/invocations")
    if (not only or "litserve" in only) and has_peer("litserve", kind):
        script = folder / f"{kind}_litserve.py"
        script.write_text(LITSERVE)
        port = free_port()
        yield Contender("litserve", [str(PEERS / "python"), str(script), kind, str(model), str(port)], port)


def has_peer(name: str, kind: str) -> bool:
    modules = [name, "torch" if kind == "torch" else "sklearn"]
    packages = [path.parent for path in (ROOT / ".venv-bench").glob("lib/python*/site-packages/pip")]
    return all((packages[0] / module).is_dir() for module in modules) if packages else False


@contextmanager
def started(contender: Contender, folder: Path) -> Iterator[int]:
    environment = {**os.environ, "STOKER_HOME": str(folder / "home"), "PATH": f"{PEERS}:{os.environ['PATH']}"}
    log = folder / f"{contender.name}.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(contender.command, stdout=output, stderr=output, env=environment, cwd=folder) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while not answers(contender):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield process.pid
        finally:
            tree = descendants(process.pid)
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
            for pid in tree[1:]:  # those that did not hear of it
                if Path(f"/proc/{pid}").exists():
                    os.kill(pid, 9)


@contextmanager
def paused(pids: Iterable[int]) -> Iterator[None]:
    """Those whose turn it is not: some look for work many times a second."""
    tree = [each for pid in pids for each in descendants(pid)]
    try:
        for each in tree:
            os.kill(each, signal.SIGSTOP)
        yield
    finally:
        for each in tree:
            os.kill(each, signal.SIGCONT)


def answers(contender: Contender) -> bool:
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", contender.port, timeout=10)
    try:
        connection.request("POST", contender.path, BODY, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status == 200 and b"predictions" in reply.read()
    except OSError:
        return False
    finally:
        connection.close()


def load(contender: Contender, pid: int, seconds: float) -> dict[str, float]:
    """The clients are a process of their own: they must not share a lock with what they measure."""
    command = [sys.executable, "-m", "bench.serve", "--load", str(contender.port), contender.path, str(seconds)]
    before, stolen, start = cpu_s(descendants(pid)), stolen_s(), time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    requests = found.pop("requests")
    return {
        **found,
        "cpu_ms_per_request": (cpu_s(descendants(pid)) - before) * 1000 / requests,
        "steal": (stolen_s() - stolen) / (time.monotonic() - start) / (os.cpu_count() or 1),
    }


def stolen_s() -> float:
    """Seconds that this machine's processors wanted to run and the host ran others."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += [int(word) for word in task.read_text().split()]
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Client(asyncio.Protocol):
    """Asks, waits for the whole answer, asks again: until the time is up."""

    def __init__(self, request: bytes, latencies: list[float], end: float) -> None:
        self._request, self._latencies, self._end = request, latencies, end
        self._got = b""
        self.num_bytes = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._ask()

    def _ask(self) -> None:
        self._start = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        now = time.perf_counter()
        if not head.startswith(b"HTTP/1.1 200"):
            self.done.set_exception(AssertionError(self._got.decode()))
            return
        self._latencies.append(now - self._start)
        self.num_bytes += len(self._got)
        self._got = b""
        if now < self._end:
            self._ask()
        else:
            self._transport.close()
            self.done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError("the server hung up"))


def run_clients(port: int, path: str, seconds: float) -> dict[str, float]:
    import uvloop

    return uvloop.run(_clients(port, path, seconds))


async def _clients(port: int, path: str, seconds: float) -> dict[str, float]:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(BODY)}\r\n"
    )
    request = head.encode() + b"\r\n" + BODY
    loop = asyncio.get_running_loop()
    latencies: list[float] = []
    start = time.perf_counter()
    clients = []
    for _ in range(CLIENTS):
        made = await loop.create_connection(lambda: Client(request, latencies, start + seconds), "127.0.0.1", port)
        clients.append(made[1])
    await asyncio.gather(*(client.done for client in clients))
    took = time.perf_counter() - start
    latencies.sort()
    count = len(latencies)
    return {
        "requests": count,
        "requests_per_s": count / took,
        "p50_ms": latencies[count // 2] * 1000,
        "p99_ms": latencies[int(count * 0.99)] * 1000,
        "bytes_per_reply": sum(client.num_bytes for client in clients) / count,
    }


if __name__ == "__main__":
    main()
