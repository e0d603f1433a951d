"""`make quickstart`: one package, run here and as a job, with what came out of both.

Everything is under ./quickstart, which may be thrown away.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

TAXI = Path(__file__).resolve().parent / "taxi"
HERE = Path("quickstart").absolute()
STOKER = [sys.executable, "-m", "stoker.cli.main"]


def main() -> None:
    HERE.mkdir(exist_ok=True)
    os.environ["STOKER_HOME"] = str(HERE / "home")
    rides = HERE / "rides.csv"
    job = time.strftime("taxi_%Y%m%d_%H%M%S")

    say("A small set of taxi rides")
    subprocess.run([sys.executable, str(TAXI / "rides.py"), str(rides)], check=True)
    print(rides)

    say("The package runs here")
    flags = ["--package-path", "taxifare", "--module-name", "taxifare.trainer"]
    user_args = ["--", "--data", str(rides), "--epochs", "5"]
    stoker("local", "train", *flags, "--job-dir", str(HERE / "here"), *user_args)

    say("The same package runs as a job, and its log streams")
    stoker("jobs", "submit", "training", job, *flags, "--job-dir", str(HERE / "job"), "--stream-logs", *user_args)

    say("What came out")
    stoker("jobs", "metrics", job)
    described = subprocess.run([*STOKER, "jobs", "describe", job, "--json"], check=True, capture_output=True, text=True)
    run_directory = json.loads(described.stdout)["trials"][0]["runs"][-1]["directory"]
    page = subprocess.run([*STOKER, "ui"], check=True, capture_output=True, text=True).stdout.strip()
    print(f"""
model     {HERE / "job" / "model.joblib"}
metrics   {run_directory}/events.jsonl
page      {page}

The server behind the page leaves by itself when nobody has asked for anything for 15 minutes.
Your own jobs: stoker jobs submit training NAME --package-path DIR --module-name MODULE -- ARGS""")


def say(text: str) -> None:
    print(f"\n=== {text}", flush=True)


def stoker(*words: str) -> None:
    """Show the command, run it in the package's directory, and give up if it fails."""
    print(f"$ stoker {shlex.join(words)}", flush=True)
    done = subprocess.run([*STOKER, *words], cwd=TAXI, check=False)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
