"""Nightlies that the page no longer lists: which files they may be, and asking for them.

The index lists the newest 60 versions only; older wheels still answer under their direct URL. Their
names are built from what the profile attests, and one HEAD request each tells whether they exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from urllib.parse import quote, urlsplit

from packaging.version import Version

from nightly_bisect.errors import Refused
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profiles import FileForm, Unlisted
from nightly_bisect.index.targets import Target, make_target
from nightly_bisect.index.web import FileInfo, Web
from nightly_bisect.index.wheel_names import local_label
from nightly_bisect.model import Nightly, Stamp, UnlistedDay, Wheel


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
                version = f"{base}.dev{day:%Y%m%d}{local.format(channel=local_label(place.channel))}"
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
    after = [
        base
        for base, period in windows
        if (period.last and day <= period.last) or (period.first and day < period.first)
    ]
    if after:
        return [*before[-1:], after[0]]
    # Later than anything attested: bases grow, and none is newer than what the page lists.
    newest = before[-1:]
    seen = sorted({*newest, *place.listed_bases}, key=Version)
    return [base for base in seen if not newest or Version(base) >= Version(newest[0])]


class Prober:
    """Asks the server whether days that the page doesn't list have a nightly.

    PyTorch's server answers 403 for what is absent and for whom it blocks alike. ``known`` are wheels
    that exist: one of them is asked for before an absence is believed.
    """

    def __init__(
        self, place: Place | None, known: Sequence[Wheel], web: Web, memory: Memory, now: datetime
    ) -> None:
        self.place = place
        self._known = {urlsplit(wheel.url).netloc: wheel.url for wheel in known}
        self._web = web
        self._memory = memory
        self._now = now

    def ask(self, slot: UnlistedDay) -> Nightly | None:
        """Return the nightly of a day; None when there is none for the place's Python."""
        return self._ask(self.place, slot.stamp.day) if self.place else None

    def ask_for_others(self, slot: UnlistedDay) -> Nightly | None:
        """Return the nightly of a day that has wheels for other Pythons only, or None."""
        place = self.place
        if place is None:
            return None
        for python in place.known.pythons:
            if python == place.target.python:
                continue
            target = make_target(python, place.target.family)
            if found := self._ask(replace(place, target=target), slot.stamp.day):
                return Nightly(found.stamp, found.version, None, (f"Python {python}",))
        return None

    def _ask(self, place: Place, day: date) -> Nightly | None:
        for wheel in candidates(place, day):
            info = self._memory.recall(wheel.url, self._now)
            if info is None:
                info = self._web.file_info(wheel.url)
                if info is None:
                    self._confirm_access(wheel.url)
                self._memory.keep(wheel.url, info, self._now)
            if isinstance(info, FileInfo):
                self._known.setdefault(urlsplit(wheel.url).netloc, wheel.url)
                # A hash in a header would be no promise: names are uploaded again at times. The
                # bytes are hashed when they come.
                found = Wheel(wheel.filename, wheel.url, None, info.size_bytes)
                return Nightly(Stamp(day), wheel.filename.split("-")[1], found)
        return None

    def _confirm_access(self, absent_url: str) -> None:
        """Raise `Refused` when the host of ``absent_url`` denies what it is known to have, too."""
        known = self._known.get(urlsplit(absent_url).netloc)
        if known is not None and self._web.file_info(known) is None:
            raise Refused(
                f"{urlsplit(absent_url).netloc} refuses {known} as well, which it is known to have: it "
                "may be blocking requests.",
                url=absent_url,
                hint="wait a while, or check the proxy, then run the same command again",
            )


def _roots(place: Place, day: date) -> list[str]:
    if place.index_url is not None:
        return [place.index_url]
    known = place.known
    roots = [known.url.replace("{channel}", place.channel)]
    if known.newer_url and known.newer_since and day >= known.newer_since:
        roots.insert(0, known.newer_url.replace("{channel}", place.channel))
    return roots
