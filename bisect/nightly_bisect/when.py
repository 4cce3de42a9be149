"""What people write for an end of the range: ``--good 2024-05-01``, ``today``, ``2.4`` …"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from packaging.version import Version

from nightly_bisect.errors import UsageError
from nightly_bisect.model import Stamp


@dataclass(frozen=True, slots=True)
class OnDay:
    """A calendar day."""

    day: date


@dataclass(frozen=True, slots=True)
class DaysBeforeNewest:
    """So many days before the newest nightly that the index has: 0 is ``today``, ``latest``."""

    days: int


@dataclass(frozen=True, slots=True)
class OnVersion:
    """A dated version in full (its local part optional)."""

    version: Version
    stamp: Stamp


@dataclass(frozen=True, slots=True)
class OnRelease:
    """A release such as ``2.4`` or ``2.4.0``."""

    version: Version


When = OnDay | DaysBeforeNewest | OnVersion | OnRelease

_RELATIVE = {"today": 0, "latest": 0, "yesterday": 1}
_DAY = re.compile(r"(?:dev)?(\d{4})-?(\d{2})-?(\d{2})")
FORMS = "2024-05-01, 20240501, dev20240501, today, yesterday, latest, a nightly's full version, or a release such as 2.4"


def parse_when(text: str, option: str) -> When:
    """Read what the user gave for ``option``; raise `UsageError` for anything ambiguous."""
    word = text.strip().lower()
    if word in _RELATIVE:
        return DaysBeforeNewest(_RELATIVE[word])
    if match := _DAY.fullmatch(word):
        return OnDay(_day(text, option, *match.groups()))
    try:
        version = Version(word)
    except ValueError:  # InvalidVersion, and numbers too long for Python to read
        raise UsageError(
            f"{option} {text!r} is not a day or a version.", hint=f"write one of: {FORMS}"
        ) from None
    stamp = stamp_of(version)
    if stamp is not None:
        return OnVersion(version, stamp)
    if version.is_prerelease or len(version.release) < 2:
        raise UsageError(
            f"{option} {text!r} names neither a day nor a release.", hint=f"write one of: {FORMS}"
        )
    return OnRelease(version)


def stamp_of(version: Version) -> Stamp | None:
    """Return the date that a version carries, or None.

    The forms in use: ``2.9.0.dev20261027``, ``3.16.0.dev2026102704`` (with an hour or more),
    ``2.21.0a20251023``, and the calendar versions ``2026.10.26`` and ``2026.10.26.1``.
    """
    for digits in (version.dev, version.pre[1] if version.pre else None):
        if digits is not None and len(text := str(digits)) >= 8:
            return _stamp(text[:4], text[4:6], text[6:8], text[8:])
    release = version.release
    if len(release) in (3, 4) and 1990 <= release[0] <= 9999 and version.epoch == 0:
        year, month, day, *serial = release
        return _stamp(str(year), str(month), str(day), str(serial[0]) if serial else "")
    return None


def _stamp(year: str, month: str, day: str, serial: str) -> Stamp | None:
    try:
        return Stamp(date(int(year), int(month), int(day)), int(serial or 0))
    except (ValueError, OverflowError):
        return None


def _day(text: str, option: str, year: str, month: str, day: str) -> date:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        raise UsageError(f"{option} {text!r}: there is no such day.", hint="write it as YYYY-MM-DD") from None


def refuse_future(when: When, text: str, option: str, now: datetime) -> None:
    """Raise `UsageError` for a day that has not begun anywhere on earth."""
    day = when.day if isinstance(when, OnDay) else when.stamp.day if isinstance(when, OnVersion) else None
    if day is not None and day > now.date() + timedelta(days=1):
        raise UsageError(
            f"{option} {text} is in the future.",
            hint=f"use `{option} latest` for the newest nightly",
        )
