"""Change points of a row of measured places."""

from __future__ import annotations

import random

import pytest

from nightly_bisect.measure.sweep import ChangePoint, Ramp, find_changes, find_ramps


def row(levels: list[float], *, count: int = 5, noise: float = 0.02, seed: int = 1) -> list[list[float]]:
    chance = random.Random(seed)
    return [[chance.gauss(level, noise) for _ in range(count)] for level in levels]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("levels", "cuts"),
    [
        ([0.0] * 12, []),
        ([0.0] * 5 + [0.1] * 7, [5]),
        ([0.0] + [0.1] * 11, [1]),
        ([0.0] * 3 + [0.1] * 4 + [0.0] * 5, [3, 7]),
        ([0.0] * 4 + [0.1] * 4 + [0.25] * 4, [4, 8]),
        ([0.1] * 4 + [0.0] * 4 + [0.1] * 4, [4, 8]),
    ],
)
def test_every_step_is_found_and_none_that_is_not_there(
    levels: list[float], cuts: list[int], seed: int
) -> None:
    changes = find_changes(row(levels, seed=seed))
    assert [change.index for change in changes] == cuts
    for change in changes:
        assert change.size == pytest.approx(levels[change.index] - levels[change.index - 1], abs=0.03)


def test_numbers_without_noise_are_split_at_every_difference() -> None:
    samples = [[1.0], [1.0], [2.0], [2.0], [3.0]]
    assert find_changes(samples) == [ChangePoint(2, 1.0, 2.0), ChangePoint(4, 2.0, 3.0)]


def test_differences_below_the_floor_are_noise() -> None:
    assert find_changes([[1.0], [1.001], [1.0], [1.002]], noise_floor=0.01) == []


def test_places_without_a_measurement_belong_to_what_they_lie_between() -> None:
    (change,) = find_changes([[0.0, 0.0], [], [], [1.0, 1.0]], noise_floor=0.01)
    assert change.index in (1, 2, 3)
    assert find_changes([[], []]) == []
    assert find_changes([]) == []


def test_a_gradual_move_is_a_ramp_and_no_date() -> None:
    levels = [0.0] * 4 + [0.1, 0.2, 0.3, 0.4] + [0.4] * 3
    ramps = find_ramps(find_changes(row(levels, noise=0.01)))
    assert [(ramp.first, ramp.last) for ramp in ramps] == [(3, 7)]
    assert ramps[0].after - ramps[0].before == pytest.approx(0.4, abs=0.02)


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [ChangePoint(4, 0.0, 1.0)],
        [ChangePoint(4, 0.0, 1.0), ChangePoint(5, 1.0, 2.0)],
        [ChangePoint(4, 0.0, 1.0), ChangePoint(5, 1.0, 0.0), ChangePoint(6, 0.0, 1.0)],
        [ChangePoint(2, 0.0, 1.0), ChangePoint(5, 1.0, 2.0), ChangePoint(9, 2.0, 3.0)],
    ],
)
def test_few_or_scattered_or_opposite_steps_are_no_ramp(changes: list[ChangePoint]) -> None:
    assert find_ramps(changes) == []


def test_two_ramps_are_two() -> None:
    ups = [ChangePoint(i, i, i + 1.0) for i in (2, 3, 4)]
    downs = [ChangePoint(i, -i, -i - 1.0) for i in (7, 8, 9)]
    assert find_ramps([*ups, *downs]) == [Ramp(1, 4, 2, 5.0), Ramp(6, 9, -7, -10.0)]
