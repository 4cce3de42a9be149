"""What could pass for a verdict and must not: each was once a wrong answer of this tool."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import date

import psutil
import pytest
from loopback import (
    BAD,
    CHECK,
    FOLDER,
    GOOD,
    MANYLINUX_TAG,
    Night,
    Tool,
    bad_from,
    interruptible,
    nights,
    serve,
)

from nightly_bisect.standin.server import Content, Handler

FIRST = date(2026, 8, 1)
ROW = nights(FIRST, 9, bad_from(date(2026, 8, 7)))
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-09")

# On the nights from the 3rd to the 6th another thing goes wrong.
OTHER = "value = 3"


def row_with_another_failure() -> list[Night]:
    return [Night(n.day, OTHER if 3 <= n.day.day <= 6 else n.body) for n in ROW]


@pytest.mark.parametrize(
    "check",
    [
        # A warning that is always there, and the reason on the other stream.
        "print('usual warning', file=sys.stderr)\nprint('wrong sum' if v == 2 else 'no data') if v > 1 else 0\nsys.exit(v - 1)",
        # A traceback that was survived.
        "try: 1 / 0\nexcept ZeroDivisionError: traceback.print_exc()\n"
        "if v > 1: print('FAIL: wrong' if v == 2 else 'FAIL: no data', file=sys.stderr); sys.exit(1)",
        # Bare asserts in two places.
        "def one(): assert v != 2\ndef two(): assert v != 3\none()\ntwo()",
        # Nothing is said at all.
        "sys.exit([0, 1, 3][v - 1])",
        # The message comes before a line that is always there.
        "import atexit; atexit.register(print, 'bye', file=sys.stderr)\n"
        "sys.exit([None, 'wrong gradient', 'no data'][v - 1])",
    ],
    ids=["warning", "survived traceback", "bare asserts", "silent", "atexit"],
)
def test_another_failure_is_told_apart(tool: Tool, check: str) -> None:
    tool.write("check.py", f"import sys, torch, traceback\nv = torch.value\n{check}\n")
    with serve(row_with_another_failure()) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert [s["date"][-2:] for s in ran.result["suspects"]] == ["03", "04", "05", "06", "07"]


@pytest.mark.parametrize(
    "raised",
    ["MemoryError('x')", "OSError(28, 'No space left on device')", "RuntimeError('CUDA out of memory.')"],
)
def test_memory_or_disk_that_ran_out_is_no_verdict(tool: Tool, raised: str) -> None:
    tool.write("check.py", f"import torch\nif torch.value == 3: raise {raised}\nassert torch.value == 1\n")
    with serve(row_with_another_failure()) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert ran.outcomes["2026-08-05"] == "memory or disk exhausted"


def test_a_disk_that_fills_during_the_check_ends_the_run(tool: Tool) -> None:
    disk = tool.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small disk needs the right to mount")
    # From the 5th on the check fills the disk that the logs are on, and says a lot.
    tool.write(
        "check.py",
        "import os, sys, torch\n"
        "if int(torch.__version__[15:17]) >= 5:\n"
        "    try: open(os.path.expanduser('~/filler'), 'wb').write(bytes(10**8))\n"
        "    except OSError: pass\n"
        "    print('x' * 10**6, flush=True)\n",
    )
    try:
        with serve(nights(FIRST, 9, lambda day: GOOD)) as server:
            state = {"XDG_STATE_HOME": str(disk)}
            ran = tool.bisect(server, *ENDS, "--cache-dir", str(disk / "cache"), "check.py", variables=state)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
    assert ran.code == 7, (ran.stdout, ran.stderr)
    assert "no space left" in ran.stderr.lower()


def unlisted_row(other_python: tuple[int, ...] = ()) -> list[Night]:
    row = nights(date(2026, 5, 1), 30, bad_from(date(2026, 5, 11)), base="2.13.0", tag=MANYLINUX_TAG)
    return [
        Night(
            n.day,
            n.body,
            base="2.13.0",
            listed=n.day >= date(2026, 5, 25),
            tag="cp39-cp39-manylinux_2_28_x86_64" if n.day.day in other_python else MANYLINUX_TAG,
        )
        for n in row
    ]


def test_a_server_that_blocks_is_not_taken_for_missing_nights(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = unlisted_row()
    with serve(row) as server:
        # It blocks every HEAD after the tenth, as a rate limit does.
        def limited(handler: Handler, night: Night) -> None:
            heads = sum(method == "HEAD" for method, _ in server.requests)
            if handler.command == "HEAD" and heads > 10:
                handler.reply(403, Content(b"blocked"))
            else:
                handler._send(server.contents[night.file().path])

        server.faults |= {n.file().path: (lambda handler, n=n: limited(handler, n)) for n in row}  # type: ignore[misc]
        ran = tool.bisect(server, "--good", "2026-05-01", "check.py")
        server.faults.clear()
        again = tool.run("resume")
    assert ran.code == 5, (ran.stdout, ran.stderr)
    assert "it may be blocking requests" in ran.stderr
    assert again.code == 0, again.stderr
    assert "2026-05-11" in again.stdout


def test_an_unlisted_night_for_another_python_stays_a_suspect(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(unlisted_row(other_python=(10, 11, 12))) as server:
        ran = tool.bisect(server, "--good", "2026-05-01", "check.py")
    assert ran.code == 3, ran.stderr
    assert [s["date"][-2:] for s in ran.result["suspects"]] == ["10", "11", "12", "13"]
    assert "Python 3.9" in ran.result["suspects"][0]["reason"]


def test_a_release_whose_branch_is_not_cut_is_no_end(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        ran = tool.bisect(server, "--good", "2.16", "check.py")
    assert ran.code == 2
    assert "it is not known when the branch of that release was cut" in ran.stderr


def test_a_row_dated_in_the_future_is_left_out(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve([*ROW, Night(date(2099, 1, 1), GOOD)]) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "-v", "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-07", ran.stderr
    assert "dated in the future" in ran.stderr


def test_the_importing_before_the_check_gets_the_users_variables(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [Night(n.day, f"import os; os.environ['NEEDED']\n{n.body}") for n in ROW]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "--env", "NEEDED=1", "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-07", ran.stderr


def test_a_command_that_never_runs_is_the_checks_fault_also_when_walking_back(tool: Tool) -> None:
    with serve(ROW) as server:
        ran = tool.bisect(server, "--", "no-such-program-here")
    assert ran.code == 8, (ran.stdout, ran.stderr)
    assert len(ran.result["trials"]) == 2


def test_an_installer_that_says_the_same_twice_is_not_asked_again(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        index = f"{server.url}/empty/"
        ran = tool.bisect(
            server, *ENDS, "--with", "nowhere-to-be-found", "--dependency-index", index, "check.py"
        )
    assert ran.code in (5, 6), ran.stderr
    assert len(ran.result["trials"]) <= 2


def test_a_closed_stdout_does_not_cost_the_files(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        words = f"--index-url {server.url}{FOLDER} --good 2026-08-01 --json out.json --report r.md check.py"
        ran = subprocess.run(
            ["sh", "-c", f"{sys.executable} -m nightly_bisect {words} >&-"],
            cwd=tool.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(tool.folder), "XDG_STATE_HOME": str(tool.folder),
                 "GITHUB_API_URL": "http://127.0.0.1:9"},
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert (tool.folder / "out.json").exists()
    assert (tool.folder / "r.md").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_leaves_nothing_running(tool: Tool, number: int) -> None:
    marker = tool.folder / "started"
    tool.write("check.py", f"import time, torch\nopen({str(marker)!r}, 'w').close()\ntime.sleep(987)\n")
    with serve(ROW) as server:
        process = subprocess.Popen(
            interruptible("--index-url", server.url + FOLDER, *ENDS, "check.py"),
            cwd=tool.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(tool.folder), "XDG_STATE_HOME": str(tool.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout.splitlines()[-1].startswith("resume: nightly-bisect resume torch-")
    assert family
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert not list((tool.folder / "nightly-bisect/environments").glob("env-*"))


def test_two_runs_over_one_cache_do_not_poison_each_other(tool: Tool) -> None:
    # While this check runs, another run writes into its own copy of the same nightly.
    tool.write(
        "poison.py",
        "import torch\nopen(torch.__file__, 'a').write('value = 1\\n')\nassert torch.value == 1\n",
    )
    with serve([Night(FIRST, GOOD), Night(date(2026, 8, 2), BAD)]) as server:
        poison = f"--index-url {server.url}{FOLDER} --good 2026-08-01 {tool.folder}/poison.py"
        tool.write(
            "check.py",
            "import subprocess, sys, torch\n"
            f"subprocess.run([{sys.executable!r}, '-m', 'nightly_bisect', *{poison.split()!r}], env={dict(os.environ, XDG_CACHE_HOME=str(tool.folder / 'cache'), XDG_STATE_HOME=str(tool.folder / 'other'))!r}, cwd={str(tool.folder)!r})\n"
            "namespace = {}\n"
            "exec(open(torch.__file__).read(), namespace)\n"
            "assert namespace['value'] == 1, 'the bug'\n",
        )
        ran = tool.bisect(server, "--good", "2026-08-01", "--match", "the bug", "check.py")
    assert ran.code == 0, (ran.stdout, ran.stderr)
    assert ran.result["first_bad"]["date"] == "2026-08-02"


def test_a_signal_that_was_to_be_ignored_stays_so(tool: Tool) -> None:
    tool.write("check.py", "import os, signal, torch\nos.kill(os.getppid(), 0)\nassert torch.value == 1\n")
    with serve(ROW) as server:
        words = f"-m nightly_bisect --index-url {server.url}{FOLDER} {' '.join(ENDS)} check.py"
        shell = f"trap '' HUP; {sys.executable} {words} & sleep 2; kill -HUP $!; wait $!"
        ran = subprocess.run(
            ["sh", "-c", shell],
            cwd=tool.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(tool.folder), "XDG_STATE_HOME": str(tool.folder)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr


def test_the_nightlys_python_comes_first_whatever_path_is_asked_for(tool: Tool) -> None:
    code = "import sys, torch; assert 'env-' in sys.prefix; sys.exit(torch.value != 1)"
    with serve(ROW) as server:
        ran = tool.bisect(server, *ENDS, "--env", "PATH=/usr/bin:/bin", "--", "python", "-c", code)
    assert ran.result["first_bad"]["date"] == "2026-08-07", ran.stderr


def test_an_unlisted_end_without_a_fitting_wheel_names_a_python_that_has_one(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = unlisted_row(other_python=tuple(range(1, 25)))
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-05-01", "check.py")
    assert ran.code == 6, (ran.stdout, ran.stderr)
    assert "there is one for Python 3.9" in ran.stderr
    assert "--python 3.9" in ran.stderr


def test_a_requirements_file_cannot_name_what_is_bisected(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    tool.write("req.txt", "numpy\ntorch>=2\n")
    with serve(ROW) as server:
        ran = tool.bisect(server, *ENDS, "-r", "req.txt", "check.py")
        assert server.requests == []
    assert ran.code == 2
    assert "which is what is bisected" in ran.stderr


def test_a_result_that_could_not_be_written_is_refused_at_once(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        words = ("--index-url", server.url + FOLDER, *ENDS, "--report", "no/such/folder/r.md", "check.py")
        ran = tool.run(*words)
        assert server.requests == []
    assert ran.code == 2
    assert "cannot be written there" in ran.stderr


def test_a_file_name_that_is_no_text_does_not_cost_a_trial(tool: Tool) -> None:
    tool.write("check.py", "import torch\nif torch.value == 2: raise ValueError('name \\udcff')\n")
    with serve(ROW) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-07"


def test_an_import_that_somebody_killed_is_not_the_crash_of_the_bad_end(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    dies = "import os, signal\nos.kill(os.getpid(), signal.{})"
    row = [
        Night(n.day, dies.format("SIGSEGV" if n.day.day >= 7 else "SIGKILL") if n.day.day >= 4 else GOOD)
        for n in ROW
    ]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert [s["date"][-2:] for s in ran.result["suspects"]] == ["04", "05", "06", "07"]
    assert ran.outcomes["2026-08-05"] == "killed"
