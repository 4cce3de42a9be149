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


# A number with 2 % noise, 10 % larger on the bad side: what a benchmark reports, without a clock.
NOISY = DRAW + (
    "level = 0.1 if torch.value == 1 else 0.11\n"
    "print('nightly-bisect: latency=%.9f s' % (level * (1 + chance.gauss(0, 0.02))))\n"
)


@pytest.mark.slow
def test_a_number_that_grows_is_found_with_its_size(tool: Tool) -> None:
    tool.write("check.py", NOISY)
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "--metric", "latency", "check.py", timeout_s=300)
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-10"
    metric = ran.result["metric"]
    assert (metric["name"], metric["unit"]) == ("latency", "s")
    low, high = metric["interval"]
    assert low < 0.10 < high and 0.07 < metric["change"] < 0.13
    assert (
        "change:      latency" in ran.stdout
        and "Measured beside one another in new environments" in ran.stdout
    )
    verdicts = {(trial["date"], trial["verdict"]) for trial in ran.result["trials"]}
    assert ("2026-08-09", "good") in verdicts and ("2026-08-10", "bad") in verdicts
    pairs = [trial for trial in ran.result["trials"] if trial["reference"]]
    assert all(trial["beside"] for trial in pairs) and len(pairs) >= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--lower-is-worse",), "got better, not worse"),
        (("--min-effect", "50%"), "cannot be told apart"),
    ],
)
def test_numbers_that_are_not_worse_are_no_regression(
    tool: Tool, options: tuple[str, ...], words: str
) -> None:
    tool.write("check.py", NOISY)
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "--metric", "latency", *options, "check.py", timeout_s=300)
    assert ran.code == 4, ran.stderr
    assert words in ran.stdout
    assert ran.result["first_bad"] is None


def test_a_sweep_tells_every_change(tool: Tool) -> None:
    tool.write("check.py", "import torch\nassert torch.value == 1\n")
    bad = {date(2026, 8, day) for day in range(6, 12)}
    history = nights(FIRST, COUNT, lambda day: "value = 2" if day in bad else "value = 1")
    with serve(history) as server:
        ran = tool.bisect(server, *ENDS, "--sweep", "check.py")
        nothing = tool.bisect(
            server, "--good", "2026-08-12", "--bad", "2026-08-17", "--sweep", "4", "check.py"
        )
    assert ran.code == 3, ran.stderr
    assert [(c["after"]["date"], c["at_latest"]["date"]) for c in ran.result["changes"]] == [
        ("2026-08-05", "2026-08-07"),
        ("2026-08-11", "2026-08-13"),
    ]
    assert len(ran.result["trials"]) == 9
    assert nothing.code == 4 and "Nothing changes over 4 nightlies" in nothing.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--flaky", "--metric", "x"), "--flaky is for checks that pass or fail"),
        (("--threshold", "1"), "--threshold needs a number"),
        (("--metric", "x", "--min-effect", "much"), "is no share"),
        (("--flaky", "--repeat", "3"), "--repeat has no say where runs differ"),
        (("--sweep", "2"), "measures no more than the ends"),
    ],
)
def test_options_that_do_not_go_together_are_refused_before_anything_is_asked(
    tool: Tool, words: tuple[str, ...], message: str
) -> None:
    tool.write("check.py", "import torch\n")
    ran = tool.run("--index-url", "http://127.0.0.1:9/", *ENDS, *words, "check.py")
    assert ran.code == 2
    assert message in ran.stderr


def test_a_noisy_check_needs_both_ends(tool: Tool) -> None:
    tool.write("check.py", "import torch\n")
    ran = tool.run("--index-url", "http://127.0.0.1:9/", "--flaky", "check.py")
    assert ran.code == 2 and "needs both ends" in ran.stderr


@pytest.mark.parametrize("function", ["fingerprint", "outputs"])
def test_what_is_compared_with_the_good_ends_finds_the_first_that_differs(tool: Tool, function: str) -> None:
    tool.write("check.py", f"import torch\ndef {function}():\n    return str(torch.value)\n" if function == "fingerprint"
               else "import torch\ndef outputs():\n    return {'x': [torch.value]}\n")  # fmt: skip
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-10"


def test_a_number_that_is_never_reported_ends_the_run_and_names_those_that_are(tool: Tool) -> None:
    tool.write("check.py", "import torch\nprint('nightly-bisect: other=1')\n")
    with serve(row()) as server:
        ran = tool.bisect(server, *ENDS, "--metric", "latency", "check.py")
    assert ran.code == 8
    assert "reported no number 'latency'" in ran.stderr and "other" in ran.stderr
