"""What the code under test wrote about itself: read with distrust."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightly_runners.readings import (
    MOST_BYTES,
    MOST_NUMBERS,
    MOST_SAMPLES,
    Number,
    Reading,
    UnreadableResult,
    printed_metrics,
    read_result,
)

METRIC = {"name": "time", "unit": "s", "value": 0.5, "samples": [0.5, 1]}
RESULT = {"schema": 1, "metrics": [METRIC], "fingerprint": None}


def read(folder: Path, content: Any) -> Reading:
    path = folder / "result.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_result(path)


def test_a_result_is_read(tmp_path: Path) -> None:
    number = Number("time", "s", 0.5, (0.5, 1.0))
    assert read(tmp_path, RESULT) == Reading((number,), None)
    assert read(tmp_path, {**RESULT, "fingerprint": "0a" * 32}).fingerprint == "0a" * 32
    assert read(tmp_path, {**RESULT, "metrics": []}) == Reading((), None)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{",
        "\x00",
        "[" * 100_000,
        {},
        {**RESULT, "schema": 2},
        {**RESULT, "schema": "1"},
        {**RESULT, "metrics": None},
        {**RESULT, "metrics": {"time": 1}},
        {**RESULT, "metrics": [3]},
        {**RESULT, "metrics": [METRIC, METRIC]},
        {**RESULT, "metrics": [{**METRIC, "name": f"n{i}"} for i in range(MOST_NUMBERS + 1)]},
        {**RESULT, "fingerprint": "short"},
        {**RESULT, "fingerprint": ["0a" * 32]},
        {**RESULT, "metrics": [{**METRIC, "name": "\x1b[31mred"}]},
        {**RESULT, "metrics": [{**METRIC, "name": "time\n"}]},
        {**RESULT, "metrics": [{**METRIC, "name": "n" * 65}]},
        {**RESULT, "metrics": [{**METRIC, "name": None}]},
        {**RESULT, "metrics": [{**METRIC, "unit": "<b>"}]},
        {**RESULT, "metrics": [{**METRIC, "unit": None}]},
        {**RESULT, "metrics": [{**METRIC, "value": "0.5"}]},
        {**RESULT, "metrics": [{**METRIC, "value": True}]},
        {**RESULT, "metrics": [{**METRIC, "value": None}]},
        {**RESULT, "metrics": [{**METRIC, "value": float("nan")}]},
        {**RESULT, "metrics": [{**METRIC, "value": 10**400}]},
        '{"schema": 1, "metrics": [{"name": "n", "unit": "", "value": 1e999, "samples": [1]}]}',
        '{"schema": 1, "metrics": [{"name": "n", "unit": "", "value": ' + "9" * 5000 + ', "samples": [1]}]}',
        {**RESULT, "metrics": [{**METRIC, "samples": []}]},
        {**RESULT, "metrics": [{**METRIC, "samples": 0.5}]},
        {**RESULT, "metrics": [{**METRIC, "samples": [0.5, float("inf")]}]},
        {**RESULT, "metrics": [{**METRIC, "samples": [0.5] * (MOST_SAMPLES + 1)}]},
    ],
    ids=lambda content: str(content)[:60],
)
def test_anything_else_is_no_result(tmp_path: Path, content: Any) -> None:
    with pytest.raises(UnreadableResult):
        read(tmp_path, content)


def test_bytes_that_are_no_text_are_no_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(b'{"schema": 1, "metrics": [], "fingerprint": "\xff\xfe"}')
    with pytest.raises(UnreadableResult):
        read_result(path)


def test_a_huge_result_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # sparse: more than there is memory
    with pytest.raises(UnreadableResult, match=f"more than {MOST_BYTES} bytes"):
        read_result(path)


def test_only_a_plain_file_is_a_result(tmp_path: Path) -> None:
    whole = tmp_path / "whole.json"
    whole.write_text(json.dumps(RESULT))
    (tmp_path / "link").symlink_to(whole)
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")  # opening one to read it waits for a writer
    for name in ("link", "folder", "pipe", "missing"):
        with pytest.raises(UnreadableResult):
            read_result(tmp_path / name)


def test_the_error_says_what_was_wrong_and_not_at_length(tmp_path: Path) -> None:
    with pytest.raises(UnreadableResult) as caught:
        read(tmp_path, {**RESULT, "metrics": [{**METRIC, "name": "x" * 10_000}]})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("nightly-bisect: loss=0.25", Number("loss", "", 0.25, (0.25,))),
        ("nightly-bisect: step_time=1.5e-3 s", Number("step_time", "s", 0.0015, (0.0015,))),
        ("nightly-bisect: a.b-c=-7 tokens/s", Number("a.b-c", "tokens/s", -7.0, (-7.0,))),
        ("nightly-bisect: n = +.5 %\r\n", Number("n", "%", 0.5, (0.5,))),
        ("nightly-bisect: n=3.", Number("n", "", 3.0, (3.0,))),
    ],
)
def test_a_printed_number_is_found(line: str, number: Number) -> None:
    assert printed_metrics(["other", line, ""]) == (number,)


@pytest.mark.parametrize(
    "line",
    [
        "loss=0.25",
        "  nightly-bisect: loss=0.25",
        "nightly-bisect: loss=nan",
        "nightly-bisect: loss=inf",
        "nightly-bisect: loss=1e999",
        "nightly-bisect: loss=",
        "nightly-bisect: =1",
        "nightly-bisect: loss=1,000",
        "nightly-bisect: loss=0x10",
        "nightly-bisect: loss=1 s extra words",
        "nightly-bisect: loss=1 \x1b[31m",
        "nightly-bisect: " + "n" * 65 + "=1",
        "nightly-bisect: loss=1" + "0" * 2000,
        "nightly-bisect: loss=٣",
    ],
)
def test_a_line_of_another_form_is_no_number(line: str) -> None:
    assert printed_metrics([line]) == ()


def test_a_name_printed_again_is_another_sample_and_the_value_their_median() -> None:
    lines = [f"nightly-bisect: t={value} s" for value in (3, 1, 2)]
    assert printed_metrics([*lines, "nightly-bisect: u=1"]) == (
        Number("t", "s", 2.0, (3.0, 1.0, 2.0)),
        Number("u", "", 1.0, (1.0,)),
    )


def test_a_name_with_two_units_means_nothing() -> None:
    assert printed_metrics(["nightly-bisect: t=3 s", "nightly-bisect: t=3 ms"]) == ()


def test_printed_numbers_are_bounded() -> None:
    many = printed_metrics(f"nightly-bisect: n{i}=1" for i in range(2 * MOST_NUMBERS))
    assert len(many) == MOST_NUMBERS
    long = printed_metrics("nightly-bisect: n=1" for _ in range(MOST_SAMPLES + 5))
    assert len(long[0].samples) == MOST_SAMPLES


@given(st.lists(st.text() | st.text().map("nightly-bisect: {}".format)))
def test_no_printed_line_is_an_error(lines: list[str]) -> None:
    printed_metrics(lines)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_finite_number_of_python_is_read_as_it_was_printed(value: float) -> None:
    (number,) = printed_metrics([f"nightly-bisect: n={value} B"])
    assert number.value == value
