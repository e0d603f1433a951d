"""What the launchers share: find the script among the words, and run it once for each slot."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

from stoker.compat.determined.cluster import get_cluster_info


def run_on_slots(words: Sequence[str], *, variables: Mapping[str, str]) -> NoReturn:
    """Become the script: as the rank this is, or as torchrun's children when nobody has started ranks yet."""
    options, script = split(words)
    os.environ.update(variables)
    os.environ.setdefault("DET_CHIEF_IP", os.environ.get("MASTER_ADDR", "127.0.0.1"))
    os.environ.setdefault("STOKER_NCCL", "gloo")  # also in scripts that never import determined
    if "RANK" in os.environ:
        become(script)
    info = get_cluster_info()
    slots = len(info.slot_ids) if info is not None else 1
    if slots == 1 and not options:
        become(script)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1", f"--nproc_per_node={slots}"]
    torchrun += ["--max_restarts=0", "--rdzv_backend=c10d", "--rdzv_endpoint=127.0.0.1:0", *options]
    if script[0] in ("python", "python3", sys.executable):
        become([*torchrun, *script[1:]])
    become([*torchrun, "--no_python", *script])


def become(script: Sequence[str]) -> NoReturn:
    """Replace this process, so that signals and exit codes are the script's own."""
    program = sys.executable if script[0] in ("python", "python3") else script[0]
    sys.stdout.flush()
    try:
        os.execvp(program, [program, *script[1:]])
    except OSError as error:
        raise SystemExit(f"error: cannot run {script[0]!r}: {error.strerror}.") from error


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of the launcher, and the script: what follows `--`, or the first word that is no option."""
    words = list(words)
    if "--trial" in words:
        at = words.index("--trial")
        return [], ["python3", "-m", "stoker.compat.determined", *words[at : at + 2]]
    if "--" in words:
        at = words.index("--")
        options, script = words[:at], words[at + 1 :]
    else:
        at = next((place for place, word in enumerate(words) if not word.startswith("-")), len(words))
        options, script = words[:at], words[at:]
    if not script:
        raise SystemExit(
            "error: no script to launch. Example: python3 -m determined.launch.torch_distributed python3 train.py"
        )
    return options, script
