"""Infrastructure that fails in a row ends the run; what fails by itself doesn't."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rows import World, day_of, located, observe, question, slots

from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.bisection.streak import Streak
from nightly_bisect.errors import BisectError, CheckCannotRun, NothingInstallable, Refused, Unreachable
from nightly_bisect.model import Asked, Nightly, Observation


def note(letters: str) -> int:
    """Take note of a row of trials; return the number of the one that ended the run, or 0."""
    streak = Streak()
    for number, letter in enumerate(letters, start=1):
        try:
            streak.note(observe(letter, number))
        except BisectError:
            return number
    return 0


@pytest.mark.parametrize(
    ("letter", "error", "code"),
    [
        ("u", Unreachable, 5),
        ("d", Refused, 5),
        ("x", NothingInstallable, 6),
        ("v", NothingInstallable, 6),
        ("k", CheckCannotRun, 8),
    ],
)
def test_three_of_one_kind_in_a_row_end_the_run(letter: str, error: type[BisectError], code: int) -> None:
    streak = Streak()
    streak.note(observe(letter, 0))
    streak.note(observe(letter, 1))
    with pytest.raises(error) as caught:
        streak.note(observe(letter, 2))
    assert caught.value.exit_code == code
    assert "resume" in caught.value.hint


@pytest.mark.parametrize("letters", ["uugu", "uuxuu", "xxbxx", "dduudd", "ggggg", "bbbbb", "sssss", "ooooo", "iiii", "ttt", "ccc", "mmm"])  # fmt: skip
def test_what_is_of_another_kind_or_of_the_check_itself_ends_no_run(letters: str) -> None:
    assert note(letters) == 0


def test_after_the_third_the_count_begins_anew() -> None:
    assert note("uuu") == 3
    streak = Streak()
    for round_ in range(2):
        for day in range(2):
            streak.note(observe("u", day + 3 * round_))
        with pytest.raises(Unreachable):
            streak.note(observe("u", 2 + 3 * round_))


def test_an_installer_that_says_other_words_each_time_ends_no_run() -> None:
    streak = Streak()
    for day, word in enumerate(("alpha", "beta", "gamma", "delta")):
        streak.note(replace(observe("x", day), reason=f"no solution: {word} is missing"))
    with pytest.raises(NothingInstallable, match="alpha 4 is"):
        for day in range(2, 5):
            streak.note(replace(observe("x", day), reason=f"no solution: alpha {day} is missing"))


class Outage(World):
    """A world whose network is down for the first trials of some days."""

    down = 1

    def run(self, nightly: Nightly, repeat: int) -> Observation:
        seen = super().run(nightly, repeat)
        if self.letters[day_of(nightly)] == "u" and self.tested.count(day_of(nightly)) > self.down:
            return observe("b", day_of(nightly))
        return seen


def test_a_suspect_that_the_network_hid_is_tried_again_before_the_answer() -> None:
    world = Outage("gggubbbb")
    assert world.bisection(question()).run() == located(2, 3)
    assert world.tested.count(3) == 2


def test_it_is_tried_again_once_only() -> None:
    world = World("gggubbbb")
    assert world.bisection(question()).run() == located(2, 4)
    assert world.tested.count(3) == 2


def test_what_was_observed_is_kept_before_the_run_is_ended() -> None:
    world = World("gxxxxxxxb")
    kept: list[Observation | Asked] = []
    streak = Streak()
    bisection = Bisection(
        slots("gxxxxxxxb"), question(), world, world, world.events.append, kept.append, watch=streak.note
    )
    with pytest.raises(NothingInstallable):
        bisection.run()
    assert len(kept) == len(world.tested) == len(world.events) == 5
