from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from answers import SETTING, set_up
from rows import World, day_of, nightly, observe, question

from nightly_bisect.bisection.conclusion import conclude, ended_early
from nightly_bisect.bisection.course import Contradicted, Question
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.errors import (
    BisectError,
    CheckCannotRun,
    NothingInstallable,
    StorageFault,
    Unreachable,
    UsageError,
)
from nightly_bisect.model import Find, Nightly, Observation, Verdict
from nightly_bisect.report.answer import Answer, Status

FIX = Find.FIX


@dataclass
class Noted(World):
    """A world whose trials know more than their letters: fields of the observation, by day."""

    more: Callable[[int], dict[str, Any]] = lambda day: {}

    def run(self, nightly: Nightly, repeat: int) -> Observation:
        super().run(nightly, repeat)
        day = day_of(nightly)
        return observe(self.letters[day], day, **self.more(day))


def answer_to(
    letters: str,
    asked: Question | None = None,
    *,
    more: Callable[[int], dict[str, Any]] = lambda day: {},
    main_commit: Callable[[str], str | None] = lambda commit: None,
    **setting: Any,
) -> Answer:
    asked = asked or question()
    bisection = Noted(letters, more=more).bisection(asked)
    return conclude(bisection, bisection.run(), set_up(find=asked.find, **setting), ("first",), main_commit)


def test_one_suspect_is_found() -> None:
    answer = answer_to("gggbb")
    assert (answer.status, answer.exit_code, answer.hint) == (Status.FOUND, 0, None)
    assert answer.sentence == "The first bad nightly is 2.5.0.dev20240604+cpu of 2024-06-04."
    assert answer.before and answer.before.nightly == nightly(2)
    assert answer.first == answer.after and answer.after and answer.after.nightly == nightly(3)
    assert [suspect.build for suspect in answer.suspects] == [answer.after]
    assert [(day_of(o.nightly), j.verdict) for o, j in answer.trials] == [
        (0, Verdict.GOOD),
        (4, Verdict.BAD),
        (2, Verdict.GOOD),
        (3, Verdict.BAD),
    ]


def test_a_fix_is_found_in_its_own_words() -> None:
    answer = answer_to("bbbgg", question(FIX))
    assert answer.sentence == "The first good nightly is 2.5.0.dev20240604+cpu of 2024-06-04."
    assert answer.words == ("last bad", "first good")


def test_several_suspects_are_a_range_and_say_why_each_was_not_tested() -> None:
    answer = answer_to("ggowsb")
    assert (answer.status, answer.exit_code, answer.first) == (Status.RANGE, 3, None)
    assert answer.sentence == (
        "The first bad nightly is one of 4: those between 2024-06-02 (good) and 2024-06-06 (bad) "
        "could not be tested."
    )
    assert [(day_of(s.build.nightly), s.reason) for s in answer.suspects] == [
        (2, "fails otherwise: exit 1: ImportError: no foo"),
        (3, "no wheel for cp312 linux x86_64; there are some for cp39 linux x86_64"),
        (4, "exit 125: the check asks to skip"),
        (5, None),
    ]
    assert answer.hint and "--python" in answer.hint


@pytest.mark.parametrize(
    ("letters", "asked", "status", "code", "sentence", "hint"),
    [
        (
            "bbgg",
            question(),
            Status.NOT_REPRODUCED,
            4,
            "The ends are the other way round: 2024-06-01 (2.5.0.dev20240601+cpu) failed: exit 1: "
            "RuntimeError: boom, but 2024-06-04 (2.5.0.dev20240604+cpu) passed: exit 0.",
            "--find-fix",
        ),
        (
            "ggbb",
            question(FIX),
            Status.NOT_REPRODUCED,
            4,
            "The ends are the other way round: 2024-06-04 (2.5.0.dev20240604+cpu) failed: exit 1: "
            "RuntimeError: boom, but 2024-06-01 (2.5.0.dev20240601+cpu) passed: exit 0.",
            "leave `--find-fix` out",
        ),
        (
            "bb",
            question(),
            Status.NOT_REPRODUCED,
            4,
            "The good end does not pass: 2024-06-01 (2.5.0.dev20240601+cpu) failed: exit 1: RuntimeError: boom; "
            "the bad end: 2024-06-02 (2.5.0.dev20240602+cpu) failed: exit 1: RuntimeError: boom.",
            "earlier --good",
        ),
        (
            "gg",
            question(),
            Status.NOT_REPRODUCED,
            4,
            "The bad end does not show the failure: 2024-06-02 (2.5.0.dev20240602+cpu) passed: exit 0.",
            "another --bad",
        ),
        (
            "bbb",
            question(walk_back=True),
            Status.NOT_REPRODUCED,
            4,
            "No good nightly was found, back to 2024-06-01; 2024-06-03 (2.5.0.dev20240603+cpu) failed: "
            "exit 1: RuntimeError: boom.",
            "--good",
        ),
        (
            "sskss" + "gb",
            question(),
            Status.NOT_REPRODUCED,
            4,
            "No nightly at the end --good could be tested: 2024-06-01, 2024-06-02, 2024-06-04, 2024-06-05 "
            "skipped: exit 125: the check asks to skip; 2024-06-03 killed: SIGKILL.",
            "another --good",
        ),
        (
            "gxk",
            question(),
            Status.NOT_REPRODUCED,
            4,
            "No nightly at the end --bad could be tested: 2024-06-03 killed: SIGKILL; 2024-06-02 not "
            "installed: no solution.",
            "another --bad",
        ),
        (
            "gxd",
            question(),
            Status.FAILED,
            6,
            "No nightly at the end --bad could be tested: 2024-06-03 gone: the server no longer has its "
            "wheel; 2024-06-02 not installed: no solution.",
            "another --bad",
        ),
        (
            "ixdv" + "igb",
            question(),
            Status.FAILED,
            6,
            "No nightly at the end --good could be tested: 2024-06-01, 2024-06-05 not importable: import "
            "torch: ImportError: libc; 2024-06-02 not installed: no solution; 2024-06-03 gone: the server no "
            "longer has its wheel; 2024-06-04 wrong build: the module says 2.4.0.",
            "--with",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 8 else "",
)
def test_ends_that_do_not_behave_are_named_with_what_was_seen_and_what_to_do(
    letters: str, asked: Question, status: Status, code: int, sentence: str, hint: str
) -> None:
    answer = answer_to(letters, asked)
    assert (answer.status, answer.exit_code, answer.sentence) == (status, code, sentence)
    assert answer.hint and hint in answer.hint
    assert (answer.before, answer.after, answer.suspects) == (None, None, ())
    assert answer.trials


def test_a_check_that_cannot_run_at_the_good_end_is_an_error() -> None:
    with pytest.raises(CheckCannotRun, match="exit 127: sh: foo: not found") as caught:
        answer_to("nggb")
    assert (caught.value.exit_code, "--with" in caught.value.hint) == (8, True)


@pytest.mark.parametrize("find", Find)
def test_a_contradiction_is_inconclusive_and_names_both_nightlies(find: Find) -> None:
    letters = "gbgb" if find is Find.REGRESSION else "bgbg"
    bisection = World(letters).bisection(question(find))
    bisection.observations = [observe(letter, day) for day, letter in enumerate(letters)]
    assert bisection.move == Contradicted(after=1, before=2)
    answer = conclude(bisection, bisection.move, set_up(find=find), (), lambda commit: None)
    assert (answer.status, answer.exit_code) == (Status.INCONCLUSIVE, 3)
    assert "2024-06-02 (2.5.0.dev20240602+cpu) is already changed" in answer.sentence
    assert "the later 2024-06-03 (2.5.0.dev20240603+cpu) is not" in answer.sentence
    assert (answer.before, answer.suspects) == (None, ())


def test_a_bisection_that_goes_on_has_no_answer_yet() -> None:
    bisection = World("gb").bisection(question())
    with pytest.raises(AssertionError, match="goes on"):
        conclude(bisection, bisection.move, SETTING, (), lambda commit: None)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (None, Status.INTERRUPTED, 130),
        (UsageError("no", hint="h"), Status.FAILED, 2),
        (Unreachable("no", url="u", hint="h"), Status.FAILED, 5),
        (NothingInstallable("no", hint="h"), Status.FAILED, 6),
        (StorageFault("no", hint="h"), Status.FAILED, 7),
        (CheckCannotRun("no", hint="h"), Status.FAILED, 8),
    ],
)
def test_what_ended_early_keeps_its_trials_and_the_errors_exit_code(
    error: BisectError | None, status: Status, code: int
) -> None:
    bisection = World("ggbb").bisection(question())
    bisection.observations.append(observe("g", 0))
    for started in (None, bisection):
        answer = ended_early(started, SETTING, error, ("first",))
        assert (answer.status, answer.exit_code, answer.notes) == (status, code, ("first",))
        assert (answer.sentence, answer.hint) == (("no", "h") if error else ("Interrupted.", None))
        assert len(answer.trials) == (0 if started is None else 1)
        assert answer.first is None


def commit_of(day: int) -> dict[str, Any]:
    return {"commit": f"{day:040x}"}


def test_commits_of_main_are_compared_where_they_can_be_had() -> None:
    answer = answer_to("gb", more=commit_of, main_commit=lambda commit: f"main{commit[-4:]}")
    assert answer.compare_url == "https://github.com/pytorch/pytorch/compare/main0000...main0001"
    assert answer.notes == ("first",)


@pytest.mark.parametrize(
    ("main", "repository", "noted"),
    [
        (lambda commit: None, SETTING.repository, "nightly branch"),
        (lambda commit: "same", SETTING.repository, "same commit of main"),
        (lambda commit: None, None, None),
    ],
)
def test_commits_that_cannot_be_compared_are_noted(
    main: Callable[[str], str | None], repository: str | None, noted: str | None
) -> None:
    answer = answer_to("gb", more=commit_of, main_commit=main, repository=repository)
    assert answer.compare_url is None
    assert [noted in note for note in answer.notes if noted and note != "first"] == ([True] if noted else [])
    assert len(answer.notes) == (2 if noted else 1)


@pytest.mark.parametrize(
    ("letters", "noted"),
    [
        ("g-gg---bb-b", ["No wheel answered for 2024-06-05, 2024-06-06, 2024-06-07"]),
        ("ggbb-bbbb", []),
        ("gggg-ggbb", []),
    ],
)
def test_absent_days_are_noted_where_they_lie_between_the_two_sides(letters: str, noted: list[str]) -> None:
    assert [note.partition(":")[0] for note in answer_to(letters).notes] == ["first", *noted]


@pytest.mark.parametrize(
    ("channel", "notes"),
    [
        ("cpu", ["first", "The index lists no nightly of the 3 days between them."]),
        ("release", ["first"]),
        (None, ["first", "The index lists no nightly of the 3 days between them."]),
    ],
)
def test_days_without_a_nightly_between_the_two_sides_are_noted(
    channel: str | None, notes: list[str]
) -> None:
    world = World("g...b")
    bisection = Bisection([nightly(0), nightly(4)], question(), world, world, lambda _: None)
    answer = conclude(bisection, bisection.run(), set_up(channel=channel), ("first",), lambda commit: None)
    assert list(answer.notes) == notes


def test_what_every_check_had_to_say_is_noted_once() -> None:
    def said(day: int) -> dict[str, Any]:
        notes = ("the check never imported torch", f"only on {day}")
        return {"notes": notes, "check_s": 1.0} if day != 1 else {"notes": (), "check_s": None}

    assert answer_to("gxggbb", more=said).notes == ("first", "the check never imported torch")


def test_a_suspect_keeps_the_commit_that_it_was_seen_with() -> None:
    answer = answer_to("gsb", more=commit_of)
    assert [suspect.build.commit for suspect in answer.suspects] == [f"{day:040x}" for day in (1, 2)]
