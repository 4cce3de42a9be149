from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import mean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nightly_bisect.search import Contradiction, Found, Range, Side, Step, most_trials, next_step
from nightly_bisect.search import Test as Try

B, A = Side.BEFORE, Side.AFTER


@dataclass(frozen=True)
class World:
    """A row of candidates that changes once, at ``first``; both ends can be tested."""

    count: int
    first: int
    untestable: frozenset[int] = frozenset()

    @property
    def answer(self) -> Found | Range:
        """What the best search can know: the neighbours of the change that can be tested."""
        before = max(i for i in range(self.first) if i not in self.untestable)
        after = min(i for i in range(self.first, self.count) if i not in self.untestable)
        return Found(after) if after == before + 1 else Range(before + 1, after)


def trace(world: World) -> Iterator[Step]:
    """Search a world, and hold every step to what all steps must keep."""
    sides, untestable = {0: B, world.count - 1: A}, set[int]()
    while True:
        step = next_step(world.count, sides, untestable)
        yield step
        if not isinstance(step, Try):
            return
        before = max(i for i, side in sides.items() if side is B)
        after = min(i for i, side in sides.items() if side is A)
        assert before < step.index < after, "the interval only shrinks"
        assert step.index not in untestable, "nothing is tested twice"
        if step.index in world.untestable:
            untestable.add(step.index)
        else:
            sides[step.index] = B if step.index < world.first else A


def every_world(most: int) -> Iterator[World]:
    for count in range(2, most + 1):
        for bits in range(2 ** (count - 2)):
            untestable = frozenset(i for i in range(1, count - 1) if bits >> (i - 1) & 1)
            for first in range(1, count):
                yield World(count, first, untestable)


# Cases that read at a glance: one letter a candidate. `<` before, `>` after, `x` untestable, `.` unknown.
@pytest.mark.parametrize(
    ("row", "step"),
    [
        ("<>", Found(1)),
        ("<.>", Try(1, 0)),
        ("<<>", Found(2)),
        ("<>>", Found(1)),
        ("<x>", Range(1, 2)),
        ("<xx>", Range(1, 3)),
        ("<..>", Try(1, 1)),
        ("<...>", Try(2, 1)),
        ("<.......>", Try(4, 2)),
        ("<<..>..>", Try(2, 1)),
        ("x<>x", Found(2)),
        ("..<x>..", Range(3, 4)),
        ("<x.>", Try(2, 1)),
        ("<..x..>", Try(1, 3)),
        ("<.x>", Try(1, 1)),
        ("><", Contradiction(0, 1)),
        ("<><>", Contradiction(1, 2)),
        ("<>x<>", Contradiction(1, 3)),
        ("<>..<>", Contradiction(1, 4)),
    ],
)
def test_a_row_says_what_to_do_next(row: str, step: Step) -> None:
    sides = {i: B if letter == "<" else A for i, letter in enumerate(row) if letter in "<>"}
    assert next_step(len(row), sides, {i for i, letter in enumerate(row) if letter == "x"}) == step


@pytest.mark.parametrize(
    ("count", "tests"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 2), (5, 2), (6, 3), (9, 3), (10, 4), (61, 6)]
)
def test_the_most_trials_are_the_logarithm_of_the_gap(count: int, tests: int) -> None:
    assert most_trials(count) == tests


@pytest.mark.parametrize("sides", [{}, {0: B}, {4: A}, {0: B, 3: B}, {0: A, 4: A}])
def test_a_search_needs_a_candidate_on_each_side(sides: dict[int, Side]) -> None:
    with pytest.raises(ValueError, match="on each side"):
        next_step(5, sides, set())


@pytest.mark.parametrize(
    ("sides", "untestable"), [({0: B, 5: A}, set()), ({-1: B, 4: A}, set()), ({0: B, 4: A}, {5})]
)
def test_a_candidate_outside_the_row_is_refused(sides: dict[int, Side], untestable: set[int]) -> None:
    with pytest.raises(ValueError, match="outside"):
        next_step(5, sides, untestable)


def test_in_every_small_world_the_answer_is_the_narrowest_that_can_be_known() -> None:
    for world in every_world(10):
        assert list(trace(world))[-1] == world.answer, world


@pytest.mark.parametrize("count", [*range(2, 70), 127, 128, 129, 130])
def test_without_untestable_candidates_no_search_takes_more_than_the_logarithm(count: int) -> None:
    for first in range(1, count):
        tests = [step for step in trace(World(count, first)) if isinstance(step, Try)]
        assert len(tests) <= (math.ceil(math.log2(count - 1)))
        assert all(step.steps_left >= len(tests) - n for n, step in enumerate(tests, start=1))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    count = draw(st.integers(2, 2000))
    first = draw(st.integers(1, count - 1))
    streaks = draw(st.lists(st.tuples(st.integers(-30, 30), st.integers(1, 20)), max_size=6))
    # Where the search goes: around the change, and around the middle.
    starts = [(first if n % 2 else count // 2) + shift for n, (shift, _) in enumerate(streaks)]
    broken = {
        i for start, (_, length) in zip(starts, streaks, strict=True) for i in range(start, start + length)
    }
    return World(count, first, frozenset(broken & set(range(1, count - 1))))


@settings(max_examples=100, derandomize=True, deadline=None)
@example(World(2, 1))
@example(World(150, 75, frozenset(range(1, 149))))
@given(worlds())
def test_a_search_among_streaks_of_untestable_ones_ends_with_the_narrowest_answer(world: World) -> None:
    assert list(trace(world))[-1] == world.answer


@settings(max_examples=300, derandomize=True)
@given(st.lists(st.sampled_from("<>x."), min_size=2, max_size=30).filter(lambda row: {"<", ">"} <= {*row}))
def test_a_good_after_a_bad_is_a_contradiction_and_never_an_answer(row: list[str]) -> None:
    sides = {i: B if letter == "<" else A for i, letter in enumerate(row) if letter in "<>"}
    step = next_step(len(row), sides, {i for i, letter in enumerate(row) if letter == "x"})
    last_before = max(i for i, side in sides.items() if side is B)
    first_after = min(i for i, side in sides.items() if side is A)
    if first_after < last_before:
        assert step == Contradiction(after=first_after, before=last_before)
    else:
        assert not isinstance(step, Contradiction)


def test_untestable_streaks_cost_no_more_trials_than_gits_skip() -> None:
    generator = random.Random(20240602)
    streaky = [streaky_world(generator) for _ in range(150)]
    assert 0.2 < mean(len(world.untestable) / world.count for world in streaky) < 0.4
    ours = [sum(isinstance(step, Try) for step in trace(world)) for world in streaky]
    gits = [git_bisect_trials(world, git_skip) for world in streaky]
    assert mean(ours) <= mean(gits)


def streaky_world(generator: random.Random, count: int = 200, share: float = 0.3, streak: int = 4) -> World:
    leave, enter = 1 / streak, share / (1 - share) / streak
    broken, untestable = generator.random() < share, set[int]()
    for index in range(1, count - 1):
        if broken:
            untestable.add(index)
        broken = generator.random() >= leave if broken else generator.random() < enter
    return World(count, generator.randrange(1, count), frozenset(untestable))


def git_bisect_trials(world: World, choose: Callable[[list[int], set[int]], int | None]) -> int:
    """Count the trials of a search as git's: candidates sorted by how evenly they split what is left."""
    before, after, skipped, trials = 0, world.count - 1, set[int](), 0
    while True:
        # git's list ends with the bad commit itself, which splits nothing off.
        inside = sorted(range(before + 1, after + 1), key=lambda i: -min(i - before, after - i))
        index = choose(inside, skipped)
        if index is None:
            assert World(world.count, world.first, world.untestable).answer == (
                Found(after) if after == before + 1 else Range(before + 1, after)
            )
            return trials
        trials += 1
        if index in world.untestable:
            skipped.add(index)
        elif index < world.first:
            before = index
        else:
            after = index


def git_skip(inside: list[int], skipped: set[int]) -> int | None:
    """Choose as bisect.c does (`managed_skipped`, `skip_away`): a biased throw once the best was skipped."""
    bad = max(inside)
    rest = [i for i in inside if i not in skipped]
    if rest == [bad]:
        return None
    if inside[0] not in skipped:
        return rest[0]
    throw = (len(rest) * 1103515245 + 12345) % 2**32 // 65536 % 32768
    place = len(rest) * throw // 32768 * math.isqrt(throw) // math.isqrt(32768)
    return rest[place] if rest[place] != bad else rest[max(0, place - 1)]
