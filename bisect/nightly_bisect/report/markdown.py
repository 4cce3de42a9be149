"""The answer as Markdown, ready to be pasted into an issue.

Much of the text is not ours (failures, versions, the check itself). It stands only inside code,
whose fences are longer than any run of backticks within, so that it can neither mention anybody nor
break out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Observation
from nightly_bisect.report.answer import Answer, Build, Status
from nightly_bisect.report.plain import change_text, estimate_text, percent, printable

# GitHub refuses bodies over 65,536 characters.
LONGEST = 60_000
_LONGEST_CHECK = 20_000
_LONGEST_PROSE = 1_000
_MOST_SUSPECTS, _MOST_NOTES = 60, 20


def as_markdown(answer: Answer) -> str:
    """Return the report; its first line is the title."""
    blocks = [
        f"# {title(answer)}",
        answer.sentence and _prose(answer.sentence),
        "\n".join(_sides(answer)),
        "\n".join(f"- {_prose(note)}" for note in answer.notes[:_MOST_NOTES]),
        "### Trials\n\n" + "\n".join(_trials(answer)) if answer.trials else "",
        "### Environment\n\n" + _fence("\n".join(f"{k}: {v}" for k, v in answer.setting.environment)),
        _check(answer),
        "### Reproduce\n\n" + _fence(answer.setting.reproduce, "sh"),
    ]
    text = "\n\n".join(block for block in blocks if block) + "\n"
    if len(text) <= LONGEST:
        return text
    # Trials and the check are what grows; the answer itself stays whole.
    short = "\n\n".join(block for block in (*blocks[:4], *blocks[5:6], blocks[7]) if block)
    return f"{short}\n\nThe table of trials and the check were left out: too long for an issue.\n"


def title(answer: Answer) -> str:
    """Return the title: ``torch: regression 2.5.0.dev20240602 → dev20240603``."""
    what = f"{answer.setting.package}: {answer.setting.find.value}"
    if answer.before is None or answer.after is None:
        return _prose(f"{what} not found")
    old = answer.before.version.partition("+")[0]
    new = answer.after.version.partition("+")[0]
    old_base, _, _ = old.partition(".dev")
    new_base, dev, new_date = new.partition(".dev")
    short = f"dev{new_date}" if dev and old_base == new_base else new
    return _prose(f"{what} {old} → {short}")


def _sides(answer: Answer) -> list[str]:
    last, first = answer.words
    lines = []
    if answer.before:
        lines.append(f"- {last}: {_build(answer.before)}")
    if answer.first:
        lines.append(f"- {first}: {_build(answer.first)}")
    elif answer.status is Status.RANGE:
        lines.append(f"- {first}: one of these {len(answer.suspects)}")
        lines += [
            f"  - {_build(s.build)}" + (f": untestable, {_code(s.reason[:300])}" if s.reason else "")
            for s in answer.suspects[:_MOST_SUSPECTS]
        ]
        if (more := len(answer.suspects) - _MOST_SUSPECTS) > 0:
            lines.append(f"  - and {more} more")
    lines += [
        f"- {_prose(s.text)}, after {_build(s.before)}, in {_build(s.after)} at the latest"
        for s in answer.shifts
    ]
    if answer.compare_url:
        lines.append(f"- commits: {answer.compare_url}")
    if answer.estimate is not None:
        lines.append(f"- change: {_code(estimate_text(answer.estimate))}")
    if answer.confidence is not None:
        lines.append(f"- confidence: {percent(answer.confidence)}")
    for change in answer.dependency_changes:
        lines.append(f"- changed too: {_code(change_text(change))}")
    return lines


def _build(build: Build) -> str:
    text = f"{build.date} {_code(build.version)}"
    if build.main_commit:
        return f"{text}, commit {_code(build.main_commit)}"
    return f"{text}, nightly-branch commit {_code(build.commit)}" if build.commit else text


def _trials(answer: Answer) -> Iterable[str]:
    yield "| date | version | commit | verdict | what happened | install | check | wheel sha256 |"
    yield "|---|---|---|---|---|---|---|---|"
    for seen, judgement in answer.trials:
        yield "| " + " | ".join(_cells(seen, judgement)) + " |"


def _cells(seen: Observation, judgement: Judgement) -> list[str]:
    return [
        str(seen.nightly.stamp),
        _cell(seen.nightly.version),
        _cell((seen.commit or "")[:10]),
        judgement.verdict.value,
        _cell(judgement.reason),
        _seconds(seen.install_s),
        _seconds(seen.check_s),
        _cell((seen.wheel_sha256 or "")[:16]),
    ]


def _check(answer: Answer) -> str:
    text = answer.setting.check_text
    if text is None:
        return ""
    shown = text if len(text) <= _LONGEST_CHECK else text[:_LONGEST_CHECK] + "\n… (cut)"
    language = "python" if answer.setting.check_name.endswith(".py") else ""
    summary = f"<summary>The check, {_html(answer.setting.check_name)}</summary>"
    return f"<details>{summary}\n\n{_fence(shown, language)}\n\n</details>"


def _fence(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    body = printable(text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n"))
    return f"{fence}{language}\n{body}\n{fence}"


def _code(text: str) -> str:
    """Return an inline code span that its content cannot end."""
    line = " ".join(printable(text).split())
    if not line:
        return ""
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def _cell(text: str) -> str:
    # A table takes a bar for a border even inside code.
    return _code(text[:300]).replace("|", "\\|")


def _prose(text: str) -> str:
    """Neutralise what is not ours inside a sentence: no mention, reference, link, HTML or emphasis."""
    line = " ".join(printable(text[:_LONGEST_PROSE]).split())
    line = re.sub(r"([\\`*_\[\]<>|!~])", r"\\\1", line).replace("&", "&amp;")
    line = line.replace("@", "@\u2060").replace("#", "\\#\u2060")
    line = re.sub(r"(?i)\b(www)\.", "\\1\u2060.", line.replace("://", ":\u2060//"))
    # At the beginning these would make a list or a rule of it.
    return re.sub(r"^(\d*)([-+.)])(?=\s|$|--+\s*$)", r"\1\\\2", line)


def _html(text: str) -> str:
    line = " ".join(printable(text).split()).replace("@", "@\u2060")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} s"
