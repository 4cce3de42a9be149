"""The journal: nothing that was observed is lost, and everything follows from it again."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loopback import CHECK, FOLDER, MANYLINUX_TAG, Tool, bad_from, nights, serve

from nightly_bisect.errors import StorageFault, UsageError
from nightly_bisect.journal import Entry, Journal, Kind, Record, effective
from nightly_bisect.model import (
    Installed,
    Nightly,
    Observation,
    Outcome,
    Signature,
    Stamp,
    UnlistedDay,
    Verdict,
    Wheel,
)

NOW = datetime(2026, 12, 1, tzinfo=UTC)
ROW = nights(date(2026, 8, 1), 13, bad_from(date(2026, 8, 8)))
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-13")


def nightly(day: int, sha256: str | None = None) -> Nightly:
    version = f"2.6.0.dev202608{day:02}+cpu"
    url = f"https://download.pytorch.org/torch-{version}.whl"
    return Nightly(Stamp(date(2026, 8, day)), version, Wheel(f"torch-{version}.whl", url, sha256, 7))


def observation(day: int = 1, **more: Any) -> Observation:
    return Observation(nightly(day), Outcome.PASSED, "exit 0", **more)


def record(name: str = "it", **more: Any) -> Record:
    slots = (
        nightly(1),
        UnlistedDay(Stamp(date(2026, 8, 2), 4)),
        Nightly(Stamp(date(2026, 8, 3)), "x", None, ("3.9",)),
    )
    values: dict[str, Any] = {
        "name": name, "began_at": NOW, "arguments": {"good": "2026-08-01", "check": ["check.py"]},
        "folder": Path("/somewhere"), "check_sha256": "ab", "slots": slots, "walk_back": False, "notes": ("a note",),
    }  # fmt: skip
    return Record(**{**values, **more})


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "state" / "journal.sqlite")


def test_a_bisection_comes_back_as_it_began(journal: Journal) -> None:
    journal.begin(record())
    journal.begin(record("other", walk_back=True, began_at=datetime(2026, 11, 1, tzinfo=UTC)))
    assert journal.record("it") == record()
    assert [r.name for r in journal.records()] == ["other", "it"]


def test_a_name_is_taken_once(journal: Journal) -> None:
    journal.begin(record())
    with pytest.raises(UsageError, match="named it already"):
        journal.begin(record())
    with pytest.raises(UsageError, match="no bisection named that"):
        journal.record("that")


texts = st.text(max_size=20).filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
observations = st.builds(
    Observation,
    nightly=st.sampled_from([nightly(1), nightly(2, "cd"), Nightly(Stamp(date(2026, 8, 3)), "y", None)]),
    outcome=st.sampled_from(Outcome),
    reason=texts,
    signature=st.none() | st.builds(Signature, texts, texts),
    status=st.none() | st.integers(0, 255),
    tail=st.lists(texts, max_size=3).map(tuple),
    matched=st.none() | st.booleans(),
    commit=st.none() | texts,
    wheel_sha256=st.none() | texts,
    installed=st.lists(st.builds(Installed, texts, texts), max_size=2).map(tuple),
    install_s=st.none() | st.floats(0, 1e6),
    log=st.none() | st.just(Path("/x/y")),
    notes=st.lists(texts, max_size=2).map(tuple),
    marked=st.none() | st.sampled_from(Verdict),
)


@settings(max_examples=30, derandomize=True, deadline=None)
@given(st.lists(observations, max_size=4))
def test_every_observation_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, seen: list[Observation]
) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "j.sqlite")
    journal.begin(record())
    for one in seen:
        journal.append("it", Kind.TRIAL, one)
    assert [entry.observation for entry in journal.entries("it")] == seen


def test_an_undo_takes_the_last_back_and_a_later_word_replaces_an_earlier_one() -> None:
    def entry(kind: Kind, seen: Observation | None = None) -> Entry:
        return Entry(kind, NOW, seen)

    one, two, again = observation(1), observation(2), observation(1, commit="other")
    trial, mark, undo = Kind.TRIAL, Kind.MARK, Kind.UNDO
    assert effective([entry(trial, one), entry(trial, two), entry(undo)]) == [one]
    assert effective([entry(trial, one), entry(mark, again)]) == [again]
    assert effective([entry(trial, one), entry(mark, again), entry(undo)]) == [one]
    assert effective([entry(undo), entry(trial, one), entry(undo), entry(undo)]) == []


def test_earlier_trials_are_found_by_their_key_and_other_bytes_by_their_url(journal: Journal) -> None:
    journal.begin(record())
    seen = observation(1, wheel_sha256="aa")
    journal.append("it", Kind.TRIAL, seen, key="k")
    assert journal.earlier("k", 0, but="other") == ("it", seen)
    assert journal.earlier("l", 0, but="other") is None
    assert journal.earlier("k", 0, but="it") is None
    assert seen.nightly.wheel is not None
    assert journal.other_bytes(seen.nightly.wheel.url, "bb") == "aa"
    assert journal.other_bytes(seen.nightly.wheel.url, "aa") is None


@pytest.mark.parametrize("how", ["newer", "foreign", "garbage", "cut"])
def test_a_file_that_is_no_journal_of_ours_is_left_as_it_is(journal: Journal, how: str) -> None:
    journal.begin(record())
    if how in ("newer", "foreign"):
        journal.path.unlink()
        with sqlite3.connect(journal.path) as database:
            database.execute("create table t (x)")
            database.execute(f"pragma user_version = {99 if how == 'newer' else 0}")
        database.close()
    elif how == "garbage":
        journal.path.write_bytes(b"this is no database at all, but long enough to be looked at" * 100)
    else:
        content = journal.path.read_bytes()
        journal.path.write_bytes(content[: len(content) // 2])
    before = journal.path.read_bytes()
    with pytest.raises(StorageFault):
        journal.records()
    assert journal.path.read_bytes() == before


def test_commits_are_synchronous(journal: Journal) -> None:
    # The setting that a power cut tests; SIGKILL alone can never show it.
    with journal._open() as database:
        assert database.execute("pragma synchronous").fetchone() == (2,)
        assert database.execute("pragma journal_mode").fetchone() == ("wal",)


def kill_in_the_middle(tool: Tool, url: str, after: int) -> None:
    """Start a bisection and kill it without warning while its n-th check runs."""
    tool.write(
        "check.py",
        "import os, time, torch\n"
        f"count = len(open({str(tool.folder / 'runs')!r}, 'a+').write('x') and open({str(tool.folder / 'runs')!r}).read())\n"
        f"if os.path.exists({str(tool.folder / 'armed')!r}) and count > {after}:\n"
        f"    open({str(tool.folder / 'reached')!r}, 'w').close(); time.sleep(987)\n"
        "assert torch.value == 1, f'value is {torch.value}'\n",
    )
    (tool.folder / "armed").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "nightly_bisect", "--index-url", url + FOLDER, *ENDS, "--name", "night", "check.py"],
        cwd=tool.folder,
        env={**os.environ, "XDG_CACHE_HOME": str(tool.folder / "cache"), "XDG_STATE_HOME": str(tool.folder / "state"),
             "HOME": str(tool.folder / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tool.folder / "reached").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (tool.folder / "armed").unlink()


@pytest.mark.parametrize("after", [1, 3])
def test_a_killed_bisection_goes_on_with_nothing_tested_twice(tool: Tool, after: int) -> None:
    with serve(ROW) as server:
        kill_in_the_middle(tool, server.url, after)
        status = tool.run("status")
        resumed = tool.run("resume")
        log = tool.run("log", "night", "--json", "-")
        replayed = tool.run("replay", "night", "--json", "-")
    assert f"{after} trials  interrupted" in status.stdout, status.stdout
    assert f"going on with night: {after} trials are kept" in resumed.stderr
    assert resumed.code == 0, resumed.stderr
    assert "The first bad nightly is 2.6.0.dev20260808+cpu" in resumed.stdout
    entries = json.loads(log.stdout)
    seen = [entry["observation"] for entry in entries if entry["observation"]]
    runs = [(observation["nightly"]["version"], observation["repeat"]) for observation in seen]
    assert len(runs) == len(set(runs))
    assert len([repeat for _, repeat in runs if repeat == 0]) <= 6
    assert len([repeat for _, repeat in runs if repeat == 1]) == 2
    assert json.loads(replayed.stdout)["first_bad"]["date"] == "2026-08-08"
    assert "first bad nightly" in tool.run("status").stdout


def test_a_verdict_can_be_taken_back_and_given_by_hand(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        tool.bisect(server, *ENDS, "--name", "it", "check.py")
        undone = tool.run("undo", "it")
        unfinished = tool.run("replay", "it")
        marked = tool.run("mark", "it", "2026-08-07", "bad")
        resumed = tool.run("resume", "it")
        log = tool.run("log", "it")
        nobody = tool.run("mark", "it", "2026-09-07", "bad")
    assert "taken back: 2026-08-0" in undone.stdout
    assert unfinished.code == 2
    assert "is not finished" in unfinished.stderr
    assert marked.code == 0, marked.stderr
    # Marked bad, the 7th moves the answer: the user knows better.
    assert "first bad nightly is 2.6.0.dev20260807" in resumed.stdout, resumed.stdout
    assert "undo" in log.stdout and "marked bad by hand" in log.stdout
    assert nobody.code == 2


def test_the_same_check_over_the_same_wheels_is_not_run_again(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        first = tool.bisect(server, *ENDS, "--name", "first", "check.py")
        again = tool.bisect(server, *ENDS, "--name", "second", "check.py")
        fresh = tool.bisect(server, *ENDS, "--fresh", "check.py")
        other = tool.bisect(server, *ENDS, "check.py", "argument")
    assert "verdict taken from the bisection first (--fresh tests anew)" in again.result["notes"]
    assert again.result["first_bad"] == first.result["first_bad"]
    for ran in (fresh, other):
        assert not any("verdict taken" in note for note in ran.result["notes"])
        assert ran.result["first_bad"] == first.result["first_bad"]


def test_other_bytes_under_the_same_name_are_a_new_build(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        tool.bisect(server, *ENDS, "check.py")
    # The whole index was built again, with the change a day earlier.
    with serve(nights(date(2026, 8, 1), 13, bad_from(date(2026, 8, 7)))) as rebuilt:
        ran = tool.bisect(rebuilt, *ENDS, "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-07", ran.stderr


def test_a_check_that_was_changed_does_not_go_on(tool: Tool) -> None:
    with serve(ROW) as server:
        kill_in_the_middle(tool, server.url, 1)
        tool.write("check.py", CHECK)
        ran = tool.run("resume", "night")
    assert ran.code == 8
    assert "is not what it was" in ran.stderr


def test_a_bisection_is_worked_on_by_one_process(tool: Tool) -> None:
    import filelock

    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        tool.bisect(server, *ENDS, "--name", "it", "check.py")
        folder = tool.folder / "state/nightly-bisect/bisections/it"
        (folder / "holder").write_text("4711")
        with filelock.FileLock(folder / "lock"):
            ran = tool.run("resume", "it")
            status = tool.run("status")
    assert ran.code == 7
    assert "process 4711" in ran.stderr
    assert "running" in status.stdout


def test_what_was_asked_is_part_of_the_journal(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = nights(date(2026, 5, 1), 30, bad_from(date(2026, 5, 11)), base="2.13.0", tag=MANYLINUX_TAG)
    gone = (date(2026, 5, 10), date(2026, 5, 12))
    row = [replace(n, listed=n.day >= date(2026, 5, 25)) for n in row if n.day not in gone]
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-05-01", "--name", "it", "check.py")
    # The server is gone: everything follows from what was written down.
    replayed = tool.run("replay", "it", "--json", "-")
    status = tool.run("status")
    assert ran.result["first_bad"]["date"] == "2026-05-11", ran.stderr
    assert replayed.code == 0, replayed.stderr
    assert json.loads(replayed.stdout)["first_bad"]["date"] == "2026-05-11"
    assert "first bad nightly is" in status.stdout
    assert "asked  2026-05-10  no nightly" in tool.run("log", "it").stdout


def test_an_undone_trial_is_run_again_and_not_taken_from_the_journal(tool: Tool) -> None:
    tool.write(
        "check.py",
        f"import torch\nopen({str(tool.folder / 'runs')!r}, 'a').write('x')\nassert torch.value == 1\n",
    )
    with serve(ROW) as server:
        tool.bisect(server, *ENDS, "--name", "it", "check.py")
        before = len((tool.folder / "runs").read_text())
        tool.run("undo", "it")
        resumed = tool.run("resume", "it")
    assert resumed.code == 0, resumed.stderr
    assert len((tool.folder / "runs").read_text()) == before + 1


def test_a_verdict_is_not_reused_when_a_module_beside_the_check_changed(tool: Tool) -> None:
    tool.write("helper.py", "wrong = 2\n")
    tool.write("check.py", "import torch, helper\nassert torch.value != helper.wrong\n")
    with serve(ROW) as server:
        tool.bisect(server, *ENDS, "check.py")
        tool.write("helper.py", "wrong = 2  # edited\n")
        again = tool.bisect(server, *ENDS, "check.py")
    assert not any("verdict taken" in note for note in again.result["notes"])
