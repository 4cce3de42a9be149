"""Files that are not whole yet: what a broken download leaves, so that the next one goes on there.

Beside the part lies a note of which version of which file it is: bytes of two versions never meet.
The holder of the wheel's lock is the only one here.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkstemp

from nightly_bisect.index.cache import MISMATCH, PART, PART_NOTE, TEMPORARY
from nightly_bisect.index.web import FileInfo

Progress = Callable[[str, int, int | None], None]
"""Called with a file's name, the bytes that came and the bytes that are expected."""


class Part:
    """The first bytes of a file, in ``path``: a `web.Receiver`."""

    def __init__(self, folder: Path, url: str, descriptor: int, progress: Callable[[int, int | None], None]):
        self.path = folder / PART
        self.received = 0
        self.etag: str | None = None
        self.is_of_earlier_run = False
        self._note = folder / PART_NOTE
        self._url = url
        self._descriptor = descriptor
        self._progress = progress
        self._size_bytes: int | None = None

    @property
    def is_whole(self) -> bool:
        """Whether an earlier run brought every byte and ended before it could check them."""
        return self._size_bytes is not None and self.received == self._size_bytes

    def take_up(self, info: FileInfo) -> None:
        """Go on with what is here if it is of the version that the server has now; else forget it."""
        if info.etag is not None and _read_note(self._note) == _note(self._url, info.etag, info.size_bytes):
            self.received = os.fstat(self._descriptor).st_size
            self.etag, self._size_bytes = info.etag, info.size_bytes
            self.is_of_earlier_run = self.received > 0
            os.lseek(self._descriptor, 0, os.SEEK_END)
        if self._size_bytes is not None and self.received > self._size_bytes:
            self.begin(None, None)

    def begin(self, etag: str | None, size_bytes: int | None) -> None:
        """Forget what came."""
        self._note.unlink(missing_ok=True)
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.received, self.etag, self._size_bytes = 0, etag, size_bytes
        self.is_of_earlier_run = False
        if etag is not None:
            write_whole(self._note, json.dumps(_note(self._url, etag, size_bytes)).encode())

    def append(self, chunk: bytes) -> None:
        """Take the bytes that follow."""
        left = memoryview(chunk)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self.received += len(chunk)
        self._progress(self.received, self._size_bytes)

    def sync(self) -> None:
        """Bring every byte to the disk."""
        os.fsync(self._descriptor)

    def set_aside(self) -> Path:
        """Keep the file under another name, to be looked at; return that name."""
        aside = self.path.with_name(MISMATCH)
        self.path.replace(aside)
        return aside

    def discard(self) -> None:
        """Remove the file."""
        self.path.unlink(missing_ok=True)


@contextlib.contextmanager
def part_of(folder: Path, url: str, info: FileInfo, progress: Progress, filename: str) -> Iterator[Part]:
    """Open the part of a file in its folder; what is not whole at the end stays for the next time."""
    descriptor = os.open(folder / PART, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    part = Part(folder, url, descriptor, lambda received, size: progress(filename, received, size))
    try:
        part.take_up(info)
        yield part
    except OSError:
        part.discard()  # a full disk is no place for what may never be continued
        raise
    finally:
        os.close(descriptor)
        if part.received == 0 or part.etag is None or not part.path.exists():
            # Nothing that could be continued.
            part.discard()
            (folder / PART_NOTE).unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, then give it its own: it is there whole, or not at all."""
    descriptor, name = mkstemp(dir=path.parent, prefix=TEMPORARY)
    try:
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make new names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _note(url: str, etag: str, size_bytes: int | None) -> dict[str, object]:
    return {"url": url, "etag": etag, "size_bytes": size_bytes}


def _read_note(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
