"""A virtual environment on top of a runtime: its own packages first, then the runtime's, then what stoker provides.

Made by hand: two links and two small files take a millisecond, where `python -m venv` takes seconds.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.atomic import replace_file
from stoker.host.home import Home
from stoker.packaging.environment.runtimes import Runtime

# Before user code: what waits for TensorFlow to be imported, where gs:// paths are to be led elsewhere than to Google.
_BUCKETS = "import os; 'STOKER_GS_FOLDERS' in os.environ and __import__('stoker_buckets')"
# What waits for torch, where ranks of a Determined job may ask for NCCL without a GPU and without importing determined.
_NCCL = "import os, sys; 'STOKER_NCCL' in os.environ and sys.version_info >= (3, 11) and __import__('determined')"
# Of names that Python 2 had, where the job's own code calls them.
_BUILTINS = "import os; 'STOKER_BUILTINS' in os.environ and __import__('stoker_old_builtins')"
_STARTS = (_BUCKETS, _NCCL, _BUILTINS)
_MAIN = "import sys; from stoker.cli.main import main; sys.exit(main())"


def make_layer(folder: Path, runtime: Runtime, *, provided: Path) -> Path:
    """Make a layer that holds nothing yet, and return its python."""
    packages = make_venv(folder, runtime)
    # addsitedir, so that the runtime's own .pth files (editable installs, distutils) are obeyed as well. The plain
    # path comes last: a stoker or hypertune that is installed in the runtime or the layer wins.
    lines = [f"import site; site.addsitedir({site_dir!r})" for site_dir in runtime.interpreter.site_dirs]
    (packages / "_stoker_runtime.pth").write_text("\n".join([*lines, str(provided), *_STARTS, ""]))
    return folder / "bin" / "python"


def make_venv(folder: Path, runtime: Runtime) -> Path:
    """Make an empty virtual environment of the runtime's Python, and return its site-packages."""
    interpreter = runtime.interpreter
    packages = site_packages(folder, runtime)
    packages.mkdir(parents=True)
    binaries = folder / "bin"
    binaries.mkdir()
    base = Path(interpreter.base_python)
    for name in ("python", "python3", f"python{runtime.minor}"):
        (binaries / name).symlink_to(base)
    (folder / "pyvenv.cfg").write_text(
        f"home = {base.parent}\nimplementation = {interpreter.implementation}\nversion_info = {interpreter.version}\n"
        "include-system-site-packages = false\nprompt = stoker\n"
    )
    return packages


# Raised when `patch_environment` does more: environments that were made before are then patched again.
PATCH_VERSION = 4


def patch_environment(folder: Path, runtime: Runtime, installed: Sequence[str]) -> None:
    """Make up for what is known to be wrong with what was installed, and for what an older stoker left out."""
    start = site_packages(folder, runtime) / "_stoker_runtime.pth"
    known = start.read_text().splitlines() if start.exists() else list(_STARTS)
    if lacking := [line for line in _STARTS if line not in known]:
        start.write_text("\n".join([*known, *lacking, ""]))
    if any(label.startswith("torchvision ") for label in installed):
        # PyPI has only builds for GPUs, which cannot be imported beside a torch for CPUs. Costs others nothing.
        file = site_packages(folder, runtime) / "_stoker_torchvision.pth"  # read after _stoker_runtime.pth
        file.write_text("import stoker_torchvision\n")
    if any(label.replace("-", "_").startswith(("scikit_learn ", "attrdict ", "keras ")) for label in installed):
        # Code of their time imports what is not there any more: sklearn.externals.joblib, collections.Mapping.
        # The name is one that is read after _stoker_runtime.pth.
        (site_packages(folder, runtime) / "_stoker_since.pth").write_text("import stoker_old_imports\n")


def installed_in(folder: Path, runtime: Runtime) -> tuple[str, ...]:
    """What the layer itself holds: "six 1.17.0"."""
    names = [name for name in sorted(os.listdir(site_packages(folder, runtime))) if name.endswith(".dist-info")]
    return tuple(" ".join(name.removesuffix(".dist-info").rsplit("-", 1)) for name in names)


def site_packages(folder: Path, runtime: Runtime) -> Path:
    name = "pypy" if runtime.interpreter.implementation == "pypy" else "python"
    return folder / "lib" / f"{name}{runtime.minor}" / "site-packages"


def provided_folder(home: Home) -> Path:
    """HOME/provided/ID: links to this stoker and to the modules that every job can import."""
    own = Path(__file__).resolve().parents[2]
    folder = home.provided / hashlib.sha256(str(own).encode()).hexdigest()[:12]
    targets = {
        "stoker": own,
        "hypertune": own / "packaging" / "job_modules" / "hypertune",
        "determined": own / "compat" / "names" / "determined",
        "determined_common": own / "compat" / "names" / "determined_common",
        "stoker_buckets": own / "storage" / "gcs_api" / "job_modules" / "stoker_buckets",
        "stoker_old_builtins.py": own / "packaging" / "job_modules" / "stoker_old_builtins.py",
        "stoker_old_imports.py": own / "packaging" / "job_modules" / "stoker_old_imports.py",
        "stoker_torchvision.py": own / "packaging" / "job_modules" / "stoker_torchvision.py",
    }
    for name, target in targets.items():
        link = folder / name
        if not os.path.lexists(link):
            folder.mkdir(parents=True, exist_ok=True)
            _link(link, target)
    return folder


def provided_commands(home: Home) -> Path:
    """HOME/provided/ID/bin: the gcloud and gsutil that code in jobs calls, as it could in the platform's images.

    They find their home by themselves, for jobs are not told of it, and look at nothing that the job's Python is told.
    """
    folder = provided_folder(home) / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("gcloud", "gsutil"):
        command = shlex.join([sys.executable, "-I", "-c", _MAIN, name])
        text = f'#!/bin/sh\nSTOKER_HOME={shlex.quote(str(home.root))} exec {command} "$@"\n'
        file = folder / name
        if not file.exists() or file.read_text() != text:
            replace_file(file, text, mode=0o755)
    return folder


def _link(link: Path, target: Path) -> None:
    partial = link.with_name(f".{link.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    partial.symlink_to(target)
    os.replace(partial, link)
