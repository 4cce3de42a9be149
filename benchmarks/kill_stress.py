"""Kill bisections without warning at random moments, and count what was lost.

    python benchmarks/kill_stress.py --kills 1000 --seed 1

Whole bisections over a loopback index of stand-in nightlies, each killed by SIGKILL and resumed
again and again until it ends by itself. Three things are counted, and must be 0: lines that were shown
and are not in the journal, answers that differ, processes that are left. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from loopback import CHECK, FOLDER, bad_from, nights, serve

FIRST, NIGHTS = date(2026, 8, 1), 40
LONGEST_S = 2.5
TRIAL = re.compile(r"^\d{4}-\d\d-\d\d  (\S+) .*  (good|bad|untestable)  ")


@dataclass
class Count:
    """What was found so far."""

    kills: int = 0
    bisections: int = 0
    lost: int = 0
    wrong: int = 0
    left: list[str] = field(default_factory=list)


def main() -> int:
    """Run until so many kills were dealt; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    count = Count()
    started = time.monotonic()
    while count.kills < arguments.kills:
        with tempfile.TemporaryDirectory(prefix="kill-stress-") as folder:
            bisect_under_fire(Path(folder), chance, count, arguments.kills)
    print(
        f"seed {arguments.seed}: {count.kills} kills over {count.bisections} bisections in "
        f"{time.monotonic() - started:.0f} s: {count.lost} observations lost, {count.wrong} different answers, "
        f"{len(count.left)} processes left"
    )
    return 1 if count.lost or count.wrong or count.left else 0


def bisect_under_fire(folder: Path, chance: random.Random, count: Count, most: int) -> None:
    """Run one bisection to its end, killing it on the way."""
    first_bad = FIRST.replace(day=chance.randrange(2, 31))
    (folder / "check.py").write_text(CHECK)
    shown: set[str] = set()
    with serve(nights(FIRST, NIGHTS, bad_from(first_bad))) as server:
        begin = ["--index-url", server.url + FOLDER, "--good", str(FIRST), "--name", "it", "check.py"]
        while True:
            words = ["resume", "it"] if _began(folder) else begin
            code = run_and_kill(words, folder, chance, count, shown, may_kill=count.kills < most)
            stored = stored_versions(folder)
            count.lost += len(shown - stored)
            if code is not None:
                break
        answer = run(["replay", "it", "--json", "-"], folder)
    count.bisections += 1
    if json.loads(answer.stdout)["first_bad"]["date"] != str(first_bad):
        count.wrong += 1


def run_and_kill(
    words: list[str], folder: Path, chance: random.Random, count: Count, shown: set[str], *, may_kill: bool
) -> int | None:
    """Run one command and kill it after a random time; return its exit code if it ended before."""
    progress = folder / "progress.txt"
    with progress.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "nightly_bisect", *words],
            cwd=folder,
            env=variables(folder),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        code: int | None = None
        try:
            code = process.wait(chance.uniform(0.2, LONGEST_S) if may_kill else None)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            count.kills += 1
            count.left += left_over(folder)
    shown |= {match[1] for line in progress.read_text().splitlines() if (match := TRIAL.match(line))}
    return code


def left_over(folder: Path) -> list[str]:
    """Return the processes that belong to a folder's bisection, a moment after the kill."""
    deadline = time.monotonic() + 2
    while found := [p for p in psutil.process_iter() if _belongs(p, str(folder))]:
        if time.monotonic() > deadline:
            return [str(p) for p in found]
        time.sleep(0.01)
    return []


def stored_versions(folder: Path) -> set[str]:
    """Return the versions that the journal has a trial of."""
    log = run(["log", "it", "--json", "-"], folder)
    if log.returncode != 0:
        return set()
    entries = json.loads(log.stdout)
    return {entry["observation"]["nightly"]["version"] for entry in entries if entry["observation"]}


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-m", "nightly_bisect", *words]
    return subprocess.run(
        command, cwd=folder, env=variables(folder), capture_output=True, text=True, check=False
    )


def variables(folder: Path) -> dict[str, str]:
    """Return an environment in which everything lies in the folder."""
    own = {"XDG_CACHE_HOME": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    return {
        **os.environ,
        **own,
        "HOME": str(folder),
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "COLUMNS": "300",
    }


def _began(folder: Path) -> bool:
    return run(["log", "it"], folder).returncode == 0


def _belongs(process: psutil.Process, folder: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and (
            folder in " ".join(process.cmdline()) or process.cwd().startswith(folder)
        )
    except psutil.Error:
        return False


if __name__ == "__main__":
    sys.exit(main())
