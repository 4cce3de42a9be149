"""From what happened to what we conclude. Pure.

Only a check that ran to its end in a verified environment makes a nightly good or bad. What else
counts as bad is decided by the bad end, which shows what the regression looks like: a time-out or a
failing import there makes the same elsewhere bad; a failure of another kind is untestable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from nightly_bisect.model import Observation, Outcome, Verdict


class Counts(StrEnum):
    """What a crash or a time-out counts as."""

    AUTO = "auto"
    BAD = "bad"
    UNTESTABLE = "untestable"


@dataclass(frozen=True, slots=True)
class Threshold:
    """A run is bad whose ``metric`` lies above ``value`` (or below it, with ``lower_is_worse``)."""

    metric: str
    value: float
    lower_is_worse: bool = False

    def is_passed(self, measured: float) -> bool:
        """Tell whether a number is on the bad side."""
        return measured < self.value if self.lower_is_worse else measured > self.value


@dataclass(frozen=True, slots=True)
class Rules:
    """What the user says about failures. ``match`` is the ``--match`` expression.

    ``metric`` names the number that a run must report to count at all. ``by_fingerprint``: what equals the
    good end's fingerprint is good.
    """

    on_crash: Counts = Counts.BAD
    on_timeout: Counts = Counts.AUTO
    any_failure: bool = False
    match: re.Pattern[str] | None = None
    metric: str | None = None
    threshold: Threshold | None = None
    by_fingerprint: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and, for people, why."""

    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class Reference:
    """What the others are compared with, once known: the bad end, a nightly that passed, the good end's fingerprint."""

    bad: Observation | None = None
    good: Observation | None = None
    fingerprint: str | None = None


def judge(seen: Observation, rules: Rules, reference: Reference | None = None) -> Judgement:
    """Conclude from an observation.

    Without a reference a failure of any kind that may be the regression is bad.
    """
    reference = reference or Reference()
    if seen.marked is not None:
        return Judgement(seen.marked, seen.reason)
    if rules.metric is not None:
        return _judge_number(seen, rules)
    if rules.by_fingerprint and seen.outcome is Outcome.PASSED:
        return _judge_fingerprint(seen, reference)
    # What was marked by hand shows no failure to compare with.
    bad = None if reference.bad is None or reference.bad.marked is not None else reference.bad
    verdict = _as_failure(seen, rules, bad)
    if verdict is not Verdict.BAD:
        return Judgement(verdict, seen.reason)
    if seen.matched is False:
        return _untestable(f"fails otherwise: no match of --match ({seen.reason})")
    if bad is None or bad is seen or rules.any_failure or seen.matched:
        return Judgement(Verdict.BAD, seen.reason)
    if seen.outcome is Outcome.TIMED_OUT and rules.on_timeout is Counts.BAD:
        return Judgement(Verdict.BAD, seen.reason)
    if _is_same_failure(seen, bad, reference.good):
        return Judgement(Verdict.BAD, seen.reason)
    return _untestable(f"fails otherwise: {seen.reason}")


def _judge_number(seen: Observation, rules: Rules) -> Judgement:
    """Judge a run by what it measured; one that failed has measured nothing that counts."""
    assert rules.metric is not None
    if seen.outcome is not Outcome.PASSED:
        return _untestable(seen.reason)
    measured = next((metric for metric in seen.metrics if metric.name == rules.metric), None)
    if measured is None:
        there = ", ".join(metric.name for metric in seen.metrics)
        return _untestable(
            f"it reported no number {rules.metric!r}" + (f"; there are {there}" if there else "")
        )
    text = f"{rules.metric} {number_text(measured.value, measured.unit)}"
    threshold = rules.threshold
    if threshold is None:
        beside = seen.beside_metric(rules.metric)
        if beside:
            text += f", {measured.value / beside - 1:+.1%} beside {seen.reference}"
        return Judgement(Verdict.UNSURE, text)
    side = "below" if threshold.lower_is_worse else "above"
    if threshold.is_passed(measured.value):
        return Judgement(Verdict.BAD, f"{text}: {side} {threshold.value:g}")
    return Judgement(Verdict.GOOD, f"{text}: not {side} {threshold.value:g}")


def _judge_fingerprint(seen: Observation, reference: Reference) -> Judgement:
    if seen.fingerprint is None:
        return _untestable("it has no fingerprint")
    text = f"fingerprint {seen.fingerprint[:12]}"
    if reference.fingerprint in (None, seen.fingerprint):
        return Judgement(Verdict.GOOD, text)
    return Judgement(Verdict.BAD, f"{text} instead of {str(reference.fingerprint)[:12]}")


def number_text(value: float, unit: str | None) -> str:
    """Show a number with its unit; seconds in a handy size."""
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if abs(value) >= factor or name == "µs":
                return f"{value / factor:.4g} {name}"
    if unit == "B":
        return f"{value / 2**20:.4g} MiB"
    return f"{value:.6g}" + (f" {unit}" if unit else "")


def _is_same_failure(seen: Observation, bad: Observation, good: Observation | None) -> bool:
    if _kind(seen) is not _kind(bad):
        return False
    if (seen.signature and seen.signature.kind) or (bad.signature and bad.signature.kind):
        return seen.signature == bad.signature
    # No exception: what the program said last, beside what it says when it passes too.
    said = _telling_line(seen, good), _telling_line(bad, good)
    return said[0] == said[1] if any(said) else seen.status == bad.status


def _telling_line(seen: Observation, good: Observation | None) -> str | None:
    usual = set(good.tail) if good else set()
    return next((line for line in reversed(seen.tail) if line not in usual), None)


def _as_failure(seen: Observation, rules: Rules, bad_end: Observation | None) -> Verdict:
    """Say what an outcome is before failures are told apart."""
    match seen.outcome:
        case Outcome.PASSED:
            return Verdict.GOOD
        case Outcome.FAILED | Outcome.NOT_RUNNABLE:
            return Verdict.BAD
        case Outcome.CRASHED:
            return Verdict.UNTESTABLE if rules.on_crash is Counts.UNTESTABLE else Verdict.BAD
        case Outcome.TIMED_OUT:
            if rules.on_timeout is Counts.AUTO:
                return _only_like(bad_end, Outcome.TIMED_OUT)
            return Verdict(rules.on_timeout.value)
        case Outcome.NOT_IMPORTABLE:
            return _only_like(bad_end, Outcome.NOT_IMPORTABLE)
        case (
            Outcome.SKIPPED
            | Outcome.KILLED
            | Outcome.ODD_STATUS
            | Outcome.NOT_INSTALLED
            | Outcome.WRONG_BUILD
            | Outcome.GONE
            | Outcome.UNREACHABLE
            | Outcome.MARKED
        ):
            return Verdict.UNTESTABLE
        case Outcome.EXHAUSTED:
            # The machine's limits, not the nightly's; unless the user looks for just that.
            return Verdict.BAD if seen.matched else Verdict.UNTESTABLE
    assert_never(seen.outcome)


def _only_like(bad_end: Observation | None, outcome: Outcome) -> Verdict:
    if bad_end is not None and bad_end.outcome is outcome:
        return Verdict.BAD
    return Verdict.UNTESTABLE


def _kind(seen: Observation) -> Outcome:
    """Take "ran and failed" for one kind, whatever the exit status."""
    return Outcome.FAILED if seen.outcome is Outcome.NOT_RUNNABLE else seen.outcome


def _untestable(reason: str) -> Judgement:
    return Judgement(Verdict.UNTESTABLE, reason)
