"""The ends of the range: from what the user wrote to slots of the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from packaging.version import Version

from nightly_bisect.errors import NothingInstallable, UsageError
from nightly_bisect.index.catalog import Catalog, no_wheel
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


@dataclass(frozen=True, slots=True)
class _End:
    """One end: the option that names it, its text, and what that means."""

    option: str
    text: str
    when: When


def find_span(catalog: Catalog, ends: Ends, now: datetime) -> Span:
    """Resolve the ends; raise `UsageError` for what the index cannot have.

    An end without a nightly takes the nearest one inside the range, and a note says so.
    """
    early, late = _claims(ends, now)
    if catalog.request.releases:
        slots = _releases_between(catalog, early, late, ends.find)
    else:
        slots = _nightlies_between(catalog, early, late, ends.find)
    notes: list[str] = []
    slots = _settle(catalog, slots, late, notes, from_end=True)
    if early is not None:
        slots = _settle(catalog, slots, early, notes, from_end=False)
    if len(slots) < 2:
        raise UsageError(
            f"There are not two nightlies between {early.text if early else catalog.first_day} and "
            f"{late.text}: {slots[0] if slots else 'none'}.",
            hint="widen the range; `nightly-bisect list` shows what there is",
        )
    return Span(tuple(slots), early is None, tuple(notes))


def refuse_misread(ends: Ends, now: datetime) -> None:
    """Raise `UsageError` for what is no end, without asking any index."""
    _claims(ends, now)


def read_bounds(catalog: Catalog, since: str | None, until: str | None, now: datetime) -> tuple[date, date]:
    """Return the days that ``--since`` and ``--until`` mean; raise `UsageError`."""
    newest = max(n.stamp.day for n in catalog.nightlies)
    first = _day(catalog, _end("--since", since, now)) if since else catalog.first_day
    last = min(newest, _day(catalog, _end("--until", until, now))) if until else newest
    if first > last:
        raise UsageError(
            f"--since {since} is later than --until {until or newest}.",
            hint=f"the newest that the index lists is of {newest}",
        )
    return first, last


def _claims(ends: Ends, now: datetime) -> tuple[_End | None, _End]:
    """Return the earlier and the later end: find-fix is swapped here, and nowhere else."""
    good, bad = ("--good", ends.good), ("--bad", ends.bad)
    (early_option, early), (late_option, late) = (good, bad) if ends.find is Find.REGRESSION else (bad, good)
    if early is None and ends.find is Find.FIX:
        raise UsageError(
            "--find-fix needs --bad, the earlier end, in which the check fails.",
            hint="for example `--find-fix --bad 2024-05-01 --good latest`",
        )
    return (
        None if early is None else _end(early_option, early, now),
        _end(late_option, late or "latest", now),
    )


def _end(option: str, text: str, now: datetime) -> _End:
    when = parse_when(text, option)
    refuse_future(when, text, option, now)
    return _End(option, text, when)


def _nightlies_between(catalog: Catalog, early: _End | None, late: _End, find: Find) -> list[Slot]:
    last_day = min(_day(catalog, late), catalog.newest.stamp.day)
    first_day = catalog.first_day
    if early is not None:
        first_day = _day(catalog, early)
        if first_day > last_day:
            raise _wrong_order(early, late, find, catalog)
        if first_day < catalog.first_day:
            raise UsageError(
                f"{early.option} {early.text} is before the first nightly of "
                f"{catalog.request.profile.package} that is known, {catalog.first_day}.",
                hint=f"use `{early.option} {catalog.first_day}`",
            )
    row = catalog.slots(first_day, last_day)
    if early is not None and isinstance(early.when, OnVersion):
        row = row[_position(row, early, early.when) :]
    if isinstance(late.when, OnVersion):
        row = row[: _position(row, late, late.when) + 1]
    return row


def _releases_between(catalog: Catalog, early: _End | None, late: _End, find: Find) -> list[Slot]:
    """Cut the releases, which are in order of version: a day means what was out by then."""
    releases = catalog.nightlies
    first = 0 if early is None else min(_release_positions(catalog, early, after=True), default=len(releases))
    last = max(_release_positions(catalog, late, after=False), default=-1)
    if early is not None and first > last:
        raise _wrong_order(early, late, find, catalog)
    return list(releases[first : last + 1])


def _release_positions(catalog: Catalog, end: _End, *, after: bool) -> list[int]:
    """Return the positions that lie on the inner side of an end."""
    releases = catalog.nightlies
    match end.when:
        case OnRelease(version) | OnVersion(version):
            found = [i for i, release in enumerate(releases) if Version(release.version) == version]
            if not found:
                near = [r.version for r in releases if Version(r.version).release[:2] == version.release[:2]]
                raise UsageError(
                    f"{end.option} {end.text}: the index has no such release"
                    + (f"; near it: {', '.join(near)}." if near else "."),
                    hint="`nightly-bisect list --channel release` shows what there is",
                )
            return found
        case DaysBeforeNewest(0):
            return [len(releases) - 1]
        case _:
            day = _day(catalog, end)
            return [
                i
                for i, release in enumerate(releases)
                if (release.stamp.day >= day if after else release.stamp.day <= day)
            ]


def _wrong_order(early: _End, late: _End, find: Find, catalog: Catalog) -> UsageError:
    if isinstance(early.when, OnDay) and early.when.day > catalog.newest.stamp.day:
        return UsageError(
            f"{early.option} {early.text} is later than the newest nightly of the index, {catalog.newest}.",
            hint=f"give an earlier {early.option}",
        )
    if find is Find.REGRESSION:
        return UsageError(
            f"--good {early.text} is later than --bad {late.text}.",
            hint="to find the nightly in which it began to pass again, add `--find-fix`",
        )
    return UsageError(
        f"With --find-fix, --bad {early.text} must be earlier than --good {late.text}.",
        hint="to find the nightly in which it began to fail, leave `--find-fix` out",
    )


def _day(catalog: Catalog, end: _End) -> date:
    match end.when:
        case OnDay(day):
            return day
        case OnVersion(_, stamp):
            return stamp.day
        case DaysBeforeNewest(days):
            return catalog.newest.stamp.day - timedelta(days=days)
        case OnRelease(version):
            return _last_day_before_branch(catalog, version, end.option)


def _last_day_before_branch(catalog: Catalog, version: Version, option: str) -> date:
    """Return the day of the last nightly before a release's branch was cut, as far as attested."""
    unlisted = catalog.request.profile.unlisted
    base = ".".join(map(str, (*version.release, 0)[:2])) + ".0"
    # The last window is still open: what is known of its end is only when it was last looked at.
    for known, period in unlisted.base_versions[:-1] if unlisted else ():
        if known == base and period.last:
            return period.last
    raise UsageError(
        f"{option} {version}: it is not known when the branch of that release was cut.",
        hint="give a day (`nightly-bisect list` shows them), or bisect over releases with `--channel release`",
    )


def _position(row: Sequence[Slot], end: _End, when: OnVersion) -> int:
    """Return the position of a version; an unlisted day stands for whatever it turns out to hold."""
    for index, slot in enumerate(row):
        if isinstance(slot, Nightly) and _same_version(slot.version, when.version):
            return index
        if isinstance(slot, UnlistedDay) and slot.stamp.day == when.stamp.day:
            return index
    there = [s.version for s in row if isinstance(s, Nightly) and s.stamp.day == when.stamp.day]
    raise UsageError(
        f"{end.option} {end.text}: the index has no such nightly"
        + (f"; of that day it has {', '.join(there)}." if there else "."),
        hint="`nightly-bisect list` shows what there is; `--all-builds` takes every build of a day",
    )


def _same_version(text: str, wanted: Version) -> bool:
    version = Version(text)
    return version == wanted or (wanted.local is None and Version(version.public) == wanted)


def _settle(
    catalog: Catalog,
    slots: Sequence[Slot],
    end: _End,
    notes: list[str],
    *,
    from_end: bool,
) -> list[Slot]:
    """Move an end inwards to the first slot that has a nightly with a fitting wheel."""
    row = list(reversed(slots)) if from_end else list(slots)
    asked: list[UnlistedDay] = []
    skipped: list[Nightly] = []
    while row:
        slot = row[0]
        if isinstance(slot, UnlistedDay):
            asked.append(slot)
            if len(asked) > _MOST_DAYS_ASKED:
                raise _no_answer(catalog, end, asked[0], skipped)
            nightly = catalog.ask(slot)
            if nightly is None:
                row.pop(0)
                continue
            row[0] = slot = nightly
        if slot.wheel is not None:
            break
        skipped.append(row.pop(0))  # type: ignore[arg-type]
    if not row:
        raise _nothing_inside(catalog, skipped, end.option)
    if not catalog.request.releases:
        _note_moved(row[0], end, _day(catalog, end), skipped, notes)
    return list(reversed(row)) if from_end else row


def _note_moved(slot: Slot, end: _End, wanted: date, skipped: Sequence[Nightly], notes: list[str]) -> None:
    if skipped:
        notes.append(
            f"{end.option}: {skipped[0].stamp} has wheels for {', '.join(skipped[0].other_targets)} only; "
            f"the nearest nightly inside the range with a fitting one is {slot}."
        )
    elif not isinstance(end.when, OnRelease) and slot.stamp.day != wanted:
        notes.append(
            f"{end.option}: there is no nightly of {wanted}; the nearest inside the range is {slot}."
        )


def _no_answer(
    catalog: Catalog, end: _End, first: UnlistedDay, skipped: Sequence[Nightly]
) -> UsageError | NothingInstallable:
    """Tell a night without wheels from one that has them for other Pythons only."""
    if skipped:
        return no_wheel(catalog.request, skipped)
    if other := catalog.prober.ask_for_others(first):
        python = other.other_targets[0].removeprefix("Python ")
        return NothingInstallable(
            f"{end.option} {end.text}: the nightly of {first} has no wheel for {catalog.request.target}, nor "
            f"have those of the {_MOST_DAYS_ASKED} days next to it; there is one for Python {python}.",
            hint=f"use `--python {python}`, or `{end.option} {catalog.window_start}`",
        )
    return UsageError(
        f"{end.option} {end.text}: no nightly answers within {_MOST_DAYS_ASKED} days of it for "
        f"{catalog.request.target} in the channel {catalog.request.channel}.",
        hint=f"the page lists them from {catalog.window_start} on: use "
        f"`{end.option} {catalog.window_start}`, or another --python or --channel",
    )


def _nothing_inside(
    catalog: Catalog, skipped: Sequence[Nightly], option: str
) -> NothingInstallable | UsageError:
    if skipped:
        return no_wheel(catalog.request, skipped)
    return UsageError(
        f"{option}: there is no nightly in the range.",
        hint="`nightly-bisect list` shows what there is",
    )
