"""Open a wheel for reading, whatever state its bytes are in."""

from __future__ import annotations

import contextlib
import errno
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path


class CorruptWheel(Exception):
    """What came is not the wheel that was asked for; the text says why."""


@contextlib.contextmanager
def reading_wheel(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel; raise `CorruptWheel` for whatever a damaged archive makes of its reader."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError, ValueError) as error:
        raise CorruptWheel(f"not a readable zip file: {error}") from error
    except OSError as error:
        if error.errno != errno.EINVAL:  # a seek to where a damaged directory points
            raise
        raise CorruptWheel(f"not a readable zip file: {error}") from error
