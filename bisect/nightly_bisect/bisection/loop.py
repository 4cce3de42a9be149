"""The loop: ask the course what to do next, do it, observe, until it is answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from nightly_bisect.bisection.course import (
    Located,
    Move,
    Question,
    Seen,
    TestNext,
    judgements,
    next_move,
)
from nightly_bisect.bisection.events import Listener, Tested, Working
from nightly_bisect.judge import Judgement
from nightly_bisect.model import Asked, Nightly, Observation, Outcome, Slot, Stamp, UnlistedDay

# Walking back, a fortnight without any nightly is taken for the beginning of history.
_MOST_ABSENT_IN_A_ROW = 14
_MOST_DAYS_FOR_OTHERS = 31


class Tests(Protocol):
    """Tests one nightly."""

    def test(self, nightly: Nightly) -> Observation:
        """Return what was observed."""


class Asks(Protocol):
    """Knows whether an unlisted day has a nightly."""

    def ask(self, slot: UnlistedDay) -> Nightly | None:
        """Return the nightly of that day, or None."""

    def ask_for_others(self, slot: UnlistedDay) -> Nightly | None:
        """Return the nightly of that day that has wheels for other Pythons only, or None."""


class Bisection:
    """A row of slots, what was observed of them, and what follows from it.

    ``keep`` stores what was learned for good; ``observations`` and ``answers`` are of earlier runs.
    ``watch`` hears of each trial after all else, and may end the run by an error.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        question: Question,
        tester: Tests,
        asks: Asks,
        listener: Listener,
        keep: Callable[[Observation | Asked], None] = lambda what: None,
        observations: Sequence[Observation] = (),
        answers: Sequence[Asked] = (),
        watch: Callable[[Observation], None] = lambda seen: None,
    ) -> None:
        # A day that was asked for in an earlier run is known by what was answered or tested.
        known: dict[Stamp, Nightly | None] = {asked.day.stamp: asked.nightly for asked in answers}
        known |= {o.nightly.stamp: o.nightly for o in observations}
        row = [known.get(s.stamp, s) if isinstance(s, UnlistedDay) else s for s in slots]
        self.slots: list[Slot] = [slot for slot in row if slot is not None]
        self.question = question
        self.observations = list(observations)
        self.absent_days = [s for s in slots if isinstance(s, UnlistedDay) and known.get(s.stamp, s) is None]
        self._tester = tester
        self._asks = asks
        self._listener = listener
        self._keep = keep
        self._absent_in_a_row = 0
        self._watch = watch
        self._missed: dict[str, int] = {}
        self._asked_for_others = [asked.day for asked in answers if asked.for_others]

    @property
    def seen(self) -> Seen:
        """The observations by the position of their slot."""
        position = {s.version: i for i, s in enumerate(self.slots) if isinstance(s, Nightly)}
        return {position[o.nightly.version]: o for o in self.observations}

    @property
    def move(self) -> Move:
        """What to do next, or how it ended."""
        return next_move(self.slots, self.seen, self.question)

    def judged(self) -> dict[int, Judgement]:
        """Return the verdicts so far, by the position of their slot."""
        return judgements(self.slots, self.seen, self.question)

    def run(self) -> Move:
        """Go on until it is answered. What was observed stays when an error ends it early."""
        while True:
            move = self.move
            if isinstance(move, TestNext):
                slot = self.slots[move.index]
                if isinstance(slot, UnlistedDay):
                    self._ask(slot, move.index)
                else:
                    self._test(slot)
            elif not (isinstance(move, Located) and (self._tried_others(move) or self._found_others(move))):
                return move

    def _ask(self, slot: UnlistedDay, index: int) -> None:
        self._listener(Working(f"asking for the nightly of {slot}"))
        nightly = self._asks.ask(slot)
        self._keep(Asked(slot, nightly))
        if nightly is not None:
            self.slots[index] = nightly
            self._absent_in_a_row = 0
            return
        self.absent_days.append(slot)
        self._absent_in_a_row += 1
        is_walking = self.question.walk_back and not any(i < index for i in self.seen)
        history_begins = is_walking and self._absent_in_a_row >= _MOST_ABSENT_IN_A_ROW
        del self.slots[0 if history_begins else index : index + 1]

    def _tried_others(self, located: Located) -> bool:
        """Try suspects again, once each, that only the network kept from being tested: it may be back."""
        for slot in (self.slots[index] for index in located.suspects):
            if isinstance(slot, Nightly) and self._missed.get(slot.version) == 1:
                self._test(slot)
                return True
        return False

    def _found_others(self, located: Located) -> bool:
        """Look whether nights that seem to be missing at the boundary are there for other Pythons.

        They could not be tested, so that the first after the change may be one of them.
        """
        before, after = self.slots[located.before].stamp, self.slots[located.after].stamp
        days = [day for day in self.absent_days if before < day.stamp < after]
        found = False
        for day in [d for d in days if d not in self._asked_for_others][:_MOST_DAYS_FOR_OTHERS]:
            self._asked_for_others.append(day)
            self._listener(Working(f"asking for other wheels of {day}"))
            nightly = self._asks.ask_for_others(day)
            self._keep(Asked(day, nightly, for_others=True))
            if nightly is not None:
                self.absent_days.remove(day)
                self.slots = sorted([*self.slots, nightly], key=lambda slot: slot.stamp)
                found = True
        return found

    def _test(self, nightly: Nightly) -> None:
        self._absent_in_a_row = 0
        observation = self._tester.test(nightly)
        if observation.outcome is Outcome.UNREACHABLE:
            self._missed[nightly.version] = self._missed.get(nightly.version, 0) + 1
        else:
            self._missed.pop(nightly.version, None)
        # Kept before it is shown or used: what follows from it can be recomputed, it cannot.
        self._keep(observation)
        for position, earlier in enumerate(self.observations):
            if earlier.nightly == nightly:
                self.observations[position] = observation
                break
        else:
            self.observations.append(observation)
        judgement = self.judged()[self.slots.index(nightly)]
        self._listener(Tested(observation, judgement, _steps_left(self.move)))
        self._watch(observation)


def _steps_left(move: Move) -> int | None:
    """Return how many trials may follow at most; None while that is not known."""
    if not isinstance(move, TestNext):
        return 0
    return None if move.steps_left is None else 1 + move.steps_left
