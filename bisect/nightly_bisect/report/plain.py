"""The answer in plain lines, for a terminal or a log."""

from __future__ import annotations

from nightly_bisect.judge import Judgement, number_text
from nightly_bisect.model import Estimate, Observation
from nightly_bisect.report.answer import Answer, Build, Change, Status


def printable(text: str) -> str:
    """Show control and invisible characters instead of obeying them: much of it is not ours."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\t\n" else c.encode("unicode_escape").decode() for c in text)


def trial_line(seen: Observation, judgement: Judgement) -> str:
    """Return one trial's lasting line: date, version, commit, verdict, reason, seconds."""
    commit = (seen.commit or "")[:10] or "-"
    seconds = ", ".join(
        f"{what} {value:.1f} s"
        for what, value in (("install", seen.install_s), ("check", seen.check_s))
        if value is not None
    )
    again = "  (once more)" if seen.repeat == 1 else f"  (run {seen.repeat + 1})" if seen.repeat else ""
    line = f"{seen.nightly.stamp}  {seen.nightly.version:<26} {commit:<10}  {judgement.verdict:<10}  {judgement.reason}{again}"
    return printable(f"{line}  ({seconds})" if seconds else line)


def answer_lines(answer: Answer, *, with_sentence: bool = True) -> list[str]:
    """Return the answer, the last lines of a run; the very last is a command: to reproduce it, or to resume."""
    lines = ["", answer.sentence, ""] if with_sentence else [""]
    last, first = answer.words
    if answer.before is not None:
        lines.append(f"{last + ':':<12} {_build(answer.before)}")
    if answer.first is not None:
        lines.append(f"{first + ':':<12} {_build(answer.first)}")
    elif answer.after is not None and answer.status is Status.RANGE:
        lines.append(f"{'suspects:':<12} {len(answer.suspects)} nightlies, one of which is the {first}")
        lines += [
            f"  {_build(s.build)}  {'untestable: ' + s.reason if s.reason else 'bad' if first == 'first bad' else 'good'}"
            for s in answer.suspects
        ]
    lines += [
        f"{'change:':<12} {shift.text}, after {_build(shift.before)}, in {_build(shift.after)} at the latest"
        for shift in answer.shifts
    ]
    if answer.compare_url:
        lines.append(f"{'compare:':<12} {answer.compare_url}")
    if answer.estimate is not None:
        lines.append(f"{'change:':<12} {estimate_text(answer.estimate)}")
    if answer.confidence is not None:
        lines.append(f"{'confidence:':<12} {percent(answer.confidence)}")
    if answer.dependency_changes:
        lines.append(f"{'changed too:':<12} {', '.join(map(change_text, answer.dependency_changes))}")
    nightlies = len({seen.nightly.version for seen, _ in answer.trials if not seen.afresh})
    runs = "" if len(answer.trials) == nightlies else f" runs of {nightlies} nightlies"
    lines.append(f"{'trials:':<12} {len(answer.trials)}{runs}")
    lines += [f"{'note:':<12} {note}" for note in answer.notes]
    if answer.hint and with_sentence:
        lines += ["", f"hint: {answer.hint}"]
    lines += ["", f"reproduce: {answer.setting.reproduce}"]
    if answer.setting.resume and answer.status in (Status.INTERRUPTED, Status.FAILED):
        lines.append(f"resume: {answer.setting.resume}")
    return [printable(line) for line in lines]


def change_text(change: Change) -> str:
    """Say how a dependency differs: ``numpy 1.26.4 → 2.0.0``."""
    return f"{change.name} {change.before or '(none)'} → {change.after or '(none)'}"


def estimate_text(estimate: Estimate) -> str:
    """Say what changed by how much: ``time 12.1 ms → 13.4 ms (+10.3 %, between +9.1 % and +11.6 %)``."""
    if estimate.metric is None:
        return f"the check fails in {percent(estimate.before)} of its runs before, in {percent(estimate.after)} after"
    before, after = (number_text(value, estimate.unit) for value in (estimate.before, estimate.after))
    between = ""
    if estimate.interval is not None:
        between = f", between {_signed(estimate.interval[0])} and {_signed(estimate.interval[1])}"
    return f"{estimate.metric} {before} → {after} ({_signed(estimate.change)}{between})"


def percent(share: float) -> str:
    """Show a share, with as many digits as tell it from 0 % and 100 %."""
    for digits in (0, 1, 2, 3):
        text = f"{share:.{digits}%}"
        if 0 < share < 1 and text.startswith(("0%", "100%", "0.0%", "100.0%", "0.00%", "100.00%")):
            continue
        break
    return text.replace("%", " %")


def _signed(share: float) -> str:
    return f"{share:+.1%}".replace("%", " %")


def _build(build: Build) -> str:
    return f"{build.date}  {build.version}  {commit_text(build)}".rstrip()


def commit_text(build: Build) -> str:
    """Name the commit of main, or the nightly branch's as such."""
    if build.main_commit:
        return f"commit {build.main_commit}"
    return f"nightly-branch commit {build.commit}" if build.commit else ""
