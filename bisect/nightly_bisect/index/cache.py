"""What the cache folder holds and costs, and what may be removed from it.

::

    wheels/<20 hex>/         .lock    held by who writes the wheel
                             .part    what came of a wheel so far, and .part.json: of which version of it
                             .mismatch   a file with another hash than the index promised, kept to be looked at
                             .use-*   held by who needs it: a trial, a bisection whose end it is
                             used     its time is the last use
    environments/env-*/      .nightly-bisect-environment   the marker; made when .lock is held
                             .lock    held while in use
                             .keep    the user asked to keep it; made before .lock is released
                             used
    environments/removing-*  an environment that is being deleted, its marker last
    uv-cache/                the installer's own: only the installer deletes in it
    answers.sqlite           remembered answers: small, never deleted
    listings/                the last good listing of each index page: small, never deleted
    .room                    held by who makes room, so that two do not remove twice as much

Every lock is the kernel's, so that a killed process holds none. Nothing here waits for the lock of a wheel or
an environment: what cannot be locked at once is in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp

from packaging.utils import canonicalize_name

from nightly_runners.rooms import KEEP, LOCK, MARKER, USED, mark_used, remove_tree

PART = ".part"
PART_NOTE = ".part.json"
MISMATCH = ".mismatch"
TEMPORARY = ".part-"
"""The beginning of the names of files that are being written in one go."""

_USE = ".use-"
_RECORD = "record.json"
_WHEEL_FOLDER = re.compile(r"[0-9a-f]{20}")
# The installer waits for others that install; what it cannot clean in that time stays, and is counted.
_CLEAN_TIMEOUT_S = 120.0


class Kind(StrEnum):
    """What an entry of the cache is."""

    WHEEL = "wheels"
    ENVIRONMENT = "environments"
    INSTALLER = "installer's cache"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the cache. ``size_bytes``: what goes with it when it is removed."""

    kind: Kind
    path: Path
    size_bytes: int
    last_used: datetime


@dataclass(frozen=True, slots=True)
class Room:
    """How making room ended: what was removed, and what is left in all, the installer's cache included."""

    removed: tuple[Entry, ...]
    total_bytes: int
    is_enough: bool


Clean = Callable[[Path, Sequence[str]], None]
"""Drops distributions from the installer's cache, or everything when none is named."""


class Cache:
    """The cache below ``folder``; safe for several processes at once."""

    def __init__(self, folder: Path, clean: Clean | None = None) -> None:
        self._folder = folder
        self._clean = clean or clean_uv_cache

    def contents(self) -> list[Entry]:
        """Return everything that is ours, with its real use of the disk.

        A file with several links counts once: for the installer's cache, else for what was used last.
        """
        seen: set[tuple[int, int]] = set()
        found = [(kind, path, _last_used(path)) for kind, path in self._things()]
        found.sort(key=lambda thing: (_is_evictable(thing[0]), -thing[2], thing[1]))
        return [
            Entry(kind, path, _disk_use(path, seen), datetime.fromtimestamp(used_s, UTC))
            for kind, path, used_s in found
        ]

    def make_room(
        self, budget_bytes: int, protected: Set[Path] = frozenset(), *, coming_bytes: int = 0
    ) -> Room:
        """Remove what costs least to have again until the rest and ``coming_bytes`` are within the budget.

        First go the installer's unpacked copies of wheels, then wheels and environments, the least recently
        used first, then the installer's cache as a whole. What a live process holds stays, and so does what
        is, or holds, a ``protected`` path.
        """
        removed: list[Entry] = []

        def evict(entries: Sequence[Entry], surplus_bytes: int) -> bool:
            gone = _evict([e for e in entries if not _is_protected(e.path, protected)], surplus_bytes)
            removed.extend(gone)
            return bool(gone)

        steps = [self._forget_unpacked, evict, self._forget_all]
        with self._alone():
            while steps and (surplus := total(found := self.contents()) + coming_bytes - budget_bytes) > 0:
                if not steps[0](found, surplus):
                    del steps[0]
            left = total(self.contents())
        return Room(tuple(removed), left, left + coming_bytes <= budget_bytes)

    def sweep(self) -> list[Path]:
        """Remove what dead processes left half built; return what was removed."""
        if not self._folder.is_dir():
            return []
        with self._alone():
            swept = [path for folder in self._wheel_folders() for path in _sweep_wheel(folder)]
            for root in self._environments("env-"):
                if _remove_environment(root, kept_too=False):
                    swept.append(root)
            for doomed in self._environments("removing-"):
                remove_tree(doomed)
                swept.append(doomed)
        return swept

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        import filelock

        self._folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self._folder / ".room"):
            yield

    def _things(self) -> Iterator[tuple[Kind, Path]]:
        for folder in self._wheel_folders():
            is_wheel = any((folder / name).exists() for name in (PART, MISMATCH)) or any(folder.glob("*.whl"))
            yield (Kind.WHEEL if is_wheel else Kind.OTHER), folder
        for root in self._environments("env-"):
            yield Kind.ENVIRONMENT, root
        for doomed in self._environments("removing-"):
            yield Kind.OTHER, doomed
        for name in ("answers.sqlite", "listings"):
            if (self._folder / name).exists():
                yield Kind.OTHER, self._folder / name
        if self._has_uv_cache():
            yield Kind.INSTALLER, self._uv_cache

    def _wheel_folders(self) -> list[Path]:
        return [path for path in _folders(self._folder / "wheels") if _WHEEL_FOLDER.fullmatch(path.name)]

    def _environments(self, prefix: str) -> list[Path]:
        found = _folders(self._folder / "environments")
        return [path for path in found if path.name.startswith(prefix) and (path / MARKER).is_file()]

    @property
    def _uv_cache(self) -> Path:
        return self._folder / "uv-cache"

    def _has_uv_cache(self) -> bool:
        """Tell whether the folder is the installer's: `uv cache clean` would delete any."""
        return (self._uv_cache / "CACHEDIR.TAG").is_file()

    def _forget_unpacked(self, entries: Sequence[Entry], surplus_bytes: int) -> bool:
        names = {
            canonicalize_name(wheel.name.partition("-")[0])
            for entry in entries
            if entry.kind is Kind.WHEEL
            for wheel in entry.path.glob("*.whl")
        }
        if names and self._has_uv_cache():
            self._clean(self._uv_cache, sorted(names))
        return False  # once is enough

    def _forget_all(self, entries: Sequence[Entry], surplus_bytes: int) -> bool:
        if self._has_uv_cache():
            self._clean(self._uv_cache, [])
        return False


class Holds:
    """The wheels that this process needs and nobody may remove."""

    def __init__(self) -> None:
        self._releases: dict[Path, contextlib.ExitStack] = {}

    def take(self, folder: Path) -> None:
        """Hold a wheel's folder; the caller holds its ``.lock``, or it may be removed at this moment."""
        import filelock

        mark_used(folder)
        if folder in self._releases:
            return
        descriptor, name = mkstemp(dir=folder, prefix=_USE)
        os.close(descriptor)
        with contextlib.ExitStack() as release:
            release.callback(Path(name).unlink, missing_ok=True)
            release.enter_context(filelock.FileLock(name, timeout=0, thread_local=False))
            self._releases[folder] = release.pop_all()

    def keep_only(self, folders: Set[Path]) -> None:
        """Let go of every other folder."""
        for folder in self._releases.keys() - folders:
            self._releases.pop(folder).close()


def total(entries: Sequence[Entry]) -> int:
    """Return the bytes of all entries."""
    return sum(entry.size_bytes for entry in entries)


def clean_uv_cache(cache: Path, names: Sequence[str]) -> None:
    """Let uv drop distributions, or everything, from its cache; what it fails to drop stays and is counted."""
    from nightly_runners.contract import CannotStart, InstallerFault
    from nightly_runners.processes import run_bounded
    from nightly_runners.variables import installer_variables
    from nightly_runners.venv_runner import uv_binary

    fixed = ["--cache-dir", str(cache), "--no-config", "--no-progress", "--color", "never"]
    with (
        contextlib.suppress(CannotStart, InstallerFault, OSError),
        TemporaryDirectory(prefix="nightly-bisect-") as name,
    ):
        folder = Path(name)
        run_bounded(
            [uv_binary(), "cache", "clean", *names, *fixed],
            folder=folder,
            environment=installer_variables(os.environ, folder),
            timeout_s=_CLEAN_TIMEOUT_S,
            logs=folder,
            name="clean",
        )


def _evict(entries: Sequence[Entry], surplus_bytes: int) -> list[Entry]:
    """Remove wheels and environments, the least recently used first, until enough are gone."""
    gone: list[Entry] = []
    for entry in reversed(entries):
        if total(gone) >= surplus_bytes or not _is_evictable(entry.kind):
            break
        if _remove(entry):
            gone.append(entry)
    return gone


def _is_evictable(kind: Kind) -> bool:
    return kind in (Kind.WHEEL, Kind.ENVIRONMENT)


def _is_protected(path: Path, protected: Set[Path]) -> bool:
    return any(wanted.is_relative_to(path) for wanted in protected)


def _remove(entry: Entry) -> bool:
    if entry.kind is Kind.WHEEL:
        return _remove_wheel(entry.path)
    return _remove_environment(entry.path, kept_too=True)


def _remove_wheel(folder: Path) -> bool:
    """Remove a wheel that nobody holds.

    Its folder and lock file stay: who waits for the lock would otherwise get one that no longer counts.
    """
    with _locked_at_once(folder / LOCK) as is_free:
        if not is_free or _is_held(folder):
            return False
        # A single file goes at once: there is nothing half deleted that a rename would have to hide.
        fixed = [folder / name for name in (_RECORD, USED, PART, PART_NOTE, MISMATCH)]
        for path in [*folder.glob("*.whl"), *fixed, *folder.glob(f"{TEMPORARY}*")]:
            path.unlink(missing_ok=True)
    return True


def _sweep_wheel(folder: Path) -> list[Path]:
    """Remove what a dead download left: a live one holds the lock."""
    left = [*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"{_USE}*")]
    if not left:
        return []
    with _locked_at_once(folder / LOCK) as is_free:
        if not is_free:
            return []
        dead = [path for path in left if path.name.startswith(TEMPORARY) or not _is_locked(path)]
        for path in dead:
            path.unlink(missing_ok=True)
    return dead


def _is_held(folder: Path) -> bool:
    return any(_is_locked(path) for path in folder.glob(f"{_USE}*"))


def _is_locked(path: Path) -> bool:
    with _locked_at_once(path) as is_free:
        return not is_free


def _remove_environment(root: Path, *, kept_too: bool) -> bool:
    """Remove an environment that nobody holds: renamed at once, then deleted."""
    with _locked_at_once(root / LOCK) as is_free:
        # Only now is it sure that its owner is gone and won't mark it as kept.
        is_kept = (root / KEEP).exists() and not kept_too
        if not is_free or is_kept or not (root / MARKER).is_file():
            return False
        doomed = root.with_name(f"removing-{root.name}")
        root.rename(doomed)
    remove_tree(doomed)
    return True


@contextlib.contextmanager
def _locked_at_once(path: Path) -> Iterator[bool]:
    """Take a lock if it is free, and say whether it was."""
    import filelock

    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except (filelock.Timeout, FileNotFoundError):  # held, or gone with its folder
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def _folders(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir() and not path.is_symlink()]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _last_used(path: Path) -> float:
    """Return when ``path`` was used, in seconds of the epoch; what has no note of it was used when made."""
    for noted in (path / USED, path / _RECORD, path / KEEP, path):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return noted.stat().st_mtime
    return 0.0


def _disk_use(root: Path, seen: set[tuple[int, int]]) -> int:
    """Return the bytes that ``root`` takes on the disk, without files whose links ``seen`` holds already."""
    found = [str(root)]
    for folder, folders, files in os.walk(root):
        found += (os.path.join(folder, name) for name in (*folders, *files))  # noqa: PTH118
    size_bytes = 0
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            size_bytes += _file_use(os.lstat(path), seen)
    return size_bytes


def _file_use(status: os.stat_result, seen: set[tuple[int, int]]) -> int:
    if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
        inode = (status.st_dev, status.st_ino)
        if inode in seen:
            return 0
        seen.add(inode)
    # Blocks, not length: what is sparse or compressed takes less, and a short file takes a whole block.
    return status.st_blocks * 512 if hasattr(status, "st_blocks") else status.st_size
