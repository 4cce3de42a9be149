"""Every change in a row of measured nightlies, with its size: where there may be more than one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

# So many standard errors make two stretches different: with a few dozen places to split, chance seldom does.
_CERTAIN = 4.0
_RAMP_STEPS = 3


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """The level moves from ``before`` to ``after`` between samples ``index - 1`` and ``index``."""

    index: int
    before: float
    after: float

    @property
    def size(self) -> float:
        """How far the level moves."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Ramp:
    """The level moves gradually, over samples ``first`` to ``last``."""

    first: int
    last: int
    before: float
    after: float


def find_changes(samples: Sequence[Sequence[float]], noise_floor: float = 0.0) -> list[ChangePoint]:
    """Find the change points of a row: the values measured at each place, in order of time.

    The row is split where the two sides differ most, again and again, while they differ by more than
    chance (the spread within places, at least ``noise_floor``) explains.
    """
    spread = max(_spread_within(samples), noise_floor, 1e-12)
    cuts = sorted(_split(samples, 0, len(samples), spread))
    bounds = [0, *cuts, len(samples)]
    levels = [_mean(samples[low:high]) for low, high in pairwise(bounds)]
    return [ChangePoint(cut, levels[k], levels[k + 1]) for k, cut in enumerate(cuts)]


def find_ramps(changes: Sequence[ChangePoint]) -> list[Ramp]:
    """Find stretches in which the level moves one way at each of several neighbouring places."""
    ramps: list[Ramp] = []
    run: list[ChangePoint] = []
    for change in [*changes, None]:
        is_next = (
            change is not None
            and bool(run)
            and change.index == run[-1].index + 1
            and (change.size > 0) is (run[-1].size > 0)
        )
        if is_next and change is not None:
            run.append(change)
            continue
        if len(run) >= _RAMP_STEPS:
            ramps.append(Ramp(run[0].index - 1, run[-1].index, run[0].before, run[-1].after))
        run = [change] if change is not None else []
    return ramps


def _split(samples: Sequence[Sequence[float]], low: int, high: int, spread: float) -> list[int]:
    """Return the places within ``low … high`` where a new level begins."""
    best, best_score = None, _CERTAIN
    for cut in range(low + 1, high):
        left, right = _flat(samples[low:cut]), _flat(samples[cut:high])
        if not left or not right:
            continue
        error = spread * math.sqrt(1 / len(left) + 1 / len(right))
        score = abs(fmean(left) - fmean(right)) / error
        # Of equal splits the earlier one, so that an unmeasured place belongs to what follows.
        if score > best_score:
            best, best_score = cut, score
    if best is None:
        return []
    return [*_split(samples, low, best, spread), best, *_split(samples, best, high, spread)]


def _spread_within(samples: Sequence[Sequence[float]]) -> float:
    """Return the standard deviation within places, over all of them."""
    squares = [(x - fmean(place)) ** 2 for place in samples if len(place) > 1 for x in place]
    degrees = sum(len(place) - 1 for place in samples if len(place) > 1)
    return math.sqrt(sum(squares) / degrees) if degrees else 0.0


def _flat(places: Sequence[Sequence[float]]) -> list[float]:
    return [x for place in places for x in place]


def _mean(places: Sequence[Sequence[float]]) -> float:
    values = _flat(places)
    return fmean(values) if values else 0.0
