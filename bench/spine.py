"""What a job costs over running the same code by hand: submit to first line, many submissions, logs, reports, --help.

Run it as `python -m bench.spine`; Ray is measured too where .venv-bench has it (`make bench` installs it).
"""

import contextlib
import os
import re
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import cpu_s, interleaved, medians, write_results
from stoker.client.client import Client, connect
from stoker.host.home import Home
from stoker.schema.job import JobSpec

STOKER = [sys.executable, "-m", "stoker.cli.main"]
RAY = Path(".venv-bench/bin/ray").absolute()
FIRST_LINE = 'import time; print("FIRST", time.time(), flush=True)\n'


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="stoker-bench-"))
    os.environ["STOKER_HOME"] = str(folder / "home")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # or all contenders compile their imports at every start
    package = make_package(folder)
    try:
        figures = {
            "first_line_s": first_line(package),
            "submissions": submissions(),
            "log_lines": log_ingest(package),
            "report_us": report_us(),
            "help_s": help_s(),
        }
        print(write_results("spine", figures).read_text(), flush=True)
    finally:
        stop_server()
        shutil.rmtree(folder, ignore_errors=True)


def make_package(folder: Path) -> Path:
    package = folder / "project" / "trainer"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "task.py").write_text(FIRST_LINE)
    (package / "shout.py").write_text(
        textwrap.dedent("""
        import sys
        lines = int(sys.argv[1])
        block = "".join(f"{'x' * 80} {i:04d}\\n" for i in range(1000))
        for _ in range(lines // 1000):
            sys.stdout.write(block)
        """)
    )
    return package


# --- submit to first line


def first_line(package: Path) -> dict[str, float]:
    """Seconds from starting the command to the first statement of user code."""
    contenders = {"python -m": lambda: plain(package), "stoker, warm": lambda: submitted(package)}
    submitted(package)  # the first one starts the server and makes the environment
    with contextlib.ExitStack() as stack:
        if RAY.exists():
            stack.enter_context(ray_cluster())
            contenders["ray job submit"] = lambda: ray_submitted(package)
            ray_submitted(package)
        found = medians(interleaved(contenders, repetitions=7))
    found["stoker, cold server"] = medians(interleaved({"cold": lambda: cold(package)}, repetitions=5))["cold"]
    found["warm over python -m"] = found["stoker, warm"] - found["python -m"]
    found["cold over python -m"] = found["stoker, cold server"] - found["python -m"]
    if "ray job submit" in found:
        found["times faster than ray"] = found["ray job submit"] / found["stoker, warm"]
    return {name: round(value, 3) for name, value in found.items()}


def plain(package: Path) -> float:
    return seconds_to_first_line([sys.executable, "-m", "trainer.task"], package.parent)


def submitted(package: Path) -> float:
    name = f"bench_{time.time_ns()}"
    flags = ["--package-path", "trainer", "--module-name", "trainer.task", "--region", "local", "--stream-logs"]
    return seconds_to_first_line([*STOKER, "jobs", "submit", "training", name, *flags], package.parent)


def cold(package: Path) -> float:
    stop_server()
    return submitted(package)


def ray_submitted(package: Path) -> float:
    command = [str(RAY), "job", "submit", "--address", "http://127.0.0.1:8265", "--working-dir", ".", "--"]
    return seconds_to_first_line([*command, "python", "-m", "trainer.task"], package.parent)


def seconds_to_first_line(command: list[str], folder: Path) -> float:
    began = time.time()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    match = re.search(r"FIRST (\d+\.\d+)", done.stdout)
    if match is None:
        raise RuntimeError(f"{command} said no first line: {done.stdout[-500:]} {done.stderr[-500:]}")
    return float(match[1]) - began


@contextlib.contextmanager
def ray_cluster() -> Iterator[None]:
    # Ray's dashboard wants a token by now, here as on a real cluster.
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    start = [str(RAY), "start", "--head", "--dashboard-host=127.0.0.1", "--node-ip-address=127.0.0.1"]
    subprocess.run(start, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([str(RAY), "stop", "--force"], check=False, capture_output=True)


# --- many submissions


def submissions() -> dict[str, float]:
    """1,000 jobs by the Python client; then the server at rest with them queued and 50 running."""
    home = Home.find()
    stop_server()
    home.config.write_text("[pools.local]\ncpus = 50\n")
    client = connect(home)
    sleeper = JobSpec(name="x", kind="command", command=("sleep", "600"))
    began = time.perf_counter()
    for number in range(1050):
        client.submit(sleeper.with_(name=f"many_{number}"))
    took_s = time.perf_counter() - began
    wait_for_running(client, 50)
    pid = client.health().pid
    time.sleep(5)  # let it settle: this measures rest
    before = cpu_s([pid])
    time.sleep(20)
    used = (cpu_s([pid]) - before) / 20
    memory_mb = rss_mb(pid)
    cancel_all(client)
    home.config.unlink()
    stop_server()
    return {
        "1000 submissions, s": round(took_s * 1000 / 1050, 2),
        "server at rest, share of a core": round(used, 4),
        "server, MB": round(memory_mb, 1),
    }


def wait_for_running(client: Client, count: int) -> None:
    while len(client.jobs(state=("RUNNING",), limit=200)) < count:
        time.sleep(0.5)


def cancel_all(client: Client) -> None:
    for job in client.jobs(limit=2000):
        if not job.state.is_final:
            client.cancel(job.id)
    while any(not job.state.is_final for job in client.jobs(limit=2000)):
        time.sleep(0.5)


def rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


# --- logs


def log_ingest(package: Path, *, lines: int = 2_000_000) -> dict[str, float]:
    """One run prints as fast as it can while a client follows: lines a second, start to last line, none lost."""
    name = f"shout_{time.time_ns()}"
    flags = ["--package-path", "trainer", "--module-name", "trainer.shout", "--region", "local"]
    submit = [*STOKER, "jobs", "submit", "training", name, *flags, "--", str(lines)]
    subprocess.run(submit, cwd=package.parent, check=True, capture_output=True)
    client = connect()
    seen = 0
    began = None
    for block in client.follow(name):
        if block.replica == "supervisor":
            continue
        began = began or block.time
        seen += block.text.count("\n") + 1
    took_s = time.time() - (began or 0)
    return {"lines": lines, "followed": seen, "lines per second, live": round(seen / took_s)}


# --- small things


def report_us(*, calls: int = 200_000) -> float:
    """Microseconds a `ctx.report(step, loss=…)` takes."""
    script = f"""
        import stoker, time
        ctx = stoker.init()
        ctx.report(0, loss=0.5)
        began = time.perf_counter()
        for step in range({calls}):
            ctx.report(step, loss=0.5)
        print((time.perf_counter() - began) / {calls} * 1e6)
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return round(float(done.stdout), 2)


def help_s() -> dict[str, float]:
    def timed(command: list[str]) -> float:
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - began

    contenders = {
        "python -c pass": lambda: timed([sys.executable, "-c", "pass"]),
        "stoker --help": lambda: timed([*STOKER, "--help"]),
    }
    found = medians(interleaved(contenders, repetitions=11))
    found["over"] = found["stoker --help"] - found["python -c pass"]
    return {name: round(value, 3) for name, value in found.items()}


def stop_server() -> None:
    home = Home.find()
    if home.server() is not None:
        with contextlib.suppress(Exception):
            pid = connect(home, start=False).health().pid
            connect(home, start=False).shutdown()
            while is_running(pid):
                time.sleep(0.01)


def is_running(pid: int) -> bool:
    """False also for a zombie: the server may be our own child, which nobody waits for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


if __name__ == "__main__":
    main()
