"""Options from ``nightly-bisect.toml`` or ``[tool.nightly-bisect]`` of ``pyproject.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightly_bisect.errors import UsageError

OWN_FILE = "nightly-bisect.toml"


def configured_defaults(folder: Path, known: Mapping[str, str]) -> dict[str, Any]:
    """Return defaults for the options of ``run``, by parameter name; the command line wins.

    ``known`` maps the long names of the options to their parameters.

    Raise `UsageError` for a file that is not TOML, or an option that does not exist.
    """
    path, table = _read(folder)
    defaults = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        if name not in known:
            raise UsageError(
                f"{path} sets {key!r}, which is no option.",
                hint="use the long names of `nightly-bisect run --help`, without the dashes in front",
            )
        defaults[known[name]] = value
    return defaults


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
    own = folder / OWN_FILE
    if own.is_file():
        return own, _load(own)
    project = folder / "pyproject.toml"
    if project.is_file():
        tools = _load(project).get("tool")
        table = tools.get("nightly-bisect") if isinstance(tools, dict) else None
        return project, table if isinstance(table, dict) else {}
    return own, {}


def _load(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}.", hint="mend it or move it away") from error
