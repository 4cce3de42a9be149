"""Checks that fail now and then: what to run next, and when it is enough.

Each run at a position fails with a rate that is the same on its whole side of the change. The rates are not
known: a grid over both, with extra weight on "always" and "never", takes their place. The ends are run
first, until they are known to differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

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

LEAST_END_RUNS = 6
MOST_END_RUNS = 120
ENDS_DIFFER = 20.0
"""The Bayes factor at which the ends are taken to differ; the answer wants more, over all data."""
CLAIM = 150.0

_ALMOST = 1e-4
_AFTER = np.array([0.035, 0.07, 0.1, 0.14, 0.2, 0.28, 0.38, 0.5, 0.62, 0.75, 0.86, 0.94, 1 - _ALMOST])
_BEFORE = np.array([_ALMOST, 0.004, 0.015, 0.04, 0.08, 0.13, 0.2, 0.3, 0.45])
_ALWAYS, _NEVER = 0.1, 0.2
_BATCHES = (1, 2, 4, 8, 16, 32)
_LONGEST_REPEAT = 16
_LEAST_MASS = 5e-3
# A position as odd as this on its own side, among all that were tested, is no matter of chance.
_TOO_ODD = 1e-4


@dataclass(frozen=True, slots=True)
class Tally:
    """How many of the runs at a position failed (were like the later side)."""

    failures: int
    runs: int


@dataclass(frozen=True, slots=True)
class _Grid:
    after: Vector
    before: Vector
    log_prior: Vector
    tables_after: Vector
    tables_before: Vector


def next_flaky(situation: Situation, tallies: Mapping[int, Tally]) -> Step:
    """Decide what to run next, or how it ended, from the tallies by position."""
    nothing = Tally(0, 0)
    good, bad = tallies.get(0, nothing), tallies.get(situation.last, nothing)
    inside = any(0 < i < situation.last and tally.runs for i, tally in tallies.items())
    if not inside and (step := _compare_ends(situation, good, bad)) is not None:
        return step
    grid = _grid()
    evidence = {
        i: (_log_likelihood(tally, grid.before), _log_likelihood(tally, grid.after))
        for i, tally in tallies.items()
        if tally.runs
    }
    posterior = Posterior(situation, grid.log_prior, evidence)
    if posterior.is_settled:
        if posterior.log_evidence - _log_one_rate(tallies.values()) >= math.log(CLAIM):
            return _decided(posterior, grid, tallies)
        if good.runs + bad.runs > 3 * MOST_END_RUNS:
            return _indistinct(good, bad)
        return Run(0 if good.runs <= bad.runs else situation.last)
    return _most_telling(posterior, grid)


def _compare_ends(situation: Situation, good: Tally, bad: Tally) -> Step | None:
    """Run both ends until they differ (None), or until that is given up."""
    if min(good.runs, bad.runs) >= LEAST_END_RUNS and _log_ends_differ(good, bad) > math.log(ENDS_DIFFER):
        return None
    if bad.runs >= MOST_END_RUNS and (bad.failures == 0 or good.runs >= MOST_END_RUNS):
        return _indistinct(good, bad)
    if bad.runs < LEAST_END_RUNS:
        return Run(situation.last, LEAST_END_RUNS - bad.runs)
    if bad.failures < 2 and bad.runs < MOST_END_RUNS:
        return Run(situation.last)
    if good.runs < LEAST_END_RUNS:
        return Run(0, LEAST_END_RUNS - good.runs)
    is_bads_turn = bad.runs < good.runs and bad.runs < MOST_END_RUNS
    return Run(situation.last if is_bads_turn or good.runs >= MOST_END_RUNS else 0)


def _indistinct(good: Tally, bad: Tally) -> Indistinct:
    # With no failure in n runs a rate of 3/n would have shown itself 19 times in 20.
    smallest = 3 / max(min(good.runs, bad.runs), 1)
    return Indistinct((_rate(good), _rate(bad)), smallest)


def _rate(tally: Tally) -> float:
    return tally.failures / tally.runs if tally.runs else 0.0


def _decided(posterior: Posterior, grid: _Grid, tallies: Mapping[int, Tally]) -> Step:
    low, high = posterior.bounds(posterior.heaviest)
    before, after = posterior.mean(grid.before), posterior.mean(grid.after)
    for i, tally in sorted(tallies.items()):
        rate = before if i <= low else after
        if _tail(tally, rate) * len(tallies) < _TOO_ODD:
            return NotOneStep(i, _rate(tally))
    mass = float(posterior.mass[posterior.heaviest])
    return Decided(low, high, mass, (before, after), posterior.spread(grid.after))


def _tail(tally: Tally, rate: float) -> float:
    """Return how likely a tally is at least as far off as this one is, on its side of the mean."""
    pmf = _pmf(tally.runs, np.array([min(max(rate, 5e-3), 1 - 5e-3)]))[0]
    low, high = float(pmf[: tally.failures + 1].sum()), float(pmf[tally.failures :].sum())
    return min(low, high)


def _most_telling(posterior: Posterior, grid: _Grid) -> Run:
    """Choose the runs with the most expected information, in bits, per second."""
    s = posterior.situation
    mass = np.maximum(posterior.mass, 1e-300)
    # Of each interval and each number of failures: its probability with that, if tested after or before it.
    if_after, if_before = posterior.joint @ grid.tables_after, posterior.joint @ grid.tables_before
    offsets = np.concatenate([[0], np.cumsum(np.array(_BATCHES) + 1)[:-1]])
    log_mass = np.log2(mass)[:, None]
    ent_after, ent_before = _xlogx(if_after) - if_after * log_mass, _xlogx(if_before) - if_before * log_mass
    zero = np.zeros((1, if_after.shape[1]))
    # Row j: the intervals before j lie before a position in j, which is then after the change.
    sum_after, sum_ent_after = (np.concatenate([zero, np.cumsum(x, axis=0)]) for x in (if_after, ent_after))
    sum_before, sum_ent_before = (
        np.concatenate([np.cumsum(x[::-1], axis=0)[::-1], zero]) for x in (if_before, ent_before)
    )
    batches = np.array(_BATCHES)
    best_value, best = -1.0, Run(0)
    candidates = posterior.candidates(_LEAST_MASS)
    if candidates:
        positions = [i for i, _, _ in candidates]
        j = np.array([interval for _, interval, _ in candidates])
        share = np.array([share for _, _, share in candidates])[:, None]
        mix = sum_after[j] + share * if_after[j] + (1 - share) * if_before[j] + sum_before[j + 1]
        given = sum_ent_after[j] + share * ent_after[j] + (1 - share) * ent_before[j] + sum_ent_before[j + 1]
        bits = np.maximum(np.add.reduceat(given - _xlogx(mix), offsets, axis=1), 0)
        seconds = posterior.first_costs(positions)[:, None] + s.check_s * (batches - 1)
        values = (bits * posterior.chances(positions)[:, None] / seconds).max(axis=1)
        ties = np.flatnonzero(values >= values.max() * 0.99)
        k = int(ties[np.argmin(np.abs(share[ties, 0] - 0.5) - mass[j[ties]])])
        best_value, best = float(values.max()), Run(positions[k])
    bits = np.maximum(
        np.add.reduceat(sum_ent_after + sum_ent_before - _xlogx(sum_after + sum_before), offsets, axis=1), 0
    )
    seconds = posterior.first_costs(posterior.tested)[:, None] + s.check_s * (batches - 1)
    values = np.where(batches <= _LONGEST_REPEAT, bits / seconds, -1.0)
    k, batch = divmod(int(np.argmax(values)), len(_BATCHES))
    if values[k, batch] > best_value:
        # Half a batch, then the question is put anew.
        return Run(posterior.tested[k], max(1, min(_BATCHES[batch] // 2, 8)), until_failure=True)
    return best


def _log_ends_differ(good: Tally, bad: Tally) -> float:
    """Return the log Bayes factor of two rates, the bad end's higher, against one that both have."""
    grid = _grid()
    two = grid.log_prior + _log_likelihood(good, grid.before) + _log_likelihood(bad, grid.after)
    return float(np.logaddexp.reduce(two)) - _log_one_rate((good, bad))


def _log_one_rate(tallies: object) -> float:
    """Return the log-likelihood of one common rate (Jeffreys' prior)."""
    runs = sum(t.runs for t in tallies)  # type: ignore[attr-defined]
    failures = sum(t.failures for t in tallies)  # type: ignore[attr-defined]
    return _log_beta(failures + 0.5, runs - failures + 0.5) - _log_beta(0.5, 0.5)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _log_likelihood(tally: Tally, rates: Vector) -> Vector:
    likelihood: Vector = tally.failures * np.log(rates) + (tally.runs - tally.failures) * np.log1p(-rates)
    return likelihood


def _xlogx(x: Vector) -> Vector:
    result: Vector = x * np.log2(np.maximum(x, 1e-300))
    return result


@cache
def _grid() -> _Grid:
    weight_after = np.append(np.full(len(_AFTER) - 1, (1 - _ALWAYS) / (len(_AFTER) - 1)), _ALWAYS)
    falling = np.array([0.2, 0.2, 0.18, 0.15, 0.11, 0.08, 0.05, 0.03])
    weight_before = np.append([_NEVER], (1 - _NEVER) * falling)
    after, before = (x.ravel() for x in np.meshgrid(_AFTER, _BEFORE, indexing="ij"))
    weight = np.outer(weight_after, weight_before).ravel()
    # Rates that hardly differ are no change that could be found.
    apart = (after >= before + np.maximum(0.04, 0.25 * before)) | (before <= 0.004)
    after, before, weight = after[apart], before[apart], weight[apart]
    tables = [np.hstack([_pmf(batch, rates) for batch in _BATCHES]) for rates in (after, before)]
    return _Grid(after, before, np.log(weight / weight.sum()), *tables)


def _pmf(runs: int, rates: Vector) -> Vector:
    """Return the binomial probabilities of 0 … ``runs`` failures, rates × (runs + 1)."""
    failures = np.arange(runs + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, runs + 1)))])
    log_ways = log_factorial[-1] - log_factorial - log_factorial[::-1]
    log_pmf = log_ways + failures * np.log(rates)[:, None] + (runs - failures) * np.log1p(-rates)[:, None]
    result: Vector = np.exp(log_pmf)
    return result
