"""Parsed tensors kept on disk by what they were made from: a second run, trial or restart maps them into memory.

FOLDER/KEY/         numbers.bin, codes.bin, target.bin, weight.bin, table.json: whole, or not there
FOLDER/KEY.lock     held by whoever makes it, so that trials that start together parse once
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.host.locks import locked

FORMAT = 1  # of the files, and of what columns.py makes; a new number leaves old caches alone


def key_of(**parts: Any) -> str:
    """A name for everything that decides what the tensors are."""
    text = json.dumps({"format": FORMAT, **parts}, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def kept(folder: Path, key: str, make: Callable[[Path], None]) -> Path:
    """The folder with this key; `make` fills it if it is not there. Safe among processes."""
    found = folder / key
    if (found / "table.json").exists():
        return found
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{key}.lock"):
        if not (found / "table.json").exists():  # else somebody else was faster
            draft = folder / f".{key}.{os.getpid()}"
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir()
            try:
                make(draft)
                os.rename(draft, found)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
    return found
