from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rows import (
    UNTESTABLE_BESIDE_BOOM,
    World,
    alone,
    day_of,
    in_days,
    located,
    nightly,
    observe,
    question,
    slots,
)

from nightly_bisect.bisection.course import Located, Move, Stopped, Trouble, next_move
from nightly_bisect.bisection.course import TestNext as Next
from nightly_bisect.bisection.events import Tested as Told
from nightly_bisect.bisection.events import Working
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.judge import Judgement
from nightly_bisect.model import Asked, Find, Nightly, Observation, Verdict
from nightly_bisect.search import most_trials


def run(letters: str, find: Find = Find.REGRESSION, *, walk_back: bool = False) -> tuple[World, Move]:
    world = World(letters)
    bisection = world.bisection(question(find, walk_back=walk_back))
    move = bisection.run()
    return world, in_days(bisection.slots, move)


def test_every_trial_is_told_with_its_verdict_and_what_may_follow() -> None:
    world, _ = run("ggbbb")
    told = [event for event in world.events if isinstance(event, Told)]
    assert [(day_of(e.observation.nightly), e.judgement.verdict.value, e.steps_left) for e in told] == [
        (0, "good", None),
        (4, "bad", 2),
        (2, "bad", 1),
        (1, "good", 0),
    ]


@pytest.mark.parametrize(
    ("letters", "tested", "asked", "answer"),
    [
        ("ggGbb", [0, 4, 2, 3], [2], located(2, 3)),
        ("gg-bb", [0, 4, 1, 3], [2], Located(1, 3, (3,))),
        ("g---b", [0, 4], [2, 1, 3], Located(0, 4, (4,))),
        ("g-W-b", [0, 4], [2, 1, 3], Located(0, 4, (2, 4))),
        ("ggg-bbbb", [0, 7, 4, 1, 2], [3], Located(2, 4, (4,))),
        ("GgggbbB", [0, 6, 3, 4], [0, 6], located(3, 4)),
        ("--ggbb--", [2, 5, 3, 4], [0, 1, 7, 6], located(3, 4)),
    ],
)
def test_an_unlisted_day_is_asked_for_when_its_turn_comes_and_vanishes_if_absent(
    letters: str, tested: list[int], asked: list[int], answer: Located
) -> None:
    world, move = run(letters)
    assert (world.tested, world.asked, move) == (tested, asked, answer)


def test_a_question_about_a_day_is_told() -> None:
    world, _ = run("g-b")
    assert Working("asking for the nightly of 2024-06-02") in world.events


def test_absent_days_are_remembered_and_leave_the_row() -> None:
    bisection = World("g-B-b").bisection(question())
    bisection.run()
    assert [day_of(day) for day in bisection.absent_days] == [1]
    assert [day_of(slot) for slot in bisection.slots] == [0, 2, 3, 4]


def test_a_missing_day_at_the_boundary_is_a_suspect_if_there_are_other_wheels_of_it() -> None:
    world, move = run("gGWBb")
    assert (sorted(world.tested), world.asked_for_others, move) == ([0, 1, 3, 4], [2], located(1, 3))
    world, move = run("gWGbb-b")
    assert (world.asked_for_others, move) == ([], Located(2, 3, (3,)))


def test_an_observation_is_kept_before_it_is_told() -> None:
    world, kept = World("ggbb"), list[Observation | Asked]()
    bisection = Bisection(
        slots("ggbb"),
        question(),
        world,
        world,
        lambda event: kept_then_told.append(len(kept)) if isinstance(event, Told) else None,
        kept.append,
    )
    kept_then_told: list[int] = []
    bisection.run()
    assert kept == bisection.observations
    assert kept_then_told == [1, 2, 3, 4]


@pytest.mark.parametrize("letters", ["ggggbbbb", "gGsgbb-b", "g-GGBWBb"])
def test_what_was_observed_in_an_earlier_run_is_not_tested_again(letters: str) -> None:
    whole = World(letters).bisection(question())
    answer = in_days(whole.slots, whole.run())
    for number in range(len(whole.observations) + 1):
        world, known = World(letters), whole.observations[:number]
        again = Bisection(slots(letters), question(), world, world, lambda _: None, observations=known)
        assert in_days(again.slots, again.run()) == answer
        assert not {day_of(o.nightly) for o in known} & {*world.tested, *world.asked}


@pytest.mark.parametrize(
    ("letters", "move"),
    [
        # From the bad end the steps are 1, then 2: the last absent day is asked for only afterwards.
        ("GG" + "-" * 14 + "bb", Located(1, 16, (16,))),
        ("GG" + "-" * 15 + "bb", Stopped(Trouble.NEVER_GOOD, None, 18)),
        ("GG" + "-" * 40 + "bb", Stopped(Trouble.NEVER_GOOD, None, 43)),
        ("GG" + "-" * 8 + "B" + "-" * 8 + "bb", Located(1, 10, (10,))),
    ],
)
def test_walking_back_a_fortnight_without_a_nightly_is_the_beginning_of_history(
    letters: str, move: Move
) -> None:
    assert run(letters, walk_back=True)[1] == move


def test_between_claimed_ends_no_gap_is_too_long() -> None:
    world, move = run("g" + "-" * 40 + "b")
    assert (len(world.asked), move) == (40, Located(0, 41, (41,)))


class Flaw(Exception):
    """An error in the middle of a run."""


@dataclass
class Breaks(World):
    """A world whose trial number ``fatal`` ends in an error, once."""

    fatal: int = 3

    def run(self, nightly: Nightly, repeat: int) -> Observation:
        self.fatal -= 1
        if not self.fatal:
            raise Flaw
        return super().run(nightly, repeat)


def test_what_was_observed_survives_an_error_and_the_run_goes_on_from_there() -> None:
    world = Breaks("ggggbbbb")
    bisection = world.bisection(question())
    with pytest.raises(Flaw):
        bisection.run()
    assert world.tested == [day_of(o.nightly) for o in bisection.observations] == [0, 7]
    assert bisection.run() == located(3, 4)
    assert len(world.tested) == len(set(world.tested))


def test_a_verdict_changes_with_what_the_bad_end_shows() -> None:
    bisection = Bisection(slots("gob"), question(), World(""), World(""), lambda _: None)
    bisection.observations += [observe("g", 0), observe("o", 1)]
    assert bisection.judged()[1].verdict is Verdict.BAD
    bisection.observations.append(observe("b", 2))
    reason = "fails otherwise: exit 1: ImportError: no foo"
    assert bisection.judged()[1] == Judgement(Verdict.UNTESTABLE, reason)


def test_builds_of_one_day_are_told_apart_by_their_versions() -> None:
    first, last = nightly(0), nightly(1)
    again = replace(last, version=last.version.replace("+cpu", ".post1+cpu"))
    bisection = Bisection([first, last, again], question(), World(""), World(""), lambda _: None)
    bisection.observations += [
        replace(observe(letter), nightly=night) for letter, night in (("g", first), ("b", again), ("g", last))
    ]
    assert bisection.run() == located(1, 2)


@dataclass(frozen=True)
class Row:
    """A row with one change, as letters in order of time, and where that change is."""

    letters: str
    find: Find
    first: int

    @property
    def answer(self) -> Located:
        """All that can be known: the testable neighbours of the change, and what lies between."""
        testable = [i for i, letter in enumerate(self.letters) if letter.lower() in "gb"]
        before = max(i for i in testable if i < self.first)
        after = min(i for i in testable if i >= self.first)
        present = [i for i in range(before + 1, after + 1) if self.letters[i] != "-"]
        return Located(before, after, tuple(present))


@st.composite
def rows(draw: st.DrawFn, odd: str = UNTESTABLE_BESIDE_BOOM, most_absent: int = 60) -> Row:
    count = draw(st.integers(2, 60))
    first = draw(st.integers(1, count - 1))
    find = draw(st.sampled_from(Find))
    early, late = "gb" if find is Find.REGRESSION else "bg"
    letters = list(early * first + late * (count - first))
    absent = 0
    for day, length, letter in draw(
        st.lists(
            st.tuples(st.integers(1, count), st.integers(1, 6), st.sampled_from(odd or "g")),
            max_size=8 if odd else 0,
        )
    ):
        for i in range(day, min(day + length, count - 1)):
            if letter != "-" or absent < most_absent:
                absent += letter == "-"
                letters[i] = letter
    unlisted = draw(st.integers(0, count))
    return Row("".join(letters[:unlisted]).upper() + "".join(letters[unlisted:]), find, first)


def check_replay(bisection: Bisection, move: Move) -> None:
    """Hold a bisection to its observations: they alone say how it ended."""
    assert next_move(bisection.slots, bisection.runs, bisection.question) == move
    again = Bisection(bisection.slots, bisection.question, World(""), World(""), lambda _: None)
    again.observations = list(reversed(bisection.observations))
    assert again.run() == move


@settings(max_examples=250, derandomize=True, deadline=None)
@example(Row("gb", Find.REGRESSION, 1))
@example(Row("BG", Find.FIX, 1))
@given(rows(UNTESTABLE_BESIDE_BOOM + "-" * 12))
def test_every_bisection_ends_with_all_that_can_be_known(row: Row) -> None:
    world = World(row.letters)
    bisection = world.bisection(question(row.find))
    move = bisection.run()
    assert in_days(bisection.slots, move) == row.answer
    assert row.first in range(row.answer.before + 1, row.answer.after + 1)
    check_replay(bisection, move)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(rows("-"))
def test_where_all_can_be_tested_the_answer_is_exact_and_the_trials_are_few(row: Row) -> None:
    world = World(row.letters)
    bisection = world.bisection(question(row.find))
    move = bisection.run()
    assert isinstance(move, Located) and move.suspects == (move.after,)
    assert in_days(bisection.slots, move) == row.answer
    assert len(world.tested) <= 2 + most_trials(len(row.letters))
    told = [event for event in world.events if isinstance(event, Told)]
    assert told[0].steps_left is None
    for number, event in enumerate(told[1:], start=2):
        assert event.steps_left is not None and len(told) - number <= event.steps_left


@settings(max_examples=100, derandomize=True, deadline=None)
@given(rows())
def test_the_first_observations_alone_lead_to_the_next_trial(row: Row) -> None:
    listed = row.letters.lower()
    bisection = World(listed).bisection(question(row.find))
    bisection.run()
    for number, observation in enumerate(bisection.observations):
        earlier = {day_of(o.nightly): o for o in bisection.observations[:number]}
        move = next_move(slots(listed), alone(earlier), bisection.question)
        assert isinstance(move, Next) and move.index == day_of(observation.nightly)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(rows(UNTESTABLE_BESIDE_BOOM + "-" * 12, most_absent=13))
def test_walking_back_ends_with_all_that_can_be_known(row: Row) -> None:
    letters = row.letters
    if row.find is Find.FIX:
        letters = letters.translate(str.maketrans("gbGB", "bgBG"))
    bisection = World(letters).bisection(question(walk_back=True))
    move = bisection.run()
    assert in_days(bisection.slots, move) == row.answer
    check_replay(bisection, move)


@pytest.mark.parametrize(
    ("letters", "tested", "move"),
    [
        # A night that vanishes between the found good one and the bad end costs no further trial.
        ("GGGGG-BBBBB", [10, 9, 7, 3, 4, 6], Located(4, 6, (6,))),
        # Absent days on both sides of a listed night are no fortnight.
        ("G" * 20 + "-" * 10 + "b" + "-" * 5 + "b", [36, 30, 19], Located(19, 30, (30,))),
        # The oldest nights give way to their neighbours when they can't be tested.
        ("wgbbbb", [5, 4, 2, 1], located(1, 2)),
        ("sgggbbbbbbbbbbbb", None, located(3, 4)),
    ],
)
def test_walking_back_wastes_nothing_and_gives_up_nothing(
    letters: str, tested: list[int] | None, move: Move
) -> None:
    world, answer = run(letters, walk_back=True)
    assert answer == move
    if tested is not None:
        assert sorted(world.tested) == sorted(set(world.tested))
        assert len(world.tested) <= len(tested)


def test_walking_back_over_long_gaps_takes_few_trials() -> None:
    world, move = run("G" * 38 + "-" * 31 + "B" * 30 + "bb", walk_back=True)
    assert isinstance(move, Located)
    assert len(world.tested) <= 12


def test_a_fortnight_inside_the_found_range_is_no_beginning_of_history() -> None:
    _, move = run("G" + "-" * 13 + "B" * 15 + "b", walk_back=True)
    assert isinstance(move, Located | Stopped)


@pytest.mark.parametrize("walk_back", [False, True])
def test_both_sides_of_the_change_are_run_once_more_in_new_environments(walk_back: bool) -> None:
    world = World("gggggbbbb")
    bisection = world.bisection(question(confirm=True, walk_back=walk_back))
    assert bisection.run() == located(4, 5)
    assert world.tested[-2:] == [4, 5]
    assert [(day_of(o.nightly), o.repeat) for o in bisection.observations if o.repeat] == [(4, 1), (5, 1)]
    told = [event for event in world.events if isinstance(event, Told)]
    known = [event.steps_left for event in told if event.steps_left is not None]
    assert known == sorted(known, reverse=True) and known[-3:] == [2, 1, 0]


def test_what_was_confirmed_in_an_earlier_run_is_not_run_again() -> None:
    world = World("gggggbbbb")
    first = world.bisection(question(confirm=True))
    first.run()
    again = World("gggggbbbb")
    known = first.observations
    second = Bisection(
        slots("gggggbbbb"), question(confirm=True), again, again, lambda _: None, observations=known
    )
    assert second.run() == located(4, 5)
    assert again.tested == []


def test_a_side_that_was_marked_by_hand_is_taken_at_its_word() -> None:
    world = World("ggggxbbbb")
    marked = observe("s", 4, marked=Verdict.GOOD)
    bisection = Bisection(
        slots("ggggxbbbb"), question(confirm=True), world, world, lambda _: None, observations=[marked]
    )
    assert bisection.run() == located(4, 5)
    assert [day_of(o.nightly) for o in bisection.observations if o.repeat] == [5]


@pytest.mark.parametrize("letter", ["x", "u", "d"])
def test_a_side_that_cannot_be_run_once_more_is_tried_once(letter: str) -> None:
    world = World("gggggbbbb", again={5: letter})
    assert world.bisection(question(confirm=True)).run() == located(4, 5)
    assert world.tested.count(5) == 2


@pytest.mark.parametrize("walk_back", [False, True])
def test_with_repeats_a_nightly_is_good_only_if_all_its_runs_pass(walk_back: bool) -> None:
    fails_third = dict.fromkeys(range(5, 9), "gbx")
    world = World("ggggggggg", again=fails_third)
    bisection = world.bisection(question(repeat=3, walk_back=walk_back))
    assert bisection.run() == located(4, 5)
    counts = {day: world.tested.count(day) for day in set(world.tested)}
    assert all(count == 3 for count in counts.values())
    assert counts.keys() < set(range(9))


def test_a_failure_ends_the_repeats_of_its_nightly() -> None:
    world = World("gggbb", again={})
    assert world.bisection(question(repeat=4)).run() == located(2, 3)
    assert {day: world.tested.count(day) for day in set(world.tested)} == {0: 4, 2: 4, 3: 1, 4: 1}


def test_repeats_that_an_interruption_cut_off_are_made_up_for() -> None:
    world = Breaks("gggbb", fatal=3)
    bisection = world.bisection(question(repeat=4))
    with pytest.raises(Flaw):
        bisection.run()
    assert bisection.run() == located(2, 3)
    assert sorted(o.repeat for o in bisection.observations if day_of(o.nightly) == 0) == [0, 1, 2, 3]


def test_a_mark_stands_in_place_of_all_runs_of_its_nightly() -> None:
    world = World("gggggbbbb")
    first = world.bisection(question(confirm=True))
    first.run()
    known = [o for o in first.observations if day_of(o.nightly) != 4 or o.repeat]
    marked = observe("s", 4, marked=Verdict.BAD)
    again = World("gggggbbbb")
    second = Bisection(
        slots("gggggbbbb"),
        question(confirm=True),
        again,
        again,
        lambda _: None,
        observations=[*known, marked],
    )
    assert not second.is_noisy
    assert second.run() == located(3, 4)
    assert len([o for o, _ in second.judged_runs() if day_of(o.nightly) == 4]) == 1
