"""The ends of the range: from what the user wrote to slots of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from packaging.version import Version

from nightly_bisect.errors import NothingInstallable, UsageError
from nightly_bisect.index.catalog import Catalog
from nightly_bisect.model import Find, Nightly, Slot, UnlistedDay
from nightly_bisect.when import (
    DaysBeforeNewest,
    OnDay,
    OnRelease,
    OnVersion,
    When,
    parse_when,
    refuse_future,
)

# How many unlisted days in a row are asked for before an end is given up.
_MOST_DAYS_ASKED = 14


@dataclass(frozen=True, slots=True)
class Ends:
    """What the user claims: ``good`` None means "walk back until good"."""

    find: Find
    good: str | None
    bad: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """The row of slots to search, oldest first, with what was adjusted to get it.

    ``walk_back``: the first slot is not claimed to be on the earlier side.
    """

    slots: tuple[Slot, ...]
    walk_back: bool
    notes: tuple[str, ...]


def find_span(catalog: Catalog, ends: Ends, now: datetime) -> Span:
    """Resolve the ends; raise `UsageError` for what the index cannot have.

    An end without a nightly takes the nearest one inside the range, and a note says so.
    """
    early_option, late_option = ("--good", "--bad") if ends.find is Find.REGRESSION else ("--bad", "--good")
    early_text, late_text = (ends.good, ends.bad) if ends.find is Find.REGRESSION else (ends.bad, ends.good)
    if early_text is None and ends.find is Find.FIX:
        raise UsageError(
            "--find-fix needs --bad, the earlier end, in which the check fails.",
            hint="for example `--find-fix --bad 2024-05-01 --good latest`",
        )
    late = _read(late_text or "latest", late_option, now)
    early = _read(early_text, early_option, now) if early_text is not None else None
    last_day = _latest_day(catalog, late, late_option)
    first_day = _earliest_day(catalog, early, early_option) if early else catalog.first_day
    if early is not None:
        _check_order(first_day, last_day, early_text or "", late_text or "latest", ends.find)
    if first_day < catalog.first_day:
        raise UsageError(
            f"{early_option} {early_text} is before the first nightly of "
            f"{catalog.request.profile.package} that is known, {catalog.first_day}.",
            hint=f"use `{early_option} {catalog.first_day}`",
        )
    slots = _trim_to_version(catalog.slots(first_day, last_day), early, late, catalog)
    notes: list[str] = []
    slots = _settle(catalog, slots, late, late_option, notes, from_end=True)
    if early is not None:
        slots = _settle(catalog, slots, early, early_option, notes, from_end=False)
    if len(slots) < 2:
        raise UsageError(
            f"There are not two nightlies between {early_text or catalog.first_day} and "
            f"{late_text or 'latest'}: {slots[0] if slots else 'none'}.",
            hint="widen the range; `nightly-bisect list` shows what there is",
        )
    return Span(tuple(slots), early is None, tuple(notes))


def _read(text: str, option: str, now: datetime) -> When:
    when = parse_when(text, option)
    refuse_future(when, text, option, now)
    return when


def _check_order(first: date, last: date, early: str, late: str, find: Find) -> None:
    if first <= last:
        return
    if find is Find.REGRESSION:
        raise UsageError(
            f"--good {early} is later than --bad {late}.",
            hint="to find the nightly in which it began to pass again, add `--find-fix`",
        )
    raise UsageError(
        f"With --find-fix, --bad {early} must be earlier than --good {late}.",
        hint="to find the nightly in which it began to fail, leave `--find-fix` out",
    )


def _earliest_day(catalog: Catalog, when: When, option: str) -> date:
    match when:
        case OnDay(day):
            return day
        case OnVersion(_, stamp):
            return stamp.day
        case DaysBeforeNewest(days):
            return catalog.newest.stamp.day - timedelta(days=days)
        case OnRelease(version):
            return _release_day(catalog, version, option)


def _latest_day(catalog: Catalog, when: When, option: str) -> date:
    return min(_earliest_day(catalog, when, option), catalog.newest.stamp.day)


def _release_day(catalog: Catalog, version: Version, option: str) -> date:
    """Return the day of a release, or that of the last nightly before its branch was cut."""
    if catalog.request.releases:
        # A release is found by its version, whatever days the others have.
        return max(n.stamp.day for n in catalog.nightlies) if option == "--bad" else date.min
    unlisted = catalog.request.profile.unlisted
    base = ".".join(map(str, (*version.release, 0)[:2])) + ".0"
    for known, period in unlisted.base_versions if unlisted else ():
        if known == base and period.last:
            return period.last
    raise UsageError(
        f"{option} {version}: it is not known when the branch of that release was cut.",
        hint="give a day, or bisect over releases with `--channel release`",
    )


def _trim_to_version(slots: Sequence[Slot], early: When | None, late: When, catalog: Catalog) -> list[Slot]:
    """Cut the row at the ends that name a version."""
    row = list(slots)
    if isinstance(early, OnVersion | OnRelease):
        row = row[_find(row, early, catalog, from_end=False) :]
    if isinstance(late, OnVersion | OnRelease):
        row = row[: _find(row, late, catalog, from_end=True) + 1]
    return row


def _find(row: Sequence[Slot], when: OnVersion | OnRelease, catalog: Catalog, *, from_end: bool) -> int:
    if isinstance(when, OnRelease) and not catalog.request.releases:
        return len(row) - 1 if from_end else 0
    wanted = when.version
    for index, slot in enumerate(row):
        if isinstance(slot, Nightly) and _same_version(slot.version, wanted):
            return index
        if isinstance(slot, UnlistedDay) and isinstance(when, OnVersion) and slot.stamp.day == when.stamp.day:
            return index
    same_day = [
        s.version
        for s in row
        if isinstance(s, Nightly) and isinstance(when, OnVersion) and s.stamp.day == when.stamp.day
    ]
    raise UsageError(
        f"The index has no {wanted}" + (f"; on that day it has {', '.join(same_day)}." if same_day else "."),
        hint="`nightly-bisect list` shows what there is; `--all-builds` takes every build of a day",
    )


def _same_version(text: str, wanted: Version) -> bool:
    version = Version(text)
    return version == wanted or (wanted.local is None and version.public == wanted.public)


def _settle(
    catalog: Catalog,
    slots: Sequence[Slot],
    when: When,
    option: str,
    notes: list[str],
    *,
    from_end: bool,
) -> list[Slot]:
    """Move an end inwards to the first slot that has a nightly with a fitting wheel."""
    row = list(reversed(slots)) if from_end else list(slots)
    asked = 0
    skipped: list[Nightly] = []
    while row:
        slot = row[0]
        if isinstance(slot, UnlistedDay):
            asked += 1
            if asked > _MOST_DAYS_ASKED:
                raise _no_answer(catalog, when, option, slot)
            nightly = catalog.ask(slot)
            if nightly is None:
                row.pop(0)
                continue
            row[0] = slot = nightly
        if slot.wheel is not None:
            break
        skipped.append(row.pop(0))  # type: ignore[arg-type]
    if not row:
        raise _nothing_inside(catalog, skipped, option)
    _note_moved(row[0], when, option, skipped, notes)
    return list(reversed(row)) if from_end else row


def _note_moved(slot: Slot, when: When, option: str, skipped: Sequence[Nightly], notes: list[str]) -> None:
    if skipped:
        notes.append(
            f"{option}: {skipped[0].stamp} has wheels for {', '.join(skipped[0].other_targets)} only; "
            f"the nearest nightly inside the range with a fitting one is {slot}."
        )
    elif isinstance(when, OnDay) and slot.stamp.day != when.day:
        notes.append(f"{option}: there is no nightly of {when.day}; the nearest inside the range is {slot}.")


def _no_answer(catalog: Catalog, when: When, option: str, slot: UnlistedDay) -> UsageError:
    return UsageError(
        f"{option}: the index has no nightly within {_MOST_DAYS_ASKED} days of {slot.stamp} for "
        f"{catalog.request.target} in the channel {catalog.request.channel}.",
        hint=f"the page lists them from {catalog.window_start} on: use `{option} {catalog.window_start}`, "
        "or another --python or --channel",
    )


def _nothing_inside(
    catalog: Catalog, skipped: Sequence[Nightly], option: str
) -> NothingInstallable | UsageError:
    if skipped:
        there = ", ".join(sorted({name for n in skipped for name in n.other_targets}))
        return NothingInstallable(
            f"No nightly in the range has a wheel for {catalog.request.target}; there are wheels for {there}.",
            hint="use another --python",
        )
    return UsageError(
        f"{option}: there is no nightly in the range.",
        hint="`nightly-bisect list` shows what there is",
    )


def read_bounds(catalog: Catalog, since: str | None, until: str | None, now: datetime) -> tuple[date, date]:
    """Return the days that ``--since`` and ``--until`` mean; raise `UsageError`."""
    first = _earliest_day(catalog, _read(since, "--since", now), "--since") if since else catalog.first_day
    last = (
        _latest_day(catalog, _read(until, "--until", now), "--until")
        if until
        else max(n.stamp.day for n in catalog.nightlies)
    )
    if first > last:
        raise UsageError(
            f"--since {first} is later than --until {last}, or than the newest nightly.",
            hint="swap them",
        )
    return first, last
