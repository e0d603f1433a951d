"""`python -m bench.storage`: gcsfs copying to our gateway, beside gcsfs copying to gcp-storage-emulator.

Needs `gcsfs` and `gcp-storage-emulator` in this Python. `stoker storage cp` to the same bucket, without the gateway, is
measured too.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.measure import interleaved, medians, write_results
from stoker.storage.gcs_api import variables

BUCKET = "bench-bucket"
CLIENT = """
import sys, time
import gcsfs
fs = gcsfs.GCSFileSystem(token="anon", endpoint_url=sys.argv[1])
source, target = sys.argv[2:]
fs.exists("bench-bucket/none")  # connects
start = time.perf_counter()
if source.endswith("/"):
    fs.put(source, target, recursive=True)
else:
    fs.put_file(source, target)
took = time.perf_counter() - start
count = len(fs.find(target))
fs.rm(target, recursive=True)
print(took, count)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--large-mb", type=int, default=1024)
    parser.add_argument("--repetitions", type=int, default=3)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        small, large = make_files(folder, count=given.files, large_mb=given.large_mb)
        home = folder / "home"
        urls = {
            "gateway": stack.enter_context(gateway(home)),
            "emulator": stack.enter_context(emulator(folder / "emulator")),
        }
        contenders = {}
        for kind, source in (("small", f"{small}/"), ("large", str(large))):
            for name, url in urls.items():
                contenders[f"{name}_{kind}"] = lambda url=url, source=source: copy_by_gcsfs(url, source)
            contenders[f"cp_{kind}"] = lambda source=source: copy_by_stoker(home, source)
        found = medians(interleaved(contenders, repetitions=given.repetitions))
    figures: dict[str, object] = {f"{name}_s": round(value, 3) for name, value in found.items()}
    for kind in ("small", "large"):
        figures[f"gateway_to_emulator_speed_{kind}"] = round(found[f"emulator_{kind}"] / found[f"gateway_{kind}"], 2)
        figures[f"cp_to_emulator_speed_{kind}"] = round(found[f"emulator_{kind}"] / found[f"cp_{kind}"], 2)
    figures |= {"files": given.files, "large_mb": given.large_mb, "gateway_start_s": round(start_up(), 3)}
    print(json.dumps(figures, indent=2))
    print(f"written to {write_results('storage', figures)}")


def make_files(folder: Path, *, count: int, large_mb: int) -> tuple[Path, Path]:
    """So many files of 4 KB, and one large one."""
    small = folder / "small"
    small.mkdir()
    for n in range(count):
        (small / f"{n:05}.bin").write_bytes(os.urandom(4096))
    block = os.urandom(1 << 20)
    with open(folder / "large.bin", "wb") as file:
        for _ in range(large_mb):
            file.write(block)
    return small, folder / "large.bin"


@contextmanager
def gateway(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "stoker.storage.gcs_api", "--home", str(home), "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@contextmanager
def emulator(folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir()
    script = Path(sys.executable).with_name("gcp-storage-emulator")
    options = ["--host=127.0.0.1", f"--port={port}", f"--default-bucket={BUCKET}", "--quiet"]
    command = [script, f"--data-dir={folder}", "start", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not is_listening(port):
            assert process.poll() is None, "the emulator does not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
        process.kill()


def is_listening(port: int) -> bool:
    with socket.socket() as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def copy_by_gcsfs(url: str, source: str) -> float:
    """A process of its own: the client must not share a core's lock with the server."""
    target = f"{BUCKET}/{time.time_ns()}" + ("/" if source.endswith("/") else "")
    command = [sys.executable, "-c", CLIENT, url, source, target]
    done = subprocess.run(command, env={**os.environ, **variables(url)}, stdout=subprocess.PIPE, check=True, text=True)
    took, count = done.stdout.split()
    assert int(count) == (len(os.listdir(source)) if source.endswith("/") else 1), "not all files have arrived"
    return float(took)


def copy_by_stoker(home: Path, source: str) -> float:
    from stoker.storage.storage import Storage

    storage = Storage(home, environment={})
    start = time.perf_counter()
    storage.copy(source, f"gs://{BUCKET}/cp", recursive=True)
    took = time.perf_counter() - start
    storage.remove(f"gs://{BUCKET}/cp", recursive=True)
    return took


def start_up() -> float:
    """From nothing to the first answer, best of five: what the machine has to do, not what else it was doing."""
    took = []
    for _ in range(5):
        home = tempfile.mkdtemp()
        start = time.perf_counter()
        with gateway(Path(home)):
            took.append(time.perf_counter() - start)
        shutil.rmtree(home)
    return min(took)


if __name__ == "__main__":
    main()
