"""What servers answered about files that no page lists, remembered between runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nightly_bisect.errors import StorageFault
from nightly_bisect.index.web import FileInfo

# An absent file may still appear (a build that was late); one that was seen is asked for again
# anyway when it is downloaded.
_ABSENT_FOR = timedelta(days=7)
_TABLE = """create table if not exists answers (
    url text primary key, present integer not null, size_bytes integer, etag text, sha256 text,
    asked_at text not null)"""


class Memory:
    """Answers to HEAD requests, in one SQLite file below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "answers.sqlite"

    def recall(self, url: str, now: datetime) -> FileInfo | bool | None:
        """Return the file's info, False when it is known to be absent, None when not known."""
        with self._database() as database:
            row = database.execute(
                "select present, size_bytes, etag, sha256, asked_at from answers where url = ?",
                (url,),
            ).fetchone()
        if row is None:
            return None
        present, size_bytes, etag, sha256, asked_at = row
        if present:
            return FileInfo(url, size_bytes, etag, sha256)
        return False if now - datetime.fromisoformat(asked_at) < _ABSENT_FOR else None

    def keep(self, url: str, info: FileInfo | None, now: datetime) -> None:
        """Remember one answer; ``info`` None means absent."""
        size_bytes, etag, sha256 = (info.size_bytes, info.etag, info.sha256) if info else (None,) * 3
        with self._database() as database:
            database.execute(
                "insert or replace into answers values (?, ?, ?, ?, ?, ?)",
                (url, info is not None, size_bytes, etag, sha256, now.astimezone(UTC).isoformat()),
            )

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=30)) as database, database:
                database.execute(_TABLE)
                yield database
        except (sqlite3.Error, OSError) as error:
            raise StorageFault(
                f"The file {self._path} cannot be used: {error}.",
                hint="free some disk space, or choose another folder with --cache-dir",
            ) from error
