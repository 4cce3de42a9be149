"""What a person sees while a bisection runs: lasting lines, and one live line on a terminal.

stderr carries progress, stdout the result. Without a terminal there are plain lines only.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any, assert_never, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TaskID, TextColumn
from rich.progress_bar import ProgressBar
from rich.text import Text

from nightly_bisect.bisection.events import Downloading, Event, Tested, Working
from nightly_bisect.bisection.session import Plan
from nightly_bisect.index.page import Unreadable
from nightly_bisect.model import Verdict
from nightly_bisect.report.answer import Answer
from nightly_bisect.report.plain import answer_lines, printable, trial_line

_COLOURS = {Verdict.GOOD: "green", Verdict.BAD: "red", Verdict.UNTESTABLE: "yellow", Verdict.UNSURE: "cyan"}


class Screen:
    """Shows the events of a bisection. ``level``: -1 quiet (the answer only), 0, 1 verbose."""

    def __init__(self, level: int = 0) -> None:
        self.level = level
        self._console = Console(file=cast(IO[str], _Stderr()), highlight=False, soft_wrap=True)
        self._dim = "" if self._console.no_color else "dim"
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Keep one live line at the bottom of a terminal."""
        if not self._console.is_terminal or self.level < 0:
            yield
            return
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            _BarOfKnownLength(),
            TextColumn("{task.fields[amount]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as self._progress:
            self._task = self._progress.add_task("", total=None, amount="")
            try:
                yield
            finally:
                self._progress = None

    def show(self, event: Event) -> None:
        """Take one event of the bisection."""
        match event:
            case Working(what):
                self._update(printable(what), None, None)
                self.detail(what)
            case Downloading(filename, received, expected):
                self._update(f"downloading {printable(filename)}", received, expected)
            case Tested():
                self._tested(event)
            case _:
                assert_never(event)

    def plan(self, plan: Plan) -> None:
        """Say what will be done and what it costs, before anything is installed."""
        if self.level < 0:
            return
        for line in plan_lines(plan):
            self._console.print(Text(printable(line)))
        for note in plan.notes:
            self._console.print(Text(f"note: {printable(note)}", style="yellow"))
        self.left_out(plan.unreadable)

    def left_out(self, rows: Sequence[Unreadable]) -> None:
        """Name the rows of the index page that could not be used (only with ``-v``)."""
        for row in rows:
            self.detail(f"left out: {row.text}: {row.why}")

    def detail(self, text: str) -> None:
        """Print a line that only ``-v`` shows."""
        if self.level > 0:
            self._console.print(Text(printable(text), style=self._dim))

    def error(self, what: str, hint: str) -> None:
        """Print an error: what failed, then what to do."""
        self._console.print(Text(f"error: {printable(what)}", style="red"))
        self._console.print(Text(f"\nhint: {printable(hint)}"))

    def result(self, text: str) -> None:
        """Print the result to stdout; that nobody reads it does not keep the files from being written."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stdout.write(text)
            sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print one lasting line."""
        if self.level >= 0:
            self._console.print(Text(printable(text)))

    def _tested(self, event: Tested) -> None:
        if self.level < 0:
            return
        left = event.steps_left
        steps = f"  [about {_count(left, 'step')} left]" if left else ""
        line = Text(trial_line(event.observation, event.judgement))
        line.stylize(_COLOURS[event.judgement.verdict])
        self._console.print(line.append(steps, style=self._dim))

    def _update(self, what: str, done: int | None, total: int | None) -> None:
        if self._progress is None or self._task is None:
            return
        amount = "" if done is None else f"{done / 1e6:.0f}" + (f"/{total / 1e6:.0f} MB" if total else " MB")
        self._progress.update(self._task, description=what, completed=done or 0, total=total, amount=amount)


class _Stderr:
    """stderr, where it still is: a reader that has gone, or a full disk, must not end a night's work."""

    def write(self, text: str) -> int:
        """Write what can be written."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            return sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush what can be flushed."""
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


class _BarOfKnownLength(BarColumn):
    """A bar for downloads; other work has no length to show."""

    def render(self, task: Task) -> ProgressBar:
        """Draw the bar, or nothing."""
        bar = super().render(task)
        if task.total is None:
            bar.width = 0
        return bar


def plan_lines(plan: Plan) -> list[str]:
    """Return the plan: how many nightlies, at most how many trials, about how many GB."""
    slots = plan.span.slots
    what = _count(len(slots), "nightly", "nightlies")
    if plan.unlisted:
        what = (
            f"up to {what} ({plan.unlisted} of these days are no longer listed and are asked for "
            "only when needed)"
        )
    lines = [f"{what} from {slots[0].stamp} to {slots[-1].stamp}"]
    if plan.without_wheel:
        lines.append(f"{plan.without_wheel} of them have no wheel for this Python and platform")
    if plan.most_trials is None:
        lines.append("walking back from the newest by doubling steps until one is good, then searching")
    elif plan.sweep:
        lines.append(f"{min(plan.sweep, len(slots))} of them to be measured, spread over the range")
    elif plan.is_noisy:
        lines.append(
            f"about {plan.most_trials + 1} nightlies to install (both ends, then those that tell most), each run as "
            "often as it takes"
        )
    else:
        lines.append(
            f"at most {plan.most_trials} trials (both ends, then {plan.most_trials - 2})"
            + (f" and {plan.confirmations} to confirm the answer" if plan.confirmations else "")
            + ", more only where nightlies cannot be tested"
        )
    if plan.wheel_bytes is not None:
        each = f"{_size(plan.wheel_bytes)} a wheel"
        if plan.most_bytes is not None:
            lines.append(
                f"at most about {_size(plan.most_bytes)} to download ({each}), and dependencies once"
            )
        else:
            lines.append(f"{each} to download, and dependencies once")
    return lines


def result_text(answer: Answer, *, is_error: bool = False) -> str:
    """Return what goes to stdout at the end; an error has said its sentence on stderr already."""
    return "\n".join(answer_lines(answer, with_sentence=not is_error)) + "\n"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e8:
        return f"{size_bytes / 1e9:.1f} GB"
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:.1f} kB"
