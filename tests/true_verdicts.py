"""Support: what the journal and the answer hold, against what is true of the stand-in nightlies."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

from loopback import Ran


def journal_rows(folder: Path) -> list[tuple[Any, ...]]:
    """Return every row of the journal of the tool that runs in ``folder``."""
    path = folder / "state/nightly-bisect/journal.sqlite"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        tables = ("select * from bisections order by name", "select * from entries order by id")
        return [row for table in tables for row in database.execute(table)]


def outcomes_kept(folder: Path) -> list[tuple[date, str]]:
    """Return the day and the outcome of each trial that the journal holds, in the order in which they came."""
    bodies = [row[6] for row in journal_rows(folder) if row[2] in ("trial", "mark")]
    return [(date.fromisoformat(b["nightly"]["stamp"]["day"]), b["outcome"]) for b in map(json.loads, bodies)]


def assert_no_false_verdict(ran: Ran, folder: Path, first_bad: date) -> None:
    """No night is good or bad, shown or kept, that isn't; and no bug of ours ended the run."""
    assert ran.code != 70, ran.stderr
    assert "Traceback" not in ran.stdout + ran.stderr
    for day, verdict in ran.verdicts.items() if ran.result else ():
        assert verdict in ("untestable", "bad" if date.fromisoformat(day) >= first_bad else "good"), (
            day,
            verdict,
        )
    for kept, outcome in outcomes_kept(folder):
        assert not (outcome == "passed" and kept >= first_bad), (kept, outcome)
        assert not (outcome in ("failed", "crashed") and kept < first_bad), (kept, outcome)


def stored_wheels(folder: Path) -> list[str]:
    """Return the names of the wheels that lie under their final names in the cache below ``folder``."""
    return sorted(path.name for path in folder.rglob("*.whl"))
