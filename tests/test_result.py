from __future__ import annotations

import json
from typing import Any

import pytest
from answers import (
    AFTER,
    BEFORE,
    NEW_COMMIT,
    NEW_MAIN,
    OLD_COMMIT,
    OLD_MAIN,
    REPOSITORY,
    found,
    ranged,
    set_up,
    stopped,
)

from nightly_bisect.model import Find
from nightly_bisect.report.answer import Answer, Build, Status
from nightly_bisect.report.result import as_json

# What DESIGN.md (section 6) promises: keys are only ever added to these.
PROMISED = {
    *("schema", "status", "find", "package", "channel", "suspects", "confidence", "compare_url"),
    *("dependency_changes", "metric", "trials", "notes", "bisection", "reproduce"),
}
SIDES = {Find.REGRESSION: ("last_good", "first_bad"), Find.FIX: ("last_bad", "first_good")}
BUILD = {"date", "version", "commit"}
TRIAL = {
    *("date", "version", "commit", "wheel_sha256", "verdict", "outcome", "reason", "samples"),
    *("install_s", "check_s"),
}


@pytest.mark.parametrize("answer", [found(), ranged(), stopped()], ids=["found", "range", "stopped"])
@pytest.mark.parametrize("find", Find)
def test_the_result_has_every_promised_key_under_the_names_of_its_direction(
    answer: Answer, find: Find
) -> None:
    answer = Answer(set_up(find=find), *[getattr(answer, name) for name in list(answer.__slots__)[1:]])
    result = as_json(answer)
    other = SIDES[Find.FIX if find is Find.REGRESSION else Find.REGRESSION]
    assert result.keys() >= PROMISED | set(SIDES[find])
    assert not result.keys() & set(other)
    assert all(trial.keys() >= TRIAL for trial in result["trials"])
    assert all(suspect.keys() >= BUILD for suspect in result["suspects"])
    assert json.loads(json.dumps(result)) == result


def test_one_suspect_is_the_first_bad_one() -> None:
    result = as_json(found())
    assert (result["schema"], result["status"], result["find"]) == (1, "found", "regression")
    assert result["last_good"] == build("2024-06-02", BEFORE, OLD_COMMIT, OLD_MAIN)
    assert result["first_bad"] == build("2024-06-03", AFTER, NEW_COMMIT, NEW_MAIN)
    assert [suspect["version"] for suspect in result["suspects"]] == [AFTER.version]
    assert result["confidence"] == 1.0
    assert result["compare_url"] == f"{REPOSITORY}/compare/{OLD_MAIN}...{NEW_MAIN}"
    assert result["metric"] is None


def build(date: str, of: Build, commit: str, main_commit: str) -> dict[str, Any]:
    return {"date": date, "version": of.version, "commit": commit, "main_commit": main_commit}


def test_several_suspects_have_no_first_bad_one() -> None:
    result = as_json(ranged())
    assert (result["status"], result["first_bad"], result["confidence"]) == ("range", None, None)
    assert [(s["date"], s["reason"]) for s in result["suspects"]] == [
        ("2024-06-03", "no solution"),
        ("2024-06-04", None),
    ]


def test_the_fix_is_the_first_good_one_after_the_last_bad_one() -> None:
    result = as_json(found(setting=set_up(find=Find.FIX)))
    assert result["find"] == "fix"
    assert (result["last_bad"]["date"], result["first_good"]["date"]) == ("2024-06-02", "2024-06-03")


@pytest.mark.parametrize("status", [s for s in Status if s not in (Status.FOUND, Status.RANGE)])
def test_without_an_answer_there_are_no_sides(status: Status) -> None:
    result = as_json(stopped(status=status))
    assert result["status"] == status.value
    assert [result[key] for key in ("last_good", "first_bad", "compare_url", "confidence")] == [None] * 4
    assert result["suspects"] == result["dependency_changes"] == result["trials"] == []


def test_a_trial_is_told_with_its_evidence() -> None:
    assert as_json(found())["trials"][1] == {
        "date": "2024-06-03",
        "version": "2.5.0.dev20240603+cpu",
        "commit": NEW_COMMIT,
        "wheel_sha256": "ab" * 32,
        "verdict": "bad",
        "outcome": "failed",
        "repeat": 0,
        "reason": "exit 1: RuntimeError: boom",
        "samples": [],
        "reference": None,
        "beside": [],
        "fingerprint": None,
        "install_s": 31.25,
        "check_s": 2.5,
        "python": "3.12.4",
        "installed": {"numpy": "2.0.0", "torch": "2.5.0.dev20240603+cpu", "triton": "3.0.0"},
        "signature": "RuntimeError: boom",
        "log": None,
        "notes": [],
    }


def test_what_else_changed_is_listed_but_not_the_package_itself() -> None:
    assert as_json(found())["dependency_changes"] == [
        {"name": "numpy", "before": "1.26.4", "after": "2.0.0"},
        {"name": "sympy", "before": "1.12", "after": None},
        {"name": "triton", "before": None, "after": "3.0.0"},
    ]


@pytest.mark.parametrize(
    ("before", "after", "repository"),
    [
        (None, NEW_MAIN, REPOSITORY),
        (OLD_MAIN, None, REPOSITORY),
        (OLD_MAIN, OLD_MAIN, REPOSITORY),
        (OLD_MAIN, NEW_MAIN, None),
    ],
)
def test_only_two_commits_of_main_can_be_compared(
    before: str | None, after: str | None, repository: str | None
) -> None:
    answer = found(
        setting=set_up(repository=repository),
        before=Build(BEFORE.nightly, OLD_COMMIT, before),
        after=Build(AFTER.nightly, NEW_COMMIT, after),
    )
    assert as_json(answer)["compare_url"] is None
