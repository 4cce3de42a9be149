"""Checks whose runs differ, with the real command: what is random comes from a seeded count of runs."""

from __future__ import annotations

from datetime import date

import pytest
from loopback import Night, Tool, bad_from, nights, serve

FIRST, COUNT = date(2026, 8, 1), 17
STEP_DAY = date(2026, 8, 10)
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-17")

# Each run draws the next number of one seeded row: nothing depends on the clock.
DRAW = """
import pathlib, random
import torch
counter = pathlib.Path(__file__).with_name("counter")
number = int(counter.read_text()) if counter.exists() else 0
counter.write_text(str(number + 1))
chance = random.Random(1000 + number)
"""
FLAKY = DRAW + "assert not (torch.value == 2 and chance.random() < 0.4), 'now and then'\n"


def row(first_bad: date = STEP_DAY) -> list[Night]:
    return nights(FIRST, COUNT, bad_from(first_bad))


@pytest.mark.slow
def test_a_check_that_fails_now_and_then_is_found_with_its_rates(tool: Tool) -> None:
    tool.write("check.py", FLAKY)
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "--flaky", "check.py", timeout_s=300)
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-10"
    assert 0.95 <= ran.result["confidence"] < 1
    metric = ran.result["metric"]
    assert metric["name"] == "failure_rate"
    assert metric["before"] < 0.1 < 0.2 < metric["after"] < 0.7
    assert "confidence:" in ran.stdout and "the check fails in" in ran.stdout
    installs = [trial for trial in ran.result["trials"] if trial["install_s"] is not None]
    assert len(installs) < len(ran.result["trials"]) / 2  # a nightly that is there costs a check only


@pytest.mark.slow
def test_a_nightly_with_two_verdicts_is_noticed_by_itself(tool: Tool) -> None:
    # Passes and fails by turns on the bad side: the confirmation meets the other face.
    tool.write("check.py", DRAW + "assert not (torch.value == 2 and number % 8 == 7), 'turns'\n")
    tool.write("counter", "6")
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "check.py", timeout_s=300)
    assert ran.code in (0, 3, 4)
    verdicts = {(t["date"], t["verdict"]) for t in ran.result["trials"]}
    two = [day for day, verdict in verdicts if verdict == "good" and (day, "bad") in verdicts]
    assert two, "the worlds of this test must meet both faces"
    assert ran.result["status"] != "found" or ran.result["confidence"] < 1


@pytest.mark.slow
def test_ends_that_do_not_differ_are_said_so(tool: Tool) -> None:
    tool.write("check.py", DRAW + "assert chance.random() < 0.5\n")
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "--flaky", "check.py", timeout_s=300)
    assert ran.code == 4
    assert "cannot be told apart" in ran.stderr + ran.stdout
    assert "of the runs at the earlier end" in ran.stdout
    assert ran.result["first_bad"] is None
