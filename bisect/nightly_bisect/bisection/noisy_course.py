"""The next move where runs differ: from the runs to the engine's evidence, and from its step to a move. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from statistics import median

from nightly_bisect.bisection.course import (
    Located,
    Move,
    Question,
    Runs,
    Stopped,
    TestNext,
    Trouble,
    Uneven,
)
from nightly_bisect.bisection.noisy import costs, differences, tallies
from nightly_bisect.judge import Judgement, number_text
from nightly_bisect.measure.flaky import Tally, next_flaky
from nightly_bisect.measure.paired import next_paired, robust_mean
from nightly_bisect.measure.posterior import Decided, Indistinct, NotOneStep, Run, Situation, Step
from nightly_bisect.model import Estimate, Find, Nightly, Slot, Verdict

CONFIRMING_PAIRS = 8
_MOST_CONFIRMING_RUNS = 20


def noisy_move(
    slots: Sequence[Slot],
    runs: Runs,
    judged: Mapping[int, Sequence[Judgement]],
    question: Question,
    ends: tuple[int, int],
    at_hand: Set[int],
    without_wheel: Set[int],
) -> Move:
    """Decide what to run next between the ends (good, bad), or how it ended."""
    early, late = sorted(ends)
    inside = range(early, late + 1)
    dead = {i for i in inside if i in judged and all(j.verdict is Verdict.UNTESTABLE for j in judged[i])}
    spent = costs(runs)
    situation = Situation(
        late - early + 1,
        frozenset(i - early for i in (dead | without_wheel) & set(inside)),
        frozenset(i - early for i in at_hand & set(inside)),
        spent.install_s,
        spent.check_s,
        question.noise.confidence,
    )
    metric = question.noise.metric if question.rules.threshold is None else None
    if metric is None:
        counted = tallies({i: judged[i] for i in inside if i in judged}, question.find)
        step = next_flaky(situation, {i - early: Tally(*counted[i]) for i in counted})
        move = _flaky_move(step, early, question, ends, without_wheel)
        return _confirm_rates(move, runs, question)
    reference = slots[early]
    assert isinstance(reference, Nightly)
    pairs = {
        i - early: differences([o for o in runs[i] if o.reference == reference.version], metric)
        for i in inside
        if i in runs and i not in dead
    }
    step = next_paired(situation, pairs, question.noise.min_effect)
    move = _paired_move(step, early, question, ends, pairs, _level(runs, metric, reference))
    return _confirm_step(move, slots, runs, question, metric)


def _flaky_move(
    step: Step, early: int, question: Question, ends: tuple[int, int], without_wheel: Set[int]
) -> Move:
    match step:
        case Run(position, count, until_failure):
            is_regression = question.find is Find.REGRESSION
            return TestNext(early + position, None, count, until_failure=until_failure and is_regression)
        case Decided(before, after, confidence, levels, interval):
            return _located(early + before, early + after, confidence, _shares(levels, interval, question))
        case Indistinct((one, other), smallest):
            return Stopped(
                Trouble.INDISTINCT,
                *ends,
                f"it fails in {one:.0%} of the runs at the earlier end and in {other:.0%} at the later one; a "
                f"difference of {smallest:.0%} would have been seen",
            )
        case NotOneStep(position, rate):
            return Uneven(early + position, f"it fails in {rate:.0%} of its runs")


def _shares(levels: tuple[float, float], interval: tuple[float, float], question: Question) -> Estimate:
    if question.find is Find.REGRESSION:
        return Estimate(None, None, *levels, interval)
    # The engine counted passes: what it calls a failure of the later side is a pass there.
    return Estimate(None, None, 1 - levels[0], 1 - levels[1], (1 - interval[1], 1 - interval[0]))


def _paired_move(
    step: Step,
    early: int,
    question: Question,
    ends: tuple[int, int],
    pairs: Mapping[int, Sequence[float]],
    level: tuple[float, str | None],
) -> Move:
    metric = question.noise.metric or ""
    value, unit = level
    last = abs(ends[1] - ends[0])
    is_open = isinstance(step, Indistinct) or (
        isinstance(step, Run) and step.position == last and len(pairs) < 3
    )
    if not is_open:
        # The ends differ: does the later one lie on the side where the change is looked for?
        change = robust_mean(pairs[last])
        should_rise = (question.find is Find.REGRESSION) is not question.noise.lower_is_worse
        if (change > 0) is not should_rise:
            now = number_text(value * math.exp(change), unit)
            detail = f"{metric} was {number_text(value, unit)} and is {now} ({math.expm1(change):+.1%})"
            return Stopped(Trouble.WRONG_WAY, *ends, detail)
    match step:
        case Run(position, count):
            return TestNext(early + position, None, count, beside=early, until_failure=True)
        case Decided(before, after, confidence, (_, change), interval):
            estimate = Estimate(metric, unit, value, value * (1 + change), interval)
            return _located(early + before, early + after, confidence, estimate)
        case Indistinct((_, change), smallest):
            detail = (
                f"{metric} is {number_text(value, unit)} at the earlier end and differs by {change:+.2%} at the "
                f"later one; a difference of {smallest:.2%} would have been seen in {len(pairs[last])} pairs"
            )
            return Stopped(Trouble.INDISTINCT, *ends, detail)
        case NotOneStep(position, change):
            return Uneven(early + position, f"{metric} differs by {change:+.1%} from the earlier end there")


def _located(before: int, after: int, confidence: float, estimate: Estimate) -> Located:
    return Located(before, after, tuple(range(before + 1, after + 1)), confidence, estimate)


def _level(runs: Runs, metric: str, reference: Nightly) -> tuple[float, str | None]:
    """Return what the reference measured, with its unit."""
    found = [
        m
        for of_one in runs.values()
        for seen in of_one
        for m in (
            seen.metrics
            if seen.nightly == reference
            else seen.beside
            if seen.reference == reference.version
            else ()
        )
        if m.name == metric
    ]
    return (median(m.value for m in found), found[0].unit) if found else (1.0, None)


def _confirm_rates(move: Move, runs: Runs, question: Question) -> Move:
    """Run both sides of the change in new environments, often enough for a failure to show itself."""
    if not (isinstance(move, Located) and question.confirm and move.estimate):
        return move
    rate = max(move.estimate.before, move.estimate.after)
    count = 1 if rate > 0.99 else math.ceil(math.log(0.05) / math.log(1 - rate))
    for i in (move.before, move.after):
        if runs[i][0].marked is None and not any(o.afresh for o in runs[i]):
            return TestNext(i, None, min(count, _MOST_CONFIRMING_RUNS), afresh=True, until_failure=True)
    return move


def _confirm_step(move: Move, slots: Sequence[Slot], runs: Runs, question: Question, metric: str) -> Move:
    """Measure both sides of the change beside one another, in new environments."""
    if not (isinstance(move, Located) and question.confirm):
        return move
    before = slots[move.before]
    assert isinstance(before, Nightly)
    done = [o for o in runs[move.after] if o.afresh and o.reference == before.version]
    is_hopeless = any(o.metric(metric) is None for o in done)
    if len(done) >= CONFIRMING_PAIRS or is_hopeless:
        return move
    left = CONFIRMING_PAIRS - len(done)
    return TestNext(move.after, None, left, beside=move.before, afresh=True, until_failure=True)
