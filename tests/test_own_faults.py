"""Faults of our own side: interruptions, terminals, clocks, locks, the journal's disk (O and D rows of docs/faults.md)."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import date
from pathlib import Path

import psutil
import pytest
from loopback import CHECK, FOLDER, Tool, bad_from, interruptible, nights, serve
from test_bad_input import small_disk
from test_journal import observation, record

from nightly_bisect.errors import StorageFault
from nightly_bisect.journal import Journal, Kind
from nightly_bisect.standin.server import Content, Handler
from nightly_bisect.standin.wheels import make_wheel, wheel_filename

ROW = nights(date(2026, 8, 1), 5, bad_from(date(2026, 8, 4)))
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-05", "--no-confirm", "--name", "it")
FIRST_BAD = "2026-08-04"
LONGEST_S = 90.0


class Terminal:
    """The real command on a terminal of its own, as a person starts it."""

    def __init__(
        self, tool: Tool, *words: str, columns: int = 100, variables: Mapping[str, str] | None = None
    ) -> None:
        self._master, slave = pty.openpty()
        self.columns = columns
        self.resize(columns)
        # The terminal is to be the controlling one, or ^C reaches nobody.
        code = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *interruptible(*words)],
            cwd=tool.folder,
            env={**environment(tool), "TERM": "xterm-256color", **(variables or {})},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._output = b""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *unused: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def resize(self, columns: int) -> None:
        """Change the width: the kernel sends SIGWINCH."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def read(self, patience_s: float) -> bool:
        """Take what the command wrote meanwhile; return whether it still has the terminal."""
        if not select.select([self._master], [], [], patience_s)[0]:
            return True
        with contextlib.suppress(OSError):  # EIO: nobody has the other side any more
            self._output += (chunk := os.read(self._master, 2**16))
            return bool(chunk)
        return False

    def run_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            assert time.monotonic() < deadline and self.read(0.02), self.text

    def run_to_end(self) -> int:
        deadline = time.monotonic() + LONGEST_S
        while self.read(1.0):
            assert time.monotonic() < deadline, self.text
        return self.process.wait(LONGEST_S)

    @property
    def text(self) -> str:
        return self._output.decode(errors="replace")

    @property
    def last_line(self) -> str:
        return [line.strip() for line in self.text.splitlines() if line.strip()][-1]


def environment(tool: Tool) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tool.folder / "home"),
        "XDG_CACHE_HOME": str(tool.folder / "cache"),
        "XDG_STATE_HOME": str(tool.folder / "state"),
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
    }


def hang_on(tool: Tool, day: str) -> Path:
    """Write a check that hangs at one nightly as long as ``armed`` is there; return what it makes then.

    It ignores SIGTERM and has a daemon.
    """
    reached, armed = tool.folder / "reached", tool.folder / "armed"
    tool.write(
        "check.py",
        "import os, signal, subprocess, time, torch\n"
        f"if {day!r} in torch.__version__ and os.path.exists({str(armed)!r}):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    subprocess.Popen(['sleep', '987'], start_new_session=True)\n"
        f"    open({str(reached)!r}, 'w').close(); time.sleep(987)\n"
        "assert torch.value == 1, f'value is {torch.value}'\n",
    )
    armed.touch()
    return reached


def disarm(tool: Tool) -> None:
    (tool.folder / "armed").unlink()


def family_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def start(tool: Tool, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        interruptible(*words),
        cwd=tool.folder,
        env=environment(tool),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def trials(tool: Tool) -> list[str]:
    log = json.loads(tool.run("log", "it", "--json", "-").stdout)
    return [entry["observation"]["nightly"]["version"] for entry in log if entry["observation"]]


@pytest.mark.parametrize("keys", [b"\x03", b"\x03\x03"], ids=["o04_once", "o05_twice"])
def test_ctrl_c_on_a_terminal_ends_it_and_loses_nothing(tool: Tool, keys: bytes) -> None:
    reached = hang_on(tool, "20260803")
    with serve(ROW) as server:
        with Terminal(tool, "--index-url", server.url + FOLDER, *ENDS, "check.py") as terminal:
            terminal.run_until(reached.exists)
            family = family_of(terminal.process)
            started = time.monotonic()
            terminal.type(keys)
            code = terminal.run_to_end()
            seconds = time.monotonic() - started
        before = trials(tool)
        disarm(tool)
        resumed = tool.run("resume")
    assert code == 130, terminal.text
    # 12 s and 2 s are promised. Nothing polite is tried, so that once is as quick; a busy machine gets some more.
    assert seconds < (12 if len(keys) == 1 else 6)
    assert len(family) >= 3 and not alive(family)
    assert "Traceback" not in terminal.text and "Exception ignored" not in terminal.text
    if len(keys) == 1:
        assert terminal.last_line == "resume: nightly-bisect resume it"
    assert len(before) == 2
    assert f"of {FIRST_BAD}" in resumed.stdout, resumed.stderr
    assert trials(tool)[:2] == before and len(trials(tool)) == len(set(trials(tool)))


@pytest.mark.parametrize("moment_s", [0.0, 0.02, 0.05, 0.1, 0.2])
@pytest.mark.slow
def test_o05_a_second_ctrl_c_while_the_first_is_tidied_up_leaves_no_mess(tool: Tool, moment_s: float) -> None:
    reached = hang_on(tool, "20260803")
    with serve(ROW) as server:
        with Terminal(tool, "--index-url", server.url + FOLDER, *ENDS, "check.py") as terminal:
            terminal.run_until(reached.exists)
            family = family_of(terminal.process)
            terminal.type(b"\x03")
            terminal.read(moment_s)
            with contextlib.suppress(OSError):
                terminal.type(b"\x03")
            code = terminal.run_to_end()
        disarm(tool)
        resumed = tool.run("resume")
    assert code in (130, -signal.SIGINT), terminal.text
    assert not alive(family)
    assert "Traceback" not in terminal.text and "Exception ignored" not in terminal.text
    assert f"of {FIRST_BAD}" in resumed.stdout, resumed.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("term", "columns"), [("xterm-256color", 20), ("dumb", 80), ("", 100)], ids=["narrow", "dumb", "none"]
)
def test_o06_every_terminal_sees_the_same_answer_whatever_becomes_of_its_size(
    tool: Tool, term: str, columns: int
) -> None:
    tool.write("check.py", CHECK)
    resized = 0
    with serve(ROW) as server:
        words = ("--index-url", server.url + FOLDER, *ENDS, "--json", "result.json", "check.py")
        with Terminal(tool, *words, columns=columns, variables={"TERM": term}) as terminal:
            while terminal.read(0.01):
                resized += 1
                terminal.resize(columns + resized % 2)
            code = terminal.process.wait(LONGEST_S)
    assert code == 0, terminal.text
    assert resized >= 100
    assert json.loads((tool.folder / "result.json").read_text())["first_bad"]["date"] == FIRST_BAD
    # However narrow it is, an answer that is to be pasted is not cut into lines by us.
    assert f"The first bad nightly is {ROW[3].version} of {FIRST_BAD}." in terminal.text
    if term == "dumb":
        assert "\x1b[" not in terminal.text.replace("\x1b[?25h", "")


@pytest.mark.parametrize(
    "how", [">&-", ">&- 2>&-", "<&-", "| true", ">/dev/full", "2>/dev/full", "2>&1 >/dev/null | true"]
)
def test_o06_without_a_reader_the_answer_is_the_same(tool: Tool, how: str) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW[2:4]) as server:
        words = [
            "--index-url",
            server.url + FOLDER,
            "--good",
            "2026-08-03",
            "--no-confirm",
            "--json",
            "result.json",
        ]
        quoted = " ".join([sys.executable, "-m nightly_bisect", *words, "check.py"])
        done = subprocess.run(
            ["bash", "-c", f"set -o pipefail; {quoted} {how}"],
            cwd=tool.folder,
            env=environment(tool),
            capture_output=True,
            text=True,
            check=False,
        )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert json.loads((tool.folder / "result.json").read_text())["first_bad"]["date"] == FIRST_BAD


CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) { return access(getenv("CLOCK_JUMPED"), F_OK) ? 0 : atol(getenv("CLOCK_SHIFT_S")); }
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = ((int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime"))(clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    return result;
}
time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *to, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("shift_s", [365 * 86400, -365 * 86400], ids=["a year ahead", "a year back"])
def test_o07_a_clock_that_jumps_changes_no_time_out_and_no_answer(tool: Tool, shift_s: int) -> None:
    if sys.platform != "linux" or (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler to make a clock that jumps")
    shim = tool.folder / "clock.so"
    source = tool.write("clock.c", CLOCK)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(shim), str(source), "-ldl"], check=True)
    jumped = tool.folder / "jumped"
    # It jumps there and back at each trial, and stays so for the second half of it.
    tool.write(
        "check.py",
        "import os, time, torch\n"
        f"jumped = {str(jumped)!r}\n"
        "os.unlink(jumped) if os.path.exists(jumped) else open(jumped, 'w').close()\n"
        "if torch.value != 1: time.sleep(987)\n",
    )
    clock = {"LD_PRELOAD": str(shim), "CLOCK_JUMPED": str(jumped), "CLOCK_SHIFT_S": str(shift_s)}
    with serve(ROW) as server:
        ran = tool.bisect(server, *ENDS, "--timeout", "3", "--on-timeout", "bad", "check.py", variables=clock)
        times = [entry["at"] for entry in json.loads(tool.run("log", "it", "--json", "-").stdout)]
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == FIRST_BAD
    assert set(ran.outcomes.values()) == {"passed", "timed out"}
    assert all(0 <= trial["check_s"] < 60 and 0 <= trial["install_s"] < 300 for trial in ran.result["trials"])
    assert len({time[:4] for time in times}) == 2, "the clock did not jump"


def test_o08_the_newest_nightly_is_the_same_in_every_time_zone(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        plans = {
            (zone, end): tool.bisect(
                server, "--good", "2026-08-01", "--bad", end, "--dry-run", "check.py", variables={"TZ": zone}
            ).stderr
            for zone in ("Pacific/Kiritimati", "Etc/GMT+12", "UTC")
            for end in ("latest", "today")
        }
    assert all("5 nightlies from 2026-08-01 to 2026-08-05" in plan for plan in plans.values()), plans
    assert len({plan for (_, end), plan in plans.items() if end == "latest"}) == 1


@pytest.mark.slow
def test_o09_a_second_run_on_one_bisection_is_refused_and_the_first_not_disturbed(tool: Tool) -> None:
    reached = hang_on(tool, "20260803")
    with serve(ROW) as server:
        first = start(tool, "--index-url", server.url + FOLDER, *ENDS, "--json", "first.json", "check.py")
        try:
            wait_for(reached.exists)
            others = [
                tool.run(*words)
                for words in (("resume", "it"), ("undo", "it"), ("mark", "it", "2026-08-02", "bad"))
            ]
            same_name = tool.bisect(server, *ENDS, "check.py")
            last = tool.run("resume")
            status = tool.run("status")
            # It goes on: the sleep that its check waits for is ended.
            disarm(tool)
            before = trials(tool)
        finally:
            first.kill()
            first.wait()
        resumed = tool.run("resume", "it")
    for other in others:
        assert other.code == 7, other.stderr
        assert f"process {first.pid}" in other.stderr
    assert same_name.code in (2, 7), same_name.stderr
    assert last.code == 2, last.stderr  # what is running was not interrupted
    assert "running" in status.stdout
    assert len(before) == 2
    assert f"of {FIRST_BAD}" in resumed.stdout, resumed.stderr


def test_d09_a_journal_on_a_full_disk_keeps_what_was_committed(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "256k") as disk:
        journal = Journal(disk / "journal.sqlite")
        journal.begin(record())
        committed = 0
        with pytest.raises(StorageFault) as caught:
            while committed < 10_000:
                journal.append("it", Kind.TRIAL, observation(1, tail=("x" * 2000,)))
                committed += 1
        assert caught.value.exit_code == 7
        assert "free some disk space" in caught.value.hint
        # What reads it needs no room.
        assert len(journal.entries("it")) == committed > 10
        with closing(sqlite3.connect(journal.path)) as database:
            assert database.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
def test_d09_a_state_folder_that_fills_ends_the_run_and_it_goes_on_when_there_is_room(tool: Tool) -> None:
    with small_disk(tool.folder / "disk", "2m") as disk, serve(ROW) as server:
        filler, armed = disk / "filler", tool.write("armed", "")
        tool.write(
            "check.py",
            "import contextlib, os, torch\n"
            f"if '20260803' in torch.__version__ and os.path.exists({str(armed)!r}):\n"
            f"    with contextlib.suppress(OSError), open({str(filler)!r}, 'wb', buffering=0) as file:\n"
            "        while True: file.write(bytes(4096))\n"
            "assert torch.value == 1, f'value is {torch.value}'\n",
        )
        state = {"XDG_STATE_HOME": str(disk)}
        ran = tool.bisect(server, *ENDS, "check.py", variables=state)
        filler.unlink()
        kept = tool.run("log", "it", variables=state)
        armed.unlink()
        resumed = tool.run("resume", variables=state)
    assert ran.code == 7, ran.stderr
    assert "hint: free some disk space" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert kept.stdout.count("  trial  ") == 2, kept.stderr
    assert "2 trials are kept" in resumed.stderr
    assert f"of {FIRST_BAD}" in resumed.stdout, resumed.stderr


@pytest.mark.slow
def test_d12_an_install_that_was_killed_leaves_nothing_but_its_wheel(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    name = wheel_filename("slow", "1.0", "py3-none-any")
    wheel = Content(make_wheel("slow", "1.0", {"slow.py": ""}))
    asked = tool.folder / "asked"

    def never_answer(handler: Handler) -> None:
        asked.touch()
        handler.rfile.read(1)  # until the other side is gone

    with serve(ROW) as server:
        server.contents["/simple/slow/"] = Content(
            f'<a href="/files/{name}">{name}</a>'.encode(), "text/html"
        )
        server.contents[f"/files/{name}"] = wheel
        server.faults["/simple/slow/"] = never_answer
        words = (*ENDS, "--with", "slow", "--dependency-index", f"{server.url}/simple", "check.py")
        first = start(tool, "--index-url", server.url + FOLDER, *words)
        wait_for(asked.exists)
        family = family_of(first)
        first.kill()
        first.wait()
        wait_for(lambda: not alive(family))
        environments = tool.folder / "cache/nightly-bisect/environments"
        half_built = list(environments.iterdir())
        del server.faults["/simple/slow/"]
        ran = tool.run("resume", "it")
        gets = [path for method, path in server.requests if method == "GET" and "torch-" in path]
    assert len(half_built) == 1
    assert f"of {FIRST_BAD}" in ran.stdout, ran.stderr
    assert not list(environments.iterdir())
    assert len(gets) == len(set(gets)), "a wheel was downloaded twice"


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Return a journal of many pages, with nothing left to be done in it."""
    journal = Journal(tmp_path / "state/nightly-bisect/journal.sqlite")
    journal.begin(record())
    for number in range(60):
        journal.append(
            "it", Kind.TRIAL, observation(1 + number % 28, tail=(f"{number} " * 300,)), key=str(number)
        )
    return journal


BEGINNERS = """
import multiprocessing, sys
from pathlib import Path
from nightly_bisect.journal import Journal

def begin(barrier, folder):
    for number in range(60):
        barrier.wait(20)
        Journal(folder / str(number)).records()

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    all_at_once = fork.Barrier(6)
    processes = [fork.Process(target=begin, args=(all_at_once, Path(sys.argv[1]))) for _ in range(6)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))
"""


def test_many_processes_may_begin_a_new_journal_at_the_same_moment(tool: Tool) -> None:
    script = tool.write("beginners.py", BEGINNERS)
    done = subprocess.run(
        [sys.executable, str(script), str(tool.folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def pages_of(path: Path) -> Iterator[int]:
    yield from range(1, path.stat().st_size // 4096)


def test_d13_a_damaged_page_is_found_wherever_it_is_and_the_file_left_alone(journal: Journal) -> None:
    whole = journal.path.read_bytes()
    assert len(whole) > 30 * 4096
    missed = []
    for page in pages_of(journal.path):
        damaged = bytearray(whole)
        damaged[page * 4096 : page * 4096 + 4096] = os.urandom(16) * 256
        journal.path.write_bytes(damaged)
        with contextlib.suppress(StorageFault):
            Journal(journal.path).append("it", Kind.TRIAL, observation(2))
            missed.append(page)
        assert journal.path.read_bytes() == damaged or page in missed
    assert not missed


def test_d13_a_row_that_cannot_be_read_is_no_bug_of_ours(journal: Journal) -> None:
    with closing(sqlite3.connect(journal.path)) as database, database:
        database.execute("update entries set body = replace(body, 'passed', 'pass d') where id = 7")
    with pytest.raises(StorageFault, match="cannot be read"):
        journal.entries("it")


def test_d13_a_log_of_the_journal_that_was_cut_loses_its_end_only(tmp_path: Path) -> None:
    source, path = tmp_path / "source.sqlite", tmp_path / "journal.sqlite"
    journal = Journal(source)
    journal.begin(record())
    with closing(sqlite3.connect(source)) as reader:  # while somebody has it open the log stays
        reader.execute("select * from entries").fetchall()
        for number in range(12):
            journal.append("it", Kind.TRIAL, observation(1, commit=f"number {number}"))
        log = Path(f"{source}-wal").read_bytes()
        whole = source.read_bytes()
    read = []
    for cut in range(len(log), 0, -len(log) // 50):
        path.write_bytes(whole)
        Path(f"{path}-wal").write_bytes(log[:cut])
        commits = [entry.observation.commit for entry in Journal(path).entries("it") if entry.observation]
        assert commits == [f"number {number}" for number in range(len(commits))]
        read.append(len(commits))
    assert read[0] == 12 and read == sorted(read, reverse=True) and read[-1] == 0


@pytest.mark.parametrize("how", ["newer", "foreign", "garbage", "damaged"])
def test_d13_commands_refuse_a_journal_that_is_none_and_leave_it_as_it_is(
    tool: Tool, journal: Journal, how: str
) -> None:
    path = journal.path
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:8192] + bytes(4096) + path.read_bytes()[12288:])
    elif how == "garbage":
        path.write_bytes(b"this is no database at all, but long enough to be looked at" * 100)
    else:
        path.unlink()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("create table t (x)")
            database.execute(f"pragma user_version = {99 if how == 'newer' else 0}")
    before = path.read_bytes()
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        rans = [tool.bisect(server, *ENDS, "check.py")]
        rans += [tool.run(*words) for words in (("status",), ("resume",), ("log", "it"), ("undo", "it"))]
    for ran in rans:
        assert ran.code == 7, ran.stderr
        assert "hint: " in ran.stderr and "Traceback" not in ran.stderr
    assert path.read_bytes() == before


@pytest.mark.slow
def test_o02_what_was_confirmed_survives_a_power_cut() -> None:
    script = Path(__file__).parent.parent / "benchmarks/power_cut.py"
    done = subprocess.run(
        [sys.executable, str(script), "--cuts", "3", "--seed", "7"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 lost" in done.stdout


def test_d07_a_disk_that_is_full_when_the_package_is_imported_is_no_verdict(tool: Tool) -> None:
    disk = tool.folder / "disk"
    fill = (
        "value = 1\ntry:\n"
        f"    with open({str(disk / 'filler')!r}, 'ab', buffering=0) as file:\n"
        "        while True: file.write(bytes(4096))\n"
        "except OSError: pass\n"
    )
    row = nights(date(2026, 8, 1), 4, lambda day: fill if day >= date(2026, 8, 3) else "value = 1")
    tool.write("check.py", CHECK)
    with small_disk(disk, "60m"), serve(row) as server:
        words = ("--good", "2026-08-01", "--no-confirm", "--name", "it", "--cache-dir", str(disk))
        ran = tool.bisect(server, *words, "check.py")
    assert ran.code == 7, ran.stderr
    assert "There is no space left" in ran.stderr
    assert len(trials(tool)) == 1
