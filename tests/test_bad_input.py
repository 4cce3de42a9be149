"""Bad input and broken surroundings: one paragraph, a hint, the right exit code, nothing lost."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import psutil
import pytest
from loopback import CHECK, FOLDER, Night, Ran, Tool, bad_from, interruptible, nights, serve

from nightly_bisect.standin.server import Content, Handler, LoopbackServer

STEP = nights(date(2026, 8, 1), 13, bad_from(date(2026, 8, 8)))


def assert_refused(ran: Ran, code: int, *said: str) -> None:
    assert ran.code == code, (ran.stdout, ran.stderr)
    assert "Traceback" not in ran.stdout + ran.stderr
    assert "hint: " in ran.stdout + ran.stderr
    for text in said:
        assert text in ran.stdout + ran.stderr, (text, ran.stderr)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--good", "soon"], 2, "--good 'soon' is not a day or a version"),
        (["--good", "2026-02-31"], 2, "there is no such day"),
        (["--good", "2126-01-01"], 2, "is in the future"),
        (["--good", "2019-01-01"], 2, "use `--good 2020-11-08`"),
        (["--good", "2026-08-09", "--bad", "2026-08-02"], 2, "--find-fix"),
        (["--good", "2026-08-05", "--bad", "2026-08-05"], 2, "There are not two nightlies"),
        (["--good", "2026-11-20", "--bad", "today"], 2, "later than the newest nightly"),
        (["--find-fix"], 2, "--find-fix needs --bad"),
        (["--find-fix", "--bad", "2026-08-09", "--good", "2026-08-02"], 2, "must be earlier"),
        (["--good", "2.6.0.dev20260803+cu999"], 2, "it has 2.6.0.dev20260803+cpu"),
        (["--package", "torhc"], 2, "did you mean torch"),
        (["--profile", "nowhere.toml"], 2, "cannot be read"),
        (["--channel", "cu126"], 5, "use `--channel cpu`"),
        (["--python", "3.9"], 6, "No nightly of torch has a wheel for Python 3.9"),
        (["--python", "three"], 2, "is not a Python version"),
        (["--platform", "win_amd64"], 2, "do not run on this machine"),
        (["--match", "("], 2, "is not a regular expression"),
        (["--with", "a b"], 2, "is not a requirement"),
        (["-r", "none.txt"], 2, "there is no such file"),
        (["--env", "NOT_SET_HERE"], 2, "it is not set here"),
        (["--name", "../x"], 2, "cannot be a name"),
        (["--report", "x.pdf"], 2, "does not end in .md"),
    ],
)
def test_a_question_that_cannot_be_is_refused(tool: Tool, words: list[str], code: int, said: str) -> None:
    tool.write("check.py", CHECK)
    ends = [] if any(w in words for w in ("--good", "--find-fix")) else ["--good", "2026-08-01"]
    with serve(STEP) as server:
        ran = tool.bisect(server, *ends, *words, "check.py")
    assert_refused(ran, code, said)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (["chekc.py"], "did you mean check.py"),
        (["folder"], "is a folder"),
        (["notes.txt"], "neither a .py file nor executable"),
        (["--", "./nothing"], "is not an executable file"),
    ],
)
def test_a_check_that_cannot_run_is_refused_before_anything_is_asked(
    tool: Tool, check: list[str], said: str
) -> None:
    tool.write("check.py", CHECK)
    tool.write("notes.txt", "")
    (tool.folder / "folder").mkdir()
    with serve(STEP) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", *check)
        assert server.requests == []
    assert_refused(ran, 8, said)


@pytest.mark.parametrize("good", ["2026-13-01", "soon", "2126-01-01"])
def test_an_end_that_is_none_is_refused_without_a_network(tool: Tool, good: str) -> None:
    tool.write("check.py", CHECK)
    ran = tool.run("--good", good, "--index-url", "http://127.0.0.1:9/", "check.py")
    assert_refused(ran, 2, "--good")
    assert ran.stdout == ""


def test_a_misspelt_command_is_recognised(tool: Tool) -> None:
    ran = tool.run("lisst")
    assert_refused(ran, 8, "did you mean the command `list`?")


def test_a_check_that_changes_itself_ends_the_run_and_keeps_what_was_tested(tool: Tool) -> None:
    tool.write("check.py", CHECK + "open(__file__, 'a').write('#')\n")
    with serve(STEP) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "check.py")
    assert_refused(ran, 8, "was changed while the bisection ran")
    assert ran.result["status"] == "failed"
    assert len(ran.result["trials"]) == 1


def test_a_python_that_is_not_here_is_said_before_anything_is_downloaded(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    # No release of Python has this number, so that nothing can be fetched for it either.
    with serve([Night(n.day, tag="py3-none-any") for n in STEP]) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "--python", "3.99", "check.py")
        assert not [path for method, path in server.requests if method == "GET" and ".whl" in path]
    assert_refused(ran, 6, "No environment can be made with that Python", "3.99")


def test_no_network_is_said(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    ran = tool.run("--good", "2026-08-01", "--index-url", "http://127.0.0.1:9/", "check.py")
    assert_refused(ran, 5, "Connection refused", "in 4 tries")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            Content(b"<html><body>Please <a href='/login'>log in</a></body></html>", "text/html"),
            "lists no dated build",
        ),
        (Content(b"", "text/html"), "holds no links"),
        (Content(b'{"message": "hello"}', "application/json"), "holds no links"),
        (Content(b"<html><body><a href='torch-2.6.0.dev2026", "text/html"), "was cut short"),
    ],
    ids=["portal", "empty", "json", "cut"],
)
def test_an_index_that_is_no_index_is_said(tool: Tool, content: Content, said: str) -> None:
    tool.write("check.py", CHECK)
    with LoopbackServer({f"{FOLDER}/torch/": content}) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "check.py")
    assert_refused(ran, 5, said)


@pytest.mark.parametrize("status", [403, 404])
def test_an_unknown_channel_names_near_ones(tool: Tool, status: int) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP, missing_status=status) as server:
        url = f"{server.url}/whl/nightly/cu131/"
        ran = tool.run("--good", "2026-08-01", "--channel", "cu131", "--index-url", url, "check.py")
    assert_refused(ran, 5, "cu130", "cu132")


def test_no_fitting_wheel_names_the_pythons_that_have_one(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [Night(n.day, tag=f"cp39-cp39-{p}") for n in STEP for p in ("linux_x86_64", "win_amd64")]
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "check.py")
        assert not [path for _, path in server.requests if path.endswith(".whl")]
    assert_refused(ran, 6, "3.9 (Linux x86_64)", "3.9 (Windows amd64)", "use `--python 3.9`")


def test_a_server_that_fails_in_the_middle_keeps_what_was_tested(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:

        def fail(handler: Handler) -> None:
            handler.reply(503, Content(b"down"))

        server.faults |= {night.file().path: fail for night in STEP[1:-1]}
        ran = tool.bisect(server, "--good", "2026-08-01", "--name", "it", "check.py")
        server.faults.clear()
        resumed = tool.run("resume")
    assert_refused(ran, 5, "503")
    assert ran.verdicts["2026-08-01"] == "good" and ran.verdicts["2026-08-13"] == "bad"
    assert ran.outcomes["2026-08-07"] == "unreachable"
    assert "reproduce: nightly-bisect --good 2026-08-01 --bad 2026-08-13" in ran.stdout
    assert ran.stdout.splitlines()[-1] == "resume: nightly-bisect resume it"
    assert resumed.code == 0, resumed.stderr
    assert "going on with it: 2 trials are kept" in resumed.stderr
    assert "2026-08-08" in resumed.stdout


def test_one_wheel_that_never_comes_is_stepped_around(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        server.faults[STEP[6].file().path] = lambda handler: handler.reply(500, Content(b"down"))
        ran = tool.bisect(server, "--good", "2026-08-01", "check.py")
    assert ran.code == 3, ran.stderr
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-07", "2026-08-08"]


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("a small disk needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("size", ["256k", "52m"])
def test_a_full_disk_is_no_verdict(tool: Tool, size: str) -> None:
    tool.write("check.py", CHECK)
    with small_disk(tool.folder / "disk", size) as disk, serve(STEP) as server:
        # Between the bounds: room for the wheel, and then the disk fills while it is installed.
        if size == "52m":
            tool.write("check.py", "import os\nopen('disk/filler', 'wb').write(os.urandom(10**8))\n")
        ran = tool.bisect(server, "--good", "2026-08-01", "--cache-dir", str(disk), "check.py")
    if size == "256k":
        assert_refused(ran, 7, "GB free")
    else:
        # The check itself filled it: it fails at the good end, which is said; or we can't go on.
        assert ran.code in (4, 7), ran.stderr
        assert 'Traceback (most recent call last):\n  File "/work' not in ran.stderr


def test_a_read_only_cache_is_said(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with small_disk(tool.folder / "disk", "60m") as disk, serve(STEP) as server:
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        ran = tool.bisect(server, "--good", "2026-08-01", "--cache-dir", str(disk), "check.py")
    assert_refused(ran, 7, "--cache-dir")


def test_ctrl_c_ends_everything_and_says_how_to_go_on(tool: Tool) -> None:
    marker = tool.folder / "started"
    tool.write(
        "check.py",
        "import os, subprocess, sys, time, torch\n"
        f"if '20260813' not in torch.__version__: sys.exit(0)\n"
        f"subprocess.Popen(['sleep', '987'], start_new_session=True)\nopen({str(marker)!r}, 'w').close()\n"
        "time.sleep(987)\n",
    )
    words = ("--good", "2026-08-01", "--json", "result.json")
    with serve(STEP) as server:
        process = subprocess.Popen(
            interruptible(*words, "--index-url", server.url + FOLDER, "check.py"),
            cwd=tool.folder,
            env={**os.environ, "XDG_CACHE_HOME": str(tool.folder), "XDG_STATE_HOME": str(tool.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert stdout.splitlines()[-1].startswith("resume: nightly-bisect resume torch-")
    assert "Traceback" not in stderr
    assert '"status": "interrupted"' in (tool.folder / "result.json").read_text()
    assert len(family) >= 2
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
