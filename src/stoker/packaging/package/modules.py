"""Which modules a package or an archive holds, so that a wrong name is found before anything is submitted."""

from collections.abc import Iterable
from pathlib import Path

from stoker.errors import UsageError


def find_module(paths: Iterable[str], *, import_roots: tuple[str, ...], module: str, where: str) -> str:
    """The path of the file that `python -m MODULE` would run; UsageError, with the nearest names, when there is none.

    `paths` are a package's, from its top; `where` is how the message names the package.
    """
    known = set(paths)
    inside = module.replace(".", "/")
    for root in import_roots:
        prefix = "" if root in (".", "") else f"{root.strip('/')}/"
        for path in (f"{prefix}{inside}.py", f"{prefix}{inside}/__main__.py"):
            if path in known:
                return path
    runnable = _modules(known, import_roots)
    if module in _packages(runnable):
        raise UsageError(
            f"{module!r} is a package of {where}, not a module to run: it has no __main__.py."
            f"{_suggestions(module, sorted(name for name in runnable if name.startswith(f'{module}.')))}"
        )
    raise UsageError(f"No module {module!r} in {where}.{_suggestions(module, sorted(runnable))}")


def has_module(archive: Path, module: str) -> bool:
    """Whether a wheel, sdist or zip holds the module, under its top, its top folder (sdists) or a src folder."""
    inside = module.replace(".", "/")
    endings = (f"{inside}.py", f"{inside}/__main__.py")
    for name in _names(archive):
        for ending in endings:
            if name == ending or (name.endswith(f"/{ending}") and _is_top(name.removesuffix(f"/{ending}"))):
                return True
    return False


def _is_top(folder: str) -> bool:
    first, _, rest = folder.partition("/")
    return rest in ("", "src") or first == "src" or rest.endswith((".data/purelib", ".data/platlib"))


def _names(archive: Path) -> list[str]:
    import tarfile  # noqa: PLC0415  both are needed here alone
    import zipfile  # noqa: PLC0415

    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                return zipped.namelist()
        with tarfile.open(archive) as tar:
            return tar.getnames()
    except (OSError, tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise UsageError(f"{archive} cannot be read as a wheel, sdist or zip: {error}.") from error


def _modules(paths: set[str], import_roots: tuple[str, ...]) -> set[str]:
    names = set()
    for root in import_roots:
        prefix = "" if root in (".", "") else f"{root.strip('/')}/"
        for path in paths:
            if path.startswith(prefix) and path.endswith(".py"):
                name = path[len(prefix) : -len(".py")].removesuffix("/__main__").replace("/", ".")
                if all(part.replace("-", "_").isidentifier() for part in name.split(".")) and not name.endswith(
                    "__init__"
                ):
                    names.add(name)
    return names


def _packages(modules: set[str]) -> set[str]:
    return {".".join(parts[:depth]) for parts in (m.split(".") for m in modules) for depth in range(1, len(parts))}


def _suggestions(module: str, candidates: list[str]) -> str:
    import difflib  # noqa: PLC0415  only for mistakes

    nearest = difflib.get_close_matches(module, candidates, n=3, cutoff=0.5)
    same_end = [name for name in candidates if name.split(".")[-1] == module.split(".")[-1] and name not in nearest]
    if nearest or same_end:
        return f" Did you mean {' or '.join([*nearest, *same_end][:3])}?"
    if candidates:
        return f" It has {', '.join(candidates[:5])}{', …' if len(candidates) > 5 else ''}."
    return " It has no Python modules."
