"""Numbers with noise: what to measure next, and when it is enough.

What is observed are pairs: a nightly and the reference (position 0) measured right after one another, as
the difference of their logarithms. A drift of the machine cancels in it. Before the change a difference is
about 0, after it about the step; a grid over the step and the noise takes the place of what is not known,
around what the ends showed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from nightly_bisect.measure.posterior import (
    Decided,
    Indistinct,
    NotOneStep,
    Posterior,
    Run,
    Situation,
    Step,
    Vector,
)

LEAST_END_PAIRS = 8
MOST_END_PAIRS = 240
_CHANCE_EACH_LOOK = 1e-4
_OUTLIERS = 0.08
# Nightlies differ from one another by something like this share of the step, for no reason of ours.
_JITTER = 1 / 8
_MOST_PAIRS_AT_ONE = 40
_LEAST_MASS = 1e-5
_TELLING_RATIO = 1.5
_LEAST_FOR_A_LEVEL = 12
_SUSPICIOUS, _CERTAIN = 3.5, 4.5


@dataclass(frozen=True, slots=True)
class _Grid:
    step: Vector
    noise: Vector


def next_paired(
    situation: Situation, pairs: Mapping[int, Sequence[float]], least_effect: float = 0.0
) -> Step:
    """Decide what to measure next, or how it ended.

    ``pairs`` are the differences of logarithms by position; ``least_effect`` is the smallest relative
    change that matters.
    """
    ends = list(pairs.get(situation.last, ()))
    count = len(ends)
    if count < LEAST_END_PAIRS:
        return Run(situation.last, LEAST_END_PAIRS - count)
    middle, noise = robust_mean(ends), robust_scale(ends)
    bound = _student(count - count % 2) * noise / math.sqrt(count) + 2e-4
    differs = abs(middle) > max(bound, math.log1p(least_effect) + bound / 2 if least_effect else 0.0)
    inside = any(pairs[i] for i in pairs if 0 < i < situation.last)
    if not differs and not inside:
        if count >= MOST_END_PAIRS or (least_effect and bound < math.log1p(least_effect) / 2):
            return Indistinct((0.0, math.expm1(middle)), math.expm1(bound))
        return Run(situation.last, 2)
    grid = _grid(middle, noise, count)
    evidence = {situation.last: _summed(ends, grid)}
    log_prior = np.full(len(grid.step), -math.log(len(grid.step)))
    share = _share_known(grid, abs(middle), noise)
    for i, found in pairs.items():
        if 0 < i < situation.last and found:
            weight = share(len(found))
            before, after = _summed(found, grid)
            evidence[i] = before * weight, after * weight
    posterior = Posterior(situation, log_prior, evidence)
    step, noise_now = posterior.mean(grid.step), posterior.mean(grid.noise)
    for i, found in sorted(pairs.items()):
        if 0 < i < situation.last and (odd := _off_both_levels(situation, i, found, ends)) is not None:
            return odd
    if posterior.is_settled and posterior.mass.max() >= _wanted(situation, abs(step) / noise_now):
        low, high = posterior.bounds(posterior.heaviest)
        mass = float(posterior.mass[posterior.heaviest])
        interval = posterior.spread(grid.step)
        return Decided(
            low, high, mass, (0.0, math.expm1(step)), (math.expm1(interval[0]), math.expm1(interval[1]))
        )
    return _most_telling(posterior, pairs, abs(step) / noise_now)


def _wanted(situation: Situation, ratio: float) -> float:
    """Return the confidence to reach: where single pairs tell much, a few more cost next to nothing."""
    return 1 - (1 - situation.confidence) / (5 if ratio >= _TELLING_RATIO else 1)


def robust_mean(values: Sequence[float]) -> float:
    """Return Huber's mean: what lies far off counts less."""
    x = np.asarray(values, dtype=float)
    middle, scale = float(np.median(x)), max(robust_scale(x), 1e-9)
    for _ in range(12):
        weight = np.minimum(1.0, 1.5 * scale / np.maximum(np.abs(x - middle), 1e-12))
        moved = float((weight * x).sum() / weight.sum())
        if abs(moved - middle) < 1e-7:
            break
        middle = moved
    return middle


def robust_scale(values: Sequence[float] | Vector) -> float:
    """Return the standard deviation after values beyond 2.5 of it were drawn in, again and again."""
    x = np.asarray(values, dtype=float)
    middle = float(np.median(x))
    scale = max(float(np.std(x, ddof=1)), 1e-9)
    for _ in range(12):
        drawn_in = np.clip(x, middle - 2.5 * scale, middle + 2.5 * scale)
        narrower = float(np.std(drawn_in, ddof=1)) * 1.03
        if narrower > 0.995 * scale:
            break
        scale = max(narrower, 1e-9)
        middle = float(drawn_in.mean()) if len(x) > 6 else middle
    return scale


def _summed(found: Sequence[float], grid: _Grid) -> tuple[Vector, Vector]:
    """Return the log-likelihoods of pairs over the grid, if before and if after the change."""
    x = np.asarray(found, dtype=float)[:, None]
    return (
        _log_density(x, np.zeros_like(grid.step), grid).sum(axis=0),
        _log_density(x, grid.step, grid).sum(axis=0),
    )


def _log_density(x: Vector, level: Vector, grid: _Grid) -> Vector:
    """Normal around a level, but for outliers, which say nothing about the level."""
    core = -np.log(grid.noise) - 0.5 * ((x - level) / grid.noise) ** 2
    wide = np.hypot(6 * grid.noise, 0.15)
    far = -np.log(wide) - 0.5 * ((x - grid.step / 2) / wide) ** 2
    result: Vector = np.logaddexp(math.log(1 - _OUTLIERS) + core, math.log(_OUTLIERS) + far)
    return result


def _grid(middle: float, noise: float, count: int) -> _Grid:
    error = max(noise / math.sqrt(count) * 1.2, abs(middle) * 0.02)
    steps = middle + error * np.linspace(-3.2, 3.2, 13)
    steps = steps[steps * np.sign(middle) > 0.3 * abs(middle)]
    noises = noise * np.exp(np.linspace(math.log(0.5), math.log(2.8), 9))
    step, scale = np.meshgrid(steps, noises, indexing="ij")
    return _Grid(step.ravel(), scale.ravel())


def _share_known(grid: _Grid, step: float, noise: float) -> Callable[[int], float]:
    """Return the weight of n pairs at one nightly, for the jitter between nightlies caps what they prove.

    All pairs of a nightly together prove no more than one measurement with the jitter as its only noise.
    The density of outliers caps what one pair can prove; that must not be taken off twice.
    """
    most = 0.5 / _JITTER**2
    wide = math.hypot(6 * noise, 0.15)
    one = min(0.5 * (step / noise) ** 2, math.log((1 - _OUTLIERS) / _OUTLIERS * wide / noise))
    return lambda count: 1 / (1 + count * one / most)


def _off_both_levels(
    situation: Situation, i: int, found: Sequence[float], ends: Sequence[float]
) -> Step | None:
    """Look whether a nightly sits on neither level; look closer before that is believed."""
    if len(found) < _LEAST_FOR_A_LEVEL or _distance(found, ends) <= _SUSPICIOUS:
        return None
    wanted = 2 * _LEAST_FOR_A_LEVEL
    if len(found) < wanted:
        return Run(i, wanted - len(found))
    if len(ends) < wanted:
        return Run(situation.last, wanted - len(ends))
    if _distance(found, ends) > _CERTAIN:
        return NotOneStep(i, math.expm1(robust_mean(found)))
    return None


def _distance(found: Sequence[float], ends: Sequence[float]) -> float:
    """Return how far a nightly is from the nearer level, in standard errors."""
    middle, error = robust_mean(found), robust_scale(found) / math.sqrt(len(found))
    step, step_error = robust_mean(ends), robust_scale(ends) / math.sqrt(len(ends))
    slack = 0.05 * step
    before = abs(middle) / math.hypot(error, slack)
    return min(before, abs(middle - step) / math.sqrt(error**2 + step_error**2 + slack**2))


def _most_telling(posterior: Posterior, pairs: Mapping[int, Sequence[float]], ratio: float) -> Run:
    """Choose the pairs with the most expected information per second; ``ratio`` is step over noise."""
    s = posterior.situation
    pair_s = 2 * s.check_s
    ratio = round(min(ratio, 3.0), 2)
    best_value, best = -1.0, Run(s.last)
    if candidates := posterior.candidates(_LEAST_MASS, most_each=25):
        positions = [i for i, _, _ in candidates]
        j = np.array([interval for _, interval, _ in candidates])
        share = np.array([share for _, _, share in candidates])
        after = posterior.after[j] + posterior.mass[j] * share
        costs = posterior.first_costs(positions) + s.check_s
        values = np.array(
            [_gain(ratio, float(f), float(cost), pair_s) for f, cost in zip(after, costs, strict=True)]
        ) * posterior.chances(positions)
        ties = np.flatnonzero(values >= values.max() * 0.995)
        k = int(ties[np.argmin(np.abs(share[ties] - 0.5))])
        best_value, best = float(values.max()), Run(positions[k])
    most = max(_MOST_PAIRS_AT_ONE, int(60 / ratio**2))
    for k, i in enumerate(posterior.tested[1:-1], start=1):
        count = len(pairs.get(i, ()))
        if count >= most:
            continue
        first = float(posterior.first_costs([i])[0]) + s.check_s
        value = _gain(ratio, float(posterior.after[k]), first, pair_s, most=8)
        if value > best_value:
            best_value, best = value, Run(i, max(1, min(4, count // 4)))
    return best


_BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_ODDS = np.linspace(-14, 14, 701)
_RATIOS = np.exp(np.linspace(math.log(0.02), math.log(40), 60))


@cache
def _gain_table(ratio: float, first_s: float, further_s: float, most: int) -> Vector:
    """Return the most bits per second over batches, by the log-odds of lying after the change."""
    best = np.zeros(len(_ODDS))
    for batch in (b for b in _BATCHES if b <= most):
        nearest = int(np.argmin(np.abs(np.log(_RATIOS / (ratio * math.sqrt(batch))))))
        best = np.maximum(best, _information()[nearest] / (first_s + further_s * (batch - 1)))
    return best


def _gain(ratio: float, after: float, first_s: float, further_s: float, most: int = 256) -> float:
    odds = math.log(max(after, 1e-12)) - math.log(max(1 - after, 1e-12))
    # Costs vary a little with every run: rounded, so that the tables are few.
    table = _gain_table(ratio, float(f"{first_s:.2g}"), float(f"{further_s:.2g}"), most)
    return float(np.interp(odds, _ODDS, table))


@cache
def _information() -> Vector:
    """Return the bits that one normal observation tells, by ratio of step to noise × log-odds before it."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    weights = weights / weights.sum()
    share = 1 / (1 + np.exp(-_ODDS))
    table = np.zeros((len(_RATIOS), len(_ODDS)))
    for row, ratio in enumerate(_RATIOS):

        def entropy_after(y: Vector, ratio: float = float(ratio)) -> Vector:
            odds = _ODDS[:, None] + ratio * y[None, :] - ratio**2 / 2
            return _entropy(1 / (1 + np.exp(-np.clip(odds, -700, 700))))

        left = share * (entropy_after(nodes + ratio) @ weights)
        left += (1 - share) * (entropy_after(nodes) @ weights)
        table[row] = np.maximum(_entropy(share) - left, 0)
    return table


def _entropy(share: Vector) -> Vector:
    clipped = np.clip(share, 1e-15, 1 - 1e-15)
    result: Vector = -(clipped * np.log2(clipped) + (1 - clipped) * np.log2(1 - clipped))
    return result


@cache
def _student(count: int) -> float:
    """Return the quantile of Student's t for one look, with nine tenths of the degrees of freedom.

    By the expansion of Abramowitz and Stegun (26.7.5), good to a percent from five degrees on.
    """
    z = NormalDist().inv_cdf(1 - _CHANCE_EACH_LOOK)
    v = 0.9 * (count - 1)
    g1 = (z**3 + z) / 4
    g2 = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    g3 = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    g4 = (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160
    return z + g1 / v + g2 / v**2 + g3 / v**3 + g4 / v**4
