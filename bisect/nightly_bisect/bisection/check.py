"""The user's check: a script or a command, verified before anything is downloaded."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from nightly_bisect.bisection.functions import defined_function
from nightly_bisect.errors import CheckCannotRun


@dataclass(frozen=True, slots=True)
class Check:
    """What runs in each trial, in the folder where the user stands.

    ``script`` is the file whose text belongs to the check; None for a plain command. ``function`` is the one
    of the script's that is called in place of running it.
    """

    argv: tuple[str, ...]
    folder: Path
    script: Path | None = None
    sha256: str | None = None
    text: str | None = None
    function: str | None = None

    def refuse_changes(self) -> None:
        """Raise `CheckCannotRun` when the script is no longer what it was at the start."""
        if self.script is not None and _sha256(self.script) != self.sha256:
            raise CheckCannotRun(
                f"The check {self.script.name} was changed while the bisection ran: its trials "
                "would not answer the same question.",
                hint="start again; a check must not write into its own file",
            )


def script_check(path: Path, arguments: tuple[str, ...], folder: Path) -> Check:
    """Return a check for ``CHECK.py [ARGS…]``, or an executable file; raise `CheckCannotRun`."""
    absolute = folder / path
    if absolute.is_dir():
        raise CheckCannotRun(f"The check {path} is a folder.", hint="give a Python script")
    if not absolute.is_file():
        names = _near_files(absolute)
        near = f"; did you mean {', '.join(names)}?" if names else ""
        raise CheckCannotRun(
            f"There is no file {path}{near}",
            hint="give the path of the check; a command goes after `--`, as in `-- python -c …`",
        )
    digest = _sha256(absolute)
    text = absolute.read_text(encoding="utf-8", errors="backslashreplace")
    if path.suffix == ".py":
        argv = ("python", str(absolute), *arguments)
        return Check(argv, folder, absolute, digest, text, defined_function(text))
    if not os.access(absolute, os.X_OK):
        raise CheckCannotRun(
            f"The check {path} is neither a .py file nor executable.",
            hint=f"`chmod +x {path}`, or run it by its interpreter: `-- bash {path}`",
        )
    return Check((str(absolute), *arguments), folder, absolute, digest, text)


def command_check(words: tuple[str, ...], folder: Path) -> Check:
    """Return a check for ``-- COMMAND [ARGS…]``.

    A bare name may come with the environment (pytest), so only a path can be verified now.
    """
    if os.sep in words[0]:
        path = folder / words[0]
        if shutil.which(str(path)) is None:
            raise CheckCannotRun(
                f"The command {words[0]} is not an executable file.",
                hint=f"`chmod +x {words[0]}`" if path.is_file() else "check its path",
            )
        return Check((str(path), *words[1:]), folder)
    return Check(words, folder)


def _near_files(path: Path) -> list[str]:
    """Return the names of files beside ``path`` that look like it."""
    import difflib

    try:
        names = [p.name for p in path.parent.iterdir() if p.is_file()]
    except OSError:
        return []
    return difflib.get_close_matches(path.name, names, n=2)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise CheckCannotRun(
            f"The check {path.name} cannot be read: {error.strerror}.",
            hint="check the file and its permissions",
        ) from error
