"""The loop: ask the course what to do next, do it, observe, until it is answered."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from nightly_bisect.bisection.course import (
    Located,
    Move,
    Question,
    Runs,
    Seen,
    TestNext,
    judged_runs,
    judgements,
    next_move,
    shows_noise,
    telling_runs,
)
from nightly_bisect.bisection.events import Listener, Tested, Working
from nightly_bisect.bisection.visit import Visit
from nightly_bisect.judge import Judgement
from nightly_bisect.model import Asked, Nightly, Observation, Outcome, Slot, Stamp, UnlistedDay

# Walking back, a fortnight without any nightly is taken for the beginning of history.
_MOST_ABSENT_IN_A_ROW = 14
_MOST_DAYS_FOR_OTHERS = 31


class Tests(Protocol):
    """Tests one nightly."""

    def test(self, nightly: Nightly, visit: Visit) -> Generator[Observation]:
        """Run the check; yield what was observed of each run."""

    @property
    def installed(self) -> frozenset[str]:
        """The versions whose check can be run without an install."""


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
        """The telling run of each nightly, by the position of its slot."""
        return telling_runs(self.runs, self.question)

    @property
    def runs(self) -> Runs:
        """All runs by the position of their slot, in the order of their numbers."""
        position = {s.version: i for i, s in enumerate(self.slots) if isinstance(s, Nightly)}
        runs: dict[int, list[Observation]] = {}
        for observation in self.observations:
            runs.setdefault(position[observation.nightly.version], []).append(observation)
        ordered = {i: sorted(of_one, key=lambda o: o.repeat) for i, of_one in runs.items()}
        # What the user knows of a nightly stands in place of all its runs.
        return {i: of_one[:1] if of_one[0].marked is not None else of_one for i, of_one in ordered.items()}

    @property
    def is_noisy(self) -> bool:
        """Whether runs of one nightly differ, or are expected to."""
        return shows_noise(self.slots, self.runs, self.question)

    @property
    def move(self) -> Move:
        """What to do next, or how it ended."""
        installed = self._tester.installed
        at_hand = {i for i, s in enumerate(self.slots) if isinstance(s, Nightly) and s.version in installed}
        return next_move(self.slots, self.runs, self.question, at_hand)

    def judged(self) -> dict[int, Judgement]:
        """Return the verdicts so far, by the position of their slot."""
        return judgements(self.slots, self.runs, self.question)

    def judged_runs(self) -> list[tuple[Observation, Judgement]]:
        """Return every run, in the order in which they came, with its verdict."""
        verdicts = {
            (observation.nightly.version, observation.repeat): judgement
            for i, of_one in judged_runs(self.slots, self.runs, self.question).items()
            for observation, judgement in zip(self.runs[i], of_one, strict=True)
        }
        keys = [(o, (o.nightly.version, o.repeat)) for o in self.observations]
        return [(o, verdicts[key]) for o, key in keys if key in verdicts]

    def run(self) -> Move:
        """Go on until it is answered. What was observed stays when an error ends it early."""
        while True:
            move = self.move
            if isinstance(move, TestNext):
                slot = self.slots[move.index]
                if isinstance(slot, UnlistedDay):
                    self._ask(slot, move.index)
                else:
                    self._test(slot, self._visit(move))
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
                self._test(slot, Visit())
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

    def _visit(self, move: TestNext) -> Visit:
        reference = None if move.beside is None else self.slots[move.beside]
        assert reference is None or isinstance(reference, Nightly)
        number = len(self.runs.get(move.index, ()))
        return Visit(move.runs, number, reference, move.afresh, move.until_failure)

    def _test(self, nightly: Nightly, visit: Visit) -> None:
        self._absent_in_a_row = 0
        with contextlib.closing(self._tester.test(nightly, visit)) as runs:
            for observation in runs:
                self._take(observation)

    def _take(self, observation: Observation) -> None:
        nightly = observation.nightly
        if observation.repeat == 0:
            is_missed = observation.outcome is Outcome.UNREACHABLE
            self._missed[nightly.version] = self._missed.get(nightly.version, 0) + 1 if is_missed else 0
        # Kept before it is shown or used: what follows from it can be recomputed, it cannot.
        self._keep(observation)
        for position, earlier in enumerate(self.observations):
            if (earlier.nightly, earlier.repeat) == (nightly, observation.repeat):
                self.observations[position] = observation
                break
        else:
            self.observations.append(observation)
        judgement = next(j for o, j in self.judged_runs() if o is observation)
        self._listener(Tested(observation, judgement, _steps_left(self.move)))
        self._watch(observation)


def _steps_left(move: Move) -> int | None:
    """Return how many trials may follow at most; None while that is not known."""
    if not isinstance(move, TestNext):
        return 0
    return None if move.steps_left is None else 1 + move.steps_left
