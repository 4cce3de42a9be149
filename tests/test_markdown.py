from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from answers import AFTER, BEFORE, NEW_MAIN, OLD_MAIN, found, ranged, set_up, stopped
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from rows import nightly

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Find, Installed, Verdict
from nightly_bisect.report.answer import Answer, Build, Suspect
from nightly_bisect.report.markdown import LONGEST, as_markdown, title
from nightly_bisect.report.plain import printable

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
DETAILS = ["<details><summary>The check, check.py</summary>\n", "</details>\n"]
COMPARE = f"https://github.com/pytorch/pytorch/compare/{OLD_MAIN}...{NEW_MAIN}"
# What GitHub makes of plain text: mentions, references to issues, links, addresses.
ALIVE = re.compile(r"@\w|#\d|https?://|www\.")

EVIL = [
    "`", "``` `` ````", "```\n# out\n", "~~~", "a | b \\| c \\\\|", "\\", "\\`", "@octocat and @org/team", "see #1",
    "GH-1 org/repo#1", "https://evil.example www.evil.example a@evil.example", "[x](https://evil.example)",
    "![x](https://evil.example/x.png)", "<https://evil.example>", "[x]: https://evil.example", "<img src=x>",
    "<script>alert(1)</script>", "</details><b>", "<!--", "&commat;octocat &#64;octocat &lt;b&gt;", "**b** _i_ ~~s~~",
    "line\n\n# heading\n\n- item\n\n> quote", "a\r\n\r\n---\r\n", "\x1b[31mred\x07\x00", "\u202eesrever\u2066", "\ttab",
    "|---|\n|---|",
]  # fmt: skip


def tokens(answer: Answer) -> Iterator[Token]:
    for token in READER.parse(as_markdown(answer)):
        yield token
        yield from token.children or ()


def shape(answer: Answer) -> list[str]:
    """Return what a report is made of, in order: no text in it may change that."""
    return [token.type for token in tokens(answer)]


def living(answer: Answer) -> list[str]:
    """Return the texts outside code that GitHub would make something of."""
    return [token.content for token in tokens(answer) if token.type == "text" and ALIVE.search(token.content)]


def html(answer: Answer) -> list[str]:
    return [token.content for token in tokens(answer) if token.type.startswith("html")]


def in_code(answer: Answer) -> list[str]:
    return [token.content for token in tokens(answer) if token.type in ("code_inline", "fence")]


def everywhere(text: str) -> Answer:
    """Return an answer with a text that is not ours wherever it stands in code."""
    answer = ranged()
    seen, _ = answer.trials[2]
    hostile = replace(seen, nightly=replace(nightly(2), version=text), commit=text, wheel_sha256=text)
    installed = replace(answer.trials[0][0], installed=(Installed(text, text),))
    return replace(
        answer,
        suspects=(Suspect(Build(replace(nightly(2), version=text), text), text), *answer.suspects[1:]),
        trials=(
            (installed, answer.trials[0][1]),
            answer.trials[1],
            (hostile, Judgement(Verdict.UNTESTABLE, text)),
        ),
        setting=set_up(check_text=text, reproduce=text, environment=(("system", text),)),
    )


def test_a_report_reads_as_a_whole() -> None:
    assert as_markdown(found()).splitlines() == [
        "# torch: regression 2.5.0.dev20240602 → dev20240603",
        "",
        "The first bad nightly is 2.5.0.dev20240603+cpu of 2024-06-03.",
        "",
        f"- last good: 2024-06-02 `2.5.0.dev20240602+cpu`, commit `{OLD_MAIN}`",
        f"- first bad: 2024-06-03 `2.5.0.dev20240603+cpu`, commit `{NEW_MAIN}`",
        f"- commits: {COMPARE}",
        "- changed too: `numpy 1.26.4 → 2.0.0`",
        "- changed too: `sympy 1.12 → (none)`",
        "- changed too: `triton (none) → 3.0.0`",
        "",
        "- --bad: moved",
        "",
        "### Trials",
        "",
        "| date | version | commit | verdict | what happened | install | check | wheel sha256 |",
        "|---|---|---|---|---|---|---|---|",
        "| 2024-06-01 | `2.5.0.dev20240601+cpu` |  | good | `exit 0` | 30.0 s | 2.0 s |  |",
        "| 2024-06-03 | `2.5.0.dev20240603+cpu` | `0f9e8d7c6b` | bad | `exit 1: RuntimeError: boom` "
        "| 31.2 s | 2.5 s | `abababababababab` |",
        "| 2024-06-02 | `2.5.0.dev20240602+cpu` | `1a2b3c4d5e` | good | `exit 0` |  |  |  |",
        "",
        "### Environment",
        "",
        "```",
        "nightly-bisect: 0.1.0",
        "channel: cpu",
        "```",
        "",
        "<details><summary>The check, check.py</summary>",
        "",
        "```python",
        "import torch",
        "assert torch.ones(1) > 0",
        "```",
        "",
        "</details>",
        "",
        "### Reproduce",
        "",
        "```sh",
        "nightly-bisect --good 2024-06-01 --bad 2024-06-03 check.py",
        "```",
    ]


@pytest.mark.parametrize(
    ("old", "new", "end"),
    [
        ("2.5.0.dev20240602+cpu", "2.5.0.dev20240603+cpu", "2.5.0.dev20240602 → dev20240603"),
        ("2.5.0.dev20240602", "2.5.0.dev20240603", "2.5.0.dev20240602 → dev20240603"),
        ("2.4.0.dev20240612+cpu", "2.5.0.dev20240613+cpu", "2.4.0.dev20240612 → 2.5.0.dev20240613"),
        ("2.4.1", "2.5.0", "2.4.1 → 2.5.0"),
        ("2.4.0", "2.5.0.dev20240613+cpu", "2.4.0 → 2.5.0.dev20240613"),
    ],
)
@pytest.mark.parametrize("find", Find)
def test_the_title_is_an_arrow_between_the_two_sides(find: Find, old: str, new: str, end: str) -> None:
    before, after = (Build(replace(nightly(1), version=version)) for version in (old, new))
    answer = Answer(set_up(find=find), found().status, 0, "", None, before, after)
    assert title(answer) == f"torch: {find.value} {end}"


def test_without_an_answer_the_title_says_so() -> None:
    assert title(stopped()) == "torch: regression not found"
    assert title(stopped(setting=set_up(find=Find.FIX, package="tensordict"))) == "tensordict: fix not found"


def test_a_range_lists_its_suspects_under_the_side_that_they_may_be() -> None:
    text = as_markdown(ranged())
    assert (
        "- first bad: one of these 2\n"
        "  - 2024-06-03 `2.5.0.dev20240603+cpu`: untestable, `no solution`\n"
        "  - 2024-06-04 `2.5.0.dev20240604+cpu`, nightly-branch commit `"
    ) in text
    assert "- last bad: " in as_markdown(ranged(setting=set_up(find=Find.FIX)))
    assert "- first good: one of these 2" in as_markdown(ranged(setting=set_up(find=Find.FIX)))


def test_the_only_link_is_to_the_commits() -> None:
    assert living(found()) == [f"commits: {COMPARE}"]
    assert living(ranged()) == []


@pytest.mark.parametrize("text", EVIL)
def test_what_is_not_ours_can_do_nothing(text: str) -> None:
    answer = everywhere(text)
    assert shape(answer) == shape(everywhere("harmless"))
    assert (living(answer), html(answer)) == ([], DETAILS)


@settings(max_examples=150, derandomize=True, deadline=None)
@example("`|`")
@example("\\|`` ` |")
@given(st.text("`|*_~#<>[]()!&@\\\n\r\t -+=1.:;/ax\u202e\x1b", max_size=40).filter(str.strip))
def test_no_text_breaks_out_of_its_code(text: str) -> None:
    answer = everywhere(text)
    assert shape(answer) == shape(everywhere("harmless"))
    shown = in_code(answer)
    line = " ".join(printable(text).split())
    body = printable(text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")) + "\n"
    assert shown.count(line) >= 5, "whole in the row of its trial and among the suspects"
    assert shown[-2:] == [body or "\n"] * 2, "the check and the command stand there as they are"


@pytest.mark.parametrize("text", EVIL)
def test_inside_our_sentences_it_is_only_text(text: str) -> None:
    plain, answer = (ranged(sentence=f"It said {t}", notes=(f"note: {t}", "2")) for t in ("harmless", text))
    assert shape(answer) == shape(plain)
    assert (living(answer), html(answer)) == ([], DETAILS)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.text("`|*_<>[]()!&@\\\n\t -+=1.:;ax", max_size=40))
def test_no_text_breaks_out_of_our_sentences(text: str) -> None:
    answer = ranged(sentence=f"It said {text}.", notes=(f"note: {text}.", "2"))
    assert shape(answer) == shape(ranged(sentence="It said.", notes=("note", "2")))
    assert living(answer) == []


@pytest.mark.parametrize(
    "name", ["<img src=x>.py", "</summary></details>.py", "a&lt;b.py", "`x`.py", "**b**"]
)
def test_the_checks_name_is_only_text_in_the_summary(name: str) -> None:
    opening, closing = html(found(setting=set_up(check_name=name)))
    written = name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert opening == f"<details><summary>The check, {written}</summary>\n"
    assert closing == DETAILS[1]


def test_a_command_has_no_text_to_show() -> None:
    assert html(found(setting=set_up(check_text=None))) == []
    assert "```python" not in as_markdown(found(setting=set_up(check_text="x", check_name="check")))


# The notice that something was left out comes on top of LONGEST; GitHub's limit leaves room for it.
@pytest.mark.parametrize(
    "answer",
    [
        found(setting=set_up(check_text="x = 1\n" * 100_000)),
        found(setting=set_up(check_text="`" * 100_000)),
        found(setting=set_up(check_text="\x1b" * 100_000)),
        found(trials=found().trials + found().trials[:1] * 5_000),
        found(notes=("word " * 50_000,)),
        ranged(suspects=tuple(Suspect(AFTER, "r" * 400) for _ in range(500))),
    ],
    ids=["check", "backticks", "controls", "trials", "note", "suspects"],
)
def test_a_report_always_fits_into_an_issue(answer: Answer) -> None:
    text = as_markdown(answer)
    assert len(text) <= LONGEST + 100 <= 65_536
    assert text.startswith(f"# {title(answer)}\n\n{answer.sentence[:9]}")


def test_a_long_check_is_cut_and_says_so() -> None:
    text = as_markdown(found(setting=set_up(check_text="x = 1\n" * 100_000)))
    assert "\n… (cut)\n```\n\n</details>\n" in text
    assert "### Trials" in text


@pytest.mark.parametrize(
    "answer", [found(setting=set_up(check_text="`" * 100_000)), found(trials=found().trials * 900)]
)
def test_of_what_is_too_long_the_answer_itself_stays_whole(answer: Answer) -> None:
    text = as_markdown(answer)
    assert text.endswith("\n\nThe table of trials and the check were left out: too long for an issue.\n")
    assert f"- last good: 2024-06-02 `{BEFORE.version}`" in text
    assert "### Environment" in text and "### Reproduce\n\n```sh\nnightly-bisect --good" in text
    assert living(answer) == [f"commits: {COMPARE}"]
    assert html(answer) == []
