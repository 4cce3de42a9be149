"""What makes two failures the same. Pure.

A failure is known by its exception's type and its last telling line, with everything taken out that
differs from run to run: numbers, addresses, paths. A failure without an exception is known by the
last line that it printed; a crash by its signal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nightly_bisect.model import Signature

_LONGEST = 300
_TAIL = 20
_EXHAUSTED_KINDS = ("MemoryError", "OutOfMemoryError")
_EXHAUSTED = re.compile(
    r"out of memory|can't allocate memory|Cannot allocate memory|No space left on device|Disk quota exceeded"
)
_TRACEBACK = re.compile(r"(?:Exception Group )?Traceback \(most recent call last\):")
_IGNORED = "Exception ignored in"
# The frame that Python draws around the tracebacks of an exception group.
_GROUP_MARGIN = re.compile(r"^\s+[|+](?:-+\+?-*)?\s?")
# The line of an exception in a traceback: `module.Type: message`, at the left margin.
_EXCEPTION = re.compile(r"((?:(?:[A-Za-z_]\w*|<locals>)\.)*[A-Za-z_]\w*)(?::\s(.*)|:?)$")
# pytest prints the exception in the margin: `E   AssertionError: message`.
_PYTEST = re.compile(
    r"E\s+((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Warning|Failed|Interrupt|Exit)):?\s?(.*)"
)
_PYTEST_ASSERT = re.compile(r"E\s+(assert .*)")
_PYTEST_FAILED = re.compile(r"(?:FAILED|ERROR) (\S+)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b")
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[\w.+@~-]*[/\\])+[\w.+@~-]*")
_NUMBER = re.compile(
    r"[-+]?(?:\b|(?<=[-+]))(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?|[-+]?\b(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)\b"
)
_NUMBERS = re.compile(r"#(?:[\s,.;|]*#)+")


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure as it was printed: an exception's type ("" without one) and its telling line.

    ``frame`` is where it came up: the line of the check's own source, or pytest's name of the test.
    """

    kind: str
    line: str
    frame: str = ""

    @property
    def signature(self) -> Signature:
        """What this failure has in common with the same one elsewhere."""
        text = normalise(self.line)
        return Signature(self.kind, f"{text} at {self.frame.strip()[:_LONGEST]}" if self.frame else text)

    @property
    def is_exhaustion(self) -> bool:
        """Whether memory or disk ran out: a matter of the machine."""
        return self.kind in _EXHAUSTED_KINDS or bool(self.kind and _EXHAUSTED.search(self.line))

    def __str__(self) -> str:
        text = ": ".join(part for part in (self.kind, self.line) if part)
        return text if self.line or not self.frame else f"{text} at `{self.frame.strip()}`"


def read_failure(stdout: Sequence[str], stderr: Sequence[str], *, is_script: bool = False) -> Failure:
    """Recognise a failure by the last lines of what the check printed.

    An exception that ended a Python ``is_script`` is known from elsewhere, so that a traceback in
    its output is one that it survived.
    """
    for lines in (stderr, stdout):
        if found := _last_exception(lines, tracebacks=not is_script):
            kind, message = found
            # The module of a type moves between versions; its name hardly does.
            return Failure(kind.rpartition(".")[2], message, _failed_test(lines))
    last = next((line for lines in (stderr, stdout) for line in reversed(lines) if line.strip()), "")
    return Failure("", last.strip())


def tail_of(stdout: Sequence[str], stderr: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines of both streams in the form in which they are compared."""
    return tuple(normalise(line) for lines in (stdout, stderr) for line in lines[-_TAIL:] if line.strip())


def normalise(line: str) -> str:
    """Take out of a line what differs from run to run."""
    # Cut first: no pattern may meet a line of a megabyte.
    text = _ADDRESS.sub("#", line[: 4 * _LONGEST].strip())
    text = _PATH.sub("<path>", text)
    text = _NUMBER.sub("#", text)
    return _NUMBERS.sub("#", text)[:_LONGEST].rstrip()


def _last_exception(lines: Sequence[str], *, tracebacks: bool) -> tuple[str, str] | None:
    """Find the exception that ended the program: the last one printed, its first line."""
    found: tuple[str, str] | None = None
    waiting = ignored = False
    plain = [_GROUP_MARGIN.sub("", line[: 4 * _LONGEST]) for line in lines]
    for index, line in enumerate(plain):
        if line.startswith(_IGNORED):
            ignored = True  # what the interpreter meets while it shuts down ended nothing
        elif tracebacks and _TRACEBACK.match(line):
            waiting, ignored = not ignored, False
        elif waiting and line and not line[0].isspace() and (match := _EXCEPTION.match(line)):
            found, waiting = (match[1], _message(match[2] or "", plain[index + 1 :])), False
        elif match := _PYTEST.match(line):
            found = (match[1], match[2])
        elif match := _PYTEST_ASSERT.match(line):
            found = ("AssertionError", match[1])
    return found


def _failed_test(lines: Sequence[str]) -> str:
    """Return the first test that pytest's summary names."""
    return next((match[1] for line in lines if (match := _PYTEST_FAILED.match(line))), "")


def _message(first: str, following: Sequence[str]) -> str:
    """Return the first line of a message, and the next where it only announces it ("… raised:")."""
    if first.endswith(":") and following and following[0].strip():
        return f"{first} {following[0].strip()}"
    return first
