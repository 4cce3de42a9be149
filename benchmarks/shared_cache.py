"""Run whole bisections at the same time over one cache, and count what was downloaded twice.

    python benchmarks/shared_cache.py --processes 8

Each has a name and a range of its own, and all read the index at the same moment. Counted: requests for the body
of each wheel (the bar is one), right answers (all), what is left in the cache that must not be (nothing).
Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from loopback import CHECK, FOLDER, bad_from, days, nights, serve

from nightly_bisect.standin.server import Handler, LoopbackServer

FIRST, NIGHTS, FIRST_BAD = date(2026, 8, 1), 9, date(2026, 8, 6)
LONGEST_S = 300.0
# What a cache may hold when nobody works on it.
_KEPT = ("record.json", "used", ".lock")


def main() -> int:
    """Run them all; print the figures; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--processes", type=int, default=8)
    processes = parser.parse_args().processes
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="shared-cache-") as name,
        serve(nights(FIRST, NIGHTS, bad_from(FIRST_BAD))) as server,
    ):
        folder = Path(name)
        page = f"{FOLDER}/torch/"
        server.faults[page] = together(server, page, threading.Barrier(processes))
        answers = bisect_all(folder, server, processes)
        gets = Counter(path for method, path in server.requests if method == "GET" and path.endswith(".whl"))
        left = left_in_cache(folder / "cache/nightly-bisect")
    right = answers.count(str(FIRST_BAD))
    twice = {path.rpartition("/")[2]: count for path, count in gets.items() if count > 1}
    for text in [*(f"{wheel} was downloaded {count} times" for wheel, count in twice.items()), *left]:
        print(f"  {text}")
    print(
        f"{processes} processes in {time.monotonic() - started:.0f} s: {right} right answers, {len(gets)} wheels by "
        f"{gets.total()} downloads, {len(left)} leftovers in the cache"
    )
    return 0 if right == processes and gets and not twice and not left else 1


def together(server: LoopbackServer, path: str, barrier: threading.Barrier) -> Callable[[Handler], None]:
    """Return an answer of what the server has at ``path``, which comes when all have asked."""
    content = server.contents[path]

    def respond(handler: Handler) -> None:
        barrier.wait(LONGEST_S)
        handler.reply(200, content)

    return respond


def bisect_all(folder: Path, server: LoopbackServer, count: int) -> list[str | None]:
    """Run ``count`` bisections side by side; return the dates that they answer."""
    (folder / "check.py").write_text(CHECK)
    running = [start(folder, server, number) for number in range(count)]
    deadline = time.monotonic() + LONGEST_S
    for process in running:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [answer(folder, number) for number in range(count)]


def start(folder: Path, server: LoopbackServer, number: int) -> subprocess.Popen[bytes]:
    """Start one; its good end is another than its neighbours'."""
    good = days(FIRST, NIGHTS)[number % 4]
    words = ["--index-url", server.url + FOLDER, "--good", str(good), "--name", f"it-{number}", "--fresh"]
    with (folder / f"{number}.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "nightly_bisect", *words, "--json", f"{number}.json", "check.py"],
            cwd=folder,
            env=variables(folder),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def answer(folder: Path, number: int) -> str | None:
    """Return what one found; print what it said instead if it found nothing."""
    result = folder / f"{number}.json"
    found = json.loads(result.read_text()) if result.exists() else {"first_bad": None}
    if found["first_bad"] is None:
        print((folder / f"{number}.txt").read_text(errors="replace"))
        return None
    return str(found["first_bad"]["date"])


def left_in_cache(cache: Path) -> list[str]:
    """Return what is in the cache and should have been removed."""
    in_wheels = [path for wheel in cache.glob("wheels/*") for path in wheel.iterdir()]
    left = [path for path in in_wheels if path.suffix != ".whl" and path.name not in _KEPT]
    left += cache.glob("environments/*")
    return [str(path.relative_to(cache)) for path in left]


def variables(folder: Path) -> dict[str, str]:
    """Return an environment in which everything lies in the folder."""
    return {
        **os.environ,
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HOME": str(folder),
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
        "COLUMNS": "300",
    }


if __name__ == "__main__":
    sys.exit(main())
