"""Start uv, with pip's settings, and say in a line or two why it did not do what it was asked."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.errors import StokerError
from stoker.host import processes
from stoker.packaging.environment.pip_settings import uv_settings
from stoker.packaging.environment.runtimes import Runtime

_HIDDEN = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")
_PREAMBLE = ("No solution found", "warning:", "WARNING", "Using Python", "Resolved ", "Prepared ", "Updating ")
_SIMPLE = re.compile(r"Because (.+) and you require [^,]+, we can conclude that your requirements are unsatisfiable\.?")
_TAGS = re.compile(r"You require .*?, but we only found wheels for .* with the following [\w ]*tags?: (.*)")
_NOISE = re.compile(r"^(error|hint|cause|\s*[×╰─▶├│]+|\s*cause):?\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Uv:
    """uv for one runtime, in one folder."""

    runtime: Runtime
    folder: Path

    def run(self, words: Sequence[str], *, within_s: float | None = None) -> "subprocess.CompletedProcess[str]":
        """Run `uv WORDS`; the caller looks at the return code. TimeoutError when it takes longer than it may."""
        environment = {key: value for key, value in os.environ.items() if key not in _HIDDEN}
        settings = uv_settings(environment, prefixes=(self.runtime.python.parent.parent,))
        environment.update(settings.variables)
        environment["UV_PYTHON_DOWNLOADS"] = "never"
        # pip takes the best version of all indexes; uv, left alone, stops at the first that knows the name.
        environment.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
        command = [_find_uv(), *words, "--color", "never", "--no-progress"]
        if settings.no_index:
            command.append("--no-index")
        with subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            try:
                stdout, stderr = process.communicate(timeout=within_s)
            except subprocess.TimeoutExpired as error:
                raise TimeoutError(f"uv took longer than {within_s:g} s") from error
            finally:
                if process.poll() is None:  # what it builds first, or that would go on, and hold our pipes open
                    processes.end_all(lambda: processes.descendants(process.pid))
                    process.kill()
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def short_reason(stderr: str) -> str:
    """uv's or pip's explanation as one line of at most two sentences, without drawings and advice on uv's own flags."""
    paragraphs: list[str] = []
    for line in stderr.splitlines():
        text = _NOISE.sub("", line).strip()
        if not text or text.startswith(_PREAMBLE):
            continue
        if _NOISE.match(line) or not paragraphs:
            paragraphs.append(text)
        else:
            paragraphs[-1] += f" {text}"
    kept = [_shortened(paragraph) for paragraph in paragraphs if "--index-strategy" not in paragraph]
    return " ".join(kept[:2]) or "it gave no reason."


def _shortened(text: str) -> str:
    text = _wrong_python(text) or text
    simple = _SIMPLE.fullmatch(text)
    text = simple[1] if simple else text.replace("we can conclude that your requirements are unsatisfiable", "no")
    text = _TAGS.sub(lambda found: f"There are wheels for {found[1].replace('`', '')}", text)
    text = text if len(text) <= 400 else f"{text[:397]}..."
    return text if text.endswith(".") else f"{text}."


def _wrong_python(text: str) -> str | None:
    """The one sentence that a long proof comes to, when every version of one package is for other Pythons."""
    current = re.search(r"current Python version \(([\d.]+)\)", text)
    needed = re.findall(r"([\w.-]+?)(?:\[[^]]*\])?[<>=!][^ ]* depends? on Python(>=[\d.]+)", text)
    if current is None or not needed or len(set(re.findall(r"you require ([\w.-]+)", text))) != 1:
        return None
    name, oldest = min(needed, key=lambda pair: [int(number) for number in re.findall(r"\d+", pair[1])])
    return f"{name} needs Python{oldest}, and this is {current[1]}."


def _find_uv() -> str:
    try:
        from uv import find_uv_bin  # noqa: PLC0415  a dependency of stoker, but some install uv by itself

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise StokerError("uv is not there, and stoker makes environments with it. Try `pip install uv`.")
    return found
