from __future__ import annotations

import signal
from pathlib import Path

import pytest

from nightly_bisect.bisection.trial import read_ending
from nightly_bisect.model import Outcome
from nightly_runners.contract import Finished

FAILED, CRASHED, KILLED = Outcome.FAILED, Outcome.CRASHED, Outcome.KILLED
SKIPPED, NOT_RUNNABLE, ODD = Outcome.SKIPPED, Outcome.NOT_RUNNABLE, Outcome.ODD_STATUS
NEITHER = "is neither a pass nor a failure (1–124)"
CRASHES = {"SIGSEGV", "SIGABRT", "SIGILL", "SIGBUS", "SIGFPE"}


def finished(status: int | None = None, number: int | None = None, *, timed_out: bool = False) -> Finished:
    return Finished(status, number, timed_out, 61.2, Path("out"), Path("err"))


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (0, Outcome.PASSED, "exit 0"),
        (1, FAILED, "exit 1"),
        (2, FAILED, "exit 2"),
        (124, FAILED, "exit 124"),
        (125, SKIPPED, "exit 125: the check asks to skip"),
        (126, NOT_RUNNABLE, "exit 126"),
        (127, NOT_RUNNABLE, "exit 127"),
        (128, ODD, f"exit 128 {NEITHER}"),
        (129, KILLED, "SIGHUP"),
        (130, KILLED, "SIGINT"),
        (132, CRASHED, "SIGILL"),
        (134, CRASHED, "SIGABRT"),
        (135, CRASHED, "SIGBUS"),
        (136, CRASHED, "SIGFPE"),
        (137, KILLED, "SIGKILL"),
        (139, CRASHED, "SIGSEGV"),
        (143, KILLED, "SIGTERM"),
        (200, ODD, f"exit 200 {NEITHER}"),
        (254, ODD, f"exit 254 {NEITHER}"),
        (255, ODD, f"exit 255 {NEITHER}"),
    ],
)
def test_an_exit_status_means_what_the_table_says(status: int, outcome: Outcome, reason: str) -> None:
    assert read_ending(finished(status)) == (outcome, reason)


def test_only_0_passes_and_only_1_to_124_fail() -> None:
    outcomes = {status: read_ending(finished(status))[0] for status in range(256)}
    assert [status for status, outcome in outcomes.items() if outcome is Outcome.PASSED] == [0]
    assert [status for status, outcome in outcomes.items() if outcome is FAILED] == [*range(1, 125)]


@pytest.mark.parametrize("number", signal.Signals)
def test_a_signal_is_a_crash_or_a_kill_also_through_a_shell(number: signal.Signals) -> None:
    ending = (CRASHED if number.name in CRASHES else KILLED, number.name)
    assert read_ending(finished(number=number)) == ending
    assert read_ending(finished(128 + number)) == ending


def test_a_signal_without_a_name_kills_too() -> None:
    assert read_ending(finished(number=50)) == (KILLED, "signal 50")


@pytest.mark.parametrize(("status", "number"), [(None, 15), (None, 9), (None, None), (0, None), (139, None)])
def test_a_time_out_is_one_however_the_process_ended_then(status: int | None, number: int | None) -> None:
    ending = read_ending(finished(status, number, timed_out=True))
    assert ending == (Outcome.TIMED_OUT, "did not end within 61 s")
