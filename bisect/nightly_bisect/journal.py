"""The journal: every bisection and everything that it observed, in one SQLite file.

Entries are only ever appended, and committed to disk before they are shown or used. Where a search
stands, what comes next and what the answer is are recomputed from them each time, so that resuming,
undoing and replaying are the same fold.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from nightly_bisect.errors import StorageFault, UsageError
from nightly_bisect.model import Asked, Observation, Slot

SCHEMA = 1
_LEAST_ROOM_BYTES = 2**17
_PATIENCE_S = 60.0

_TABLES = """
create table bisections (
    name text primary key, began_at text not null, arguments text not null, folder text not null,
    check_sha256 text, slots text not null, walk_back integer not null, notes text not null);
create table entries (
    id integer primary key autoincrement, bisection text not null references bisections (name),
    kind text not null check (kind in ('trial', 'mark', 'undo', 'asked')), key text,
    wheel_url text, wheel_sha256 text, body text, at text not null);
create index entries_of on entries (bisection, id);
create index entries_by_key on entries (key) where key is not null;
create index entries_by_wheel on entries (wheel_url) where wheel_url is not null;
"""


class Kind(StrEnum):
    """What an entry is: a trial, the user's own knowledge, a word taken back, or a server's answer."""

    TRIAL = "trial"
    MARK = "mark"
    UNDO = "undo"
    ASKED = "asked"


@dataclass(frozen=True, slots=True)
class Record:
    """A bisection as it began: enough to go on without asking the index again.

    ``arguments`` is the command line as JSON values; ``folder`` where the user stood.
    """

    name: str
    began_at: datetime
    arguments: dict[str, Any]
    folder: Path
    check_sha256: str | None
    slots: tuple[Slot, ...]
    walk_back: bool
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry: ``observation`` of a trial or mark, ``asked`` of a server's answer; none of an undo."""

    kind: Kind
    at: datetime
    observation: Observation | None
    asked: Asked | None = None


def effective(entries: Iterable[Entry]) -> list[Observation]:
    """Return the observations that hold, less what was undone.

    Of each nightly these are its newest trial or mark, and its repeated runs.
    """
    held: list[Observation] = []
    for entry in entries:
        if entry.kind is Kind.UNDO:
            del held[-1:]
        elif entry.observation is not None:
            held.append(entry.observation)
    newest = {o.nightly.version: o for o in held if o.repeat == 0}
    return [o for o in held if o.repeat > 0 or newest[o.nightly.version] is o]


class Journal:
    """The journal in the file ``path``, which is made at need."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_sound = False

    def begin(self, record: Record) -> None:
        """Write down that a bisection begins; raise `UsageError` when its name is taken."""
        row = (
            record.name,
            record.began_at.isoformat(),
            json.dumps(record.arguments),
            str(record.folder),
            record.check_sha256,
            _dump(tuple[Slot, ...], record.slots),
            record.walk_back,
            json.dumps(record.notes),
        )
        with self._open() as database:
            try:
                database.execute("insert into bisections values (?, ?, ?, ?, ?, ?, ?, ?)", row)
            except sqlite3.IntegrityError:
                raise UsageError(
                    f"There is a bisection named {record.name} already.",
                    hint=f"go on with it: `nightly-bisect resume {record.name}`, or choose another --name",
                ) from None

    def append(self, name: str, kind: Kind, observation: Observation | None, key: str | None = None) -> None:
        """Commit one entry; when this returns it survives a crash of the machine."""
        wheel = observation.nightly.wheel if observation else None
        row = (
            name,
            kind.value,
            key,
            wheel.url if wheel else None,
            observation.wheel_sha256 if observation else None,
            _dump(Observation, observation) if observation else None,
            datetime.now(UTC).isoformat(),
        )
        with self._open() as database:
            database.execute(
                "insert into entries (bisection, kind, key, wheel_url, wheel_sha256, body, at) "
                "values (?, ?, ?, ?, ?, ?, ?)",
                row,
            )

    def append_asked(self, name: str, asked: Asked) -> None:
        """Commit what a server answered for an unlisted day."""
        row = (name, Kind.ASKED.value, _dump(Asked, asked), datetime.now(UTC).isoformat())
        with self._open() as database:
            database.execute("insert into entries (bisection, kind, body, at) values (?, ?, ?, ?)", row)

    def records(self) -> list[Record]:
        """Return all bisections, the oldest first."""
        with self._open() as database:
            rows = database.execute("select * from bisections order by began_at").fetchall()
        with self._reading():
            return [_record(row) for row in rows]

    def record(self, name: str) -> Record:
        """Return one bisection; raise `UsageError` when there is none of that name."""
        with self._open() as database:
            row = database.execute("select * from bisections where name = ?", (name,)).fetchone()
        if row is None:
            raise UsageError(
                f"There is no bisection named {name}.", hint="`nightly-bisect status` lists them"
            )
        with self._reading():
            return _record(row)

    def entries(self, name: str) -> list[Entry]:
        """Return what a bisection observed, in order."""
        with self._open() as database:
            rows = database.execute(
                "select kind, at, body from entries where bisection = ? order by id", (name,)
            ).fetchall()
        with self._reading():
            return [_entry(Kind(kind), datetime.fromisoformat(at), body) for kind, at, body in rows]

    def earlier(self, key: str, repeat: int, but: str) -> tuple[str, Observation] | None:
        """Return the newest trial with the same key and number of its run, and the bisection that ran it.

        None of the bisection ``but``, nor of one whose user took something back.
        """
        with self._open() as database:
            row = database.execute(
                "select bisection, body from entries where key = ? and kind = 'trial' and bisection <> ? "
                "and coalesce(json_extract(body, '$.repeat'), 0) = ? "
                "and bisection not in (select bisection from entries where kind = 'undo') "
                "order by id desc limit 1",
                (key, but, repeat),
            ).fetchone()
        with self._reading():
            return (row[0], _load(Observation, row[1])) if row else None

    def other_bytes(self, wheel_url: str, sha256: str) -> str | None:
        """Return the hash of other bytes that were once tested under the same URL, or None."""
        with self._open() as database:
            row = database.execute(
                "select wheel_sha256 from entries where wheel_url = ? and wheel_sha256 <> ? "
                "order by id desc limit 1",
                (wheel_url, sha256),
            ).fetchone()
        return str(row[0]) if row else None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=_PATIENCE_S, isolation_level=None)) as database:
                self._refuse_foreign(database)
                self._refuse_damaged(database)
                # WAL with FULL: a commit is on the disk when it returns, also after a power cut.
                _write_ahead(database)
                database.execute("pragma synchronous = full")
                database.execute("begin immediate")
                try:
                    self._prepare(database)
                    yield database
                except BaseException:
                    if database.in_transaction:  # an error of the disk has ended it already
                        database.execute("rollback")
                    raise
                database.execute("commit")
        except (sqlite3.Error, OSError) as error:
            raise self._fault(error) from error

    def _refuse_foreign(self, database: sqlite3.Connection) -> None:
        """Raise `StorageFault` for a file that is not ours, before anything of it is changed."""
        # In one transaction: at this moment another process may be making the tables of a new journal.
        database.execute("begin")
        (version,) = database.execute("pragma user_version").fetchone()
        (things,) = database.execute("select count(*) from sqlite_master").fetchone()
        database.execute("rollback")
        if version > SCHEMA:
            raise StorageFault(
                f"The journal {self.path} was written by a newer nightly-bisect (schema {version}).",
                hint="use that version; the file was left as it is",
            )
        if version == 0 and things:
            raise StorageFault(
                f"{self.path} is a database of something else.",
                hint="move it away; the file was left as it is",
            )

    def _refuse_damaged(self, database: sqlite3.Connection) -> None:
        """Raise for a damaged file, once for each process: what is not read now may be wrong later."""
        if not self._is_sound:
            (found,) = database.execute("pragma quick_check(1)").fetchone()
            if found != "ok":
                raise sqlite3.DatabaseError(f"database disk image is malformed ({found})")
            self._is_sound = True

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Make the tables of a new journal."""
        (version,) = database.execute("pragma user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";"):
                database.execute(statement)
            database.execute(f"pragma user_version = {SCHEMA}")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what a row cannot be made of into `StorageFault`: it was damaged, or a newer version wrote it."""
        try:
            yield
        except (ValueError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise StorageFault(
                f"The journal {self.path} holds something that cannot be read: {reason}.",
                hint="the file was left as it is; use the newest nightly-bisect, or move it away to begin a new one",
            ) from error

    def _is_disk_full(self) -> bool:
        # Where not even its shared memory finds room, SQLite speaks of an I/O error.
        with suppress(OSError):
            return shutil.disk_usage(self.path.parent).free < _LEAST_ROOM_BYTES
        return False

    def _fault(self, error: sqlite3.Error | OSError) -> StorageFault:
        text = str(error)
        if "full" in text or "No space" in text or self._is_disk_full():
            hint = "free some disk space, then `nightly-bisect resume`: what was committed is kept"
        elif "malformed" in text or "not a database" in text:
            hint = "the file was left as it is; move it away to begin a new journal, and keep it: " \
                "`sqlite3 FILE .recover` may read what is left"  # fmt: skip
        else:
            hint = "check the folder and its permissions (XDG_STATE_HOME chooses another)"
        return StorageFault(f"The journal {self.path} cannot be used: {text}.", hint=hint)


def _write_ahead(database: sqlite3.Connection) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            database.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            # Here alone SQLite does not wait for other processes: they may be making the same new file.
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(0.01)


def _entry(kind: Kind, at: datetime, body: str | None) -> Entry:
    if kind is Kind.ASKED:
        return Entry(kind, at, None, _load(Asked, body or ""))
    return Entry(kind, at, _load(Observation, body) if body else None)


def _record(row: tuple[Any, ...]) -> Record:
    name, began_at, arguments, folder, check_sha256, slots, walk_back, notes = row
    return Record(
        name,
        datetime.fromisoformat(began_at),
        json.loads(arguments),
        Path(folder),
        check_sha256,
        _load(tuple[Slot, ...], slots),
        bool(walk_back),
        tuple(json.loads(notes)),
    )


def _dump(kind: Any, value: Any) -> str:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).dump_json(value).decode()


def _load(kind: Any, text: str) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind).validate_json(text)
