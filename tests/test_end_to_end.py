"""The real command over a loopback index: real installs, real processes, real exit codes."""

from __future__ import annotations

from datetime import date

import pytest
from loopback import (
    BAD,
    CHECK,
    GOOD,
    MANYLINUX_TAG,
    NATIVE_TAG,
    TAG,
    Night,
    Tool,
    bad_from,
    nights,
    serve,
)

from nightly_bisect.standin.pages import Era

FIRST = date(2026, 8, 1)
FIRST_BAD = date(2026, 8, 8)
STEP = nights(FIRST, 13, bad_from(FIRST_BAD))
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-13")

FAILS_OTHERWISE = "value = None"
CRASHES = "import os, signal\ndef f(): os.kill(os.getpid(), signal.SIGSEGV)"
UNIMPORTABLE = "raise ImportError('undefined symbol: sgebak_')"


def with_days(changes: dict[int, str]) -> list[Night]:
    """Return the clean step with other bodies on some days of August."""
    return [Night(n.day, changes.get(n.day.day, n.body)) for n in STEP]


def test_a_clean_step_is_found_with_few_trials_and_everything_that_proves_it(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--report", "report.md", "check.py")
    assert ran.code == 0, ran.stderr
    result = ran.result
    assert result["status"] == "found"
    assert (result["last_good"]["date"], result["first_bad"]["date"]) == ("2026-08-07", "2026-08-08")
    first = [trial for trial in result["trials"] if trial["repeat"] == 0]
    assert len(first) <= 2 + 4  # two ends and the rounded-up log2 of 12 steps
    assert [trial["date"] for trial in result["trials"] if trial["repeat"]] == ["2026-08-07", "2026-08-08"]
    assert "Both sides of the change were run once more, with the same verdicts." in result["notes"]
    for trial in result["trials"]:
        assert len(trial["commit"]) == 40
        assert len(trial["wheel_sha256"]) == 64
        assert trial["version"] == f"2.6.0.dev{trial['date'].replace('-', '')}+cpu"
    assert "AssertionError: value is 2" in ran.stderr
    assert "13 nightlies from 2026-08-01 to 2026-08-13" in ran.stderr
    assert ran.stdout.splitlines()[-1].startswith("reproduce: nightly-bisect --good 2026-08-01")
    report = (tool.folder / "report.md").read_text()
    assert report.startswith("# torch: regression 2.6.0.dev20260807 → dev20260808")
    assert "value is {torch.value}" in report


def test_the_command_to_reproduce_gives_the_same_answer(tool: Tool) -> None:
    import shlex

    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        first = tool.bisect(server, "--good", "2026-08-01", "--match", "value is 2", "check.py")
        words = shlex.split(first.result["reproduce"])[1:]
        again = tool.run("--json", "again.json", *words)
    assert again.code == 0, again.stderr
    assert '"first_bad": {\n    "date": "2026-08-08"' in (tool.folder / "again.json").read_text()


@pytest.mark.parametrize("era", list(Era))
def test_every_era_of_the_page_gives_the_same_answer(tool: Tool, era: Era) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as mirror, serve(STEP, era=era, mirror_url=mirror.url) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
        fetched = [path for method, path in server.requests if method == "GET" and ".whl" in path]
    assert ran.result["first_bad"]["date"] == "2026-08-08"
    assert bool(fetched) == (era is not Era.MIRRORED)


def test_gaps_are_stepped_over(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [night for night in STEP if night.day.day not in (1, 6, 7, 13)]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 0, ran.stderr
    assert (ran.result["last_good"]["date"], ran.result["first_bad"]["date"]) == ("2026-08-05", "2026-08-08")
    assert (
        "--good: there is no nightly of 2026-08-01; the nearest inside the range is 2026-08-02" in ran.stderr
    )
    # A later end than the newest nightly means the newest.
    assert ran.verdicts["2026-08-12"] == "bad"


def test_an_unimportable_stretch_leaves_a_range_with_the_reason_of_each(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    broken = {7: UNIMPORTABLE, 8: UNIMPORTABLE, 9: UNIMPORTABLE}
    with serve(with_days(broken)) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert ran.result["status"] == "range"
    assert ran.result["first_bad"] is None
    assert [s["date"] for s in ran.result["suspects"]] == [
        "2026-08-07",
        "2026-08-08",
        "2026-08-09",
        "2026-08-10",
    ]
    assert all("sgebak_" in s["reason"] for s in ran.result["suspects"][:-1])
    assert ran.verdicts["2026-08-06"] == "good"
    assert "first bad" in ran.stdout


def test_an_unimportable_stretch_away_from_the_step_does_not_matter(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(with_days({10: UNIMPORTABLE, 11: UNIMPORTABLE, 4: UNIMPORTABLE})) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-08"


def test_a_failing_import_is_the_regression_when_the_bad_end_shows_it(tool: Tool) -> None:
    tool.write("check.py", "import torch\n")
    row = nights(FIRST, 13, lambda day: UNIMPORTABLE if day >= FIRST_BAD else GOOD)
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-08"
    assert ran.outcomes["2026-08-08"] == "not importable"


@pytest.mark.parametrize("how", ["script", "shell"])
def test_a_crash_is_bad(tool: Tool, how: str) -> None:
    row = nights(FIRST, 13, lambda day: CRASHES if day >= FIRST_BAD else "def f(): pass")
    tool.write("check.py", "import torch\ntorch.f()\n")
    check = ["check.py"] if how == "script" else ["--", "sh", "-c", "python check.py; exit $?"]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, *check)
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr
    assert "SIGSEGV" in ran.stderr


def test_a_crash_is_untestable_when_told_so(tool: Tool) -> None:
    tool.write("check.py", "import torch\ntorch.f()\nassert torch.value == 1\n")
    good, bad = "value = 1\ndef f(): pass", "value = 2\ndef f(): pass"
    row = [Night(n.day, CRASHES if n.day.day == 8 else bad if n.day.day > 8 else good) for n in STEP]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "--on-crash", "untestable", "check.py")
    assert ran.code == 3
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-08", "2026-08-09"]


HANGS = "import time\ndef f(): time.sleep(1e9)"


def test_a_hang_is_bad_by_itself_when_only_the_bad_end_hangs(tool: Tool) -> None:
    tool.write("check.py", "import torch\ntorch.f()\n")
    row = nights(FIRST, 6, lambda day: HANGS if day >= date(2026, 8, 4) else "def f(): pass")
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "--timeout", "1.5", "check.py")
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-04"
    assert ran.outcomes["2026-08-04"] == "timed out"


def test_a_hang_elsewhere_is_untestable(tool: Tool) -> None:
    tool.write("check.py", "import torch\ntorch.f()\nassert torch.value == 1\n")
    row = [
        Night(n.day, HANGS if n.day.day == 3 else f"{n.body}\ndef f(): pass")
        for n in nights(FIRST, 5, bad_from(date(2026, 8, 4)))
    ]
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-08-01", "--timeout", "1.5", "check.py")
    assert ran.code == 3
    assert ran.outcomes["2026-08-03"] == "timed out"
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-03", "2026-08-04"]


@pytest.mark.parametrize("lie", ["built_version", "metadata_version"])
def test_a_wrong_build_is_never_a_verdict(tool: Tool, lie: str) -> None:
    tool.write("check.py", CHECK)
    wrong = Night(FIRST_BAD, BAD, **{lie: "2.6.0.dev20260101+cpu"})  # type: ignore[arg-type]
    row = [wrong if night.day == FIRST_BAD else night for night in STEP]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-08", "2026-08-09"]
    assert ran.outcomes["2026-08-08"] == "wrong build"
    assert "dev20260101" in ran.result["suspects"][0]["reason"]


def test_another_failure_first_does_not_pass_for_the_regression(tool: Tool) -> None:
    tool.write("check.py", "import torch\nassert torch.value + 1 == 2, f'value is {torch.value}'\n")
    # On three nights before the step another bug hides what the check looks at.
    masked = {5: FAILS_OTHERWISE, 6: FAILS_OTHERWISE, 7: FAILS_OTHERWISE}
    with serve(with_days(masked)) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
        loose = tool.bisect(server, *ENDS, "--any-failure", "check.py")
    assert ran.code == 3, ran.stderr
    assert [s["date"] for s in ran.result["suspects"]] == [
        "2026-08-05",
        "2026-08-06",
        "2026-08-07",
        "2026-08-08",
    ]
    assert all(s["reason"].startswith("fails otherwise: ") for s in ran.result["suspects"][:-1])
    assert "TypeError" in ran.result["suspects"][0]["reason"]
    assert loose.result["first_bad"]["date"] == "2026-08-05"


def test_bad_good_bad_names_a_transition_that_was_really_seen(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(with_days({3: BAD, 4: BAD})) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 0, ran.stderr
    last_good, first_bad = (date.fromisoformat(ran.result[k]["date"]) for k in ("last_good", "first_bad"))
    assert (first_bad - last_good).days == 1
    assert ran.verdicts[str(last_good)] == "good"
    assert ran.verdicts[str(first_bad)] == "bad"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda day: BAD, "The good end does not pass"),
        (lambda day: GOOD, "The bad end does not show the failure"),
        (lambda day: GOOD if day >= FIRST_BAD else BAD, "The ends are the other way round"),
    ],
    ids=["both bad", "both good", "swapped"],
)
def test_ends_that_do_not_behave_end_the_run(tool: Tool, body, said: str) -> None:  # type: ignore[no-untyped-def]
    tool.write("check.py", CHECK)
    with serve(nights(FIRST, 13, body)) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 4
    assert ran.result["status"] == "not-reproduced"
    assert len(ran.result["trials"]) == 2
    assert said in ran.stdout
    assert "hint: " in ran.stdout
    assert ("--find-fix" in ran.stdout) == said.startswith("The ends")


def test_find_fix_finds_the_first_good(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = nights(FIRST, 13, lambda day: GOOD if day >= FIRST_BAD else BAD)
    with serve(row) as server:
        ran = tool.bisect(server, "--find-fix", "--bad", "2026-08-01", "--good", "today", "check.py")
    assert ran.code == 0, ran.stderr
    assert (ran.result["last_bad"]["date"], ran.result["first_good"]["date"]) == (
        "2026-08-07",
        "2026-08-08",
    )
    assert "last bad:" in ran.stdout


def test_without_good_the_tool_walks_back(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        ran = tool.bisect(server, "check.py")
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-08"
    assert [t["date"][-2:] for t in ran.result["trials"]][:4] == ["13", "12", "10", "06"]


def test_days_that_are_no_longer_listed_are_asked_for_only_when_wanted(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    first = date(2026, 4, 20)
    row = [
        Night(n.day, n.body, base="2.13.0", listed=n.day >= date(2026, 6, 1), tag=MANYLINUX_TAG)
        for n in nights(first, 50, bad_from(date(2026, 5, 11)))
        if n.day not in (date(2026, 5, 9), date(2026, 5, 12))
    ]
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-04-20", "check.py")
        asked = {path for method, path in server.requests if method == "HEAD"}
        first_requests = len(server.requests)
        again = tool.bisect(server, "--good", "2026-04-20", "check.py")
        repeated = [p for m, p in server.requests[first_requests:] if m == "HEAD" and "dev20260509" in p]
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-05-11"
    assert len({path.partition(".dev")[2][:8] for path in asked}) < 20  # of 42 unlisted days
    assert "no longer listed" in ran.stderr
    assert again.result["first_bad"]["date"] == "2026-05-11"
    assert not repeated, "an absent day is remembered"


def test_a_base_version_may_change_inside_the_range(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    bump, listed = date(2026, 6, 12), date(2026, 6, 15)
    row = [
        Night(
            n.day,
            n.body,
            base="2.14.0" if n.day >= bump else "2.13.0",
            listed=n.day >= listed,
            tag=MANYLINUX_TAG,
        )
        for n in nights(date(2026, 6, 5), 20, bad_from(bump))
    ]
    with serve(row) as server:
        ran = tool.bisect(server, "--good", "2026-06-05", "--report", "r.md", "check.py")
    assert ran.result["last_good"]["version"] == "2.13.0.dev20260611+cpu", ran.stderr
    assert ran.result["first_bad"]["version"] == "2.14.0.dev20260612+cpu"
    assert "2.13.0.dev20260611 → 2.14.0.dev20260612" in (tool.folder / "r.md").read_text()


def test_a_nightly_for_another_python_only_is_a_suspect_and_costs_no_trial(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [
        Night(n.day, n.body, tag="cp39-cp39-linux_x86_64" if n.day.day in (8, 9) else NATIVE_TAG)
        for n in STEP
    ]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-08", "2026-08-09", "2026-08-10"]
    assert "3.9 (Linux x86_64)" in ran.result["suspects"][0]["reason"]
    assert not {"2026-08-08", "2026-08-09"} & set(ran.verdicts)


@pytest.mark.parametrize("status", [126, 127])
def test_a_check_that_cannot_be_run_even_at_the_good_end_is_no_regression(tool: Tool, status: int) -> None:
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--", "sh", "-c", f"exit {status}")
    assert ran.code == 8
    assert len(ran.result["trials"]) == 1
    assert "hint: " in ran.stderr


def test_exit_127_that_begins_with_a_nightly_is_bad(tool: Tool) -> None:
    tool.write("check.py", "import sys, torch\nsys.exit(0 if torch.value == 1 else 127)\n")
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-08"


def test_exit_125_skips(tool: Tool) -> None:
    tool.write(
        "check.py",
        "import sys, torch\nif '20260808' in torch.__version__: sys.exit(125)\nassert torch.value == 1\n",
    )
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-08", "2026-08-09"]
    assert ran.outcomes["2026-08-08"] == "skipped"


def test_arguments_after_the_check_are_its_own(tool: Tool) -> None:
    tool.write(
        "check.py",
        "import sys, torch\n"
        "assert sys.argv[1:] == ['--good', 'x', '--', '-k', 'a b'], sys.argv\n"
        "sys.exit(torch.value - 1)\n",
    )
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "check.py", "--good", "x", "--", "-k", "a b")
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr


def test_a_command_gets_the_python_of_the_environment(tool: Tool) -> None:
    code = "import sys, torch; assert 'env-' in sys.prefix; sys.exit(torch.value != 1)"
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--", "python", "-c", code)
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr


def test_the_check_runs_where_the_user_stands_with_a_bare_environment(tool: Tool) -> None:
    tool.write("data.txt", "1")
    tool.write(
        "check.py",
        "import os, torch\n"
        "assert open('data.txt').read() == '1'\n"
        "assert 'SECRET' not in os.environ and 'UV_INDEX_URL' not in os.environ\n"
        "assert os.environ['ASKED'] == 'yes' and os.environ['SET'] == 'a=b'\n"
        "assert os.environ['HOME'].endswith('home') and os.listdir(os.environ['HOME']) == []\n"
        "open(os.path.expanduser('~/left'), 'w').close()\n"
        "assert torch.value == 1, 'the bug'\n",
    )
    with serve(STEP) as server:
        ran = tool.bisect(
            server,
            *ENDS,
            *("--env", "ASKED", "--env", "SET=a=b", "--match", "the bug"),
            "check.py",
            variables={"SECRET": "s", "UV_INDEX_URL": "http://127.0.0.1:9", "ASKED": "yes"},
        )
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr


def test_a_package_of_the_same_name_in_the_users_folder_is_found_out(tool: Tool) -> None:
    (tool.folder / "torch").mkdir()
    tool.write("torch/__init__.py", "value = 1\n")
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 8
    assert f"The check imported torch from {tool.folder}" in ran.stderr
    assert "run it from a folder without a torch of its own" in ran.stderr


def test_a_check_that_never_imports_the_package_is_pointed_out(tool: Tool) -> None:
    code = "from importlib.metadata import version; import sys; sys.exit('202608' + '08' <= version('torch')[9:17])"
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--", "python", "-c", code)
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr
    assert "the check never imported torch" in ran.result["notes"]


def test_a_check_that_writes_into_installed_files_does_not_poison_later_trials(tool: Tool) -> None:
    from nightly_bisect.standin.wheels import make_wheel

    (tool.folder / "wheels").mkdir()
    helper = tool.folder / "wheels/helper-1.0-py3-none-any.whl"
    helper.write_bytes(make_wheel("helper", "1.0", {"helper.py": "state = 'clean'\n"}))
    # It damages a dependency that all environments share with the installer's cache.
    tool.write(
        "check.py",
        "import helper, torch\n"
        "assert helper.state == 'clean', 'poisoned'\n"
        "open(helper.__file__, 'a').write('state = 1\\n')\n"
        "assert torch.value == 1, f'value is {torch.value}'\n",
    )
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--with", f"helper @ {helper.as_uri()}", "check.py")
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-08"
    assert "poisoned" not in ran.stderr


def test_no_sdist_is_ever_built_and_no_poisoned_index_is_asked(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    (tool.folder / "home/.config/uv").mkdir(parents=True)
    with serve([]) as poison, serve(STEP) as server:
        tool.write("home/.config/uv/uv.toml", f'index-url = "{poison.url}/simple"\n')
        tool.write("uv.toml", f'index-url = "{poison.url}/simple"\n')
        tool.write("home/pip.conf", f"[global]\nindex-url = {poison.url}/simple\n")
        poisoned = {
            f"{tool_name}_{name}": f"{poison.url}/simple"
            for tool_name in ("PIP", "UV")
            for name in ("INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "DEFAULT_INDEX")
        }
        ran = tool.bisect(
            server,
            *ENDS,
            "check.py",
            variables={**poisoned, "PIP_CONFIG_FILE": str(tool.folder / "home/pip.conf")},
        )
        hits = list(poison.requests)
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr
    assert hits == []


def test_the_plan_alone_installs_nothing(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        ran = tool.bisect(server, *ENDS, "--dry-run", "check.py")
        downloads = [path for method, path in server.requests if method == "GET" and ".whl" in path]
    assert ran.code == 0
    assert not downloads
    assert "at most 6 trials" in ran.stderr
    assert "kB to download" in ran.stderr


def test_options_may_stand_in_a_file_and_the_command_line_wins(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(STEP) as server:
        tool.write(
            "nightly-bisect.toml",
            f'good = "2026-08-01"\nbad = "2026-08-05"\nindex-url = "{server.url}/whl/nightly/cpu"\n',
        )
        ran = tool.run("--bad", "2026-08-13", "--json", "result.json", "check.py")
    assert ran.code == 0, ran.stderr
    assert "2026-08-08" in ran.stdout


def test_the_demo_finds_its_regression(tool: Tool) -> None:
    ran = tool.run("demo", "--json", "result.json")
    assert ran.code == 0, ran.stderr
    assert "The first bad nightly is 2.4.0.dev20240603+cpu of 2024-06-03." in ran.stdout
    assert "/compare/" in ran.stdout
    assert "stand-in" in ran.stderr


def test_another_python_makes_the_trials(tool: Tool, other_python: str) -> None:
    tool.write(
        "check.py", f"import sys, torch\nassert '%d.%d' % sys.version_info[:2] == '{other_python}'\n" + CHECK
    )
    tag = f"cp{other_python.replace('.', '')}"
    row = [Night(n.day, n.body, tag=f"{tag}-{tag}-linux_x86_64") for n in STEP]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "--python", other_python, "check.py")
        without = tool.bisect(server, *ENDS, "check.py")
    assert ran.result["first_bad"]["date"] == "2026-08-08", ran.stderr
    assert without.code == 6
    assert f"--python {other_python}" in without.stderr
    assert TAG not in without.stderr
