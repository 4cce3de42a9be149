from __future__ import annotations

import pytest
from answers import AFTER, NEW_MAIN, OLD_MAIN, found, ranged, set_up, stopped, trial

from nightly_bisect.model import Find, Verdict
from nightly_bisect.report.answer import Status
from nightly_bisect.report.plain import answer_lines, printable, trial_line

OLD_SHORT, NEW_SHORT = "1a2b3c4d5e", "0f9e8d7c6b"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]8;;https://evil.example\x07link", r"\x1b]8;;https://evil.example\x07link"),
        ("progress\rover", r"progress\rover"),
        ("\x00\x07\x08\x0b\x0c\x7f", r"\x00\x07\x08\x0b\x0c\x7f"),
        ("\x85\x9b31m", r"\x85\x9b31m"),
        ("abc\u202edcba\u2066", r"abc\u202edcba\u2066"),
        ("zero\u200bwidth\ufeff", r"zero\u200bwidth\ufeff"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("naïve → 中文 é", "naïve → 中文 é"),
        (r"\x1b is text", r"\x1b is text"),
    ],
)
def test_control_characters_are_shown_not_obeyed(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_nothing_of_c0_c1_is_left_but_tab_and_newline() -> None:
    left = printable("".join(map(chr, [*range(0x20), *range(0x7F, 0xA0)])))
    assert {c for c in left if not c.isprintable()} == {"\t", "\n"}


def test_a_trial_is_one_line() -> None:
    lines = [trial_line(seen, judgement) for seen, judgement in found().trials]
    assert lines == [
        "2024-06-01  2.5.0.dev20240601+cpu      -           good        exit 0  (install 30.0 s, check 2.0 s)",
        f"2024-06-03  2.5.0.dev20240603+cpu      {NEW_SHORT}  bad         exit 1: RuntimeError: boom"
        "  (install 31.2 s, check 2.5 s)",
        f"2024-06-02  2.5.0.dev20240602+cpu      {OLD_SHORT}  good        exit 0",
    ]


def test_a_trial_line_shows_what_would_move_the_cursor() -> None:
    seen, judgement = trial("b", 0, Verdict.BAD, commit="\x1b[2K\r")
    assert "\x1b" not in trial_line(seen, judgement)
    assert r"\x1b[2K\r" in trial_line(seen, judgement)


def test_an_answer_ends_with_the_command_that_reproduces_it() -> None:
    assert answer_lines(found()) == [
        "",
        "The first bad nightly is 2.5.0.dev20240603+cpu of 2024-06-03.",
        "",
        f"last good:   2024-06-02  2.5.0.dev20240602+cpu  commit {OLD_MAIN}",
        f"first bad:   2024-06-03  2.5.0.dev20240603+cpu  commit {NEW_MAIN}",
        f"compare:     https://github.com/pytorch/pytorch/compare/{OLD_MAIN}...{NEW_MAIN}",
        "changed too: numpy 1.26.4 → 2.0.0, sympy 1.12 → (none), triton (none) → 3.0.0",
        "trials:      3",
        "note:        --bad: moved",
        "",
        "reproduce: nightly-bisect --good 2024-06-01 --bad 2024-06-03 check.py",
    ]


def test_a_range_lists_its_suspects_with_what_kept_them_from_being_tested() -> None:
    lines = answer_lines(ranged())
    at = lines.index("suspects:    2 nightlies, one of which is the first bad")
    assert lines[at + 1 : at + 3] == [
        "  2024-06-03  2.5.0.dev20240603+cpu  untestable: no solution",
        f"  2024-06-04  2.5.0.dev20240604+cpu  nightly-branch commit {NEW_SHORT * 4}  bad",
    ]
    assert not any(line.startswith("first bad:") for line in lines)
    assert "hint: make the check work there too" in lines


def test_a_fix_has_a_last_bad_and_a_first_good_nightly() -> None:
    lines = answer_lines(found(setting=set_up(find=Find.FIX)))
    assert [line.partition(":")[0] for line in lines[3:5]] == ["last bad", "first good"]
    suspects = answer_lines(ranged(setting=set_up(find=Find.FIX)))
    assert any(line.endswith("  good") for line in suspects)


def test_an_answer_without_sides_is_its_sentence_hint_and_command() -> None:
    assert answer_lines(stopped()) == [
        "",
        "The bad end does not show the failure.",
        "",
        "trials:      0",
        "",
        "hint: give another",
        "",
        "reproduce: nightly-bisect --good 2024-06-01 --bad 2024-06-03 check.py",
    ]


@pytest.mark.parametrize(
    ("status", "resume", "last"),
    [
        (Status.INTERRUPTED, "nightly-bisect resume x", "resume: nightly-bisect resume x"),
        (Status.FAILED, "nightly-bisect resume x", "resume: nightly-bisect resume x"),
        (Status.FAILED, None, "reproduce: nightly-bisect --good"),
        (Status.NOT_REPRODUCED, "nightly-bisect resume x", "reproduce: nightly-bisect --good"),
    ],
)
def test_what_can_go_on_ends_with_the_command_that_resumes(
    status: Status, resume: str | None, last: str
) -> None:
    assert answer_lines(stopped(status=status, setting=set_up(resume=resume)))[-1].startswith(last)


def test_what_was_said_before_is_left_out() -> None:
    assert answer_lines(stopped(), with_sentence=False) == [
        "",
        "trials:      0",
        "",
        "reproduce: nightly-bisect --good 2024-06-01 --bad 2024-06-03 check.py",
    ]


def test_no_line_of_an_answer_obeys_control_characters() -> None:
    evil = "\x1b[31m\r\u202e"
    answer = ranged(sentence=evil, hint=evil, notes=(evil,), setting=set_up(reproduce=evil))
    assert not {"\x1b", "\r", "\u202e"} & set("".join(answer_lines(answer)))


def test_the_first_bad_of_a_range_is_not_named() -> None:
    assert ranged().first is None
    assert found().first == AFTER
