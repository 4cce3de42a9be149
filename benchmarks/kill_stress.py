"""Kill bisections without warning at random moments, and count what was lost.

    python benchmarks/kill_stress.py --kills 1000 --seed 1

Whole bisections over a loopback index of stand-in nightlies, each killed by SIGKILL and resumed
again and again until it ends by itself. Counted, and to be 0: lines that were shown and are not in the journal
or entries of it that are gone after a later kill, answers that differ, processes that are left. Exits with 1
otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from forked import Command, left_over
from loopback import CHECK, FOLDER, bad_from, nights, serve

from nightly_bisect.journal import Entry, Journal

FIRST, NIGHTS = date(2026, 8, 1), 40
SHORTEST_S, LONGEST_S = 0.02, 2.0
TRIAL = re.compile(r"^\d{4}-\d\d-\d\d  (\S+) .*  (good|bad|untestable)  ")


@dataclass
class Count:
    """What was found so far; several threads add to it."""

    most_kills: int
    kills: int = 0
    bisections: int = 0
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take_kill(self) -> bool:
        """Tell whether there is one more kill to deal, and count it."""
        with self.lock:
            if self.kills == self.most_kills:
                return False
            self.kills += 1
            return True


def main() -> int:
    """Run until so many kills were dealt; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="bisections side by side")
    arguments = parser.parse_args()
    count = Count(arguments.kills)
    started = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        list(
            pool.map(lambda job: work(random.Random(f"{arguments.seed} {job}"), count), range(arguments.jobs))
        )
    for text in (*count.lost, *count.wrong, *count.left):
        print(f"  {text}")
    print(
        f"seed {arguments.seed}: {count.kills} kills over {count.bisections} bisections in "
        f"{time.monotonic() - started:.0f} s: {len(count.lost)} observations lost, {len(count.wrong)} different "
        f"answers, {len(count.left)} processes left"
    )
    return 1 if count.lost or count.wrong or count.left else 0


def work(chance: random.Random, count: Count) -> None:
    """Bisect again and again until all kills are dealt."""
    with Command() as command:
        while count.kills < count.most_kills:
            with tempfile.TemporaryDirectory(prefix="kill-stress-") as folder:
                UnderFire(Path(folder), command, chance, count).bisect()


class UnderFire:
    """One bisection in a folder of its own, killed on the way."""

    def __init__(self, folder: Path, command: Command, chance: random.Random, count: Count) -> None:
        self._folder = folder
        self._command = command
        self._chance = chance
        self._count = count
        self._journal = Journal(folder / "state/nightly-bisect/journal.sqlite")
        self._shown: set[str] = set()
        self._stored: list[Entry] = []

    def bisect(self) -> None:
        """Run the bisection to its end and look at its answer."""
        first_bad = FIRST.replace(day=self._chance.randrange(2, 31))
        (self._folder / "check.py").write_text(CHECK)
        with serve(nights(FIRST, NIGHTS, bad_from(first_bad))) as server:
            begin = ["--index-url", server.url + FOLDER, "--good", str(FIRST), "--name", "it", "check.py"]
            while self._run_and_kill(["resume", "it"] if self._began() else begin) is None:
                self._look_for_losses()
        self._look_for_losses()
        self._run(["replay", "it", "--json", "replayed.json"])
        answer = json.loads((self._folder / "replayed.json").read_text())
        found = answer["first_bad"] and answer["first_bad"]["date"]
        if found != str(first_bad):
            self._count.wrong.append(f"{found} instead of {first_bad}")
        runs = [(e.observation.nightly.version, e.observation.repeat) for e in self._stored if e.observation]
        if len(runs) != len(set(runs)):
            self._count.lost.append(f"run twice: {sorted(run for run in runs if runs.count(run) > 1)}")
        with self._count.lock:
            self._count.bisections += 1

    def _run_and_kill(self, words: list[str]) -> int | None:
        """Run a command and kill it after a random time; return its exit code if it ended before."""
        self._command.start(words, self._folder, self._variables())
        patience_s = self._chance.uniform(SHORTEST_S, LONGEST_S)
        code = self._command.wait(patience_s)
        while code is None and not self._count.take_kill():
            code = self._command.wait(patience_s)  # all kills are dealt
        if code is None:
            self._command.kill()
            self._count.left += left_over(self._folder)
        text = (self._folder / "err.txt").read_text()
        self._shown |= {match[1] for line in text.splitlines() if (match := TRIAL.match(line))}
        return code

    def _run(self, words: list[str]) -> None:
        self._command.start(words, self._folder, self._variables())
        while self._command.wait(60) is None:
            pass

    def _began(self) -> bool:
        return self._journal.path.exists() and any(record.name == "it" for record in self._journal.records())

    def _look_for_losses(self) -> None:
        before, now = self._stored, self._journal.entries("it") if self._journal.path.exists() else []
        if now[: len(before)] != before:
            self._count.lost.append(f"{len(before)} entries before, {len(now)} after, and not the same")
        versions = {entry.observation.nightly.version for entry in now if entry.observation}
        self._count.lost += sorted(self._shown - versions)
        self._stored = now

    def _variables(self) -> dict[str, str]:
        """Return an environment in which everything lies in the folder."""
        return {
            **os.environ,
            "XDG_CACHE_HOME": str(self._folder / "cache"),
            "XDG_STATE_HOME": str(self._folder / "state"),
            "HOME": str(self._folder),
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
            "COLUMNS": "300",
        }


if __name__ == "__main__":
    sys.exit(main())
