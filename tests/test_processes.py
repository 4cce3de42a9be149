"""Whatever a check does to its processes: the right ending, bounded logs, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest

from nightly_bisect.bisection.trial import read_ending
from nightly_bisect.model import Outcome
from nightly_runners.containment import Containment
from nightly_runners.contract import CannotStart, Finished
from nightly_runners.processes import HEAD_BYTES, TAIL_BYTES, works

RUN = """
import json, os, sys
from pathlib import Path
from nightly_runners import processes
processes.GRACE_S = 1.0
code, timeout_s, folder = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
f = processes.run_bounded([sys.executable, "-c", code], folder=folder,
    environment={"PATH": os.environ["PATH"], "HERE": str(folder)}, timeout_s=timeout_s, logs=folder, name="x")
left = [p.pid for p in processes._descendants()]
# Not getrusage: its peak is inherited from whoever started this process.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([f.status, f.signal, f.timed_out, f.seconds, f.dropped_bytes, left, int(peak.split()[1])]))
"""

WAYS = [how for how in Containment if how is Containment.REAPER or works(how)]


@pytest.fixture(params=WAYS, ids=[how.value for how in WAYS])
def how(request: pytest.FixtureRequest) -> Containment:
    found: Containment = request.param
    return found


def run(how: Containment, folder: Path, code: str, timeout_s: float = 60) -> tuple[Finished, list[int], int]:
    """Run code in a child of ours, so that what is left and its memory can be looked at."""
    import json

    done = subprocess.run(
        [sys.executable, "-c", RUN, textwrap.dedent(code), str(timeout_s), str(folder)],
        env={**os.environ, "NIGHTLY_BISECT_CONTAINMENT": how.value},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, number, timed_out, seconds, dropped, left, memory_kib = json.loads(done.stdout)
    finished = Finished(status, number, timed_out, seconds, folder / "x.out", folder / "x.err", dropped)
    return finished, left, memory_kib


def spawned(folder: Path) -> list[psutil.Process]:
    """Return what still runs of the sleepers that a check started: they carry the folder's name."""
    return [p for p in psutil.process_iter() if _mentions(p, str(folder))]


def _mentions(process: psutil.Process, text: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and text in " ".join(process.cmdline())
    except psutil.Error:
        return False


# A child that ignores the polite signal, in a session of its own, holding the output pipe.
DAEMON = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, '-c',
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); os.setsid(); time.sleep(987)",
    os.environ['HERE']])
"""


@pytest.mark.parametrize(
    ("code", "outcome", "reason"),
    [
        ("pass", Outcome.PASSED, "exit 0"),
        ("import sys; sys.exit(3)", Outcome.FAILED, "exit 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", Outcome.CRASHED, "SIGSEGV"),
        ("import os; os.abort()", Outcome.CRASHED, "SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Outcome.KILLED, "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", Outcome.CRASHED, "SIGSEGV"),
        (DAEMON, Outcome.PASSED, "exit 0"),
        (DAEMON + "sys.exit(5)", Outcome.FAILED, "exit 5"),
        ("import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nimport time; time.sleep(987)",
         Outcome.PASSED, "exit 0"),
    ],
    ids=["passes", "fails", "signal", "abort", "killed", "segfault", "daemon", "daemon and fails", "double fork"],
)  # fmt: skip
def test_every_ending_is_told_and_nothing_is_left(
    how: Containment, tmp_path: Path, code: str, outcome: Outcome, reason: str
) -> None:
    finished, left, _ = run(how, tmp_path, code)
    assert read_ending(finished) == (outcome, reason)
    assert left == []
    assert spawned(tmp_path) == []


@pytest.mark.parametrize(
    "code",
    [
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(987)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        DAEMON + "import time; time.sleep(987)",
        "import os, time\nfor _ in range(20): os.fork() or time.sleep(987)\ntime.sleep(987)",
    ],
    ids=["ignores the signal", "stops itself", "has a daemon", "forks"],
)
def test_a_time_out_ends_the_whole_tree(how: Containment, tmp_path: Path, code: str) -> None:
    finished, left, _ = run(how, tmp_path, code, timeout_s=1.0)
    assert read_ending(finished)[0] is Outcome.TIMED_OUT
    assert left == []
    assert spawned(tmp_path) == []


def test_a_polite_check_can_tidy_up_at_its_time_out(how: Containment, tmp_path: Path) -> None:
    code = """
    import signal, sys, time
    def tidy(*_):
        print('tidied'); sys.exit(0)
    signal.signal(signal.SIGTERM, tidy)
    time.sleep(987)
    """
    finished, _, _ = run(how, tmp_path, code, timeout_s=1.5)
    assert finished.timed_out
    assert finished.stdout.read_text() == "tidied\n"


@pytest.mark.parametrize("newline", ["\\n", ""])
def test_endless_output_costs_no_memory_and_its_ends_are_kept(
    how: Containment, tmp_path: Path, newline: str
) -> None:
    code = f"""
    import sys
    sys.stdout.buffer.write(b'first')
    block = (b'x' * 65535 + b'{newline}') * 16
    for _ in range(256): sys.stdout.buffer.write(block)
    sys.stdout.buffer.write(b'last')
    """
    finished, _, memory_kib = run(how, tmp_path, code)
    log = finished.stdout.read_bytes()
    assert read_ending(finished)[0] is Outcome.PASSED
    assert log.startswith(b"first") and log.endswith(b"last")
    assert len(log) < HEAD_BYTES + TAIL_BYTES + 100
    assert finished.dropped_bytes > 250 * 2**20
    assert b"bytes dropped" in log
    assert memory_kib < 64 * 1024


def test_bytes_that_are_no_text_are_kept_as_they_are(how: Containment, tmp_path: Path) -> None:
    finished, _, _ = run(how, tmp_path, r"import sys; sys.stdout.buffer.write(b'\xff\x00\x1b]0;x\x07')")
    assert finished.stdout.read_bytes() == b"\xff\x00\x1b]0;x\x07"


def test_what_is_not_there_cannot_start(tmp_path: Path) -> None:
    from nightly_runners.processes import run_bounded

    for program in ("no-such-program", str(tmp_path)):
        with pytest.raises(CannotStart):
            run_bounded([program], folder=tmp_path, environment={"PATH": os.environ["PATH"]},
                        timeout_s=5, logs=tmp_path, name="x")  # fmt: skip


@pytest.mark.parametrize("way", [how for how in WAYS if how is not Containment.REAPER])
def test_nothing_outlives_an_orchestrator_that_was_killed(way: Containment, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    # A daemon in a session of its own holds the pipe, and writes into it once it is there.
    daemon = f"import os, time; os.setsid(); os.write({writer}, b'x'); time.sleep(987)"
    code = (
        "import os, subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {daemon!r}, os.environ['HERE']], pass_fds=[{writer}])\n"
        "time.sleep(987)"
    )
    # The check's word that it has begun comes through a pipe that the namespace inherits.
    helper = RUN.replace("processes.run_bounded(", "processes.run_bounded(").replace(
        "import json, os, sys", f"import json, os, sys, subprocess\nos.set_inheritable({writer}, True)\n"
        "_true = subprocess.Popen\nsubprocess.Popen = lambda *a, **k: _true(*a, **{**k, 'close_fds': False})"
    )  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", helper, code, "60", str(tmp_path)],
        env={**os.environ, "NIGHTLY_BISECT_CONTAINMENT": way.value},
        pass_fds=[writer],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    process.send_signal(signal.SIGKILL)
    process.wait()
    # The pipe ends when the last process that held it is gone: no waiting for a time.
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert spawned(tmp_path) == []
