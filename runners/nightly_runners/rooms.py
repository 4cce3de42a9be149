"""The folder of an environment: marked, locked while in use, and deleted by renaming.

Only what carries the marker is ever deleted. The lock is the kernel's: a killed process holds none.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

MARKER = ".nightly-bisect-environment"
LOCK = ".lock"
KEEP = ".keep"
"""The user asked to keep it; made before the lock is released."""
USED = "used"
"""Its time is the last use."""


@contextlib.contextmanager
def in_use(root: Path) -> Iterator[None]:
    """Hold an environment, so that nobody removes it; call it before the marker is made."""
    import filelock

    with filelock.FileLock(root / LOCK, thread_local=False):
        mark_used(root)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # its owner removed it, or the disk fails: it's but a note
                mark_used(root)


def mark_used(root: Path) -> None:
    """Note that a wheel or an environment is used now."""
    (root / USED).touch()


def remove_tree(doomed: Path) -> None:
    """Delete a renamed environment, its marker last: what is interrupted can go on."""
    with contextlib.suppress(OSError):  # another process deletes it too, or it keeps what cannot be deleted
        for path in doomed.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != MARKER:
                path.unlink(missing_ok=True)
        if [path.name for path in doomed.iterdir()] == [MARKER]:
            (doomed / MARKER).unlink()
            doomed.rmdir()
