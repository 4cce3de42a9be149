"""Support: answers of small bisections, to be written down as text, Markdown and JSON."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rows import nightly, observe

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Find, Installed, Observation, Verdict
from nightly_bisect.report.answer import Answer, Build, Setting, Status, Suspect

OLD_COMMIT, NEW_COMMIT = "1a2b3c4d5e" * 4, "0f9e8d7c6b" * 4
OLD_MAIN, NEW_MAIN = "aaaa1111bb" * 4, "cccc2222dd" * 4
REPOSITORY = "https://github.com/pytorch/pytorch"

SETTING = Setting(
    find=Find.REGRESSION,
    package="torch",
    channel="cpu",
    target="cp312 linux x86_64",
    repository=REPOSITORY,
    bisection="check-1",
    resume="nightly-bisect resume check-1",
    reproduce="nightly-bisect --good 2024-06-01 --bad 2024-06-03 check.py",
    check_name="check.py",
    check_text="import torch\nassert torch.ones(1) > 0\n",
    environment=(("nightly-bisect", "0.1.0"), ("channel", "cpu")),
)
BEFORE = Build(nightly(1), OLD_COMMIT, OLD_MAIN)
AFTER = Build(nightly(2), NEW_COMMIT, NEW_MAIN)


def trial(letter: str, day: int, verdict: Verdict, **more: Any) -> tuple[Observation, Judgement]:
    seen = observe(letter, day, **more)
    return seen, Judgement(verdict, seen.reason)


def found(**changes: Any) -> Answer:
    """Return the answer of three nightlies: good, good, bad; ``changes`` are fields of it."""
    torch = [Installed("torch", night.version) for night in (nightly(1), nightly(2))]
    trials = (
        trial("g", 0, Verdict.GOOD, install_s=30.04, check_s=2.0),
        trial(
            "b",
            2,
            Verdict.BAD,
            commit=NEW_COMMIT,
            wheel_sha256="ab" * 32,
            python="3.12.4",
            installed=(Installed("numpy", "2.0.0"), torch[1], Installed("triton", "3.0.0")),
            install_s=31.25,
            check_s=2.5,
        ),
        trial(
            "g",
            1,
            Verdict.GOOD,
            commit=OLD_COMMIT,
            installed=(Installed("numpy", "1.26.4"), Installed("sympy", "1.12"), torch[0]),
        ),
    )
    answer = Answer(
        SETTING,
        Status.FOUND,
        0,
        f"The first bad nightly is {AFTER.version} of {AFTER.date}.",
        None,
        BEFORE,
        AFTER,
        (Suspect(AFTER, None),),
        trials,
        ("--bad: moved",),
    )
    return replace(answer, **changes)


def ranged(**changes: Any) -> Answer:
    """Return the answer of four nightlies of which the third cannot be tested."""
    after = Build(nightly(3), NEW_COMMIT)
    trials = (
        trial("g", 1, Verdict.GOOD, commit=OLD_COMMIT),
        trial("b", 3, Verdict.BAD, commit=NEW_COMMIT),
        trial("x", 2, Verdict.UNTESTABLE, install_s=3.0),
    )
    answer = Answer(
        SETTING,
        Status.RANGE,
        3,
        "The first bad nightly is one of 2.",
        "make the check work there too",
        BEFORE,
        after,
        (Suspect(Build(nightly(2)), "no solution"), Suspect(after, None)),
        trials,
    )
    return replace(answer, **changes)


def set_up(**changes: Any) -> Setting:
    return replace(SETTING, **changes)


def stopped(**changes: Any) -> Answer:
    """Return the answer of a bisection that could not begin."""
    answer = Answer(
        SETTING, Status.NOT_REPRODUCED, 4, "The bad end does not show the failure.", "give another"
    )
    return replace(answer, **changes)
