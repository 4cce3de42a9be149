"""The search: which of a row of candidates to test next, and when to stop.

Pure: values in, values out. Candidates are positions ``0 … count-1`` in order of time. A tested one
lies BEFORE the change or AFTER it; one that cannot be tested lies on neither side, and is never
counted as if it did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import Enum

# How far the bad luck of an untestable nightly is believed to reach: broken nights come in
# streaks, and each further night keeps 70 % of the chance that it is broken too.
STREAK = 0.7


class Side(Enum):
    """On which side of the change a tested candidate lies."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Test:
    """Test the candidate at ``index`` next; ``steps_left`` may follow if all can be tested."""

    index: int
    steps_left: int


@dataclass(frozen=True, slots=True)
class Found:
    """``index`` is the first after the change, and ``index - 1`` was seen before it."""

    index: int


@dataclass(frozen=True, slots=True)
class Range:
    """The first after the change is one of ``first … last``; all but ``last`` are untestable."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Contradiction:
    """``after`` was seen after the change though the later ``before`` was seen before it."""

    after: int
    before: int


Step = Test | Found | Range | Contradiction


def next_step(count: int, sides: Mapping[int, Side], untestable: Set[int]) -> Step:
    """Decide from what is known; at least one candidate must be known on each side.

    Without untestable candidates the whole search takes at most ``most_trials(count)`` tests
    beside the two ends.
    """
    before = max((i for i, side in sides.items() if side is Side.BEFORE), default=None)
    after = min((i for i, side in sides.items() if side is Side.AFTER), default=None)
    if before is None or after is None:
        raise ValueError("one candidate must be known on each side")
    if not all(0 <= i < count for i in (*sides, *untestable)):
        raise ValueError("a candidate lies outside the row")
    if before > after:
        return Contradiction(after=after, before=before)
    inside = [i for i in range(before + 1, after) if i not in untestable]
    if inside:
        index = _most_telling(before, after, inside, {i for i in untestable if before < i < after})
        return Test(index, steps_left=most_trials(max(index - before, after - index) + 1))
    if after == before + 1:
        return Found(after)
    return Range(before + 1, after)


def most_trials(count: int) -> int:
    """Return the tests that ``count`` candidates need at most, the two ends not included."""
    return math.ceil(math.log2(count - 1)) if count > 2 else 0


def _most_telling(before: int, after: int, inside: list[int], untestable: Set[int]) -> int:
    """Choose the split with the most information times the chance that it can be had."""
    return max(
        inside,
        key=lambda i: (
            round(_information((i - before) / (after - before)) * testable_chance(i, untestable), 9),
            -abs(2 * i - before - after),
            -i,
        ),
    )


def _information(share: float) -> float:
    """Return the entropy, in bits, of a split that leaves ``share`` on the left (0 < share < 1)."""
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def testable_chance(index: int, untestable: Set[int]) -> float:
    """Return how likely a candidate can be tested, by how far the nearest is that could not."""
    if not untestable:
        return 1.0
    nearest = min(abs(index - other) for other in untestable)
    return 1 - STREAK**nearest
