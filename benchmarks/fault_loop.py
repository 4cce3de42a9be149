"""Make the n-th open, write, fsync or rename of a bisection fail, for n = 1, 2, 3 …, and look what comes of it.

    python benchmarks/fault_loop.py --operation write --errno ENOSPC
    python benchmarks/fault_loop.py --every 7 --seed 3

A small bisection over a loopback index is run once for each n until no operation is left to fail; then the same
for the next operation and error. Only files below the run's own cache, state and results count. After each
faulted run the bisection is gone on with, without a fault. Counted, and 0 is the bar for all but the first:

    ended     runs that the fault ended, by exit code
    wrong     an answer, a verdict in the journal or a line of the result that is not true
    rough     an exit code that is not documented, a traceback, a run that hangs, a process that is left
    lost      the journal is damaged, or going on doesn't give the answer
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from forked import Command, Fault, left_over
from loopback import CHECK, FOLDER, MANYLINUX_TAG, bad_from, nights, serve

from nightly_bisect.errors import BisectError
from nightly_bisect.journal import Journal, Kind
from nightly_bisect.model import Outcome

FIRST, FIRST_BAD, LAST = date(2026, 5, 1), date(2026, 5, 2), date(2026, 5, 3)
OPERATIONS = {"open": 1, "write": 2, "fsync": 3, "rename": 4}
SHORT = "SHORT"
ERRORS = {
    "open": ("EIO", "ENOSPC", "EINTR", "EMFILE"),
    "write": ("EIO", "ENOSPC", "EINTR", SHORT),
    "fsync": ("EIO", "ENOSPC", "EINTR"),
    "rename": ("EIO", "ENOSPC"),
}
# The fault is to be in our own process only: a check must not even see how it got there.
CHECK_ALONE = f"import os\nassert 'LD_PRELOAD' not in os.environ\n{CHECK}"
DOCUMENTED = (0, 2, 3, 4, 5, 6, 7, 8, 130)
LONGEST_S = 120.0
MOST_SHOWN = 5


@dataclass
class Seen:
    """What was seen of one operation and error."""

    tried: int = 0
    exits: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    rough: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """Return everything that must not be."""
        kinds = (("wrong", self.wrong), ("rough", self.rough), ("lost", self.lost))
        return [f"{kind}: {text}" for kind, texts in kinds for text in texts]


class Place:
    """A folder with a bisection of its own in it, and the index that it reads."""

    def __init__(self, folder: Path, index: str, installer_cache: Path) -> None:
        self.folder = folder
        self.index = index
        self.cache = folder / "cache/nightly-bisect"
        self.state = folder / "state/nightly-bisect"
        self.report = folder / "faults.txt"
        for made in ("home", "tmp", "results", "cache/nightly-bisect", "state"):
            (folder / made).mkdir(parents=True)
        (self.cache / "uv-cache").symlink_to(installer_cache)
        (folder / "check.py").write_text(CHECK_ALONE)

    @property
    def begin(self) -> list[str]:
        """Return the command line that begins the bisection."""
        ends = ["--good", str(FIRST), "--bad", str(LAST), "--no-confirm"]
        return ["--index-url", self.index, *ends, "--name", "it", "--json", "results/it.json", "check.py"]

    @property
    def variables(self) -> dict[str, str]:
        """Return an environment in which everything lies in the folder."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "tmp"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
            "COLUMNS": "300",
        }

    def fault(self, operation: str, error: str, at: int, lasting: bool) -> Fault:
        """Return the fault that hits the run's own files."""
        below = "".join(f"{self.folder}/{name}:" for name in ("cache", "state", "results"))
        number = -1 if error == SHORT else getattr(errno, error)
        return Fault(below, OPERATIONS[operation], at, number, lasting, str(self.report))

    def text(self, name: str) -> str:
        """Return what a file in the folder says."""
        with open(self.folder / name, errors="replace") as file:  # noqa: PTH123
            return file.read()

    def journal(self) -> Path:
        """Return where the journal lies."""
        return self.state / "journal.sqlite"


def main() -> int:
    """Run every n of what was asked for; print a table; return the exit code."""
    options = parse()
    started = time.monotonic()
    chance = random.Random(options.seed)
    asked = [
        (operation, error)
        for operation in ([options.operation] if options.operation else OPERATIONS)
        for error in ([options.errno] if options.errno else ERRORS[operation])
    ]
    with (
        tempfile.TemporaryDirectory(prefix="fault-loop-", dir=options.folder) as name,
        serve(row()) as server,
    ):
        folder = Path(name)
        shim = compiled(folder)
        installer_cache = folder / "installer"
        installer_cache.mkdir()
        warm_up(folder / "first", server.url + FOLDER, installer_cache, shim)
        table = {}
        for operation, error in asked:
            numbers = itertools.count(1 + chance.randrange(options.every), options.every)
            runs = Runs(folder, server.url + FOLDER, installer_cache, shim, operation, error, options.lasting)
            table[operation, error] = seen = runs.all(numbers, options.jobs)
            show(operation, error, seen)
    bad = [text for seen in table.values() for text in seen.findings]
    tried = sum(seen.tried for seen in table.values())
    print(
        f"seed {options.seed}, every {options.every}{', lasting' if options.lasting else ''}: {tried} faults in "
        f"{time.monotonic() - started:.0f} s: {sum(len(s.wrong) for s in table.values())} wrong, "
        f"{sum(len(s.rough) for s in table.values())} rough, {sum(len(s.lost) for s in table.values())} lost"
    )
    return 1 if bad or not tried else 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--operation", choices=OPERATIONS)
    parser.add_argument("--errno", help=f"a name of errno, or {SHORT}: only half of a write comes through")
    parser.add_argument(
        "--every", type=int, default=1, metavar="K", help="only every K-th n, from a random first one"
    )
    parser.add_argument("--lasting", action="store_true", help="all that follow the n-th fail as well")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--folder", type=Path, help="where the runs' folders are made")
    options = parser.parse_args()
    if options.errno == SHORT and options.operation != "write":
        parser.error(f"--errno {SHORT} is for --operation write")
    return options


def row() -> list[object]:
    """Return three nights, the first of which is no longer listed: it has to be asked for."""
    from dataclasses import replace

    three = nights(FIRST, 3, bad_from(FIRST_BAD), base="2.13.0", tag=MANYLINUX_TAG)
    return [replace(night, listed=night.day > FIRST) for night in three]


def compiled(folder: Path) -> Path:
    """Compile the shim; exit with 77, as the test harnesses of GNU do for what is skipped, without a compiler."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if sys.platform != "linux" or compiler is None:
        print("skipped: this needs Linux and a C compiler")
        sys.exit(77)
    shim = folder / "fault_shim.so"
    source = Path(__file__).with_name("fault_shim.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(shim), str(source), "-ldl"], check=True)
    return shim


def warm_up(folder: Path, index: str, installer_cache: Path, shim: Path) -> None:
    """Fill the installer's cache, and see that the bisection gives its answer when nothing fails."""
    place = Place(folder, index, installer_cache)
    with Command(shim) as command:
        command.start(place.begin, place.folder, place.variables)
        if command.wait(LONGEST_S) != 0 or answer_of(place) != str(FIRST_BAD):
            raise SystemExit(f"the bisection fails without a fault: {place.text('err.txt')}")


class Runs:
    """The runs of one operation and error."""

    def __init__(
        self,
        folder: Path,
        index: str,
        installer_cache: Path,
        shim: Path,
        operation: str,
        error: str,
        lasting: bool,
    ) -> None:
        self._folder = folder
        self._index = index
        self._installer_cache = installer_cache
        self._shim = shim
        self._operation = operation
        self._error = error
        self._lasting = lasting
        self._seen = Seen()

    def all(self, numbers: Iterator[int], jobs: int) -> Seen:
        """Try the numbers until a run passes without a fault being hit."""
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(lambda one: self._some(one), [Shared(numbers)] * jobs))
        return self._seen

    def _some(self, numbers: Shared) -> None:
        with Command(self._shim) as command:
            while (number := numbers.take()) is not None:
                folder = self._folder / f"{self._operation}-{self._error}-{number}"
                place = Place(folder, self._index, self._installer_cache)
                if not self._one(command, place, number):
                    numbers.end()
                shutil.rmtree(folder, ignore_errors=True)

    def _one(self, command: Command, place: Place, number: int) -> bool:
        """Run with the n-th operation failing, then without; return whether there was an n-th."""
        fault = place.fault(self._operation, self._error, number, self._lasting)
        command.start(place.begin, place.folder, place.variables, fault)
        code = command.wait(LONGEST_S)
        if code is None:
            command.kill()
        if not place.report.exists():
            return False
        hit = place.report.read_text().splitlines()[0].replace(str(place.folder), "")
        self._seen.tried += 1
        self._seen.exits[-99 if code is None else code] += 1
        found = Findings(self._seen, f"{self._operation} {self._error} {hit} (exit {code})")
        found.look_at_end(place, code)
        found.look_at_journal(place)
        if code != 0 or answer_of(place) is None:
            found.look_at_going_on(place, command)
        return True


class Shared:
    """Numbers that several threads take in turn."""

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._is_over = False

    def take(self) -> int | None:
        """Return the next number, None when it is over."""
        return None if self._is_over else next(self._numbers)

    def end(self) -> None:
        """Let nobody take another."""
        self._is_over = True


class Findings:
    """Looks at what a faulted run left, and notes what must not be; ``what`` names the run."""

    def __init__(self, seen: Seen, what: str) -> None:
        self._seen = seen
        self._what = what

    def look_at_end(self, place: Place, code: int | None) -> None:
        """Look at the exit, what was printed, what is left, and the answer."""
        stderr, stdout = place.text("err.txt"), place.text("out.txt")
        if code not in DOCUMENTED:
            bugs = [bug.read_text()[-900:] for bug in place.folder.glob("tmp/nightly-bisect-bug-*")]
            self._note(self._seen.rough, "not a documented exit", stderr[-600:], *bugs)
        elif "Traceback" in stderr or "Exception ignored" in stderr or "Exception in thread" in stderr:
            self._note(self._seen.rough, "a traceback", stderr[-900:])
        elif code not in (0, 130) and "error: " not in stderr and "The " not in stdout:
            self._note(self._seen.rough, "no word of why", stderr[-600:])
        if left := left_over(place.folder):
            self._note(self._seen.rough, "left", *left)
        if answer_of(place) not in (None, str(FIRST_BAD)):
            self._note(self._seen.wrong, f"the answer is {answer_of(place)}", place.text("results/it.json"))
        if code in (3, 4):
            self._note(self._seen.wrong, "a fault of the disk became an answer", stdout, stderr[-600:])
        if "first bad nightly is" in stdout and f"of {FIRST_BAD}" not in stdout:
            self._note(self._seen.wrong, "stdout", stdout)

    def look_at_journal(self, place: Place) -> None:
        """Look whether the journal is whole, and true."""
        if not place.journal().exists():
            return
        try:
            with closing(sqlite3.connect(place.journal())) as database:
                (verdict,) = database.execute("pragma integrity_check").fetchone()
            entries = Journal(place.journal()).entries("it")
        except (sqlite3.Error, BisectError) as error:
            self._note(self._seen.lost, f"the journal: {error}")
            return
        if verdict != "ok":
            self._note(self._seen.lost, f"the journal: {verdict}")
        for seen in (entry.observation for entry in entries if entry.kind is Kind.TRIAL):
            assert seen is not None
            is_bad = seen.nightly.stamp.day >= FIRST_BAD
            if seen.outcome is not (Outcome.FAILED if is_bad else Outcome.PASSED):
                self._note(self._seen.wrong, f"journal: {seen.nightly} {seen.outcome}: {seen.reason}")

    def look_at_going_on(self, place: Place, command: Command) -> None:
        """Go on without a fault: the answer must come now."""
        (place.folder / "results/it.json").unlink(missing_ok=True)
        began = False
        if place.journal().exists():
            with closing(sqlite3.connect(place.journal())) as database, suppress(sqlite3.Error):
                began = database.execute("select count(*) from bisections").fetchone() == (1,)
        command.start(["resume", "it"] if began else place.begin, place.folder, place.variables)
        code = command.wait(LONGEST_S)
        if code is None:
            command.kill()
        if code != 0 or answer_of(place) != str(FIRST_BAD):
            text = place.text("err.txt")[-800:] + place.text("out.txt")[-500:]
            self._note(self._seen.lost, f"going on gave exit {code}, answer {answer_of(place)}", text)

    def _note(self, kind: list[str], *texts: str) -> None:
        kind.append("\n    ".join([self._what, *(text.replace("\n", "\n    ") for text in texts)]))


def answer_of(place: Place) -> str | None:
    """Return the answer's date in the result; None when there is no whole result or it names none."""
    try:
        result = json.loads(place.text("results/it.json"))
    except (OSError, ValueError):
        return None
    return str(result["first_bad"]["date"]) if result["first_bad"] else None


def show(operation: str, error: str, seen: Seen) -> None:
    """Print the line of one operation and error, and its findings."""
    exits = ", ".join(f"{code}: {count}" for code, count in sorted(seen.exits.items()))
    print(
        f"{operation:<7} {error:<7} {seen.tried:>5} tried   exits {exits or '-':<24} "
        f"wrong {len(seen.wrong)}  rough {len(seen.rough)}  lost {len(seen.lost)}",
        flush=True,
    )
    for text in seen.findings[:MOST_SHOWN]:
        print(f"  {text}", flush=True)
    if len(seen.findings) > MOST_SHOWN:
        print(f"  … and {len(seen.findings) - MOST_SHOWN} more", flush=True)


if __name__ == "__main__":
    sys.exit(main())
