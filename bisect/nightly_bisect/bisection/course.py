"""The course of a bisection: from what was observed to what to do next. Pure.

Everything is recomputed from the row of slots and the observations, each time: that is what makes
resuming, undoing and replaying the same as running.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum

from nightly_bisect.bisection.noisy import Noise, has_two_verdicts
from nightly_bisect.judge import Counts, Judgement, Reference, Rules, judge
from nightly_bisect.measure.sweep import ChangePoint, Ramp
from nightly_bisect.model import Estimate, Find, Nightly, Observation, Outcome, Slot, Verdict
from nightly_bisect.search import Contradiction, Found, Range, Side, Test, next_step
from nightly_bisect.signature import normalise

CONFIRMATIONS = 2
"""So many nightlies, one on each side of the change, are run once more."""

# An end whose nightly cannot be tested gives way to its neighbour so many times.
MOST_END_TRIALS = 5


@dataclass(frozen=True, slots=True)
class Question:
    """What a bisection is to answer about its row of slots.

    ``confirm``: the nightlies on both sides of the change are run once more before that is the answer.
    ``repeat``: the check must pass so often before a nightly is good. ``noise``: runs of one nightly differ.
    ``sweep``: so many nightlies are measured all over the range, in place of a search (0: no).
    """

    find: Find
    rules: Rules
    walk_back: bool
    confirm: bool = False
    repeat: int = 1
    noise: Noise = field(default_factory=Noise)
    sweep: int = 0

    @property
    def is_noisy(self) -> bool:
        """Whether single runs prove little, and the question is answered with a confidence."""
        return self.noise.is_flaky or (self.noise.metric is not None and self.rules.threshold is None)


@dataclass(frozen=True, slots=True)
class TestNext:
    """Run the check of the slot at ``index``; ``steps_left`` bounds what follows where that is known.

    ``runs`` times (``until_failure``: or fewer), in a new environment if ``afresh``, each run paired with
    one of the slot ``beside``.
    """

    index: int
    steps_left: int | None
    runs: int = 1
    beside: int | None = None
    afresh: bool = False
    until_failure: bool = False


class Trouble(Enum):
    """Why a bisection ends without a search."""

    CHECK_NOT_RUNNABLE = "the check cannot be run"
    GOOD_END_FAILS = "the good end fails"
    BAD_END_PASSES = "the bad end passes"
    SWAPPED = "the ends are swapped"
    GOOD_END_UNTESTABLE = "the good end cannot be tested"
    BAD_END_UNTESTABLE = "the bad end cannot be tested"
    NEVER_GOOD = "no good nightly was found"
    INDISTINCT = "the ends cannot be told apart"
    WRONG_WAY = "what was measured got better"


@dataclass(frozen=True, slots=True)
class Stopped:
    """The search could not begin; ``good`` and ``bad`` are the ends as far as they were seen.

    ``detail`` says of noisy checks what was measured.
    """

    trouble: Trouble
    good: int | None
    bad: int | None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Located:
    """The change lies between ``before`` and ``after``; it is one of ``suspects``.

    ``confidence`` and ``estimate`` are of noisy checks.
    """

    before: int
    after: int
    suspects: tuple[int, ...]
    confidence: float | None = None
    estimate: Estimate | None = None


@dataclass(frozen=True, slots=True)
class Contradicted:
    """``after`` was on the later side of the change, though the later ``before`` was not."""

    after: int
    before: int


@dataclass(frozen=True, slots=True)
class Uneven:
    """The nightly at ``index`` behaves like neither side of one change; ``detail`` says how."""

    index: int
    detail: str


@dataclass(frozen=True, slots=True)
class Swept:
    """A sweep's end: the ``places`` that were measured, and between which of them the level moves.

    ``changes`` are (last before, first after, change); ``ramps`` stretches in which it moves gradually.
    """

    places: tuple[int, ...]
    changes: tuple[tuple[int, int, ChangePoint], ...]
    ramps: tuple[tuple[int, int, Ramp], ...]


Move = TestNext | Stopped | Located | Contradicted | Uneven | Swept
Seen = Mapping[int, Observation]
Runs = Mapping[int, Sequence[Observation]]
"""All runs of each nightly by the position of its slot; the first one is what `Seen` holds."""


def next_move(slots: Sequence[Slot], runs: Runs, question: Question, at_hand: Set[int] = frozenset()) -> Move:
    """Decide what to do next, or how the bisection ends.

    ``at_hand`` are the slots whose check can be run without an install.
    """
    seen = telling_runs(runs, question)
    if question.sweep:
        from nightly_bisect.bisection.sweep_course import sweep_move

        return sweep_move(slots, runs, judged_runs(slots, runs, question), question)
    if shows_noise(slots, runs, question):
        return _noisy_move(slots, runs, question, at_hand)
    if question.repeat > 1:
        move = _unfinished(runs, question) or _exact_move(slots, seen, question)
        if isinstance(move, TestNext) and move.index not in runs:
            return replace(move, runs=question.repeat, until_failure=True)
        return move
    move = _exact_move(slots, seen, question)
    if not question.confirm:
        return move
    if isinstance(move, TestNext) and move.steps_left is not None:
        return replace(move, steps_left=move.steps_left + CONFIRMATIONS)
    if isinstance(move, Located):
        unconfirmed = [i for i in (move.before, move.after) if len(runs[i]) == 1 and seen[i].marked is None]
        if unconfirmed:
            return TestNext(unconfirmed[0], len(unconfirmed) - 1, afresh=True)
    return move


def shows_noise(slots: Sequence[Slot], runs: Runs, question: Question) -> bool:
    """Tell whether runs of one nightly differ, or are expected to. Repeats on demand are no such thing."""
    if question.is_noisy:
        return True
    return question.repeat == 1 and has_two_verdicts(judged_runs(slots, runs, question))


def _exact_move(slots: Sequence[Slot], seen: Seen, question: Question) -> Move:
    return (_walk_back if question.walk_back else _between_ends)(slots, seen, question)


def _noisy_move(slots: Sequence[Slot], runs: Runs, question: Question, at_hand: Set[int]) -> Move:
    """Settle the ends as ever; between them the engine of `nightly_bisect.measure` decides."""
    good, bad = _settled_ends(slots, telling_runs(runs, question), question)
    if question.walk_back and isinstance(bad, int):
        good = _oldest_good(slots, runs, question, bad)
    if isinstance(good, TestNext):
        return good
    if good is None:
        return Stopped(Trouble.GOOD_END_UNTESTABLE, None, None)
    if isinstance(bad, TestNext):
        return bad
    if bad is None:
        return Stopped(Trouble.BAD_END_UNTESTABLE, good, None)
    from nightly_bisect.bisection.noisy_course import noisy_move  # brings numpy, which takes a moment

    without_wheel = {i for i, slot in enumerate(slots) if _has_no_wheel(slot)}
    judged = judged_runs(slots, runs, question)
    return noisy_move(slots, runs, judged, question, (good, bad), at_hand, without_wheel)


def _oldest_good(slots: Sequence[Slot], runs: Runs, question: Question, bad: int) -> int | None:
    judged = judged_runs(slots, runs, question)
    return min(
        (i for i, of_one in judged.items() if i < bad and any(j.verdict is Verdict.GOOD for j in of_one)),
        default=None,
    )


def _unfinished(runs: Runs, question: Question) -> TestNext | None:
    """Return what a nightly lacks of its repeated runs, after an interruption."""
    for i, of_one in runs.items():
        left = question.repeat - len(of_one)
        if left > 0 and all(o.outcome is Outcome.PASSED and o.marked is None for o in of_one):
            return TestNext(i, None, left, until_failure=True)
    return None


def telling_runs(runs: Runs, question: Question) -> dict[int, Observation]:
    """Return the run that stands for each nightly: its first, or of repeated ones the first that didn't pass.

    One that only confirms stands for nothing by itself.
    """

    def telling(of_one: Sequence[Observation]) -> Observation:
        if (question.repeat == 1 and not question.noise.is_flaky) or of_one[0].marked is not None:
            return of_one[0]
        return next((o for o in of_one if o.outcome is not Outcome.PASSED), of_one[0])

    return {i: telling(of_one) for i, of_one in runs.items()}


def judgements(slots: Sequence[Slot], runs: Runs, question: Question) -> dict[int, Judgement]:
    """Judge each nightly by its telling run, by the bad end's failure once it is known."""
    return _judged(slots, telling_runs(runs, question), question)


def judged_runs(slots: Sequence[Slot], runs: Runs, question: Question) -> dict[int, list[Judgement]]:
    """Judge every run by the same failure."""
    reference = _reference(slots, telling_runs(runs, question), question)
    return {i: [judge(o, question.rules, reference) for o in of_one] for i, of_one in runs.items()}


def _judged(slots: Sequence[Slot], seen: Seen, question: Question) -> dict[int, Judgement]:
    reference = _reference(slots, seen, question)
    return {i: judge(o, question.rules, reference) for i, o in seen.items()}


def _reference(slots: Sequence[Slot], seen: Seen, question: Question) -> Reference:
    good, bad = _settled_ends(slots, seen, question)
    return Reference(
        bad=seen[bad] if isinstance(bad, int) and _shows_the_failure(seen[bad], question) else None,
        good=next((o for o in seen.values() if o.outcome is Outcome.PASSED), None),
        fingerprint=seen[good].fingerprint if isinstance(good, int) else None,
    )


def _between_ends(slots: Sequence[Slot], seen: Seen, question: Question) -> Move:
    good, bad = _settled_ends(slots, seen, question)
    if isinstance(good, TestNext):
        return good
    if good is None:
        return Stopped(Trouble.GOOD_END_UNTESTABLE, None, None)
    if seen[good].outcome is Outcome.NOT_RUNNABLE:
        return Stopped(Trouble.CHECK_NOT_RUNNABLE, good, None)
    if isinstance(bad, TestNext):
        return bad
    if bad is None:
        return Stopped(Trouble.BAD_END_UNTESTABLE, good, None)
    good_verdict = _alone(seen[good], question).verdict
    bad_verdict = judge(
        seen[bad], question.rules, Reference(bad=seen[bad], fingerprint=seen[good].fingerprint)
    ).verdict
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
    _, bad = _settled_ends(slots, seen, question)
    if isinstance(bad, TestNext):
        return bad
    if bad is None:
        return Stopped(Trouble.BAD_END_UNTESTABLE, None, None)
    if not _shows_the_failure(seen[bad], question):
        return Stopped(Trouble.BAD_END_PASSES, None, bad)
    judged = _judged(slots, seen, question)
    walked = [i for i in judged if i < bad]
    good = [i for i in walked if judged[i].verdict is Verdict.GOOD]
    if good:
        return _search(slots, seen, question, max(good), bad)
    if walked and all(seen[i].outcome is Outcome.NOT_RUNNABLE for i in (*walked, bad)):
        return Stopped(Trouble.CHECK_NOT_RUNNABLE, walked[0], bad)
    index = _next_step_back(slots, judged, walked, bad)
    return Stopped(Trouble.NEVER_GOOD, None, bad) if index is None else TestNext(index, None)


def _next_step_back(
    slots: Sequence[Slot], judged: Mapping[int, Judgement], walked: Sequence[int], bad: int
) -> int | None:
    """Return the next slot of the way back; None when there is no way left.

    At the beginning of history, what cannot be tested gives way to its neighbours.
    """
    untestable = [i for i in walked if judged[i].verdict is Verdict.UNTESTABLE]
    if len(untestable) > 2 * MOST_END_TRIALS:
        return None
    oldest_bad = min([i for i in walked if judged[i].verdict is Verdict.BAD], default=bad)
    target = max(0, min([*walked, bad]) - 2 ** len(walked))
    left = [i for i in range(oldest_bad) if i not in judged and not _has_no_wheel(slots[i])]
    return min(left, key=lambda i: (abs(i - target), i), default=None)


def _search(slots: Sequence[Slot], seen: Seen, question: Question, early: int, late: int) -> Move:
    judged = _judged(slots, seen, question)
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


Settled = int | TestNext | None
"""Where an end came to lie, what to test to know it, or None when it cannot be settled."""


def _settled_ends(slots: Sequence[Slot], seen: Seen, question: Question) -> tuple[Settled, Settled]:
    """Return the good and the bad end; the bad one is not looked at before the good one is settled."""
    usable = [i for i, slot in enumerate(slots) if i in seen or not _has_no_wheel(slot)]
    if question.walk_back:
        return None, _settle_end(usable[::-1], seen, question, is_bad_end=True)
    row = usable if question.find is Find.REGRESSION else usable[::-1]
    # An end that gives way must not become the other one.
    good = _settle_end(row[:-1], seen, question, is_bad_end=False)
    if not isinstance(good, int):
        return good, None
    beyond = row[row.index(good) + 1 :]
    return good, _settle_end(beyond[::-1], seen, question, is_bad_end=True)


def _settle_end(order: Sequence[int], seen: Seen, question: Question, *, is_bad_end: bool) -> Settled:
    """Try the slots in ``order`` as an end: the first that says enough is it."""
    tried: list[str] = []
    for index in order:
        if index not in seen:
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


def _shows_the_failure(observation: Observation, question: Question) -> bool:
    return _alone(observation, question, is_bad_end=True).verdict is Verdict.BAD


def _has_no_wheel(slot: Slot) -> bool:
    return isinstance(slot, Nightly) and slot.wheel is None
