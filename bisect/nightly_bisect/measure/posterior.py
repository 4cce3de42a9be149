"""Where the change lies, as a posterior over positions and over what is not known of the noise.

Hypotheses: the first position after the change is one of ``1 … count-1``, times a grid of parameters
(failure rates, or the size of the step and of the noise). What was observed at a position enters as two
vectors over the grid: the log-likelihood if it lies before the change, and if it lies after it. Between
tested positions the posterior is flat, so its cost depends on how many were tested, not on ``count``.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightly_bisect.search import testable_chance

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Situation:
    """What a decision depends on beside the evidence.

    Positions are ``0 … count-1`` in order of time; the first lies before the change and the last after it.
    ``at_hand`` are those whose environment is there; costs are in seconds.
    """

    count: int
    untestable: Set[int] = frozenset()
    at_hand: Set[int] = frozenset()
    install_s: float = 60.0
    check_s: float = 2.0
    confidence: float = 0.95

    @property
    def last(self) -> int:
        """The end after the change."""
        return self.count - 1


@dataclass(frozen=True, slots=True)
class Run:
    """Run the check at ``position``, ``runs`` times, fewer if one of them fails and ``until_failure``."""

    position: int
    runs: int = 1
    until_failure: bool = False


@dataclass(frozen=True, slots=True)
class Decided:
    """The change lies after ``before``, at ``after`` at the latest, with this probability.

    Positions between the two are untestable. ``levels``: what is known of both sides (failure rates, or 0
    and the step), ``interval`` holds the second of them with 95 %.
    """

    before: int
    after: int
    confidence: float
    levels: tuple[float, float]
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Indistinct:
    """The ends cannot be told apart; ``seen`` is what they showed, ``smallest`` what would have been seen."""

    seen: tuple[float, float]
    smallest: float


@dataclass(frozen=True, slots=True)
class NotOneStep:
    """``position`` behaves like neither side of a single change; ``level`` is what it shows."""

    position: int
    level: float


Step = Run | Decided | Indistinct | NotOneStep


class Posterior:
    """The posterior, given the evidence at tested positions; the two ends are always among them."""

    def __init__(
        self, situation: Situation, log_prior: Vector, evidence: Mapping[int, tuple[Vector, Vector]]
    ) -> None:
        self.situation = situation
        nothing = np.zeros_like(log_prior)
        self.tested = sorted({0, situation.last, *evidence})
        before = np.array([evidence.get(i, (nothing, nothing))[0] for i in self.tested])
        after = np.array([evidence.get(i, (nothing, nothing))[1] for i in self.tested])
        widths = np.diff(np.array(self.tested, dtype=float))
        # In interval j all tested up to j lie before the change, and the others after it.
        log_weight = (
            np.cumsum(before, axis=0)[:-1]
            + np.cumsum(after[::-1], axis=0)[::-1][1:]
            + log_prior
            + np.log(widths / situation.last)[:, None]
        )
        highest = float(log_weight.max())
        weight = np.exp(log_weight - highest)
        total = float(weight.sum())
        self.log_evidence = highest + float(np.log(total))
        self.joint: Vector = weight / total
        """Intervals × grid."""
        self.mass: Vector = self.joint.sum(axis=1)
        self.parameters: Vector = self.joint.sum(axis=0)
        self.after: Vector = np.concatenate([[0.0], np.cumsum(self.mass)])
        """The probability that a tested position lies after the change."""
        self._untried = [
            [i for i in range(low + 1, high) if i not in situation.untestable]
            for low, high in zip(self.tested[:-1], self.tested[1:], strict=True)
        ]

    @property
    def heaviest(self) -> int:
        """The number of the likeliest interval."""
        return int(np.argmax(self.mass))

    @property
    def is_settled(self) -> bool:
        """Whether the likeliest interval is likely enough and can't be split any more."""
        j = self.heaviest
        return not self._untried[j] and float(self.mass[j]) >= self.situation.confidence

    def bounds(self, interval: int) -> tuple[int, int]:
        """Return the tested positions around an interval."""
        return self.tested[interval], self.tested[interval + 1]

    def mean(self, parameter: Vector) -> float:
        """Return the posterior mean of a parameter, given over the grid."""
        return float(self.parameters @ parameter)

    def spread(self, parameter: Vector) -> tuple[float, float]:
        """Return the central 95 % of a parameter."""
        order = np.argsort(parameter)
        shares = np.cumsum(self.parameters[order])
        low, high = np.searchsorted(shares, [0.025, 0.975])
        return float(parameter[order[low]]), float(parameter[order[min(int(high), len(order) - 1)]])

    def candidates(self, least_mass: float, most_each: int = 9) -> list[tuple[int, int, float]]:
        """Return untried positions as (position, interval, share of its interval that lies before it).

        Of a long interval these are some that split it in telling ways, and all that are at hand.
        """
        found = []
        for j, untried in enumerate(self._untried):
            if self.mass[j] <= least_mass or not untried:
                continue
            low, high = self.bounds(j)
            chosen = set(untried)
            if len(untried) > most_each and not self.situation.untestable:
                balance = (0.5 - self.after[j]) / max(self.mass[j], 1e-300)
                wanted = (0.5, 0.15, 0.3, 0.4, 0.6, 0.7, 0.85, min(max(float(balance), 0.0), 1.0))
                # Position i has the share (i - low) / (high - low) of its interval before it.
                targets = [low + share * (high - low) for share in wanted]
                chosen = {min(untried, key=lambda i, t=t: (abs(i - t), i)) for t in targets}  # type: ignore[misc]
                chosen |= self.situation.at_hand & set(untried)
            found += [(i, j, (i - low) / (high - low)) for i in sorted(chosen)]
        return found

    def chances(self, positions: list[int]) -> Vector:
        """Return how likely positions can be tested: broken nights come in streaks."""
        untestable = self.situation.untestable
        return np.array([testable_chance(i, untestable) for i in positions])

    def first_costs(self, positions: list[int]) -> Vector:
        """Return what the first run at each position costs, in seconds."""
        s = self.situation
        return np.array([s.check_s if i in s.at_hand else s.install_s + s.check_s for i in positions])
