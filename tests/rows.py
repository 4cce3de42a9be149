"""Support: rows of nights written as letters, one a night, and fakes that act them out.

====== ==================================  ====== ==================================
``g``  passes                              ``b``  fails with "boom"
``o``  fails otherwise                     ``c``  crashes
``t``  times out                           ``n``  cannot be run (exit 127)
``i``  cannot be imported                  ``x``  cannot be installed
``s``  asks to skip                        ``k``  is killed
``e``  exits oddly                         ``v``  is another build
``d``  is gone                             ``u``  cannot be reached
``m``  runs out of memory                  ``w``  has no wheel for this machine
====== ==================================  ====== ==================================

A capital letter is the same on a day that the index does not list; ``-`` is such a day without a
nightly, ``W`` one whose wheels are for other machines only.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any

from nightly_bisect.bisection.course import Contradicted, Located, Move, Question, Stopped, Swept, Uneven
from nightly_bisect.bisection.course import TestNext as Next
from nightly_bisect.bisection.events import Event
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.bisection.visit import Visit
from nightly_bisect.judge import Rules
from nightly_bisect.model import (
    Find,
    Nightly,
    Observation,
    Outcome,
    Signature,
    Slot,
    Stamp,
    UnlistedDay,
    Wheel,
)

FIRST_DAY = date(2024, 6, 1)
BOOM = Signature("RuntimeError", "boom")

_ENDINGS = {
    "g": (Outcome.PASSED, "exit 0", None),
    "b": (Outcome.FAILED, "exit 1: RuntimeError: boom", BOOM),
    "o": (Outcome.FAILED, "exit 1: ImportError: no foo", Signature("ImportError", "no foo")),
    "c": (Outcome.CRASHED, "SIGSEGV", Signature("signal", "SIGSEGV")),
    "t": (Outcome.TIMED_OUT, "did not end within 60 s", Signature("timed out", "")),
    "n": (Outcome.NOT_RUNNABLE, "exit 127: sh: foo: not found", Signature("", "sh: foo: not found")),
    "i": (Outcome.NOT_IMPORTABLE, "import torch: ImportError: libc", Signature("ImportError", "libc")),
    "x": (Outcome.NOT_INSTALLED, "no solution", None),
    "s": (Outcome.SKIPPED, "exit 125: the check asks to skip", None),
    "k": (Outcome.KILLED, "SIGKILL", None),
    "e": (Outcome.ODD_STATUS, "exit 255 is neither a pass nor a failure (1–124)", None),
    "v": (Outcome.WRONG_BUILD, "the module says 2.4.0", None),
    "d": (Outcome.GONE, "the server no longer has its wheel", None),
    "u": (Outcome.UNREACHABLE, "no answer", None),
    "m": (Outcome.EXHAUSTED, "exit 1: MemoryError", Signature("MemoryError", "")),
}
UNTESTABLE_BESIDE_BOOM = "octnixskevdumw"
"""What can be concluded about nothing when the bad end fails with "boom"."""


def stamp(day: int) -> Stamp:
    return Stamp(FIRST_DAY + timedelta(days=day))


def day_of(slot: Slot) -> int:
    return (slot.stamp.day - FIRST_DAY).days


def nightly(day: int, *, base: str = "2.5.0", has_wheel: bool = True) -> Nightly:
    version = f"{base}.dev{FIRST_DAY + timedelta(days=day):%Y%m%d}+cpu"
    name = f"torch-{version}-cp312-cp312-linux_x86_64.whl"
    wheel = Wheel(name, f"https://example.org/{name}") if has_wheel else None
    return Nightly(stamp(day), version, wheel, () if has_wheel else ("cp39 linux x86_64",))


def slots(letters: str) -> list[Slot]:
    return [
        nightly(day, has_wheel=letter != "w") if letter.islower() else UnlistedDay(stamp(day))
        for day, letter in enumerate(letters)
    ]


def observe(letter: str, day: int = 0, **more: Any) -> Observation:
    outcome, reason, signature = _ENDINGS[letter.lower()]
    return Observation(nightly(day), outcome, reason, **{"signature": signature, **more})


def alone(seen: Mapping[int, Observation]) -> dict[int, list[Observation]]:
    """Return observations as the only runs of their nights."""
    return {day: [observation] for day, observation in seen.items()}


def question(
    find: Find = Find.REGRESSION,
    *,
    walk_back: bool = False,
    confirm: bool = False,
    repeat: int = 1,
    **rules: Any,
) -> Question:
    return Question(find, Rules(**rules), walk_back, confirm, repeat)


@dataclass
class World:
    """Acts out a row: tests its nights, knows its unlisted days, hears what is told.

    ``again`` has the letters of further runs by day, where they differ from the first.
    """

    letters: str
    again: Mapping[int, str] = field(default_factory=dict)
    tested: list[int] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    asked_for_others: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    installed: frozenset[str] = frozenset()

    def test(self, nightly: Nightly, visit: Visit) -> Generator[Observation]:
        for repeat in range(visit.first_repeat, visit.first_repeat + visit.runs):
            seen = replace(self.run(nightly, repeat), repeat=repeat)
            yield seen
            if visit.until_failure and seen.outcome is not Outcome.PASSED:
                return

    def run(self, nightly: Nightly, repeat: int) -> Observation:
        day = day_of(nightly)
        # Only what the network kept from being tested is tried again, once.
        assert self.tested.count(day) < repeat + (2 if self.letters[day] in "uU" else 1)
        assert nightly.wheel is not None
        self.tested.append(day)
        return observe(self.letter(day, repeat), day)

    def letter(self, day: int, repeat: int) -> str:
        """Return how a run of a night ends."""
        further = self.again.get(day, "")
        return further[repeat - 1] if 0 < repeat <= len(further) else self.letters[day]

    def ask(self, slot: UnlistedDay) -> Nightly | None:
        day = day_of(slot)
        assert day not in self.asked
        self.asked.append(day)
        return None if self.letters[day] in "-W" else nightly(day)

    def ask_for_others(self, slot: UnlistedDay) -> Nightly | None:
        day = day_of(slot)
        assert day in self.asked and day not in self.asked_for_others
        self.asked_for_others.append(day)
        return nightly(day, has_wheel=False) if self.letters[day] == "W" else None

    def bisection(self, question: Question) -> Bisection:
        return Bisection(slots(self.letters), question, self, self, self.events.append)


def in_days(row: Sequence[Slot], move: Move) -> Move:
    """Return how a bisection ended with days in place of positions."""

    def day(index: int) -> int:
        return day_of(row[index])

    match move:
        case Located(before, after, suspects):
            return Located(day(before), day(after), tuple(map(day, suspects)))
        case Contradicted(after, before):
            return Contradicted(day(after), day(before))
        case Stopped(trouble, good, bad, detail):
            days = [None if i is None else day(i) for i in (good, bad)]
            return Stopped(trouble, days[0], days[1], detail)
        case Uneven(index, detail):
            return Uneven(day(index), detail)
        case Swept():
            return move
        case Next():
            raise AssertionError("the bisection goes on")


def located(before: int, after: int) -> Located:
    """Return a row's end whose suspects are all the days up to ``after``."""
    return Located(before, after, tuple(range(before + 1, after + 1)))
