"""From how a bisection ended to the answer that people read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from nightly_bisect.bisection.course import (
    Contradicted,
    Located,
    Move,
    Stopped,
    Swept,
    TestNext,
    Trouble,
    Uneven,
)
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.bisection.reuse import TAKEN
from nightly_bisect.errors import BisectError, CheckCannotRun
from nightly_bisect.index.profiles import RELEASES
from nightly_bisect.judge import Judgement
from nightly_bisect.measure.sweep import ChangePoint, Ramp
from nightly_bisect.model import Estimate, Find, Nightly, Observation, Outcome, Slot, Verdict
from nightly_bisect.report.answer import Answer, Build, Setting, Shift, Status, Suspect

MainCommit = Callable[[str], str | None]
_INSTALL_MATTERS = (
    Outcome.NOT_INSTALLED,
    Outcome.GONE,
    Outcome.WRONG_BUILD,
    Outcome.NOT_IMPORTABLE,
)


def conclude(
    bisection: Bisection,
    move: Move,
    setting: Setting,
    notes: Sequence[str],
    main_commit: MainCommit,
) -> Answer:
    """Make the answer of a bisection that ended by itself; raise `CheckCannotRun`."""
    match move:
        case Located():
            return _located(bisection, move, setting, notes, main_commit)
        case Contradicted(after, before):
            late, early = bisection.slots[after], bisection.slots[before]
            return _answer(
                bisection,
                setting,
                Status.INCONCLUSIVE,
                3,
                f"The observations contradict each other: {late} is already changed, but the later "
                f"{early} is not. There is more than one change, or the check is flaky.",
                "bisect a smaller range around one of the changes, or make the check deterministic",
                notes,
            )
        case Uneven(index, detail):
            return _answer(
                bisection,
                setting,
                Status.INCONCLUSIVE,
                3,
                f"This is not one step: {bisection.slots[index]} behaves like neither end ({detail}).",
                "there is more than one change, or a gradual one: `--sweep` measures the whole range",
                notes,
            )
        case Swept():
            return _swept(bisection, move, setting, notes)
        case Stopped():
            return _stopped(bisection, move, setting, notes)
        case TestNext():
            raise AssertionError("the bisection goes on")


def ended_early(
    bisection: Bisection | None, setting: Setting, error: BisectError | None, notes: Sequence[str]
) -> Answer:
    """Make the answer of a bisection that an error, or Ctrl-C (None), ended."""
    if error is None:
        status, code, sentence = Status.INTERRUPTED, 130, "Interrupted."
    else:
        status, code, sentence = Status.FAILED, error.exit_code, error.what
    hint = error.hint if error else None
    if bisection is None:
        return Answer(setting, status, code, sentence, hint, notes=tuple(notes))
    return _answer(bisection, setting, status, code, sentence, hint, notes)


def _located(
    bisection: Bisection,
    move: Located,
    setting: Setting,
    notes: Sequence[str],
    main_commit: MainCommit,
) -> Answer:
    seen, judged, slots = bisection.seen, bisection.judged(), bisection.slots
    before = _build(seen[move.before], main_commit)
    after = _build(seen[move.after], main_commit)
    suspects = []
    for index in move.suspects:
        slot = slots[index]
        assert isinstance(slot, Nightly)
        if index == move.after:
            suspects.append(Suspect(after, None))
        elif index in seen:
            suspects.append(Suspect(Build(slot, seen[index].commit), judged[index].reason))
        else:
            others = ", ".join(slot.other_targets)
            reason = f"no wheel for {setting.target}" + (f"; there are some for {others}" if others else "")
            suspects.append(Suspect(Build(slot), reason))
    found = len(suspects) == 1
    last, first = ("good", "bad") if setting.find is Find.REGRESSION else ("bad", "good")
    if found:
        sentence = f"The first {first} nightly is {after.version} of {after.date}."
    else:
        sentence = (
            f"The first {first} nightly is one of {len(suspects)}: those between {before.date} "
            f"({last}) and {after.date} ({first}) could not be tested."
        )
    answer = _answer(
        bisection,
        setting,
        Status.FOUND if found else Status.RANGE,
        0 if found else 3,
        sentence,
        None if found else "make the check work there too, or test another --python or --channel",
        [*notes, *_boundary_notes(bisection, move, before, after, setting)],
        before=before,
        after=after,
        suspects=tuple(suspects),
        confidence=move.confidence,
        estimate=move.estimate,
    )
    return _with_sides(answer, bisection, move)


def _with_sides(answer: Answer, bisection: Bisection, move: Located) -> Answer:
    """Call numbers good or bad by the side that their nightly was found to lie on."""
    if move.estimate is None or move.estimate.metric is None:
        return answer
    sides = (Verdict.GOOD, Verdict.BAD)
    early, late = sides if answer.setting.find is Find.REGRESSION else sides[::-1]
    position = {slot.version: i for i, slot in enumerate(bisection.slots) if isinstance(slot, Nightly)}

    def side(seen: Observation, judgement: Judgement) -> Judgement:
        if judgement.verdict is not Verdict.UNSURE:
            return judgement
        index = position[seen.nightly.version]
        is_known = index <= move.before or index >= move.after
        verdict = (early if index <= move.before else late) if is_known else Verdict.UNSURE
        return Judgement(verdict, judgement.reason)

    return replace(answer, trials=tuple((seen, side(seen, j)) for seen, j in answer.trials))


def _boundary_notes(
    bisection: Bisection, move: Located, before: Build, after: Build, setting: Setting
) -> list[str]:
    notes = _confirmation_notes(bisection, move)
    absent = [
        str(day.stamp)
        for day in bisection.absent_days
        if before.nightly.stamp < day.stamp < after.nightly.stamp
    ]
    if absent:
        notes.append(
            f"No wheel answered for {', '.join(sorted(absent))}: if those nights had one for another "
            "Python, the change may have been in it."
        )
    hole = (after.nightly.stamp.day - before.nightly.stamp.day).days - 1
    if hole > 0 and not absent and move.after == move.before + 1 and setting.channel != RELEASES:
        days = "day" if hole == 1 else f"{hole} days"
        notes.append(f"The index lists no nightly of the {days} between them.")
    if before.main_commit and before.main_commit == after.main_commit:
        notes.append(
            "Both nightlies were built from the same commit of main: what changed is not in the code "
            "but in how it was built or in what it was installed with."
        )
    elif before.commit and before.main_commit is None and setting.repository:
        notes.append(
            "The commits are of the nightly branch (the main-branch ones could not be looked up); "
            "their messages name those of main."
        )
    return notes


def _confirmation_notes(bisection: Bisection, move: Located) -> list[str]:
    """Say what running both sides once more has shown."""
    if not bisection.question.confirm or bisection.question.repeat > 1:
        return []
    if move.estimate is not None:
        return _noisy_confirmation(bisection, move)
    judged = {(o.nightly, o.repeat): j for o, j in bisection.judged_runs()}
    notes, agreed = [], 0
    for index in (move.before, move.after):
        for seen in bisection.runs[index][1:]:
            again = judged[seen.nightly, seen.repeat]
            if again.verdict is Verdict.UNTESTABLE:
                notes.append(f"{seen.nightly} could not be run once more to confirm it: {again.reason}.")
            else:
                agreed += 1
    return (
        ["Both sides of the change were run once more, with the same verdicts.", *notes]
        if agreed == 2
        else notes
    )


def _swept(bisection: Bisection, move: Swept, setting: Setting, notes: Sequence[str]) -> Answer:
    """Tell every change of the range, between which nightlies it lies, and how large it is."""
    slots, seen, question = bisection.slots, bisection.seen, bisection.question
    metric = question.noise.metric if question.rules.threshold is None else None
    changes = tuple(
        Shift(
            Build(_night(slots[low]), seen[low].commit),
            Build(_night(slots[high]), seen[high].commit),
            _shift(c, metric),
        )
        for low, high, c in move.changes
    )
    texts = [f"{shift.text} between {shift.before.date} and {shift.after.date}" for shift in changes]
    ramps = [
        f"From {slots[first].stamp} to {slots[last].stamp} it moves gradually ({_shift(ramp, metric)} in all): "
        "that is no single nightly's doing."
        for first, last, ramp in move.ramps
    ]
    count = len(move.places)
    if not changes:
        return _answer(
            bisection, setting, Status.NOT_REPRODUCED, 4, f"Nothing changes over {count} nightlies of the range.",
            "more nightlies (`--sweep N`) or another check may show what this one doesn't", notes,
        )  # fmt: skip
    what = "one change" if len(changes) == 1 else f"{len(changes)} changes"
    answer = _answer(
        bisection,
        setting,
        Status.INCONCLUSIVE,
        3,
        f"Over {count} nightlies there {'is' if len(changes) == 1 else 'are'} {what}: {'; '.join(texts)}.",
        f"bisect one of them: `--good {changes[0].before.date} --bad {changes[0].after.date}`, without --sweep",
        [*notes, *ramps],
    )
    return replace(answer, shifts=changes)


def _night(slot: Slot) -> Nightly:
    assert isinstance(slot, Nightly), "what was measured exists"
    return slot


def _shift(change: ChangePoint | Ramp, metric: str | None) -> str:
    if metric is None:
        return f"failures {change.before:.0%} → {change.after:.0%}"
    return f"{metric} {math.expm1(change.after - change.before):+.1%}"


def _noisy_confirmation(bisection: Bisection, move: Located) -> list[str]:
    """Say what both sides showed in new environments, and that more changes may exist."""
    estimate, before = move.estimate, bisection.slots[move.before]
    assert estimate is not None and isinstance(before, Nightly)
    if estimate.metric is None:
        judged = {(o.nightly, o.repeat): j.verdict for o, j in bisection.judged_runs()}
        texts = []
        for i in (move.before, move.after):
            again = [judged[o.nightly, o.repeat] for o in bisection.runs[i] if o.afresh]
            if again:
                texts.append(
                    f"{bisection.slots[i].stamp} failed in {again.count(Verdict.BAD)} of {len(again)}"
                )
        return [f"Run again in new environments: {', '.join(texts)} runs."] if texts else []
    again_s = [
        math.log(value / beside)
        for o in bisection.runs[move.after]
        if o.afresh and o.reference == before.version
        if (value := o.metric(estimate.metric)) and (beside := o.beside_metric(estimate.metric))
    ]
    if not again_s:
        return []
    found = math.expm1(median(again_s))
    text = (
        f"Measured beside one another in new environments they differ by {found:+.1%} ({len(again_s)} pairs)"
    )
    if abs(math.log1p(found)) < abs(math.log1p(estimate.change)) / 2:
        return [
            f"{text}: far less than the {estimate.change:+.1%} of the whole range. Don't rely on this answer."
        ]
    return [f"{text}."]


def _stopped(bisection: Bisection, move: Stopped, setting: Setting, notes: Sequence[str]) -> Answer:
    good = _said(bisection, move.good)
    bad = _said(bisection, move.bad)
    regression = setting.find is Find.REGRESSION
    code = 4
    match move.trouble:
        case Trouble.CHECK_NOT_RUNNABLE:
            raise CheckCannotRun(
                f"The check cannot be run: {good}.",
                hint="exit 126 and 127 mean that a command was not found or not executable; run it "
                "by hand, and add what it needs with --with",
            )
        case Trouble.SWAPPED:
            sentence = f"The ends are the other way round: {good}, but {bad}."
            hint = (
                "to find the nightly in which it began to pass again, use `--find-fix` with --bad as "
                "the earlier end"
                if regression
                else "to find the nightly in which it began to fail, leave `--find-fix` out"
            )
        case Trouble.GOOD_END_FAILS:
            sentence = f"The good end does not pass: {good}; the bad end: {bad}."
            hint = (
                "give an earlier --good (without --good the tool walks back by itself), or fix the "
                "check so that it passes there; its output is in the log"
            )
        case Trouble.BAD_END_PASSES:
            sentence = f"The bad end does not show the failure: {bad}."
            hint = (
                "give another --bad, or make the check fail (exit 1–124) when the bug is there; if it "
                "needs a GPU or other packages, use --channel and --with"
            )
        case Trouble.NEVER_GOOD:
            sentence = f"No good nightly was found, back to {_oldest_tested(bisection)}; {bad}."
            hint = "check by hand that it ever worked; name such a nightly with --good"
        case Trouble.INDISTINCT:
            sentence = f"The two ends cannot be told apart: {move.detail}."
            hint = (
                "if there is a difference by hand, make the check measure just that; ends further apart, more "
                "runs in one check or a quieter machine show smaller ones"
            )
        case Trouble.WRONG_WAY:
            sentence = f"What is measured got better, not worse: {move.detail}."
            hint = (
                "if lower is worse, say `--lower-is-worse`; to find where it got better, use `--find-fix` with "
                "--bad as the earlier end"
                if regression
                else "if lower is worse, say `--lower-is-worse`; to find where it got worse, leave `--find-fix` out"
            )
        case Trouble.GOOD_END_UNTESTABLE | Trouble.BAD_END_UNTESTABLE:
            is_good = move.trouble is Trouble.GOOD_END_UNTESTABLE
            end = "--good" if is_good else "--bad"
            # The good end is settled first; what follows it was tried as the bad end.
            first = 0 if move.good is None else 1 + bisection.observations.index(bisection.seen[move.good])
            tried = bisection.observations[first:]
            if all(o.outcome in _INSTALL_MATTERS for o in tried):
                code = 6
            sentence = f"No nightly at the end {end} could be tested: " + "; ".join(_distinct(tried)) + "."
            hint = f"give another {end}, or --python, --channel or --with what it needs"
    return _answer(
        bisection,
        setting,
        Status.FAILED if code == 6 else Status.NOT_REPRODUCED,
        code,
        sentence,
        hint,
        notes,
    )


def _answer(
    bisection: Bisection,
    setting: Setting,
    status: Status,
    code: int,
    sentence: str,
    hint: str | None,
    notes: Sequence[str],
    *,
    before: Build | None = None,
    after: Build | None = None,
    suspects: tuple[Suspect, ...] = (),
    confidence: float | None = None,
    estimate: Estimate | None = None,
) -> Answer:
    trials = tuple(bisection.judged_runs())
    return Answer(
        setting,
        status,
        code,
        sentence,
        hint,
        before,
        after,
        suspects,
        trials,
        (*notes, *_shared_notes(bisection.observations)),
        confidence,
        estimate,
    )


def _shared_notes(observations: Sequence[Observation]) -> list[str]:
    """Say once what every trial in which the check ran had to say."""
    sets = [set(o.notes) for o in observations if o.check_s is not None]
    shared = sorted(set.intersection(*sets)) if sets else []
    taken = sum(any(note.startswith(TAKEN) for note in notes) for notes in sets)
    if taken and not any(note.startswith(TAKEN) for note in shared):
        shared.append(
            f"{taken} of {len(sets)} verdicts were taken from earlier bisections (--fresh tests anew)"
        )
    return shared


def _build(seen: Observation, main_commit: MainCommit) -> Build:
    main = main_commit(seen.commit) if seen.commit else None
    return Build(seen.nightly, seen.commit, main)


def _said(bisection: Bisection, index: int | None) -> str:
    if index is None:
        return "not tested"
    seen = bisection.seen[index]
    return f"{seen.nightly.stamp} ({seen.nightly.version}) {seen.outcome}: {seen.reason}"


def _oldest_tested(bisection: Bisection) -> str:
    return str(min(o.nightly.stamp for o in bisection.observations))


def _distinct(tried: Sequence[Observation]) -> list[str]:
    """Say each reason once, with the days that it stands for."""
    days: dict[str, list[str]] = {}
    for seen in tried:
        days.setdefault(f"{seen.outcome}: {seen.reason}", []).append(str(seen.nightly.stamp))
    return [f"{', '.join(stamps)} {reason}" for reason, stamps in days.items()]
