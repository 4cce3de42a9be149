"""Numbers that a check gave: read from the guest's result file or from printed lines.

Both are written by the code under test, so nothing in them is trusted: sizes and counts are bounded,
names are plain, numbers finite.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

MOST_BYTES = 8 << 20
MOST_NUMBERS = 256
MOST_SAMPLES = 10_000
LONGEST_LINE = 1000

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_UNIT = re.compile(r"[A-Za-z0-9%µ/^*._-]{0,16}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_PRINTED = re.compile(
    rf"nightly-bisect: ({_NAME.pattern})\s?=\s?([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    rf"(?:\s({_UNIT.pattern}))?\s*",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Number:
    """A metric of one run: its value, and the raw ``samples`` that the value was made of (at least one)."""

    name: str
    unit: str
    value: float
    samples: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run measured; ``fingerprint`` is a SHA-256 in hexadecimal."""

    numbers: tuple[Number, ...]
    fingerprint: str | None


class UnreadableResult(Exception):
    """There is no result, or it isn't what the guest writes: nothing was measured."""


def read_result(path: Path) -> Reading:
    """Read what `guest/functions.py` wrote; raise `UnreadableResult` for anything else."""
    try:
        content = json.loads(_content(path))
        if not isinstance(content, dict) or content.get("schema") != 1:
            raise UnreadableResult("the result has an unknown form")
        return Reading(_numbers(content.get("metrics")), _fingerprint(content.get("fingerprint")))
    except (ValueError, OverflowError, RecursionError) as error:
        raise UnreadableResult(f"the result is not what was agreed on: {error}") from error


def printed_metrics(lines: Iterable[str]) -> tuple[Number, ...]:
    """Find lines ``nightly-bisect: NAME=NUMBER [UNIT]``, in order of the names' first appearance.

    A name printed several times has as many samples, and their median as value. A name printed with two
    units means nothing and is left out. So is a number that is not finite.
    """
    units: dict[str, set[str]] = {}
    samples: dict[str, list[float]] = {}
    for line in lines:
        match = _PRINTED.fullmatch(line) if len(line) <= LONGEST_LINE else None
        if match is None or not math.isfinite(value := float(match[2])):
            continue
        name = match[1]
        if name not in samples and len(samples) == MOST_NUMBERS:
            continue
        units.setdefault(name, set()).add(match[3] or "")
        if len(samples.setdefault(name, [])) < MOST_SAMPLES:
            samples[name].append(value)
    return tuple(
        Number(name, units[name].pop(), median(values), tuple(values))
        for name, values in samples.items()
        if len(units[name]) == 1
    )


def _content(path: Path) -> bytes:
    """Read a plain file: the check may have put a link, a pipe or something endless in its place."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableResult("the result is not a file")
            with open(descriptor, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UnreadableResult(f"there is no result: {error.strerror}") from error
    if len(content) > MOST_BYTES:
        raise UnreadableResult(f"the result has more than {MOST_BYTES} bytes")
    return content


def _numbers(metrics: Any) -> tuple[Number, ...]:
    if not isinstance(metrics, list) or len(metrics) > MOST_NUMBERS:
        raise UnreadableResult(f"the result has no list of up to {MOST_NUMBERS} metrics")
    numbers = tuple(_number(metric) for metric in metrics)
    if len({number.name for number in numbers}) < len(numbers):
        raise UnreadableResult("the result names a metric twice")
    return numbers


def _number(metric: Any) -> Number:
    if not isinstance(metric, dict):
        raise UnreadableResult("a metric is not an object")
    samples = metric.get("samples")
    if not isinstance(samples, list) or not 1 <= len(samples) <= MOST_SAMPLES:
        raise UnreadableResult(f"a metric has no list of up to {MOST_SAMPLES} samples")
    return Number(
        _text(metric.get("name"), _NAME),
        _text(metric.get("unit"), _UNIT),
        _finite(metric.get("value")),
        tuple(_finite(sample) for sample in samples),
    )


def _fingerprint(value: Any) -> str | None:
    return None if value is None else _text(value, _FINGERPRINT)


def _text(value: Any, form: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not form.fullmatch(value):
        raise UnreadableResult(f"{value!r:.80} is no name, unit or fingerprint")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UnreadableResult(f"{value!r:.80} is not a finite number")
    return float(value)
