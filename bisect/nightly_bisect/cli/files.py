"""Files that the user asked for."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from nightly_bisect.errors import StorageFault


def write_document(path: Path, text: str, hint: str = "choose another file") -> None:
    """Write a text, to stdout for ``-``; raise `StorageFault`."""
    if str(path) == "-":
        try:
            # Whoever stopped reading has what it wanted; no stdout at all is nobody who reads.
            with contextlib.suppress(BrokenPipeError, ValueError, AttributeError):
                sys.stdout.write(text)
                sys.stdout.flush()
        except OSError as error:
            raise StorageFault(f"stdout cannot be written: {error.strerror}.", hint=hint) from error
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFault(f"{path} cannot be written: {error.strerror}.", hint=hint) from error
