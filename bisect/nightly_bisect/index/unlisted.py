"""Nightlies that the page no longer lists: which files they may be, and asking for them.

The index lists the newest 60 versions only; older wheels still answer under their direct URL. Their
names are built from what the profile attests, and one HEAD request each tells whether they exist.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from urllib.parse import quote

from packaging.version import Version

from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profile import FileForm, Unlisted
from nightly_bisect.index.targets import Target
from nightly_bisect.index.web import Web
from nightly_bisect.model import Nightly, Stamp, Wheel


@dataclass(frozen=True, slots=True)
class Place:
    """Where to look: a profile's knowledge for one package, channel and target.

    ``index_url`` replaces the profile's own hosts. ``listed_bases`` are the base versions on the
    page, for days after the last attested one.
    """

    package: str
    channel: str
    target: Target
    known: Unlisted
    index_url: str | None
    listed_bases: tuple[str, ...]

    @property
    def first_day(self) -> date | None:
        """The first day of which a base version is attested."""
        return min((p.first for _, p in self.known.base_versions if p.first), default=None)

    def form(self) -> FileForm | None:
        """Return how this platform's wheels are named, or None when the profile doesn't say."""
        forms = (form for form in self.known.files if form.platform == self.target.family)
        return next(forms, None)


def candidates(place: Place, day: date) -> Iterator[Wheel]:
    """Yield the wheels that a nightly of ``day`` may be, the likelier first."""
    form = place.form()
    if form is None:
        return
    tags = [tag for tag, period in form.tags if day in period]
    for root in _roots(place, day):
        for base in base_versions(place, day):
            for local in form.locals:
                version = f"{base}.dev{day:%Y%m%d}{local.format(channel=place.channel)}"
                for abi in form.abis:
                    for tag in reversed(tags):
                        name = (
                            f"{place.package.replace('-', '_')}-{version}-"
                            f"{place.target.interpreter}-{abi.format(abi=place.target.abi)}-{tag}.whl"
                        )
                        yield Wheel(name, root + quote(name))


def base_versions(place: Place, day: date) -> list[str]:
    """Return the base version of ``day``; the two around it on a day between two windows."""
    windows = place.known.base_versions
    inside = [base for base, period in windows if period.first and day in period]
    if inside:
        return inside
    before = [base for base, period in windows if period.last and period.last < day]
    after = [base for base, period in windows if period.last and day <= period.last]
    if after:
        return [*before[-1:], after[0]]
    # Later than anything attested: bases grow, and none is newer than what the page lists.
    newest = before[-1:]
    seen = sorted({*newest, *place.listed_bases}, key=Version)
    return [base for base in seen if not newest or Version(base) >= Version(newest[0])]


def ask(place: Place, day: date, web: Web, memory: Memory, now: datetime) -> Nightly | None:
    """Look for the nightly of ``day``; None when no candidate exists."""
    for wheel in candidates(place, day):
        info = memory.recall(wheel.url, now)
        if info is None:
            answer = web.file_info(wheel.url)
            memory.keep(wheel.url, answer, now)
            info = answer or False
        if info:
            # Hashes in headers are not used as a promise: the same name is re-uploaded at times,
            # and the header is the object's, not the page's. The bytes are hashed when they come.
            found = Wheel(wheel.filename, wheel.url, None, info.size_bytes)  # type: ignore[union-attr]
            version = wheel.filename.split("-")[1]
            return Nightly(Stamp(day), version, found)
    return None


def _roots(place: Place, day: date) -> list[str]:
    if place.index_url is not None:
        return [place.index_url]
    known = place.known
    roots = [known.url.replace("{channel}", place.channel)]
    if known.newer_url and known.newer_since and day >= known.newer_since:
        roots.insert(0, known.newer_url.replace("{channel}", place.channel))
    return roots
