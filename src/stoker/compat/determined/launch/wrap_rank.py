"""`python3 -m determined.launch.wrap_rank RANK [--] command …`: each line says which rank it is of."""

import os
import subprocess
import sys
import threading
from typing import IO


def main(words: list[str]) -> int:
    """Run the command, with `[rank=N]` before each of its lines; its exit code is ours."""
    rank = os.environ.get(words[0], words[0])
    command = [word for word in words[1:] if word not in ("--", "--no-redirect-stdio")]
    if command[:1] in (["python"], ["python3"]):
        command[0] = sys.executable
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    pairs = ((process.stdout, sys.stdout.buffer), (process.stderr, sys.stderr.buffer))
    threads = [threading.Thread(target=_prefix, args=(*pair, f"[rank={rank}] ".encode())) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code = process.wait()
    return code if code >= 0 else 128 - code


def _prefix(source: IO[bytes], target: IO[bytes], prefix: bytes) -> None:
    for line in source:
        target.write(prefix + line)
        target.flush()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit("usage: python3 -m determined.launch.wrap_rank RANK -- command …")
    sys.exit(main(sys.argv[1:]))
