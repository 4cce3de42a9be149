"""The course of a bisection: from what was observed to what to do next. Pure.

Everything is recomputed from the row of slots and the observations, each time: that is what makes
resuming, undoing and replaying the same as running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from nightly_bisect.judge import Counts, Judgement, Reference, Rules, judge
from nightly_bisect.model import Find, Nightly, Observation, Outcome, Slot, Verdict
from nightly_bisect.search import Contradiction, Found, Range, Side, Test, next_step
from nightly_bisect.signature import normalise

# An end whose nightly cannot be tested gives way to its neighbour so many times.
MOST_END_TRIALS = 5


@dataclass(frozen=True, slots=True)
class Question:
    """What a bisection is to answer about its row of slots."""

    find: Find
    rules: Rules
    walk_back: bool


@dataclass(frozen=True, slots=True)
class TestNext:
    """Test the slot at ``index``; ``steps_left`` bounds what follows where that is known."""

    index: int
    steps_left: int | None


class Trouble(Enum):
    """Why a bisection ends without a search."""

    CHECK_NOT_RUNNABLE = "the check cannot be run"
    GOOD_END_FAILS = "the good end fails"
    BAD_END_PASSES = "the bad end passes"
    SWAPPED = "the ends are swapped"
    GOOD_END_UNTESTABLE = "the good end cannot be tested"
    BAD_END_UNTESTABLE = "the bad end cannot be tested"
    NEVER_GOOD = "no good nightly was found"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The search could not begin; ``good`` and ``bad`` are the ends as far as they were seen."""

    trouble: Trouble
    good: int | None
    bad: int | None


@dataclass(frozen=True, slots=True)
class Located:
    """The change lies between ``before`` and ``after``; it is one of ``suspects``."""

    before: int
    after: int
    suspects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contradicted:
    """``after`` was on the later side of the change, though the later ``before`` was not."""

    after: int
    before: int


Move = TestNext | Stopped | Located | Contradicted
Seen = Mapping[int, Observation]


def next_move(slots: Sequence[Slot], seen: Seen, question: Question) -> Move:
    """Decide what to do next, or how the bisection ends."""
    if question.walk_back:
        return _walk_back(slots, seen, question)
    return _between_ends(slots, seen, question)


def judgements(slots: Sequence[Slot], seen: Seen, question: Question) -> dict[int, Judgement]:
    """Judge all that was observed, by the bad end's failure once it is known."""
    passed = next((o for o in seen.values() if o.outcome is Outcome.PASSED), None)
    reference = Reference(_bad_end(slots, seen, question), passed)
    return {i: judge(o, question.rules, reference) for i, o in seen.items()}


def _between_ends(slots: Sequence[Slot], seen: Seen, question: Question) -> Move:
    good_order, bad_order = _orders(len(slots), question)
    good = _settle_end(slots, seen, good_order, question, is_bad_end=False)
    if isinstance(good, TestNext):
        return good
    if good is None:
        return Stopped(Trouble.GOOD_END_UNTESTABLE, None, None)
    if seen[good].outcome is Outcome.NOT_RUNNABLE:
        return Stopped(Trouble.CHECK_NOT_RUNNABLE, good, None)
    bad = _settle_end(slots, seen, [i for i in bad_order if i != good], question, is_bad_end=True)
    if isinstance(bad, TestNext):
        return bad
    if bad is None:
        return Stopped(Trouble.BAD_END_UNTESTABLE, good, None)
    good_verdict = _alone(seen[good], question).verdict
    bad_verdict = _alone(seen[bad], question, is_bad_end=True).verdict
    match good_verdict, bad_verdict:
        case Verdict.GOOD, Verdict.BAD:
            return _search(slots, seen, question, min(good, bad), max(good, bad))
        case Verdict.GOOD, _:
            return Stopped(Trouble.BAD_END_PASSES, good, bad)
        case Verdict.BAD, Verdict.GOOD:
            return Stopped(Trouble.SWAPPED, good, bad)
        case _:
            return Stopped(Trouble.GOOD_END_FAILS, good, bad)


def _walk_back(slots: Sequence[Slot], seen: Seen, question: Question) -> Move:
    """Go back from the bad end by 1, 2, 4 … nightlies until one is good, then search."""
    newest = len(slots) - 1
    bad = _settle_end(slots, seen, range(newest, -1, -1), question, is_bad_end=True)
    if isinstance(bad, TestNext):
        return bad
    if bad is None:
        return Stopped(Trouble.BAD_END_UNTESTABLE, None, None)
    if _alone(seen[bad], question, is_bad_end=True).verdict is not Verdict.BAD:
        return Stopped(Trouble.BAD_END_PASSES, None, bad)
    judged = judgements(slots, seen, question)
    for index in _doubling(bad):
        if index in seen and seen[index].outcome is seen[bad].outcome is Outcome.NOT_RUNNABLE:
            return Stopped(Trouble.CHECK_NOT_RUNNABLE, index, bad)
        if index not in seen:
            if _has_no_wheel(slots[index]):
                continue
            return TestNext(index, None)
        if judged[index].verdict is Verdict.GOOD:
            return _search(slots, seen, question, index, bad)
    return Stopped(Trouble.NEVER_GOOD, None, bad)


def _doubling(start: int) -> Iterator[int]:
    step = 1
    index = start
    while index > 0:
        index = max(0, index - step)
        step *= 2
        yield index


def _search(slots: Sequence[Slot], seen: Seen, question: Question, early: int, late: int) -> Move:
    judged = judgements(slots, seen, question)
    early_verdict = Verdict.GOOD if question.find is Find.REGRESSION else Verdict.BAD
    sides: dict[int, Side] = {}
    untestable = {i - early for i in range(early, late + 1) if _has_no_wheel(slots[i]) and i not in judged}
    for index, judgement in judged.items():
        if not early <= index <= late:
            continue
        if judgement.verdict is Verdict.UNTESTABLE:
            untestable.add(index - early)
        else:
            sides[index - early] = Side.BEFORE if judgement.verdict is early_verdict else Side.AFTER
    match next_step(late - early + 1, sides, untestable):
        case Test(index, steps_left):
            return TestNext(index + early, steps_left)
        case Found(index):
            return Located(index + early - 1, index + early, (index + early,))
        case Range(first, last):
            return Located(first + early - 1, last + early, tuple(range(first + early, last + early + 1)))
        case Contradiction(after, before):
            return Contradicted(after + early, before + early)


def _orders(count: int, question: Question) -> tuple[range, range]:
    """Return in which order slots may serve as the good and as the bad end, inwards."""
    forward, backward = range(count), range(count - 1, -1, -1)
    return (forward, backward) if question.find is Find.REGRESSION else (backward, forward)


def _settle_end(
    slots: Sequence[Slot],
    seen: Seen,
    order: Sequence[int],
    question: Question,
    *,
    is_bad_end: bool,
) -> int | TestNext | None:
    """Return the slot that serves as an end, the next to try, or None when none can be tested."""
    tried: list[str] = []
    for index in order:
        if index not in seen:
            if _has_no_wheel(slots[index]):
                continue
            return TestNext(index, None)
        observation = seen[index]
        # The bad end is measured by itself: it shows what the regression looks like.
        judgement = _alone(observation, question, is_bad_end=is_bad_end)
        if judgement.verdict is not Verdict.UNTESTABLE or _is_telling(observation, question.rules):
            return index
        tried.append(normalise(observation.reason))
        # The same installer's words twice: the next neighbour would hear them too.
        is_hopeless = observation.outcome is Outcome.NOT_INSTALLED and tried[-1] in tried[:-1]
        if is_hopeless or len(tried) == MOST_END_TRIALS:
            return None
    return None


def _alone(observation: Observation, question: Question, *, is_bad_end: bool = False) -> Judgement:
    """Judge an end by itself."""
    reference = Reference(bad=observation) if is_bad_end else None
    return judge(observation, question.rules, reference)


def _is_telling(observation: Observation, rules: Rules) -> bool:
    """Tell whether an end without a verdict says enough: its neighbours would do the same."""
    if observation.outcome is Outcome.TIMED_OUT:
        return rules.on_timeout is Counts.AUTO
    return observation.outcome is Outcome.ODD_STATUS or observation.matched is False


def _bad_end(slots: Sequence[Slot], seen: Seen, question: Question) -> Observation | None:
    order = range(len(slots) - 1, -1, -1) if question.walk_back else _orders(len(slots), question)[1]
    index = _settle_end(slots, seen, order, question, is_bad_end=True)
    if not isinstance(index, int):
        return None
    is_bad = _alone(seen[index], question, is_bad_end=True).verdict is Verdict.BAD
    return seen[index] if is_bad else None


def _has_no_wheel(slot: Slot) -> bool:
    return isinstance(slot, Nightly) and slot.wheel is None
