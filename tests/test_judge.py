from __future__ import annotations

import re
from typing import Any

import pytest
from rows import observe

from nightly_bisect.judge import Counts, Judgement, Reference, Rules, Threshold, judge, number_text
from nightly_bisect.model import Metric, Observation, Outcome, Signature, Verdict

GOOD, BAD, UNTESTABLE = Verdict.GOOD, Verdict.BAD, Verdict.UNTESTABLE
CRASH_BAD, CRASH_NOT = {"on_crash": Counts.BAD}, {"on_crash": Counts.UNTESTABLE}
TIME_OUT_BAD, TIME_OUT_NOT = {"on_timeout": Counts.BAD}, {"on_timeout": Counts.UNTESTABLE}
ANY = {"any_failure": True}


# Letters as in rows.py; the last column is the bad end, "" while it is not known.
@pytest.mark.parametrize(
    ("letter", "verdict", "rules", "bad_end"),
    [
        ("g", GOOD, {}, ""),
        ("g", GOOD, {}, "b"),
        ("g", GOOD, ANY, "t"),
        ("b", BAD, {}, ""),
        ("b", BAD, {}, "b"),
        ("b", UNTESTABLE, {}, "o"),
        ("b", BAD, ANY, "o"),
        ("b", UNTESTABLE, {}, "c"),
        ("b", UNTESTABLE, {}, "t"),
        ("b", UNTESTABLE, {}, "i"),
        ("n", BAD, {}, ""),
        ("n", BAD, {}, "n"),
        ("n", UNTESTABLE, {}, "b"),
        ("c", BAD, {}, ""),
        ("c", BAD, {}, "c"),
        ("c", UNTESTABLE, {}, "b"),
        ("c", BAD, ANY, "b"),
        ("c", BAD, CRASH_BAD, "c"),
        ("c", UNTESTABLE, CRASH_NOT, ""),
        ("c", UNTESTABLE, CRASH_NOT, "c"),
        ("c", UNTESTABLE, {**CRASH_NOT, **ANY}, "b"),
        ("t", UNTESTABLE, {}, ""),
        ("t", BAD, {}, "t"),
        ("t", UNTESTABLE, {}, "b"),
        ("t", UNTESTABLE, ANY, "b"),
        ("t", BAD, TIME_OUT_BAD, ""),
        ("t", BAD, TIME_OUT_BAD, "t"),
        ("t", BAD, TIME_OUT_BAD, "b"),
        ("t", BAD, {**TIME_OUT_BAD, **ANY}, "b"),
        ("t", UNTESTABLE, TIME_OUT_NOT, "t"),
        ("i", UNTESTABLE, {}, ""),
        ("i", BAD, {}, "i"),
        ("i", UNTESTABLE, {}, "b"),
        ("i", UNTESTABLE, ANY, "b"),
        ("m", UNTESTABLE, {}, ""),
        ("m", UNTESTABLE, {}, "m"),
        ("m", UNTESTABLE, ANY, "b"),
        *((letter, UNTESTABLE, {}, bad_end) for letter in "skexvdu" for bad_end in ("", "b", letter)),
        *((letter, UNTESTABLE, ANY, "b") for letter in "skexvdum"),
    ],
)
def test_what_happened_is_judged_by_the_rules_and_the_bad_end(
    letter: str, verdict: Verdict, rules: dict[str, Any], bad_end: str
) -> None:
    seen = observe(letter)
    reference = Reference(observe(bad_end, 9)) if bad_end else None
    assert judge(seen, Rules(**rules), reference).verdict is verdict


def test_every_outcome_has_a_verdict() -> None:
    verdicts = {
        outcome: judge(Observation(observe("g").nightly, outcome, ""), Rules()).verdict for outcome in Outcome
    }
    assert [outcome for outcome, verdict in verdicts.items() if verdict is GOOD] == [Outcome.PASSED]


def test_a_failure_of_another_kind_says_so() -> None:
    judgement = judge(observe("o"), Rules(), Reference(observe("b", 9)))
    assert judgement == Judgement(UNTESTABLE, "fails otherwise: exit 1: ImportError: no foo")


@pytest.mark.parametrize("letter", "gbcskx")
def test_a_verdict_keeps_the_reason_of_what_was_seen(letter: str) -> None:
    seen = observe(letter)
    assert judge(seen, Rules()).reason == seen.reason


def test_the_exit_status_alone_does_not_tell_failures_apart() -> None:
    missing = observe("n", signature=Signature("RuntimeError", "boom"))
    assert judge(missing, Rules(), Reference(observe("b", 9))).verdict is BAD


def printed(*tail: str, status: int = 1) -> Observation:
    """Return a failure without an exception, known by what it printed."""
    return observe("b", signature=Signature("", "the last line"), tail=tail, status=status)


@pytest.mark.parametrize(
    ("seen", "bad_end", "verdict"),
    [
        (printed("wrong sum"), printed("loading", "wrong sum"), BAD),
        (printed("wrong sum"), printed("wrong shape"), UNTESTABLE),
        # What it says when it passes too tells nothing.
        (printed("wrong sum", "bye"), printed("wrong sum"), BAD),
        (printed("wrong sum", "bye"), printed("wrong shape", "bye"), UNTESTABLE),
        (printed("wrong sum", "bye"), printed("bye"), UNTESTABLE),
        # Nothing but that: the exit status is all there is.
        (printed("bye", status=3), printed(status=3), BAD),
        (printed("bye", status=3), printed("bye", status=4), UNTESTABLE),
        (printed("wrong sum", status=3), printed("wrong sum", status=4), BAD),
        (printed("wrong sum"), observe("b", tail=("wrong sum",)), UNTESTABLE),
        (observe("b", tail=("one",)), observe("b", tail=("other",)), BAD),
    ],
)
def test_a_failure_without_an_exception_is_known_by_what_only_failing_ones_print(
    seen: Observation, bad_end: Observation, verdict: Verdict
) -> None:
    reference = Reference(bad_end, observe("g", 8, tail=("loading", "bye")))
    assert judge(seen, Rules(), reference).verdict is verdict


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("letter", "gbtx")
def test_what_was_marked_by_hand_is_what_the_user_says(letter: str, verdict: Verdict) -> None:
    seen = observe(letter, marked=verdict)
    assert judge(seen, Rules(any_failure=True), Reference(observe("o", 9))).verdict is verdict
    assert judge(seen, Rules()).verdict is verdict


def test_a_bad_end_that_was_marked_shows_no_failure_to_compare_with() -> None:
    marked = Reference(observe("o", 9, marked=BAD))
    assert judge(observe("b"), Rules(), marked).verdict is BAD
    assert judge(observe("t"), Rules(), Reference(observe("t", 9, marked=BAD))).verdict is UNTESTABLE


def test_one_message_of_two_kinds_is_not_one_failure() -> None:
    failing_import = observe("i", 9)
    failing_check = observe("b", signature=failing_import.signature)
    assert judge(failing_check, Rules(), Reference(failing_import)).verdict is UNTESTABLE


@pytest.mark.parametrize(
    ("letter", "matched", "verdict"),
    [
        ("b", True, BAD),
        ("o", True, BAD),
        ("c", True, BAD),
        ("b", False, UNTESTABLE),
        ("n", False, UNTESTABLE),
        ("g", None, GOOD),
        ("x", None, UNTESTABLE),
        ("t", True, UNTESTABLE),
        ("m", True, BAD),
        ("m", False, UNTESTABLE),
    ],
)
@pytest.mark.parametrize(
    "reference", [None, Reference(observe("b", 9, matched=True))], ids=["alone", "known"]
)
def test_with_match_a_failure_is_bad_when_its_text_matches(
    letter: str, matched: bool | None, verdict: Verdict, reference: Reference | None
) -> None:
    rules = Rules(match=re.compile("boom"))
    assert judge(observe(letter, matched=matched), rules, reference).verdict is verdict


def test_the_bad_end_that_does_not_match_is_not_bad_either() -> None:
    seen = observe("b", matched=False)
    judgement = judge(seen, Rules(match=re.compile("boom"), any_failure=True), Reference(seen))
    reason = "fails otherwise: no match of --match (exit 1: RuntimeError: boom)"
    assert judgement == Judgement(UNTESTABLE, reason)


def measured(value: float | None, letter: str = "g") -> Observation:
    metrics = (Metric("other", None, 1.0),) if value is None else (Metric("time", "s", value),)
    return observe(letter, metrics=metrics)


@pytest.mark.parametrize(
    ("value", "lower_is_worse", "verdict", "reason"),
    [
        (0.0021, False, Verdict.BAD, "time 2.1 ms: above 0.002"),
        (0.002, False, Verdict.GOOD, "time 2 ms: not above 0.002"),
        (0.0021, True, Verdict.GOOD, "time 2.1 ms: not below 0.002"),
        (0.0019, True, Verdict.BAD, "time 1.9 ms: below 0.002"),
        (None, False, Verdict.UNTESTABLE, "it reported no number 'time'; there are other"),
    ],
)
def test_a_threshold_makes_a_number_good_or_bad(
    value: float | None, lower_is_worse: bool, verdict: Verdict, reason: str
) -> None:
    rules = Rules(metric="time", threshold=Threshold("time", 0.002, lower_is_worse))
    assert judge(measured(value), rules) == Judgement(verdict, reason)


@pytest.mark.parametrize("letter", "boctnixskevdum")
def test_a_run_that_does_not_end_well_has_measured_nothing(letter: str) -> None:
    rules = Rules(metric="time", threshold=Threshold("time", 0.002))
    assert judge(measured(9.0, letter), rules).verdict is Verdict.UNTESTABLE


def test_without_a_threshold_one_number_alone_is_unsure() -> None:
    assert judge(measured(0.5), Rules(metric="time")) == Judgement(Verdict.UNSURE, "time 500 ms")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2.5, "s", "2.5 s"),
        (0.0125, "s", "12.5 ms"),
        (3.25e-6, "s", "3.25 µs"),
        (1e-9, "s", "0.001 µs"),
        (0.0, "s", "0 µs"),
        (-0.5, "s", "-500 ms"),
        (3 * 2**20, "B", "3 MiB"),
        (12.0, None, "12"),
        (0.123456789, "x", "0.123457 x"),
    ],
)
def test_numbers_are_shown_in_a_handy_size(value: float, unit: str | None, text: str) -> None:
    assert number_text(value, unit) == text
