from __future__ import annotations

import re
from typing import Any

import pytest
from rows import alone, located, observe, question, slots

from nightly_bisect.bisection.course import (
    MOST_END_TRIALS,
    Contradicted,
    Located,
    Move,
    Question,
    Stopped,
    Trouble,
    judgements,
    next_move,
)
from nightly_bisect.bisection.course import TestNext as Next
from nightly_bisect.judge import Counts
from nightly_bisect.model import Find, Observation, Verdict

FIX = Find.FIX


def follow(letters: str, asked: Question) -> tuple[list[int], Move]:
    """Follow the course over a row to its end: the days in the order of their trials, and the end."""
    row, seen = slots(letters), dict[int, Observation]()
    while isinstance(move := next_move(row, alone(seen), asked), Next):
        assert move.index not in seen
        seen[move.index] = observe(letters[move.index], move.index)
    return list(seen), move


def end(letters: str, asked: Question | None = None, **rules: Any) -> Move:
    return follow(letters, asked or question(**rules))[1]


@pytest.mark.parametrize(
    ("letters", "asked", "first"),
    [
        ("ggggbbbb", question(), [0, 7]),
        ("bbbbgggg", question(FIX), [7, 0]),
        ("gb", question(), [0, 1]),
        ("sgggbbss", question(), [0, 1, 7, 6, 5]),
        ("ssbbgggs", question(FIX), [7, 6, 0, 1, 2]),
        ("wgggbbww", question(), [1, 5]),
    ],
)
def test_the_good_end_is_tested_first_then_the_bad_end(
    letters: str, asked: Question, first: list[int]
) -> None:
    assert follow(letters, asked)[0][: len(first)] == first


@pytest.mark.parametrize(
    ("letters", "tested", "answer"),
    [
        ("gb", [0, 1], located(0, 1)),
        ("ggb", [0, 2, 1], located(1, 2)),
        ("gbb", [0, 2, 1], located(0, 1)),
        ("ggggbbbbb", [0, 8, 4, 2, 3], located(3, 4)),
        ("gsb", [0, 2, 1], located(0, 2)),
        ("gwb", [0, 2], located(0, 2)),
        ("gwwbwwb", [0, 6, 3], located(0, 3)),
        ("gggsbb", [0, 5, 2, 3, 4], located(2, 4)),
    ],
)
def test_the_search_goes_on_between_the_ends_until_only_suspects_are_left(
    letters: str, tested: list[int], answer: Located
) -> None:
    assert follow(letters, question()) == (tested, answer)


@pytest.mark.parametrize("letters", ["gb", "gggbbbbb", "ggggggsb", "gwwb", "gggobb", "gsgsbbsb"])
def test_finding_a_fix_is_the_mirror_image(letters: str) -> None:
    forward, backward = end(letters), end(letters[::-1], question(FIX))
    last = len(letters) - 1
    assert isinstance(forward, Located)
    assert backward == located(last - forward.after, last - forward.before)


@pytest.mark.parametrize("letter", "onixskevdumtw")
def test_what_cannot_be_tested_is_a_suspect_and_never_a_bound(letter: str) -> None:
    assert end(f"gg{letter}bb") == located(1, 3)
    assert end(f"bb{letter}gg", question(FIX)) == located(1, 3)


def test_a_build_without_a_wheel_is_never_tested_but_stays_a_suspect() -> None:
    tested, answer = follow("wgwgwwbwbw", question())
    assert (sorted(tested), answer) == ([1, 3, 6, 8], located(3, 6))


@pytest.mark.parametrize("letter", "sdvkumw")
@pytest.mark.parametrize("find", Find)
def test_an_untestable_end_gives_way_to_its_neighbour(letter: str, find: Find) -> None:
    row = f"{letter * 2}ggbb{letter * 2}"
    assert end(row if find is Find.REGRESSION else row[::-1], question(find)) == located(3, 4)


def test_an_end_gives_way_only_so_often() -> None:
    assert end("s" * (MOST_END_TRIALS - 1) + "ggbb") == located(5, 6)
    for_good = "s" * MOST_END_TRIALS + "ggbb"
    assert follow(for_good, question()) == (
        [*range(MOST_END_TRIALS)],
        Stopped(Trouble.GOOD_END_UNTESTABLE, None, None),
    )
    tested, move = follow("ggbb" + "s" * MOST_END_TRIALS, question())
    assert (tested, move) == ([0, 8, 7, 6, 5, 4], Stopped(Trouble.BAD_END_UNTESTABLE, 0, None))


def test_an_installer_that_says_the_same_twice_is_believed() -> None:
    assert end("xggbbx") == located(2, 3)
    assert end("dxdggbbxd") == located(4, 5)
    assert follow("xxggbb", question()) == ([0, 1], Stopped(Trouble.GOOD_END_UNTESTABLE, None, None))
    assert follow("gbxsx", question()) == ([0, 4, 3, 2], Stopped(Trouble.BAD_END_UNTESTABLE, 0, None))


def test_builds_without_a_wheel_do_not_count_among_an_ends_trials() -> None:
    assert end("w" * 20 + "gb" + "w" * 20) == located(20, 21)


@pytest.mark.parametrize(
    ("letters", "asked", "trouble", "good", "bad"),
    [
        ("gggg", question(), Trouble.BAD_END_PASSES, 0, 3),
        ("ggbg", question(), Trouble.BAD_END_PASSES, 0, 3),
        ("gggg", question(FIX), Trouble.BAD_END_PASSES, 3, 0),
        ("bbbb", question(), Trouble.GOOD_END_FAILS, 0, 3),
        ("bbbb", question(FIX), Trouble.GOOD_END_FAILS, 3, 0),
        ("cccc", question(), Trouble.GOOD_END_FAILS, 0, 3),
        ("oobb", question(), Trouble.GOOD_END_FAILS, 0, 3),
        ("bbgg", question(), Trouble.SWAPPED, 0, 3),
        ("ggbb", question(FIX), Trouble.SWAPPED, 3, 0),
        ("eegb", question(), Trouble.GOOD_END_FAILS, 0, 3),
        ("ggbe", question(), Trouble.BAD_END_PASSES, 0, 3),
        ("iiii", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("wwww", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("gwww", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("sb", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("sssb", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("ig", question(), Trouble.GOOD_END_UNTESTABLE, None, None),
        ("igs", question(), Trouble.BAD_END_UNTESTABLE, 1, None),
    ],
)
def test_ends_that_do_not_behave_as_claimed_stop_the_search(
    letters: str, asked: Question, trouble: Trouble, good: int | None, bad: int | None
) -> None:
    assert end(letters, asked) == Stopped(trouble, good, bad)


def test_a_check_that_cannot_be_run_at_the_good_end_stops_at_once() -> None:
    assert follow("nggbbb", question()) == ([0], Stopped(Trouble.CHECK_NOT_RUNNABLE, 0, None))
    assert follow("bbbggn", question(FIX)) == ([5], Stopped(Trouble.CHECK_NOT_RUNNABLE, 5, None))


def test_a_check_that_cannot_be_run_walking_back_stops_after_the_first_step() -> None:
    back = question(walk_back=True)
    assert follow("nnnnn", back) == ([4, 3], Stopped(Trouble.CHECK_NOT_RUNNABLE, 3, 4))
    assert end("ggggn", back) == located(3, 4)


def test_a_check_that_cannot_be_run_only_at_the_bad_end_is_what_is_looked_for() -> None:
    assert end("gggnnn") == located(2, 3)


@pytest.mark.parametrize(
    ("letters", "rules", "move"),
    [
        # Chosen by itself: the bad end times out, the good end does not.
        ("gggttt", {}, located(2, 3)),
        ("ggbttt", {}, located(1, 3)),
        ("ggtbbb", {}, located(1, 3)),
        ("tttbbb", {}, Stopped(Trouble.GOOD_END_FAILS, 0, 5)),
        ("tttttt", {}, Stopped(Trouble.GOOD_END_FAILS, 0, 5)),
        ("gggttt", {"on_timeout": Counts.BAD}, located(2, 3)),
        ("ggttbb", {"on_timeout": Counts.BAD, "any_failure": True}, located(1, 2)),
        ("tttbbb", {"on_timeout": Counts.BAD}, Stopped(Trouble.GOOD_END_FAILS, 0, 5)),
        ("tggbbt", {"on_timeout": Counts.UNTESTABLE}, located(2, 3)),
        ("ggttttt", {"on_timeout": Counts.UNTESTABLE}, Stopped(Trouble.BAD_END_UNTESTABLE, 0, None)),
    ],
)
def test_a_time_out_counts_as_bad_where_the_bad_end_or_the_user_says_so(
    letters: str, rules: dict[str, Any], move: Move
) -> None:
    assert end(letters, **rules) == move


@pytest.mark.parametrize(
    ("letters", "answer"),
    [
        ("gggiii", located(2, 3)),
        ("ggiibb", located(1, 4)),
        ("ggbiii", located(1, 3)),
        ("iggbbb", located(2, 3)),
        ("ggiiss", located(1, 2)),
    ],
)
def test_a_failing_import_is_bad_only_when_the_bad_end_shows_it(letters: str, answer: Located) -> None:
    assert end(letters) == answer


@pytest.mark.parametrize(
    ("letters", "rules", "answer"),
    [
        ("ggoobb", {}, located(1, 4)),
        ("ggccbb", {}, located(1, 4)),
        ("ggbbcc", {}, located(1, 4)),
        ("ggbboo", {}, located(1, 4)),
        ("ggoobb", {"any_failure": True}, located(1, 2)),
        ("ggccbb", {"any_failure": True}, located(1, 2)),
        ("gggccc", {}, located(2, 3)),
        ("gggbbc", {"on_crash": Counts.UNTESTABLE}, located(2, 3)),
        ("ggccbb", {"on_crash": Counts.UNTESTABLE, "any_failure": True}, located(1, 4)),
    ],
)
def test_another_failure_than_the_bad_ends_is_untestable_unless_any_will_do(
    letters: str, rules: dict[str, Any], answer: Located
) -> None:
    assert end(letters, **rules) == answer


def test_with_match_the_text_alone_decides_which_failures_are_the_same() -> None:
    letters, matched = "goobcb", [None, False, True, False, True, True]
    row, seen, asked = slots(letters), dict[int, Observation](), question(match=re.compile("boom"))
    while isinstance(move := next_move(row, alone(seen), asked), Next):
        seen[move.index] = observe(letters[move.index], move.index, matched=matched[move.index])
    assert move == located(0, 2)
    judged = judgements(row, alone(seen), asked)
    assert {i: j.verdict for i, j in judged.items() if i in (1, 2)} == {
        1: Verdict.UNTESTABLE,
        2: Verdict.BAD,
    }


@pytest.mark.parametrize(
    ("day", "trouble"), [(0, Trouble.GOOD_END_FAILS), (3, Trouble.BAD_END_PASSES)], ids=["good", "bad"]
)
def test_an_end_that_fails_without_a_match_is_not_moved(day: int, trouble: Trouble) -> None:
    seen = {0: observe("g", 0), 3: observe("b", 3, matched=True), day: observe("b", day, matched=False)}
    asked = question(match=re.compile("boom"))
    assert next_move(slots("gggb"), alone(seen), asked) == Stopped(trouble, 0, 3)


@pytest.mark.parametrize(
    ("letters", "tested", "move"),
    [
        ("gb", [1, 0], located(0, 1)),
        ("ggggggggb", [8, 7], located(7, 8)),
        ("g" * 20 + "b" * 20, [39, 38, 36, 32, 24, 8, 16, 20, 18, 19], located(19, 20)),
        ("gbbb", [3, 2, 0, 1], located(0, 1)),
        ("gggbbss", [6, 5, 4, 3, 1, 2], located(2, 3)),
        ("ggggsb", [5, 4, 2, 3], located(3, 5)),
        ("bbbb", [3, 2, 0], Stopped(Trouble.NEVER_GOOD, None, 3)),
        ("b", [0], Stopped(Trouble.NEVER_GOOD, None, 0)),
        ("bbgg", [3], Stopped(Trouble.BAD_END_PASSES, None, 3)),
        ("bbbe", [3], Stopped(Trouble.BAD_END_PASSES, None, 3)),
        ("gbsssss", [6, 5, 4, 3, 2], Stopped(Trouble.BAD_END_UNTESTABLE, None, None)),
    ],
)
def test_walking_back_doubles_its_steps_until_it_is_good(letters: str, tested: list[int], move: Move) -> None:
    assert follow(letters, question(walk_back=True)) == (tested, move)


def test_walking_back_compares_with_the_bad_ends_failure() -> None:
    assert end("ggggooob", question(walk_back=True)) == located(3, 7)


@pytest.mark.parametrize("find", Find)
def test_a_good_one_after_a_bad_one_contradicts(find: Find) -> None:
    letters = "gbgb" if find is Find.REGRESSION else "bgbg"
    seen = {i: observe(letter, i) for i, letter in enumerate(letters)}
    assert next_move(slots(letters), alone(seen), question(find)) == Contradicted(after=1, before=2)


def test_a_mark_counts_even_where_nothing_can_be_tested() -> None:
    marked = observe("s", 1, marked=Verdict.BAD)
    for row in (slots("gwb"), slots("gsb")):
        assert next_move(
            row, alone({0: observe("g", 0), 1: marked, 2: observe("b", 2)}), question()
        ) == located(0, 1)


def test_verdicts_wait_for_the_bad_end() -> None:
    row, asked = slots("gtb"), question()
    early = {0: observe("g", 0), 1: observe("o", 1)}
    assert judgements(row, alone(early), asked)[1].verdict is Verdict.BAD
    assert judgements(row, alone({**early, 2: observe("b", 2)}), asked)[1].verdict is Verdict.UNTESTABLE


def test_a_bad_end_that_passes_shows_nothing() -> None:
    seen = {i: observe(letter, i) for i, letter in enumerate("gog")}
    assert judgements(slots("gog"), alone(seen), question())[1].verdict is Verdict.BAD


def test_the_steps_left_are_known_once_the_ends_are() -> None:
    letters, seen, left = "gggbbbbbb", dict[int, Observation](), []
    while isinstance(move := next_move(slots(letters), alone(seen), question()), Next):
        left.append(move.steps_left)
        seen[move.index] = observe(letters[move.index], move.index)
    assert left == [None, None, 2, 1, 0]


def test_what_lies_outside_the_ends_plays_no_part() -> None:
    seen = {day: observe(letter, day) for day, letter in enumerate("sgggbs")}
    assert next_move(slots("sgggbs"), alone(seen), question()) == located(3, 4)
