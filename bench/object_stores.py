"""`python -m bench.object_stores`: obstore next to s3fs (against moto) and gcsfs (against our gateway).

Needs `obstore`, `s3fs`, `gcsfs` and `moto[s3]` in this Python. Each library does the same operations through its own
synchronous API, from eight threads as `stoker storage cp` does; servers are processes of their own.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from bench.measure import interleaved, medians, write_results
from bench.storage import BUCKET, gateway, is_listening, make_files

os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"  # before gcsfs is imported: it would ask Google by gRPC
THREADS = 8
UNLISTED = {"gcs_obstore"}  # our gateway does not list by the XML API, which is obstore's
IMPORTS = {"s3fs": "s3fs", "gcsfs": "gcsfs.core", "obstore": "obstore"}
ODD_KEYS = ["odd/a//b", "odd/a/./b", "odd/a/../b", "odd/a\x01b"]  # S3 and Google keep them like any other
CREDENTIALS = {"access_key_id": "bench", "secret_access_key": "bench", "region": "us-east-1"}


class Client(Protocol):
    def upload(self, source: Path, key: str) -> None: ...
    def download(self, key: str, target: Path) -> None: ...
    def count(self, prefix: str) -> int: ...
    def create(self, key: str, data: bytes) -> bool:
        """Whether this call made the object, and not one before it."""
        ...


class Fsspec:
    """s3fs or gcsfs."""

    def __init__(self, fs: Any) -> None:
        self._fs = fs

    def upload(self, source: Path, key: str) -> None:
        self._fs.put_file(str(source), f"{BUCKET}/{key}")

    def download(self, key: str, target: Path) -> None:
        self._fs.get_file(f"{BUCKET}/{key}", str(target))

    def count(self, prefix: str) -> int:
        return len(self._fs.find(f"{BUCKET}/{prefix}", detail=True))

    def create(self, key: str, data: bytes) -> bool:
        try:
            self._fs.pipe_file(f"{BUCKET}/{key}", data, mode="create")
        except OSError:  # gcsfs: HttpError 412
            return False
        return True


class Obstore:
    def __init__(self, store: Any) -> None:
        self._store = store

    def upload(self, source: Path, key: str) -> None:
        self._store.put(key, source, chunk_size=32 << 20)

    def download(self, key: str, target: Path) -> None:
        with open(target, "wb") as file:
            for part in self._store.get(key):
                file.write(part)

    def count(self, prefix: str) -> int:
        return sum(len(page) for page in self._store.list(prefix, chunk_size=1000))

    def create(self, key: str, data: bytes) -> bool:
        from obstore.exceptions import AlreadyExistsError

        try:
            self._store.put(key, data, mode="create")
        except AlreadyExistsError:
            return False
        return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--listed", type=int, default=10_000)
    parser.add_argument("--large-mb", type=int, default=256)
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small, large = make_files(folder, count=given.files, large_mb=given.large_mb)
        clients = make_clients(stack.enter_context(moto()), stack.enter_context(gateway(folder / "home")))
        fill(clients["s3_s3fs"], given.listed)
        fill(clients["gcs_gcsfs"], given.listed)
        odd = odd_keys(clients, folder)
        contenders: dict[str, Callable[[], float]] = {}
        for name, client in clients.items():
            work = Work(client, small, large, folder / name, given.listed)
            contenders |= {f"{name}_{step.__name__}": step for step in work.steps(lists=name not in UNLISTED)}
        contenders |= {f"import_{name}": lambda module=module: import_s(module) for name, module in IMPORTS.items()}
        samples = medians(interleaved(contenders, repetitions=given.repetitions))
    figures: dict[str, object] = {f"{name}_s": round(value, 3) for name, value in samples.items()}
    figures |= {**odd, "odd_keys": len(ODD_KEYS)}
    figures |= {"files": given.files, "listed": given.listed, "large_mb": given.large_mb}
    print(json.dumps(figures, indent=2))
    print(f"written to {write_results('object_stores', figures)}")


class Work:
    """What is measured, for one client."""

    def __init__(self, client: Client, small: Path, large: Path, folder: Path, listed: int) -> None:
        self._client = client
        self._small = sorted(small.iterdir())
        self._large = large
        self._folder = folder
        self._listed = listed
        self._round = 0

    def steps(self, *, lists: bool) -> list[Callable[[], float]]:
        steps = [self.small_up, self.small_down, self.large_up, self.large_down, self.create]
        return [*steps, self.list] if lists else steps

    def small_up(self) -> float:
        return timed(lambda path: self._client.upload(path, f"{self._folder.name}/{path.name}"), self._small)

    def small_down(self) -> float:
        target = self._fresh_folder()
        took = timed(
            lambda path: self._client.download(f"{self._folder.name}/{path.name}", target / path.name), self._small
        )
        assert all((target / path.name).read_bytes() == path.read_bytes() for path in self._small)
        return took

    def large_up(self) -> float:
        return timed(lambda path: self._client.upload(path, f"{self._folder.name}-large"), [self._large])

    def large_down(self) -> float:
        target = self._fresh_folder() / "large"
        took = timed(lambda key: self._client.download(key, target), [f"{self._folder.name}-large"])
        assert target.stat().st_size == self._large.stat().st_size
        return took

    def create(self) -> float:
        """Eight threads want each of 100 keys; one must get it."""
        self._round += 1
        won: list[bool] = []
        keys = [f"{self._folder.name}-lock/{self._round}/{n}" for n in range(100) for _ in range(THREADS)]
        took = timed(lambda key: won.append(self._client.create(key, b"mine")), keys)
        assert sum(won) == 100, f"{sum(won)} of 100 keys were created"
        return took

    def list(self) -> float:
        start = time.perf_counter()
        assert self._client.count("listed") == self._listed
        return time.perf_counter() - start

    def _fresh_folder(self) -> Path:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()
        return self._folder


def timed(work: Callable[[Any], object], items: list[Any]) -> float:
    start = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, items))
    return time.perf_counter() - start


def fill(client: Client, count: int) -> None:
    with tempfile.NamedTemporaryFile() as one, ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda n: client.upload(Path(one.name), f"listed/{n % 100:02}/{n:05}"), range(count)))


def odd_keys(clients: Mapping[str, Client], folder: Path) -> dict[str, object]:
    """How many of the odd keys each library reads, and whether it lists a folder that has them."""
    (folder / "odd").write_bytes(b"odd")
    for name in ("s3_s3fs", "gcs_gcsfs"):
        for key in ["odd/plain", *ODD_KEYS]:
            clients[name].upload(folder / "odd", key)
    figures: dict[str, object] = {}
    for name, client in clients.items():
        figures[f"{name}_odd_keys_read"] = sum(succeeds(client.download, key, folder / "back") for key in ODD_KEYS)
        if name not in UNLISTED:
            figures[f"{name}_listing_with_odd_keys"] = succeeds(client.count, "odd")
    return figures


def succeeds(work: Callable[..., object], *arguments: object) -> bool:
    try:
        work(*arguments)
    except Exception as error:  # noqa: BLE001  what each library says is part of the result
        print(f"{arguments[0]!r}: {' '.join(str(error).split())[:120]}", file=sys.stderr)
        return False
    return True


def make_clients(s3_url: str, gcs_url: str) -> dict[str, Client]:
    import gcsfs.core
    import s3fs
    from obstore.store import GCSStore, S3Store

    key, secret = CREDENTIALS["access_key_id"], CREDENTIALS["secret_access_key"]
    plain = {"use_listings_cache": False, "skip_instance_cache": True}
    http = {"allow_http": True}
    s3 = s3fs.S3FileSystem(key=key, secret=secret, endpoint_url=s3_url, **plain)
    s3.call_s3("create_bucket", Bucket=BUCKET)
    return {
        "s3_s3fs": Fsspec(s3),
        "s3_obstore": Obstore(S3Store(BUCKET, endpoint=s3_url, client_options=http, **CREDENTIALS)),
        "gcs_gcsfs": Fsspec(gcsfs.core.GCSFileSystem(token="anon", endpoint_url=gcs_url, **plain)),
        "gcs_obstore": Obstore(GCSStore(BUCKET, base_url=gcs_url, bearer_token="none", client_options=http)),
    }


@contextmanager
def moto() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("moto_server"), "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not is_listening(port):
                assert process.poll() is None, "moto does not start"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def import_s(module: str) -> float:
    code = f"import time; start = time.perf_counter(); import {module}; print(time.perf_counter() - start)"
    return float(subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True, text=True).stdout)


if __name__ == "__main__":
    main()
