"""The catalog: which nightlies of a package exist for one channel, Python and platform."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from urllib.parse import urlsplit

from nightly_bisect.errors import (
    IndexFault,
    NoSuchPage,
    NotAnIndex,
    NothingInstallable,
    Refused,
    Unreachable,
    UsageError,
)
from nightly_bisect.index.listings import KeptListing, Listings
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.page import Page, Row, Unreadable, read_page
from nightly_bisect.index.profiles import RELEASES, Profile
from nightly_bisect.index.targets import Target, python_of
from nightly_bisect.index.unlisted import Place, Prober
from nightly_bisect.index.web import Document, Web
from nightly_bisect.index.wheel_names import (
    NotAWheel,
    WheelName,
    belongs_to_channel,
    channel_folder,
    channel_of_label,
    parse_wheel,
)
from nightly_bisect.model import Nightly, Slot, Stamp, UnlistedDay

# A page lists a stretch of days without larger holes, and now and then a few strays before it.
_LARGEST_HOLE = timedelta(days=10)
_STALE_AFTER = timedelta(days=7)
# A listing that is older says too little of today, and one that shrank so much may be half built.
_OLDEST_LISTING = timedelta(days=7)
_SHRUNK_BELOW = 0.8
_OTHER_ARCHIVES = (".tar.gz", ".zip", ".egg", ".exe", ".tar.bz2", ".metadata", ".tgz")


@dataclass(frozen=True, slots=True)
class Request:
    """Which nightlies are asked for. ``index_url`` replaces the profile's index for the channel."""

    profile: Profile
    channel: str | None
    target: Target
    index_url: str | None = None
    all_builds: bool = False

    @property
    def root_url(self) -> str:
        """The root below which the pages of projects lie; ends with a slash."""
        url = self.index_url or self.profile.index.url
        if url is None:
            from pypi_simple import PYPI_SIMPLE_ENDPOINT

            url = PYPI_SIMPLE_ENDPOINT
        return url.replace("{channel}", self.channel or "").rstrip("/") + "/"

    def allows_host(self, host: str) -> bool:
        """Accept any host from an index that the user named, and the profile's hosts from its own."""
        hosts = self.profile.index.hosts
        if self.index_url is not None or not hosts:
            return True
        return any(host == allowed or host.endswith(f".{allowed}") for allowed in hosts)

    @property
    def home_of_plain(self) -> str | None:
        """The root whose files without a local version belong to the channel: the default one's."""
        return self.root_url if self.channel == self.profile.index.default_channel else None

    @property
    def releases(self) -> bool:
        """Whether stable releases are asked for, instead of dated builds."""
        return self.channel == RELEASES


@dataclass(frozen=True, slots=True)
class Listed:
    """A wheel of the package on the page, its name taken apart."""

    row: Row
    name: WheelName


class Catalog:
    """The nightlies that a page lists, and those that it no longer lists but that can be asked for.

    ``nightlies`` are in order of time (releases: of version), one a day unless all were asked for.
    """

    def __init__(
        self,
        request: Request,
        page: Page,
        nightlies: Sequence[Nightly],
        unreadable: Sequence[Unreadable],
        prober: Prober,
        now: datetime,
        page_notes: Sequence[str] = (),
    ) -> None:
        self.request = request
        self.page = page
        self.nightlies = tuple(nightlies)
        self.unreadable = tuple(unreadable)
        self.prober = prober
        self._now = now
        self._page_notes = tuple(page_notes)

    @property
    def newest(self) -> Nightly:
        """The newest nightly that the index has."""
        return self.nightlies[-1]

    @property
    def window_start(self) -> date:
        """The first day of the stretch that the page lists; strays lie before it."""
        days = [nightly.stamp.day for nightly in reversed(self.nightlies)]
        start = days[0]
        for day in days[1:]:
            if start - day > _LARGEST_HOLE:
                break
            start = day
        return start

    @property
    def first_day(self) -> date:
        """The first day that can have a nightly, as far as is known."""
        listed = min(nightly.stamp.day for nightly in self.nightlies)
        place = self.prober.place
        attested = place.first_day if place else None
        return min(listed, attested) if attested else listed

    def slots(self, first: date, last: date) -> list[Slot]:
        """Return what lies between two days: listed nightlies, and days that must be asked for."""
        listed: list[Slot] = [n for n in self.nightlies if first <= n.stamp.day <= last]
        if self.request.releases:
            return listed
        return sorted([*listed, *self._unlisted_days(first, last)], key=lambda slot: slot.stamp)

    def ask(self, slot: UnlistedDay) -> Nightly | None:
        """Ask the server for the nightly of a day that the page doesn't list; None when absent."""
        return self.prober.ask(slot)

    def notes(self) -> list[str]:
        """Say what a reader of the answer should know of the page."""
        notes = list(self._page_notes)
        age = self._now.date() - self.newest.stamp.day
        if age > _STALE_AFTER and not self.request.releases:
            written = f", the page was written on {self.page.written:%Y-%m-%d}" if self.page.written else ""
            notes.append(
                f"The newest nightly that the index lists is of {self.newest.stamp}{written}: "
                "this channel may no longer be built."
            )
        if self.unreadable:
            notes.append(f"{len(self.unreadable)} rows of the index page could not be used (-v names them).")
        return notes

    def _unlisted_days(self, first: date, last: date) -> Iterable[UnlistedDay]:
        if self.prober.place is None:
            return
        listed = {nightly.stamp.day for nightly in self.nightlies}
        day = max(first, self.first_day)
        end = min(last + timedelta(days=1), self.window_start)
        while day < end:
            if day not in listed:
                yield UnlistedDay(Stamp(day))
            day += timedelta(days=1)


def load_catalog(
    request: Request, web: Web, listings: Listings | None, memory: Memory, now: datetime
) -> Catalog:
    """Read the index page; raise `IndexFault`.

    Where that fails and may pass, the last good one of ``listings`` stands in, which the notes say. That no
    listed wheel fits is no error yet: an older Python may have wheels that the page lists no longer.
    """
    page, of_package, unreadable, page_notes = _read(request, web, listings, now)
    of_channel = _of_channel(of_package, request, page)
    nightlies = _group(of_channel, request)
    known = [item.row.wheel for item in of_channel]
    prober = Prober(place_of(request, nightlies), known, web, memory, now)
    return Catalog(request, page, nightlies, unreadable, prober, now, page_notes)


def _read(
    request: Request, web: Web, listings: Listings | None, now: datetime
) -> tuple[Page, list[Listed], list[Unreadable], list[str]]:
    url = f"{request.root_url}{request.profile.package}/"
    kept = listings.recall(url) if listings else None
    if kept is not None and now - kept.read_at > _OLDEST_LISTING:
        kept = None
    try:
        document = _fetch(url, request, web)
        page = read_page(document.body, document.url, document.content_type)
        listed, unreadable = _of_package(page, request, now)
    except (Unreachable, NotAnIndex) as error:
        if kept is None:
            raise
        document = kept.document
        page = read_page(document.body, document.url, document.content_type)
        return page, *_of_package(page, request, now), [_stand_in_note(error, kept, now)]
    if kept is not None and len(listed) < _SHRUNK_BELOW * kept.wheels:
        note = (
            f"The index lists {len(listed)} wheels of {request.profile.package}; on "
            f"{kept.read_at:%Y-%m-%d %H:%M} UTC there were {kept.wheels}: it may be in the middle of being "
            "rebuilt."
        )
        return page, listed, unreadable, [note]
    if listings is not None:
        listings.keep(url, KeptListing(document, now, len(listed)))
    return page, listed, unreadable, []


def _stand_in_note(error: IndexFault, kept: KeptListing, now: datetime) -> str:
    hours = (now - kept.read_at).total_seconds() / 3600
    age = f"{hours:.0f} hours" if hours >= 2 else f"{hours * 60:.0f} minutes"
    return (
        f"The index could not be read ({error.what.rstrip('.')}). Its listing of "
        f"{kept.read_at:%Y-%m-%d %H:%M} UTC, {age} old, is used instead: what was built since is not in it."
    )


def _fetch(url: str, request: Request, web: Web) -> Document:
    try:
        return web.page(url)
    except (NoSuchPage, Refused) as error:
        if near := _near_channels(request):
            error.hint = f"{near}; {error.hint}"
        raise


def _of_package(page: Page, request: Request, now: datetime) -> tuple[list[Listed], list[Unreadable]]:
    """Keep the dated wheels (or stable releases) of the package; name what can't be understood."""
    listed: list[Listed] = []
    unreadable = list(page.unreadable)
    for row in page.rows:
        filename = row.wheel.filename
        if not filename or filename.endswith(_OTHER_ARCHIVES):
            continue
        try:
            name = parse_wheel(filename)
        except NotAWheel as error:
            unreadable.append(Unreadable(filename or row.wheel.url, str(error)))
            continue
        if name.project != request.profile.package:
            continue
        if not request.allows_host(urlsplit(row.wheel.url).hostname or ""):
            unreadable.append(Unreadable(row.wheel.url, "on a host that the profile doesn't allow"))
        elif request.releases:
            if not name.version.is_prerelease:
                listed.append(Listed(row, name))
        elif name.stamp is not None and name.stamp.day > now.date() + timedelta(days=1):
            unreadable.append(Unreadable(filename, "dated in the future"))
        elif name.stamp is None:
            unreadable.append(Unreadable(filename, "no date in its version"))
        else:
            listed.append(Listed(row, name))
    if not listed:
        kind = "release" if request.releases else "dated build"
        raise NotAnIndex(
            f"The page {page.url} lists no {kind} of {request.profile.package} "
            f"({len(page.rows)} links, {len(unreadable)} not understood"
            + (f", such as {unreadable[0].text}: {unreadable[0].why}" if unreadable else "")
            + ").",
            url=page.url,
            hint="a login page of the network looks so, and so does a page in the middle of being "
            "rebuilt; otherwise check --index-url and --package",
        )
    return listed, unreadable


def _of_channel(listed: list[Listed], request: Request, page: Page) -> list[Listed]:
    channel = request.channel
    if channel is None or request.releases:
        return listed
    kept = [
        item
        for item in listed
        if belongs_to_channel(item.row.wheel, item.name, channel, request.home_of_plain)
    ]
    if not kept:
        there = sorted({_channel_of(item) for item in listed})
        near = difflib.get_close_matches(channel, there, n=2)
        raise NoSuchPage(
            f"The page {page.url} lists nothing of the channel {channel!r}; it has: {', '.join(there)}.",
            url=page.url,
            hint=f"use `--channel {(near or there)[0]}`",
        )
    return kept


def _channel_of(item: Listed) -> str:
    local = item.name.version.local
    return channel_of_label(local) if local else channel_folder(item.row.wheel.url)


def _group(listed: list[Listed], request: Request) -> list[Nightly]:
    builds: dict[object, list[Listed]] = defaultdict(list)
    for item in listed:
        builds[item.name.version if request.releases else item.name.stamp].append(item)
    nightlies = [_nightly(items, request) for items in builds.values()]
    if request.releases:
        from packaging.version import Version

        return sorted(nightlies, key=lambda nightly: Version(nightly.version))
    nightlies.sort(key=lambda nightly: nightly.stamp)
    return nightlies if request.all_builds else _one_a_day(nightlies)


def _nightly(items: list[Listed], request: Request) -> Nightly:
    """Make one nightly of the wheels of one build, with the wheel that fits the target best.

    When a base version was bumped in the middle of a night, both exist: the newer counts.
    """
    ranked = [(i, rank) for i in items if (rank := request.target.best_rank(i.name.tags)) is not None]
    if ranked:
        best, _ = max(ranked, key=lambda pair: (pair[0].name.version, -pair[1]))
    else:
        best = max(items, key=lambda item: item.name.version)
    stamp = best.name.stamp or Stamp(best.row.uploaded.date() if best.row.uploaded else date.min)
    if request.releases and best.row.uploaded:
        stamp = Stamp(best.row.uploaded.astimezone(UTC).date())
    others = () if ranked else _targets(items)
    return Nightly(stamp, str(best.name.version), best.row.wheel if ranked else None, others)


def _one_a_day(nightlies: list[Nightly]) -> list[Nightly]:
    """Keep the last build of each day that has a wheel (else the last)."""
    days: dict[date, Nightly] = {}
    for nightly in nightlies:
        kept = days.get(nightly.stamp.day)
        if kept is None or nightly.wheel or not kept.wheel:
            days[nightly.stamp.day] = nightly
    return list(days.values())


def _targets(items: Iterable[Listed]) -> tuple[str, ...]:
    """Name the Pythons (and systems) that the wheels of a build are for."""
    names = {f"{python_of(tag)} ({_system(tag.platform)})" for item in items for tag in item.name.tags}
    return tuple(sorted(names, key=_by_number))


def _system(platform: str) -> str:
    for start, system in (("manylinux", "Linux"), ("linux", "Linux"), ("musllinux", "Linux musl"),
                          ("macosx", "macOS"), ("win", "Windows")):  # fmt: skip
        if platform.startswith(start):
            machine = next(
                (m for m in ("x86_64", "aarch64", "arm64", "amd64", "s390x") if platform.endswith(m)),
                "",
            )
            return f"{system} {machine}".strip()
    return platform


def _by_number(name: str) -> tuple[int, str]:
    minor = name.partition(".")[2].split("t")[0].split(" ")[0]
    return (int(minor) if minor.isdigit() else 0, name)


def place_of(request: Request, nightlies: Iterable[Nightly]) -> Place | None:
    """Return where to look for what the page doesn't list; None where that is not known."""
    known = request.profile.unlisted
    if known is None or request.channel is None or request.releases:
        return None
    bases = {nightly.version.partition(".dev")[0] for nightly in nightlies}
    place = Place(
        request.profile.package,
        request.channel,
        request.target,
        known,
        request.root_url if request.index_url is not None else None,
        tuple(sorted(bases)),
    )
    return place if place.form() else None


def _near_channels(request: Request) -> str:
    channels = request.profile.index.channels
    if request.channel is None or request.channel in channels or not channels:
        return ""
    near = difflib.get_close_matches(request.channel, channels, n=3, cutoff=0.5)
    return f"there may be no channel {request.channel!r}; near it: {', '.join(near or channels[:3])}"


def no_wheel(request: Request, nightlies: Sequence[Nightly]) -> NothingInstallable:
    """Return the error for ``nightlies`` none of which has a fitting wheel: it names those that fit."""
    there = sorted({name for n in nightlies for name in n.other_targets}, key=_by_number)
    here = [name for name in there if _family_matches(name, request.target)]
    usual = [name for name in here if "t " not in name] or here
    python = usual[-1].split(" ")[0] if usual else None
    return NothingInstallable(
        f"No nightly of {request.profile.package} has a wheel for {request.target}; there are wheels "
        f"for {', '.join(there)}.",
        hint=f"use `--python {python}`" if python else "use another --python, --platform or --channel",
    )


def _family_matches(name: str, target: Target) -> bool:
    system, _, machine = target.family.partition("_")
    words = {"linux": "Linux", "macosx": "macOS", "win": "Windows"}
    return words.get(system, system) in name and machine in name


def check_channel(profile: Profile, channel: str | None) -> str | None:
    """Return the channel to use; raise `UsageError` where a package has none."""
    if channel == RELEASES:
        return channel
    if channel is not None and profile.index.default_channel is None:
        raise UsageError(
            f"{profile.package} has no channels, so `--channel {channel}` means nothing.",
            hint="leave it out, or use `--channel release` for its stable releases",
        )
    return channel or profile.index.default_channel
