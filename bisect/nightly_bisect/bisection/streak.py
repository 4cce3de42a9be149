"""Infrastructure that fails again and again: it ends the run, or it would turn the range into skips. Pure."""

from __future__ import annotations

from nightly_bisect.errors import (
    BisectError,
    CheckCannotRun,
    NothingInstallable,
    Refused,
    Unreachable,
)
from nightly_bisect.model import Observation, Outcome
from nightly_bisect.signature import normalise

MOST_IN_A_ROW = 3
"""So many failures of one kind, one trial after the other, are no matter of single nightlies."""

_GO_ON = "then `nightly-bisect resume`: what was observed is kept"


class Streak:
    """Counts the trials in a row that failed in one way for reasons outside the check."""

    def __init__(self) -> None:
        self._kind: tuple[Outcome, str] | None = None
        self._count = 0

    def note(self, seen: Observation) -> None:
        """Take note of a trial; raise `BisectError` when it is the third of its kind in a row."""
        kind = _kind(seen)
        self._count = self._count + 1 if kind == self._kind else 1
        self._kind = kind
        if kind is not None and self._count == MOST_IN_A_ROW:
            self._count = 0
            raise _fault(seen)


def _kind(seen: Observation) -> tuple[Outcome, str] | None:
    match seen.outcome:
        case Outcome.UNREACHABLE | Outcome.GONE | Outcome.KILLED:
            return seen.outcome, ""
        case Outcome.NOT_INSTALLED | Outcome.WRONG_BUILD:
            # Numbers aside: the same words about another nightly. Other words may well be its own fault.
            return seen.outcome, normalise(seen.reason)
    return None


def _fault(seen: Observation) -> BisectError:
    url = seen.nightly.wheel.url if seen.nightly.wheel else ""
    so_often = f"{MOST_IN_A_ROW} trials in a row"
    match seen.outcome:
        case Outcome.UNREACHABLE:
            return Unreachable(
                f"The network failed in {so_often}, the last time: {seen.reason}",
                url=url,
                hint=f"check the network and the proxy (HTTPS_PROXY), {_GO_ON}, wheels as well",
            )
        case Outcome.GONE:
            return Refused(
                f"The server has not given the wheel that the index lists in {so_often}.",
                url=url,
                hint=f"it may be blocking requests, or the index is being rebuilt; wait a while, {_GO_ON}",
            )
        case Outcome.KILLED:
            return CheckCannotRun(
                f"Something outside ended the check in {so_often}: {seen.reason}.",
                hint=f"find out what kills it (a limit of memory or time of this session?), {_GO_ON}",
            )
        case _:
            return NothingInstallable(
                f"{so_often.capitalize()} could not install a nightly for the same reason: {seen.reason}",
                hint="if that can be mended (another --python, a --with), begin again with it; otherwise "
                "`nightly-bisect resume` goes on and steps around such nightlies",
            )
