"""The course of a sweep: nightlies spread over the range are measured, and every change between them is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

from nightly_bisect.bisection.course import Move, Question, Runs, Swept, TestNext
from nightly_bisect.bisection.noisy import differences
from nightly_bisect.judge import Judgement
from nightly_bisect.measure.sweep import ChangePoint, find_changes, find_ramps
from nightly_bisect.model import Nightly, Slot, Verdict

PAIRS = 5
_FLAKY_RUNS = 10


def sweep_move(
    slots: Sequence[Slot], runs: Runs, judged: Mapping[int, Sequence[Judgement]], question: Question
) -> Move:
    """Measure the next of the chosen nightlies; when all are, find the changes."""
    metric = question.noise.metric if question.rules.threshold is None else None
    chosen = sampled(slots, question.sweep)
    wanted = PAIRS if metric else _FLAKY_RUNS if question.noise.is_flaky else question.repeat
    # The reference itself needs one run only, to be known to work.
    lacking = [(i, (1 if metric and i == chosen[0] else wanted) - len(runs.get(i, ()))) for i in chosen]
    left = [(i, count) for i, count in lacking if count > 0 and not _is_dead(judged.get(i, ()))]
    if left:
        index, count = left[0]
        beside = chosen[0] if metric and index != chosen[0] else None
        return TestNext(index, len(left) - 1, count, beside=beside, until_failure=metric is not None)
    values = [_values(runs, judged, slots, i, chosen[0], metric) for i in chosen]
    testable = [(i, found) for i, found in zip(chosen, values, strict=True) if found]
    floor = abs(question.noise.min_effect) / 4
    changes = find_changes([found for _, found in testable], floor)
    places = [i for i, _ in testable]
    in_slots = tuple(
        (places[c.index - 1], places[c.index], ChangePoint(c.index, c.before, c.after)) for c in changes
    )
    ramps = tuple((places[r.first], places[r.last], r) for r in find_ramps(changes))
    return Swept(tuple(places), in_slots, ramps)


def sampled(slots: Sequence[Slot], count: int) -> list[int]:
    """Choose slots near evenly spaced days, the ends among them: absent days don't shift the others."""
    usable = [i for i, slot in enumerate(slots) if not (isinstance(slot, Nightly) and slot.wheel is None)]
    if len(usable) <= count:
        return usable
    first, last = slots[usable[0]].stamp.day, slots[usable[-1]].stamp.day
    length = (last - first).days
    targets = [first + timedelta(days=round(k * length / (count - 1))) for k in range(count)]
    return sorted({min(usable, key=lambda i, t=t: (abs((slots[i].stamp.day - t).days), i)) for t in targets})  # type: ignore[misc]


def _is_dead(of_one: Sequence[Judgement]) -> bool:
    return bool(of_one) and all(j.verdict is Verdict.UNTESTABLE for j in of_one)


def _values(
    runs: Runs,
    judged: Mapping[int, Sequence[Judgement]],
    slots: Sequence[Slot],
    index: int,
    reference: int,
    metric: str | None,
) -> list[float]:
    """Return what was found at a place: differences to the reference, or 1 for each failure and 0 for each pass."""
    if metric is None:
        verdicts = [j.verdict for j in judged.get(index, ())]
        return [float(v is Verdict.BAD) for v in verdicts if v in (Verdict.GOOD, Verdict.BAD)]
    if index == reference:
        return [] if _is_dead(judged.get(index, ())) else [0.0]
    beside = slots[reference]
    assert isinstance(beside, Nightly)
    return differences([o for o in runs.get(index, ()) if o.reference == beside.version], metric)
