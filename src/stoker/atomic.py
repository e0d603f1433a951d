"""Replace a file or folder whole: at every moment the old or the new one is there. Standard library, Python 3.7."""

from __future__ import annotations

import os
import shutil
import time
from typing import Optional, Union

_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_FDCWD = -100


def replace_file(
    path: "Union[str, os.PathLike[str]]", data: Union[str, bytes], *, mode: Optional[int] = None, sync: bool = False
) -> None:
    """Write a file under another name, and rename it. `mode` is its mode from the first moment on, if given.

    With `sync` it is on the disk before it has its name. Threads, and machines that share a disk, may do so at once.
    """
    folder, name = os.path.split(os.fspath(path))
    draft = os.path.join(folder, ".{}.{}.{}".format(name, os.getpid(), time.time_ns()))
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)  # whatever the umask
            file.write(data.encode() if isinstance(data, str) else data)
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def replace_folder(draft: str, folder: str) -> None:
    """Move `draft` to `folder`, which may exist. After kill -9 at any point `folder` is the old or the new one.

    Where the system cannot exchange two names in one step, there is a moment without either; the old one is then next
    to it, as `FOLDER.old-PID`.
    """
    if not os.path.isdir(folder):
        os.replace(draft, folder)
        return
    old = f"{folder}.old-{os.getpid()}"
    if _exchange(draft, folder):
        os.rename(draft, old)  # a name that says what it is, should we be killed before it is gone
    else:
        os.rename(folder, old)
        try:
            os.rename(draft, folder)
        except OSError:
            os.rename(old, folder)
            raise
    shutil.rmtree(old, ignore_errors=True)


def _exchange(one: str, other: str) -> bool:
    """Whether the two names now stand for each other's contents."""
    import ctypes  # noqa: PLC0415 -- only for those who save a folder again

    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # not Linux, or an old C library
        return False
    return bool(renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0)
