"""What the journal knows: `status`, `resume`, `log`, `undo`, `mark`, `replay`."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nightly_bisect.bisection.locks import held_lock, is_held
from nightly_bisect.bisection.session import Session, journal_path
from nightly_bisect.cli.files import write_document
from nightly_bisect.cli.request import state_folder
from nightly_bisect.cli.run import RunArguments, drive, finish, from_values, make_options
from nightly_bisect.cli.screen import Screen
from nightly_bisect.errors import BisectError, CheckCannotRun, UsageError
from nightly_bisect.journal import Entry, Journal, Kind, Record, effective
from nightly_bisect.model import Nightly, Observation, Outcome, Slot, UnlistedDay, Verdict
from nightly_bisect.report.plain import printable


def show_status() -> int:
    """Print one line for each bisection, the oldest first."""
    journal = _journal()
    records = journal.records()
    if not records:
        _say("There is no bisection yet.")
    for record in records:
        entries = journal.entries(record.name)
        ends = f"{record.slots[0].stamp} … {record.slots[-1].stamp}"
        package = record.arguments["package"]
        line = f"{record.name:<32}  {package}  {ends}  {len(effective(entries))} trials  {_standing(record, entries)}"
        _say(printable(line))
    return 0


def resume(name: str | None, *, quiet: bool, verbose: bool) -> int:
    """Go on with a bisection; return the exit code of its answer."""
    journal = _journal()
    record = journal.record(name) if name else _last_interrupted(journal)
    arguments = replace(from_values(record.arguments), quiet=quiet, verbose=verbose, name=record.name)
    screen = Screen(arguments.level)
    session = _session(record, arguments, screen)
    if record.check_sha256 != session.options.check.sha256:
        raise CheckCannotRun(
            f"The check {record.arguments['check'][0]} is not what it was when {record.name} began.",
            hint="put it back, or start a new bisection",
        )

    def begin() -> bool:
        entries = journal.entries(record.name)
        session.take_up(record, entries)
        kept = len(session.observations)
        screen.say(f"going on with {record.name}: {kept} trials are kept")
        return True

    return drive(session, begin, arguments, screen)


def show_log(name: str, json_file: Path | None) -> int:
    """Print every entry of a bisection, in order."""
    journal = _journal()
    journal.record(name)
    entries = journal.entries(name)
    if json_file is None:
        for entry in entries:
            _say(printable(_line(entry)))
        return 0
    from pydantic import TypeAdapter

    text = json.dumps(TypeAdapter(list[Entry]).dump_python(entries, mode="json"), indent=2) + "\n"
    write_document(json_file, text)
    return 0


def undo(name: str) -> int:
    """Take the last verdict back."""
    journal = _journal()
    journal.record(name)
    with held_lock(_folder(name), name):
        held = effective(journal.entries(name))
        if not held:
            raise UsageError(
                f"{name} has no verdict to take back.", hint="`nightly-bisect log` shows its trials"
            )
        journal.append(name, Kind.UNDO, None)
    _say(f"taken back: {held[-1].nightly}: {held[-1].reason}")
    _say(f"go on with it: nightly-bisect resume {name}")
    return 0


def mark(name: str, date: str, verdict: Verdict) -> int:
    """Write down what the user knows."""
    journal = _journal()
    record = journal.record(name)
    with held_lock(_folder(name), name):
        nightly = _nightly(record, effective(journal.entries(name)), date)
        reason = f"marked {verdict} by hand"
        journal.append(name, Kind.MARK, Observation(nightly, Outcome.MARKED, reason, marked=verdict))
    _say(f"{nightly}: {reason}")
    _say(f"go on with it: nightly-bisect resume {name}")
    return 0


def replay(name: str, json_file: Path | None, report: Path | None) -> int:
    """Compute the answer anew; return its exit code."""
    journal = _journal()
    record = journal.record(name)
    stored = from_values(record.arguments)
    arguments = replace(stored, json_file=json_file, report=report, name=name)
    screen = Screen(-1)
    session = _session(record, arguments, screen)
    session.take_up(record, journal.entries(name))
    if not session.is_answered:
        raise UsageError(
            f"{name} is not finished: {len(session.observations)} trials so far.",
            hint=f"go on with it: `nightly-bisect resume {name}`",
        )
    answer = session.conclusion()
    finish(answer, arguments, screen, None)
    return answer.exit_code


def _say(line: str) -> None:
    write_document(Path("-"), f"{line}\n")


def _journal() -> Journal:
    return Journal(journal_path(state_folder()))


def _folder(name: str) -> Path:
    return state_folder() / "bisections" / name


def _session(record: Record, arguments: RunArguments, screen: Screen) -> Session:
    options = make_options(arguments, record.folder)
    return Session(options, listener=screen.show, now=datetime.now(UTC), caller=os.environ)


def _last_interrupted(journal: Journal) -> Record:
    for record in reversed(journal.records()):
        if _standing(record, journal.entries(record.name)).startswith("interrupted"):
            return record
    raise UsageError("No bisection was interrupted.", hint="`nightly-bisect status` lists them all")


def _standing(record: Record, entries: list[Entry]) -> str:
    """Say in a few words where a bisection stands."""
    if is_held(_folder(record.name)):
        return "running"
    try:
        session = _session(record, replace(from_values(record.arguments), name=record.name), Screen(-1))
        session.take_up(record, entries)
        if not session.is_answered:
            return "interrupted"
        return session.conclusion(with_commits=False).sentence
    except BisectError as error:
        return f"cannot be read: {error.what}"


def _nightly(record: Record, held: list[Observation], text: str) -> Nightly:
    """Return the nightly that the user means by a day or a version."""
    tested: dict[object, Slot] = {o.nightly.stamp: o.nightly for o in held}
    for slot in record.slots:
        known = tested.get(slot.stamp, slot)
        version = known.version if isinstance(known, Nightly) else None
        if text in (str(slot.stamp), version):
            if isinstance(known, UnlistedDay):
                return Nightly(known.stamp, f"(of {known.stamp})", None)
            return known
    raise UsageError(
        f"{record.name} has no nightly {text}.",
        hint=f"its range goes from {record.slots[0].stamp} to {record.slots[-1].stamp}",
    )


def _line(entry: Entry) -> str:
    seen = entry.observation
    if entry.asked is not None:
        found = entry.asked.nightly or ("no other wheels" if entry.asked.for_others else "no nightly")
        return f"{entry.at:%Y-%m-%d %H:%M:%S}  asked  {entry.asked.day}  {found}"
    if seen is None:
        return f"{entry.at:%Y-%m-%d %H:%M:%S}  undo"
    commit, sha256 = (seen.commit or "-")[:10], (seen.wheel_sha256 or "-")[:16]
    return (
        f"{entry.at:%Y-%m-%d %H:%M:%S}  {entry.kind}  {seen.nightly.stamp}  {seen.nightly.version}  {commit}  "
        f"{sha256}  {seen.outcome}  {seen.reason}"
    )
