"""One process at a time works on a bisection; a killed one holds nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nightly_bisect.errors import StorageFault
from nightly_bisect.index.downloads import storage_faults


@contextmanager
def held_lock(folder: Path, name: str) -> Iterator[None]:
    """Hold the lock of the bisection ``name``; raise `StorageFault` naming the process that has it."""
    import filelock

    with storage_faults(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock, holder = filelock.FileLock(folder / "lock"), folder / "holder"
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            pid = holder.read_text().strip() if holder.exists() else "?"
            raise StorageFault(
                f"The bisection {name} is being worked on by the process {pid}.",
                hint="wait for it, or end that process",
            ) from error
    try:
        with storage_faults(folder):
            holder.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def is_held(folder: Path) -> bool:
    """Tell whether a process works on the bisection that keeps its files in ``folder``."""
    import filelock

    if not (folder / "lock").exists():
        return False
    lock = filelock.FileLock(folder / "lock")
    with storage_faults(folder):
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout:
            return True
        lock.release()
    return False
