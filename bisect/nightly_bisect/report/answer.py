"""The answer of a bisection, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from packaging.utils import canonicalize_name

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Estimate, Find, Nightly, Observation


class Status(StrEnum):
    """How a bisection ended."""

    FOUND = "found"
    RANGE = "range"
    NOT_REPRODUCED = "not-reproduced"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class Build:
    """A nightly as the answer names it.

    ``commit`` is what the wheel records; ``main_commit`` the one of the main branch behind it.
    """

    nightly: Nightly
    commit: str | None = None
    main_commit: str | None = None

    @property
    def date(self) -> str:
        """The day, ``2024-06-02``."""
        return str(self.nightly.stamp)

    @property
    def version(self) -> str:
        """The full version."""
        return self.nightly.version


@dataclass(frozen=True, slots=True)
class Suspect:
    """A build that may be the first after the change; ``reason`` why it could not be tested."""

    build: Build
    reason: str | None


@dataclass(frozen=True, slots=True)
class Change:
    """A distribution whose version differs between the two sides; None: not installed there."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Shift:
    """A change that a sweep found between two builds; ``text`` says what moved by how much."""

    before: Build
    after: Build
    text: str


@dataclass(frozen=True, slots=True)
class Setting:
    """What the answer is about: it makes no sense without these.

    ``resume`` is the command that goes on with it, once there is something to go on with.
    """

    find: Find
    package: str
    channel: str | None
    target: str
    repository: str | None
    bisection: str
    resume: str | None
    reproduce: str
    check_name: str
    check_text: str | None
    environment: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known at the end, and everything it rests on.

    ``before`` is the last build seen before the change, ``after`` the first seen after it. Only
    with one suspect is ``after`` *the* first. ``sentence`` says it for people, ``hint`` what to do.
    ``confidence`` is the probability of the suspects; ``estimate`` the size of a change that is measured.
    ``shifts`` are the changes that a sweep found.
    """

    setting: Setting
    status: Status
    exit_code: int
    sentence: str
    hint: str | None = None
    before: Build | None = None
    after: Build | None = None
    suspects: tuple[Suspect, ...] = ()
    trials: tuple[tuple[Observation, Judgement], ...] = ()
    notes: tuple[str, ...] = ()
    confidence: float | None = None
    estimate: Estimate | None = None
    shifts: tuple[Shift, ...] = ()

    @property
    def first(self) -> Build | None:
        """The first build after the change, when there is exactly one suspect."""
        return self.after if len(self.suspects) == 1 else None

    @property
    def words(self) -> tuple[str, str]:
        """What the two sides are called: last good and first bad, or last bad and first good."""
        if self.setting.find is Find.REGRESSION:
            return "last good", "first bad"
        return "last bad", "first good"

    @property
    def compare_url(self) -> str | None:
        """The main-branch commits between the two sides; nightly-branch ones would compare nothing."""
        if self.before is None or self.after is None or self.setting.repository is None:
            return None
        old, new = self.before.main_commit, self.after.main_commit
        if old is None or new is None or old == new:
            return None
        return f"{self.setting.repository}/compare/{old}...{new}"

    @property
    def dependency_changes(self) -> tuple[Change, ...]:
        """What else differs between the environments of the two sides."""
        if self.before is None or self.after is None:
            return ()
        versions = {o.nightly.version: o for o, _ in self.trials}
        old, new = versions[self.before.version], versions[self.after.version]
        if not old.installed or not new.installed:
            return ()  # a side that was marked by hand was never installed
        before = {i.name: i.version for i in old.installed}
        after = {i.name: i.version for i in new.installed}
        own = canonicalize_name(self.setting.package)
        return tuple(
            Change(name, before.get(name), after.get(name))
            for name in sorted(before.keys() | after.keys())
            if name != own and before.get(name) != after.get(name)
        )
