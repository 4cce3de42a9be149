"""The words of the tool as types: nightlies, what happened to them, what we conclude."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from pathlib import Path


class Find(StrEnum):
    """What is looked for: the first nightly that fails, or the first that passes again."""

    REGRESSION = "regression"
    FIX = "fix"


class Outcome(StrEnum):
    """What happened in a trial."""

    PASSED = "passed"
    FAILED = "failed"
    CRASHED = "crashed"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"
    KILLED = "killed"
    EXHAUSTED = "memory or disk exhausted"
    NOT_RUNNABLE = "not runnable"
    ODD_STATUS = "odd exit status"
    NOT_INSTALLED = "not installed"
    WRONG_BUILD = "wrong build"
    NOT_IMPORTABLE = "not importable"
    GONE = "gone"
    UNREACHABLE = "unreachable"
    MARKED = "marked"


class Verdict(StrEnum):
    """What we conclude from an outcome; ``UNSURE`` of a number that alone says too little."""

    GOOD = "good"
    BAD = "bad"
    UNTESTABLE = "untestable"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The date of a build; ``serial`` orders several builds of one day (an hour, a counter)."""

    day: date
    serial: int = 0

    def __str__(self) -> str:
        return "no date" if self.day == date.min else self.day.isoformat()


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel on an index. ``sha256`` and ``size_bytes`` only where the index tells them."""

    filename: str
    url: str
    sha256: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Nightly:
    """One dated build of the package (or one release).

    ``wheel`` is the one for the Python and platform in question; None when the build has wheels
    for ``other_targets`` only.
    """

    stamp: Stamp
    version: str
    wheel: Wheel | None
    other_targets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.stamp} ({self.version})"


@dataclass(frozen=True, slots=True)
class UnlistedDay:
    """A day that the index page no longer lists: whether it has a nightly is not known yet."""

    stamp: Stamp

    def __str__(self) -> str:
        return str(self.stamp)


Slot = Nightly | UnlistedDay


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server answered for an unlisted day: its nightly, or None when there is none.

    ``for_others``: it was asked for wheels of other Pythons.
    """

    day: UnlistedDay
    nightly: Nightly | None
    for_others: bool = False


@dataclass(frozen=True, slots=True)
class Signature:
    """What makes two failures the same: a kind (exception type, signal) and a normalised line."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.kind and self.text else self.kind or self.text


@dataclass(frozen=True, slots=True)
class Installed:
    """A distribution found in a trial's environment."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class Metric:
    """A number that one run of a check measured; ``samples`` are the raw ones, in order.

    ``value`` stands for them: the minimum of a time, the last of what was printed.
    """

    name: str
    unit: str | None
    value: float
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Estimate:
    """What distinguishes the two sides of a change that single runs don't show.

    ``metric`` is None for the share of runs that fail (0 to 1); else ``before`` and ``after`` are levels of
    that metric in ``unit``. ``interval`` holds the relative change with 95 % (a share's is absolute).
    """

    metric: str | None
    unit: str | None
    before: float
    after: float
    interval: tuple[float, float] | None = None

    @property
    def change(self) -> float:
        """The relative change of a metric, the difference of two shares."""
        if self.metric is None:
            return self.after - self.before
        return self.after / self.before - 1 if self.before else math.inf


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that one run of the check saw; verdicts are concluded from it, never stored in it.

    ``tail`` holds the last lines that the check printed, normalised, those of stderr last.
    ``matched`` is None without ``--match``. ``marked`` is a verdict that the user gave by hand, in
    place of a trial. ``repeat`` numbers the runs of one nightly from 0; ``afresh``: it had an environment
    of its own, to confirm earlier ones. ``metrics`` are what this run
    measured, ``beside`` what the nightly of version ``reference`` measured right before or after it.
    Times are in seconds.
    """

    nightly: Nightly
    outcome: Outcome
    reason: str
    signature: Signature | None = None
    status: int | None = None
    tail: tuple[str, ...] = ()
    matched: bool | None = None
    commit: str | None = None
    wheel_sha256: str | None = None
    python: str | None = None
    installed: tuple[Installed, ...] = ()
    install_s: float | None = None
    check_s: float | None = None
    log: Path | None = None
    notes: tuple[str, ...] = ()
    marked: Verdict | None = None
    repeat: int = 0
    afresh: bool = False
    metrics: tuple[Metric, ...] = ()
    reference: str | None = None
    beside: tuple[Metric, ...] = ()
    fingerprint: str | None = None

    def metric(self, name: str) -> float | None:
        """Return what this run measured under a name."""
        return next((metric.value for metric in self.metrics if metric.name == name), None)

    def beside_metric(self, name: str) -> float | None:
        """Return what the reference measured beside this run."""
        return next((metric.value for metric in self.beside if metric.name == name), None)
