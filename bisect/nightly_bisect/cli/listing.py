"""`nightly-bisect list`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from nightly_bisect.bisection.ends import read_bounds
from nightly_bisect.cli.files import write_document
from nightly_bisect.cli.request import WhatArguments, make_request
from nightly_bisect.cli.screen import Screen
from nightly_bisect.index.catalog import Catalog, load_catalog, no_wheel
from nightly_bisect.index.listings import Listings
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.web import Web
from nightly_bisect.model import Nightly, UnlistedDay
from nightly_bisect.report.plain import printable


@dataclass(frozen=True, kw_only=True, slots=True)
class ListArguments(WhatArguments):
    """The command line of `list`."""

    since: str | None = None
    until: str | None = None
    probe: bool = False


def show_list(arguments: ListArguments) -> int:
    """Print what exists; return the exit code."""
    screen = Screen(arguments.level)
    now = datetime.now(UTC)
    request = make_request(arguments)
    catalog = load_catalog(
        request,
        Web(may_redirect_to=request.allows_host),
        Listings(arguments.cache),
        Memory(arguments.cache),
        now,
    )
    first, last = read_bounds(catalog, arguments.since, arguments.until, now)
    for note in catalog.notes():
        screen.say(f"note: {note}")
    screen.left_out(catalog.unreadable)
    with screen.live():
        nightlies, unlisted = _gather(catalog, first, last, arguments, screen)
    if nightlies and not any(nightly.wheel for nightly, _ in nightlies):
        raise no_wheel(request, [nightly for nightly, _ in nightlies])
    if arguments.json_file is None:
        sys.stdout.write("".join(f"{line}\n" for line in _lines(nightlies)))
    else:
        _write_json(arguments.json_file, catalog, nightlies)
    if unlisted:
        screen.say(
            f"{unlisted} earlier days are no longer listed; `--probe` asks for them"
            + ("" if arguments.since else " (with --since)")
        )
    return 0


def _gather(
    catalog: Catalog, first: date, last: date, arguments: ListArguments, screen: Screen
) -> tuple[list[tuple[Nightly, bool]], int]:
    """Return the nightlies (and whether the page lists them) and the days that were not asked for."""
    # Without --since, asking for years of days is surely not meant.
    probing = arguments.probe and arguments.since is not None
    nightlies: list[tuple[Nightly, bool]] = []
    unlisted = 0
    for slot in catalog.slots(first, last):
        if isinstance(slot, Nightly):
            nightlies.append((slot, True))
        elif probing:
            if found := _ask(catalog, slot, screen):
                nightlies.append((found, False))
        else:
            unlisted += 1
    return nightlies, unlisted


def _ask(catalog: Catalog, slot: UnlistedDay, screen: Screen) -> Nightly | None:
    from nightly_bisect.bisection.events import Working

    screen.show(Working(f"asking for the nightly of {slot}"))
    return catalog.ask(slot)


def _lines(nightlies: list[tuple[Nightly, bool]]) -> list[str]:
    lines = []
    for nightly, listed in nightlies:
        wheel = nightly.wheel.filename if nightly.wheel else f"only for {', '.join(nightly.other_targets)}"
        lines.append(
            printable(
                f"{nightly.stamp}  {nightly.version:<26}  {wheel}"
                + ("" if listed else "  (no longer listed)")
            )
        )
    return lines


def _write_json(path: Path, catalog: Catalog, nightlies: list[tuple[Nightly, bool]]) -> None:
    request = catalog.request
    document = {
        "schema": 1,
        "package": request.profile.package,
        "channel": request.channel,
        "python": request.target.python,
        "platform": request.target.family,
        "page": catalog.page.url,
        "nightlies": [_entry(nightly, listed) for nightly, listed in nightlies],
        "left_out": [{"text": row.text, "why": row.why} for row in catalog.unreadable],
        "notes": catalog.notes(),
    }
    write_document(path, json.dumps(document, indent=2) + "\n")


def _entry(nightly: Nightly, listed: bool) -> dict[str, Any]:
    wheel = nightly.wheel
    return {
        "date": str(nightly.stamp),
        "version": nightly.version,
        "filename": wheel.filename if wheel else None,
        "url": wheel.url if wheel else None,
        "sha256": wheel.sha256 if wheel else None,
        "size": wheel.size_bytes if wheel else None,
        "listed": listed,
        "other_targets": list(nightly.other_targets),
    }
