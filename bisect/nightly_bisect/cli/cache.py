"""`nightly-bisect cache`: what the cache holds, and making it smaller."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from nightly_bisect.cli.request import WhatArguments
from nightly_bisect.errors import UsageError
from nightly_bisect.index.cache import Cache, Entry, Kind, Room, total
from nightly_bisect.index.downloads import storage_faults
from nightly_bisect.report.plain import printable

DEFAULT_SIZE = "40GiB"

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([a-z]*)", re.IGNORECASE)


def show_cache(cache_dir: Path | None, size: str) -> int:
    """Print how much there is of each kind."""
    folder, budget = _folder(cache_dir), parse_size("--cache-size", size)
    with storage_faults(folder):
        entries = Cache(folder).contents()
    print(printable(str(folder)))  # noqa: T201
    for line in content_lines(entries, budget):
        print(line)  # noqa: T201
    return 0


def prune_cache(cache_dir: Path | None, to: str) -> int:
    """Remove what dead processes left, then the least recently used, until the rest fits."""
    return _shrink(_folder(cache_dir), parse_size("--to", to))


def clear_cache(cache_dir: Path | None) -> int:
    """Remove everything that no running bisection uses."""
    return _shrink(_folder(cache_dir), 0)


def parse_size(option: str, text: str) -> int:
    """Return the bytes that ``text`` means, as ``40GiB`` or ``500MB``; raise `UsageError`."""
    found = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise UsageError(f"{option} {text!r} is not a size.", hint="write it like 40GiB, 500MB or 1.5TB")
    return int(Fraction(found[1]) * unit)


def size_text(size_bytes: int) -> str:
    """Return a size for people, in the largest unit that it fills."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size_bytes >= _UNITS[unit.lower()]:
            return f"{size_bytes / _UNITS[unit.lower()]:.1f} {unit}"
    return f"{size_bytes} B"


def content_lines(entries: Sequence[Entry], budget_bytes: int) -> list[str]:
    """Return one line for each kind, then the sum."""
    lines = []
    for kind in Kind:
        of_kind = [entry for entry in entries if entry.kind is kind]
        lines.append(f"{kind:<18} {len(of_kind):>6} {size_text(total(of_kind)):>12}")
    return [*lines, f"{'total':<25} {size_text(total(entries)):>12} of {size_text(budget_bytes)}"]


def shrink_lines(room: Room, swept: int, freed_bytes: int, budget_bytes: int) -> list[str]:
    """Return what was removed and what is left."""
    counts = {kind: sum(entry.kind is kind for entry in room.removed) for kind in Kind}
    removed = [f"{kind} {counts[kind]}" for kind in (Kind.WHEEL, Kind.ENVIRONMENT)]
    removed.append(f"half-built {swept}")
    lines = [f"removed: {', '.join(removed)}; {size_text(max(0, freed_bytes))} freed"]
    lines.append(f"left: {size_text(room.total_bytes)}")
    if not room.is_enough and budget_bytes > 0:
        lines.append(f"more than {size_text(budget_bytes)}: running bisections use the rest")
    return lines


def _shrink(folder: Path, budget_bytes: int) -> int:
    cache = Cache(folder)
    if not folder.is_dir():
        print("There is no cache yet.")  # noqa: T201
        return 0
    with storage_faults(folder):
        before = total(cache.contents())
        swept = cache.sweep()
        room = cache.make_room(budget_bytes)
    for line in shrink_lines(room, len(swept), before - room.total_bytes, budget_bytes):
        print(line)  # noqa: T201
    return 0


def _folder(cache_dir: Path | None) -> Path:
    return WhatArguments(cache_dir=cache_dir).cache
