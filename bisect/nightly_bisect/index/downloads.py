"""The cache of downloaded wheels: every file in it is whole, checked and hashed."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from nightly_bisect.errors import IndexFault, StorageFault
from nightly_bisect.index.archive import CorruptWheel, reading_wheel
from nightly_bisect.index.cache import Holds
from nightly_bisect.index.parts import Progress, part_of, sync_folder, write_whole
from nightly_bisect.index.web import FileInfo, Web
from nightly_bisect.index.wheel_safety import HostileWheel, refuse_hostile
from nightly_bisect.model import Wheel

# Room for the wheel itself and for what is unpacked from it.
_ROOM_FACTOR = 4
_LEAST_ROOM_BYTES = 50 * 2**20
_TRIES = 3
_TRIES_FOR_OTHER_BYTES = 2


@dataclass(frozen=True, slots=True)
class StoredWheel:
    """A wheel on disk, with the hash of the bytes that will be installed."""

    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Record:
    """What is remembered of a stored file, beside it."""

    url: str
    sha256: str
    size_bytes: int
    etag: str | None


class OtherBytes(CorruptWheel):
    """The bytes have another hash than the index promised."""


class WheelStore:
    """Wheels by their URL below ``folder``; safe for several processes at once."""

    def __init__(
        self, folder: Path, web: Web, make_room: Callable[[int], None] = lambda coming_bytes: None
    ) -> None:
        self._folder = folder
        self._web = web
        self._make_room = make_room
        self._holds = Holds()

    def fetch(self, wheel: Wheel, progress: Progress) -> StoredWheel | None:
        """Return the wheel's file, downloading it at need; None when the server hasn't got it.

        Raise `CorruptWheel` when what comes stays wrong, `StorageFault` for the disk, and
        `IndexFault` for the network.
        """
        import filelock

        folder = self.folder_of(wheel)
        with storage_faults(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with filelock.FileLock(folder / ".lock"):
                stored = self._stored(wheel, folder) or self._download(wheel, folder, progress)
                if stored is not None:
                    self._holds.take(folder)
                return stored

    def folder_of(self, wheel: Wheel) -> Path:
        """Return where a wheel's file lies, or will lie."""
        return self._folder / hashlib.sha256(wheel.url.encode()).hexdigest()[:20]

    def let_go(self, but: Iterable[Wheel] = ()) -> None:
        """Stop holding the wheels that were fetched: any process may remove them to make room."""
        self._holds.keep_only({self.folder_of(wheel) for wheel in but})

    def is_stored(self, wheel: Wheel) -> bool:
        """Tell, without any check, whether the file is here already."""
        return (self.folder_of(wheel) / wheel.filename).exists()

    def _stored(self, wheel: Wheel, folder: Path) -> StoredWheel | None:
        """Return the stored file if its bytes are the recorded ones and still the server's."""
        path = folder / wheel.filename
        record = _read_record(folder)
        if record is None or not path.is_file() or path.stat().st_size != record.size_bytes:
            return None
        if wheel.sha256 not in (None, record.sha256) or _sha256(path) != record.sha256:
            return None
        # Nightlies are re-uploaded under the same name at times, and the index tells no hashes.
        if wheel.sha256 is None and not self._is_still_the_same(wheel, record):
            return None
        return StoredWheel(path, record.sha256, record.size_bytes)

    def _is_still_the_same(self, wheel: Wheel, record: _Record) -> bool:
        try:
            info = self._web.file_info(wheel.url)
        except IndexFault:
            return True  # a server that is down says nothing against the file
        return _still_the_same(info, record)

    def _download(self, wheel: Wheel, folder: Path, progress: Progress) -> StoredWheel | None:
        for number in itertools.count(1):
            try:
                return self._download_once(wheel, folder, progress, is_again=number > 1)
            except HostileWheel:
                raise  # it would come again as it is
            except OtherBytes:
                if number == _TRIES_FOR_OTHER_BYTES:
                    raise
            except CorruptWheel:
                if number == _TRIES:
                    raise
        raise AssertionError("unreachable")

    def _download_once(
        self, wheel: Wheel, folder: Path, progress: Progress, *, is_again: bool
    ) -> StoredWheel | None:
        info = self._web.file_info(wheel.url)
        if info is None:
            return None
        self._make_room(_ROOM_FACTOR * (info.size_bytes or 0))
        _check_room(folder, info.size_bytes)
        path = folder / wheel.filename
        with part_of(folder, wheel.url, info, progress, wheel.filename) as part:
            if not part.is_whole and not self._web.download(wheel.url, part, is_again=is_again):
                return None
            part.sync()
            try:
                record = _Record(wheel.url, _sha256(part.path), part.received, part.etag or info.etag)
                _check_bytes(wheel, part.path, record, info)
            except OtherBytes as error:
                raise OtherBytes(f"{error}; the file is kept as {part.set_aside()}") from error
            except CorruptWheel as error:
                part.discard()  # what is wrong must not be continued
                if part.is_of_earlier_run:  # a power cut leaves holes in it
                    raise CorruptWheel(str(error)) from error
                raise
            _write_record(folder, record)
            part.path.replace(path)
            sync_folder(folder)
        return StoredWheel(path, record.sha256, record.size_bytes)


@contextlib.contextmanager
def storage_faults(where: Path) -> Iterator[None]:
    """Turn the disk's errors, at ``where`` unless they name a file, into `StorageFault`."""
    try:
        yield
    except OSError as error:
        where = Path(error.filename) if isinstance(error.filename, str) else where
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise no_space(where) from error
        if error.errno in (
            errno.EROFS,
            errno.EACCES,
            errno.EPERM,
            errno.ENOTDIR,
            errno.EIO,
            errno.EMFILE,
            errno.ENFILE,
        ):
            raise StorageFault(
                f"{where} cannot be written: {error.strerror}.",
                hint="choose another folder with --cache-dir (wheels and environments) or the variable "
                "XDG_STATE_HOME (journal and logs)",
            ) from error
        raise


def no_space(where: Path) -> StorageFault:
    """Return the error for a full disk."""
    return StorageFault(
        f"There is no space left for {where}.",
        hint="free some disk space or choose another disk with --cache-dir, then run the same "
        "command again: wheels that were downloaded are kept",
    )


def _still_the_same(info: FileInfo | None, record: _Record) -> bool:
    # A file that the server no longer has is still the file that was published.
    if info is None:
        return True
    if info.etag and record.etag:
        return info.etag == record.etag
    return info.size_bytes in (None, record.size_bytes)


def _check_bytes(wheel: Wheel, path: Path, record: _Record, info: FileInfo) -> None:
    if info.size_bytes not in (None, record.size_bytes):
        raise CorruptWheel(f"{record.size_bytes} bytes came instead of {info.size_bytes}")
    if wheel.sha256 not in (None, record.sha256):
        raise OtherBytes(f"its sha256 is {record.sha256}, the index promised {wheel.sha256}")
    refuse_hostile(path)
    with reading_wheel(path) as archive:
        names = archive.namelist()
        damaged = archive.testzip()
    if damaged is not None:
        raise CorruptWheel(f"{damaged} in it is damaged")
    if not any(name.endswith(".dist-info/METADATA") for name in names):
        raise CorruptWheel("it has no METADATA")


def _check_room(folder: Path, size_bytes: int | None) -> None:
    needed = max(_LEAST_ROOM_BYTES, _ROOM_FACTOR * (size_bytes or 0))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StorageFault(
            f"{folder} has {free / 1e9:.1f} GB free; this nightly needs about {needed / 1e9:.1f} GB.",
            hint="free some disk space or choose another disk with --cache-dir, then run the same "
            "command again",
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_record(folder: Path) -> _Record | None:
    try:
        return _Record(**json.loads((folder / "record.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write_record(folder: Path, record: _Record) -> None:
    write_whole(folder / "record.json", json.dumps(asdict(record)).encode())
