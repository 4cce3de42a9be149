"""Which requirements come from the nightly index, and from where on it.

Some packages exist only there (Triton's development builds), and some must never be taken from
anywhere else, because anyone may register their names on the default index. Both are downloaded by
us and handed to the installer as files, so that it never asks another index for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from nightly_bisect.errors import Denied, NoSuchPage, UsageError
from nightly_bisect.index.catalog import Request
from nightly_bisect.index.page import Row, read_page
from nightly_bisect.index.web import Web
from nightly_bisect.index.wheel_names import NotAWheel, WheelName, belongs_to_channel, parse_wheel
from nightly_bisect.model import Stamp, Wheel


class NotOnIndex(Exception):
    """A requirement that only the nightly index may serve is not on it; the text says which."""


class NightlyIndex:
    """The nightly index as a source of dependencies; each page is read once."""

    def __init__(self, request: Request, web: Web) -> None:
        self._request = request
        self._web = web
        self._pages: dict[str, list[tuple[Row, WheelName]]] = {}

    @property
    def only_here(self) -> frozenset[str]:
        """The names that are never taken from anywhere else."""
        source = self._request.profile.index
        return frozenset() if self._request.releases or source.url is None else source.only_here

    def must_serve(self, requirement: Requirement) -> bool:
        """Tell whether a requirement can or may come from the nightly index only."""
        if self._request.releases or self._request.profile.index.url is None:
            return False
        # The default index takes no versions with a local part, so such a pin is served only here.
        local_pin = any(s.operator == "==" and "+" in s.version for s in requirement.specifier)
        return canonicalize_name(requirement.name) in self.only_here or local_pin

    def find(self, requirement: Requirement, stamp: Stamp) -> Wheel:
        """Choose the wheel for a requirement of the nightly of ``stamp``.

        Raise `NotOnIndex` when there is none, and `IndexFault` for the network.

        Among dated builds it is the one of the same day; otherwise the newest that fits.
        """
        project = canonicalize_name(requirement.name)
        fitting = [
            (name.version, -rank, row.wheel)
            for row, name in self._wheels(project)
            if requirement.specifier.contains(name.version, prereleases=True)
            and (name.stamp is None or name.stamp.day == stamp.day or _is_exact(requirement))
            and (rank := self._request.target.best_rank(name.tags)) is not None
        ]
        if not fitting:
            raise NotOnIndex(
                f"{requirement} has no wheel of {stamp} for {self._request.target} on the nightly index"
            )
        return max(fitting, key=lambda item: item[:2])[2]

    def _wheels(self, project: str) -> list[tuple[Row, WheelName]]:
        if project not in self._pages:
            url = f"{self._request.root_url}{project}/"
            try:
                document = self._web.page(url)
                rows = read_page(document.body, document.url, document.content_type).rows
            except (NoSuchPage, Denied) as error:
                raise NotOnIndex(f"the nightly index has no page for {project}") from error
            self._pages[project] = [pair for pair in _readable(rows, project) if self._is_ours(*pair)]
        return self._pages[project]

    def _is_ours(self, row: Row, name: WheelName) -> bool:
        """Keep what lies on an allowed host and, of dated builds, those of the channel."""
        request = self._request
        if not request.allows_host(urlsplit(row.wheel.url).hostname or ""):
            return False
        if name.stamp is None or request.channel is None:
            return True
        return belongs_to_channel(row.wheel, name, request.channel, request.home_of_plain)


def read_requirements(texts: Iterable[str]) -> list[Requirement]:
    """Read what the user gave with ``--with``; raise `UsageError` for what is no requirement."""
    requirements = []
    for text in texts:
        try:
            requirements.append(Requirement(text))
        except InvalidRequirement as error:
            raise UsageError(
                f"--with {text!r} is not a requirement: {str(error).splitlines()[0]}.",
                hint="write it as in requirements.txt, for example 'numpy<2' or 'pkg @ file:///…'",
            ) from error
    return requirements


def plain_requirements(text: str) -> list[Requirement]:
    """Return the requirements of a requirements file that stand on a line of their own."""
    requirements = []
    for line in text.splitlines():
        try:
            requirements.append(Requirement(line.partition(" #")[0].strip()))
        except InvalidRequirement:
            continue  # options, comments, continued lines: the installer reads them
    return requirements


def _is_exact(requirement: Requirement) -> bool:
    return any(s.operator in ("==", "===") for s in requirement.specifier)


def _readable(rows: Iterable[Row], project: str) -> Iterable[tuple[Row, WheelName]]:
    for row in rows:
        try:
            name = parse_wheel(row.wheel.filename)
        except NotAWheel:
            continue
        if name.project == project:
            yield row, name
