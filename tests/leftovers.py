"""Nothing of the tests is left when they are over: no process (so no open port), mount or file outside their folder."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.processes import processes_with_environment

ROOT = Path(__file__).parent.parent
MARK = "PYTEST_STOKER_SESSION"  # in the environment of all that the tests start
PATIENCE_S = 30.0  # for what is ending already


@dataclass
class Leftovers:
    """What was there before, to tell it from what is there after."""

    mark: str = field(default_factory=lambda: secrets.token_hex(8))
    # Short: the sockets of Ray and PostgreSQL lie below it, whose paths may have a hundred characters.
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="stoker-")))
    checkout: set[str] = field(default_factory=lambda: _untracked())
    had_home: bool = field(default_factory=lambda: _default_home().exists())

    def begin(self) -> None:
        """From here on, temporary files and processes are told from those of others."""
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # tmp_path stays where pytest has it
        self.folder.chmod(0o711)  # PostgreSQL is another user, and lives in it
        os.environ["TMPDIR"] = str(self.folder)
        os.environ[MARK] = self.mark
        tempfile.tempdir = None  # it is read anew

    def end(self) -> list[str]:
        """What is left, in words; it is ended and removed here."""
        found = [f"process {pid}: {_words(pid)}" for pid in self._processes()]
        for pid in processes_with_environment(MARK, self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        found += [f"mount: {mount}" for mount in _mounts() if mount.startswith((str(self.folder), _pytest_folder()))]
        found += [f"temporary file: {path}" for path in sorted(self.folder.glob("*stoker*"))]
        found += [f"file in the checkout: {name}" for name in sorted(_untracked() - self.checkout)]
        if not self.had_home and _default_home().exists():
            found.append(f"a test used the home of whoever runs it: {_default_home()}")
        shutil.rmtree(self.folder, ignore_errors=True)
        return found

    def _processes(self) -> list[int]:
        end = time.monotonic() + PATIENCE_S
        while (pids := processes_with_environment(MARK, self.mark)) and time.monotonic() < end:
            time.sleep(0.1)
        return pids


def _words(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200]
    return "gone"


def _mounts() -> list[str]:
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def _pytest_folder() -> str:
    return f"{os.environ['PYTEST_DEBUG_TEMPROOT']}/pytest-of-"


def _default_home() -> Path:
    return Path(os.path.expanduser("~/.stoker"))


def _untracked() -> set[str]:
    """Files of the checkout that git does not know; none where there is no git."""
    words = ["git", "-C", str(ROOT), "ls-files", "--others", "--exclude-standard"]
    try:
        return set(subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines())
    except (OSError, subprocess.SubprocessError):
        return set()
