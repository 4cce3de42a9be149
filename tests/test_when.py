"""What people write for an end of the range, and the dates that versions carry."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from nightly_bisect.errors import UsageError
from nightly_bisect.model import Stamp
from nightly_bisect.when import (
    DaysBeforeNewest,
    OnDay,
    OnRelease,
    OnVersion,
    When,
    parse_when,
    refuse_future,
    stamp_of,
)

MAY_DAY = date(2024, 5, 1)


def on_version(text: str, day: date, serial: int = 0) -> OnVersion:
    return OnVersion(Version(text), Stamp(day, serial))


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2024-05-01", OnDay(MAY_DAY)),
        ("20240501", OnDay(MAY_DAY)),
        ("dev20240501", OnDay(MAY_DAY)),
        (" DEV20240501 ", OnDay(MAY_DAY)),
        ("2024-02-29", OnDay(date(2024, 2, 29))),
        ("today", DaysBeforeNewest(0)),
        ("latest", DaysBeforeNewest(0)),
        ("Yesterday", DaysBeforeNewest(1)),
        ("2.4.0.dev20240501", on_version("2.4.0.dev20240501", MAY_DAY)),
        ("2.4.0.dev20240501+cpu", on_version("2.4.0.dev20240501+cpu", MAY_DAY)),
        ("2.4.0.dev20240501+cpu.cxx11.abi", on_version("2.4.0.dev20240501+cpu.cxx11.abi", MAY_DAY)),
        ("3.16.0.dev2026102704", on_version("3.16.0.dev2026102704", date(2026, 10, 27), 4)),
        ("2.21.0a20251023", on_version("2.21.0a20251023", date(2025, 10, 23))),
        ("2024.5.1", on_version("2024.5.1", MAY_DAY)),
        ("2024.05.01", on_version("2024.5.1", MAY_DAY)),
        ("2024.5.1.2", on_version("2024.5.1.2", MAY_DAY, 2)),
        ("2.4", OnRelease(Version("2.4"))),
        ("2.4.0", OnRelease(Version("2.4.0"))),
        ("v2.4.1", OnRelease(Version("2.4.1"))),
        ("2.0.0.post1", OnRelease(Version("2.0.0.post1"))),
    ],
)
def test_every_form_of_an_end_is_understood(text: str, when: When) -> None:
    assert parse_when(text, "--good") == when


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2024-02-30", "there is no such day"),
        ("20241301", "there is no such day"),
        ("dev20230229", "there is no such day"),
        ("00000101", "there is no such day"),
        ("2.4.0.dev20240231", "names neither a day nor a release"),
        ("2.4.0.dev5", "names neither a day nor a release"),
        ("2.4.0rc1", "names neither a day nor a release"),
        ("2", "names neither a day nor a release"),
        ("2024", "names neither a day nor a release"),
        ("2024-05", "names neither a day nor a release"),
        ("", "is not a day or a version"),
        ("tomorrow", "is not a day or a version"),
        ("2024-5-1", "is not a day or a version"),
        ("05/01/2024", "is not a day or a version"),
        ("2024-05-01T12:00", "is not a day or a version"),
        ("deadbeef", "is not a day or a version"),
    ],
)
def test_what_names_no_day_and_no_release_is_a_usage_error(text: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_when(text, "--bad")
    assert caught.value.what.startswith(f"--bad {text!r}")
    assert why in caught.value.what


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.text(max_size=30) | st.text("0123456789.-+!_ devrc", max_size=20))
def test_arbitrary_text_is_understood_or_is_a_usage_error(text: str) -> None:
    try:
        parse_when(text, "--good")
    except UsageError as error:
        assert "--good" in error.what and error.hint


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.dates(date(1990, 1, 1)), st.sampled_from(["", "+cpu", "+cu128", "+rocm6.2.4"]))
def test_a_day_comes_back_from_every_form_that_it_is_written_in(day: date, local: str) -> None:
    for version in (
        f"2.6.0.dev{day:%Y%m%d}{local}",
        f"2.21.0a{day:%Y%m%d}",
        f"{day.year}.{day.month}.{day.day}",
        f"{day.year}.{day.month:02}.{day.day:02}",
    ):
        assert stamp_of(Version(version)) == Stamp(day)
    for text in (day.isoformat(), f"{day:%Y%m%d}", f"dev{day:%Y%m%d}"):
        assert parse_when(text, "--good") == OnDay(day)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.dates(date(1990, 1, 1)), st.lists(st.integers(0, 23), min_size=2, max_size=5, unique=True))
def test_builds_of_one_day_are_ordered_by_what_follows_the_day(day: date, hours: list[int]) -> None:
    forms = (f"3.16.0.dev{day:%Y%m%d}{{:02}}", f"{day.year}.{day.month}.{day.day}.{{}}")
    for form in forms:
        stamps = [stamp_of(Version(form.format(hour))) for hour in hours]
        assert stamps == [Stamp(day, hour) for hour in hours]


@pytest.mark.parametrize(
    "version", ["2.4.0", "2.4.0rc1", "2.6.0.dev1234567", "2.6.0.dev2024051", "1!2024.5.1", "2024.5", "2024.13.1", "1989.5.1", "2.0.5"]
)  # fmt: skip
def test_a_version_without_a_date_has_none(version: str) -> None:
    assert stamp_of(Version(version)) is None


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("2026-12-01", False),
        ("2026-12-02", False),  # it may have begun elsewhere
        ("2026-12-03", True),
        ("2.17.0.dev20261203+cpu", True),
        ("2.17.0.dev20261201+cpu", False),
        ("latest", False),
        ("99.9", False),
    ],
)
def test_a_day_that_has_not_begun_anywhere_is_refused(text: str, refused: bool) -> None:
    now = datetime(2026, 12, 1, 23, 30, tzinfo=UTC)
    when = parse_when(text, "--bad")
    if not refused:
        refuse_future(when, text, "--bad", now)
        return
    with pytest.raises(UsageError, match="is in the future") as caught:
        refuse_future(when, text, "--bad", now)
    assert "--bad latest" in caught.value.hint


def test_a_version_with_a_month_beyond_all_measure_carries_no_date() -> None:
    assert stamp_of(Version("2024.99999999999999999999.1")) is None


@pytest.mark.parametrize("text", ["9" * 5000, "2.0.dev" + "1" * 5000])
def test_numbers_beyond_all_measure_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_when(text, "--good")
