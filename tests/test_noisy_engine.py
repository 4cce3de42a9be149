"""The engine for noisy checks, driven through small seeded worlds (benchmarks/search_bars.py has the bars)."""

from __future__ import annotations

import numpy as np
import pytest
import search_bars

from nightly_bisect.measure.flaky import LEAST_END_RUNS, Tally, next_flaky
from nightly_bisect.measure.paired import LEAST_END_PAIRS, next_paired, robust_mean, robust_scale
from nightly_bisect.measure.posterior import Decided, Indistinct, NotOneStep, Run, Situation

ROW = Situation(31)


def world(first: int, seed: int, **more: object) -> search_bars.World:
    return search_bars.World(30, first, np.random.default_rng(seed), **more)  # type: ignore[arg-type]


def test_the_ends_are_run_first_the_bad_one_before_the_good_one() -> None:
    assert next_flaky(ROW, {}) == Run(30, LEAST_END_RUNS)
    assert next_flaky(ROW, {30: Tally(6, 6)}) == Run(0, LEAST_END_RUNS)
    assert next_paired(ROW, {}) == Run(30, LEAST_END_PAIRS)


def test_ends_that_fail_alike_are_given_up() -> None:
    step = next_flaky(ROW, {0: Tally(60, 120), 30: Tally(60, 120)})
    assert isinstance(step, Indistinct) and step.seen == (0.5, 0.5)
    assert isinstance(next_flaky(ROW, {30: Tally(0, 120)}), Indistinct)
    same = next_paired(ROW, {30: [0.001 * (-1) ** k for k in range(240)]})
    assert isinstance(same, Indistinct) and 0 < same.smallest < 0.01


@pytest.mark.parametrize("seed", range(8))
def test_a_flaky_change_is_found(seed: int) -> None:
    claim = search_bars.engine_flaky(world(1 + 3 * seed, seed, rates=(0.0, 0.5)), 0.99)
    assert claim is not None and claim[:2] == (3 * seed, 1 + 3 * seed)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("step", [0.1, -0.1])
def test_a_step_is_found_either_way(seed: int, step: float) -> None:
    claim = search_bars.engine_paired(world(1 + 3 * seed, seed, step=step, noise=0.02), 0.99)
    assert claim is not None and claim[:2] == (3 * seed, 1 + 3 * seed)


def test_the_same_evidence_gives_the_same_step_in_any_order() -> None:
    tallies = {0: Tally(0, 8), 30: Tally(5, 8), 15: Tally(0, 4), 22: Tally(1, 2)}
    assert next_flaky(ROW, tallies) == next_flaky(ROW, dict(reversed(tallies.items())))
    pairs = {30: [0.1, 0.09, 0.11, 0.1, 0.12, 0.1, 0.08, 0.1], 15: [0.01], 22: [0.09]}
    assert next_paired(ROW, pairs) == next_paired(ROW, dict(reversed(pairs.items())))


def test_what_is_untestable_is_never_run_and_stays_in_the_range() -> None:
    situation = Situation(5, untestable=frozenset({2}))
    tallies = {0: Tally(0, 30), 4: Tally(30, 30), 1: Tally(0, 30), 3: Tally(30, 30)}
    step = next_flaky(situation, tallies)
    assert isinstance(step, Decided) and (step.before, step.after) == (1, 3)


def test_an_installed_nightly_is_preferred_to_a_new_one_beside_it() -> None:
    tallies = {0: Tally(0, 30), 30: Tally(30, 30)}
    at_hand = Situation(31, at_hand=frozenset({0, 14, 30}))
    assert next_flaky(at_hand, tallies) == Run(14)
    assert next_flaky(ROW, tallies) == Run(15)


def test_a_nightly_on_neither_level_is_looked_at_again_and_then_believed() -> None:
    chance = np.random.default_rng(1)
    ends = list(chance.normal(0.2, 0.005, 24))
    odd = list(chance.normal(0.1, 0.005, 24))
    assert isinstance(next_paired(ROW, {30: ends, 15: odd[:12]}), Run)
    step = next_paired(ROW, {30: ends, 15: odd})
    assert isinstance(step, NotOneStep) and step.position == 15


def test_a_history_that_goes_back_and_forth_is_no_single_step() -> None:
    tallies = {
        0: Tally(0, 40),
        10: Tally(40, 40),
        20: Tally(0, 40),
        30: Tally(40, 40),
        29: Tally(40, 40),
        21: Tally(40, 40),
    }
    assert isinstance(next_flaky(ROW, tallies), NotOneStep)


def test_outliers_move_neither_mean_nor_scale_much() -> None:
    values = [*np.random.default_rng(2).normal(1.0, 0.1, 60), 9.0, 11.0]
    assert robust_mean(values) == pytest.approx(1.0, abs=0.08)
    assert robust_scale(values) == pytest.approx(0.1, abs=0.06)
