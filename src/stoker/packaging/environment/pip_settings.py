"""pip's settings in uv's words, so that what `pip install` can reach here, uv can reach too."""

import configparser
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class UvSettings:
    """What to add to uv's environment; `no_index` is a flag, because uv has no variable for it."""

    variables: dict[str, str]
    no_index: bool = False


def uv_settings(environment: Mapping[str, str], *, prefixes: tuple[Path, ...] = ()) -> UvSettings:
    """pip's settings for uv. What the user has set for uv itself is left alone.

    `prefixes` are the virtual environments whose own pip.conf counts.
    """
    settings = read_pip_settings(environment, prefixes=prefixes)
    wanted = {
        "UV_DEFAULT_INDEX": settings.get("index-url", "").strip(),
        "UV_INDEX": " ".join(settings.get("extra-index-url", "").split()),
        "UV_FIND_LINKS": ",".join(_existing(settings.get("find-links", "").split())),
        "UV_INSECURE_HOST": " ".join(settings.get("trusted-host", "").split()),
        "UV_HTTP_TIMEOUT": settings.get("timeout", settings.get("default-timeout", "")).strip(),
        "SSL_CERT_FILE": settings.get("cert", "").strip(),
        "SSL_CLIENT_CERT": settings.get("client-cert", "").strip(),
        "ALL_PROXY": settings.get("proxy", "").strip(),
    }
    older = {"UV_DEFAULT_INDEX": "UV_INDEX_URL", "UV_INDEX": "UV_EXTRA_INDEX_URL"}
    variables = {
        name: value
        for name, value in wanted.items()
        if value and name not in environment and older.get(name) not in environment
    }
    return UvSettings(variables, no_index=settings.get("no-index", "").strip().lower() in ("1", "true", "yes", "on"))


def read_pip_settings(environment: Mapping[str, str], *, prefixes: tuple[Path, ...] = ()) -> dict[str, str]:
    """pip's settings as `pip install` would see them: its files from the most general on, then PIP_… variables."""
    settings: dict[str, str] = {}
    for file in _files(environment, prefixes):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(file.read_text(encoding="utf-8", errors="replace"))
        except (OSError, configparser.Error):
            continue  # pip itself will complain of it; a file that cannot be read sets nothing
        for section in ("global", "install"):
            if parser.has_section(section):
                settings.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            settings[name.removeprefix("PIP_").lower().replace("_", "-")] = value
    return settings


def _files(environment: Mapping[str, str], prefixes: tuple[Path, ...]) -> list[Path]:
    named = environment.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environment.get("HOME") or os.path.expanduser("~"))
    if sys.platform == "darwin":
        wide = [Path("/Library/Application Support/pip/pip.conf")]
        user = [home / ".pip/pip.conf", home / "Library/Application Support/pip/pip.conf"]
    else:
        folders = [Path(part) for part in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if part]
        wide = [*(folder / "pip/pip.conf" for folder in folders), Path("/etc/pip.conf")]
        config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        user = [home / ".pip/pip.conf", config / "pip/pip.conf"]
    files = [*wide, *user, *(prefix / "pip.conf" for prefix in prefixes), *([Path(named)] if named else [])]
    return [file for file in files if file.is_file()]


def _existing(places: list[str]) -> list[str]:
    """Without the folders that are not there: pip passes over them, uv would not."""
    return [place for place in places if re.match(r"[a-z+]+://", place) or Path(place).expanduser().exists()]
