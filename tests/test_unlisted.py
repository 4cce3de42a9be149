"""Nightlies that the page no longer lists: base versions by day, candidate URLs, and asking."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from loopback import FOLDER, Night, serve

from nightly_bisect.errors import Refused, Unreachable
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profiles import Unlisted, load_profile
from nightly_bisect.index.targets import make_target
from nightly_bisect.index.unlisted import Place, Prober, base_versions, candidates
from nightly_bisect.index.web import Web
from nightly_bisect.model import Stamp, UnlistedDay, Wheel
from nightly_bisect.standin.server import Content, LoopbackServer

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WEB = Web(pause=lambda _: None)
OLD = "https://download.pytorch.org/whl/nightly/"
NEW = "https://download-r2.pytorch.org/whl/nightly/"


def torch() -> Unlisted:
    known = load_profile("torch", None).unlisted
    assert known is not None
    return known


def place(
    channel: str = "cpu",
    python: str = "3.11",
    platform: str = "linux_x86_64",
    *,
    index_url: str | None = None,
    listed: tuple[str, ...] = (),
) -> Place:
    return Place("torch", channel, make_target(python, platform), torch(), index_url, listed)


def on_server(server: LoopbackServer, python: str | None = None) -> Place:
    target = make_target(python, "linux_x86_64")
    return Place("torch", "cpu", target, torch(), f"{server.url}{FOLDER}/", ())


def prober(where: Place | None, folder: Path, now: datetime = NOW, known: Sequence[Wheel] = ()) -> Prober:
    return Prober(where, known, WEB, Memory(folder), now)


def on(day: date) -> UnlistedDay:
    return UnlistedDay(Stamp(day))


@pytest.mark.parametrize(
    ("day", "bases"),
    [
        # inside a window, its ends included
        ("2024-06-12", ["2.4.0"]),
        ("2024-06-13", ["2.5.0"]),
        ("2023-07-11", ["2.1.0"]),
        ("2025-01-04", ["2.6.0"]),
        ("2025-01-05", ["2.7.0"]),
        ("2026-10-06", ["2.16.0"]),
        # between two windows, both
        ("2024-03-16", ["2.3.0", "2.4.0"]),
        ("2023-12-10", ["2.2.0", "2.3.0"]),
        ("2024-09-14", ["2.5.0", "2.6.0"]),
        ("2022-10-08", ["1.13.0", "1.14.0"]),
        ("2025-06-28", ["2.8.0", "2.9.0"]),
        # a window whose first day nobody attests
        ("2021-11-01", ["1.10.0", "1.11.0"]),
        # before the first
        ("2020-01-01", ["1.8.0"]),
        # after the last: that one, and what the page lists that is not older
        ("2026-10-10", ["2.16.0", "2.17.0"]),
        ("2026-12-01", ["2.16.0", "2.17.0"]),
    ],
)
def test_the_base_version_of_a_day_is_the_attested_one_or_both_around_it(day: str, bases: list[str]) -> None:
    known = place(listed=("2.17.0", "2.16.0", "2.9.0"))
    assert base_versions(known, date.fromisoformat(day)) == bases


def test_bases_after_the_last_window_are_in_order_of_version() -> None:
    assert base_versions(place(listed=("2.100.0", "2.20.0")), date(2027, 1, 1)) == [
        "2.16.0",
        "2.20.0",
        "2.100.0",
    ]


@pytest.mark.parametrize(
    ("day", "where", "urls"),
    [
        ("2024-05-01", place(), ["{OLD}cpu/torch-2.4.0.dev20240501%2Bcpu-cp311-cp311-linux_x86_64.whl"]),
        ("2022-07-09", place("rocm5.0", "3.7"),
         ["{OLD}rocm5.0/torch-1.13.0.dev20220709%2Brocm5.0-cp37-cp37m-linux_x86_64.whl"]),
        # both platform tags in the overlap, from its first to its last day, and neither beyond
        ("2024-11-14", place("cu124"), ["{OLD}cu124/torch-2.6.0.dev20241114%2Bcu124-cp311-cp311-linux_x86_64.whl"]),
        ("2024-11-15", place("cu124"),
         ["{OLD}cu124/torch-2.6.0.dev20241115%2Bcu124-cp311-cp311-manylinux_2_28_x86_64.whl",
          "{OLD}cu124/torch-2.6.0.dev20241115%2Bcu124-cp311-cp311-linux_x86_64.whl"]),
        ("2025-01-31", place("cu126"),
         ["{OLD}cu126/torch-2.7.0.dev20250131%2Bcu126-cp311-cp311-manylinux_2_28_x86_64.whl",
          "{OLD}cu126/torch-2.7.0.dev20250131%2Bcu126-cp311-cp311-linux_x86_64.whl"]),
        ("2025-02-01", place("cu126"),
         ["{OLD}cu126/torch-2.7.0.dev20250201%2Bcu126-cp311-cp311-manylinux_2_28_x86_64.whl"]),
        # the newer host first for days since it has them
        ("2026-01-31", place(), ["{OLD}cpu/torch-2.11.0.dev20260131%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"]),
        ("2026-02-01", place(),
         ["{NEW}cpu/torch-2.11.0.dev20260201%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl",
          "{OLD}cpu/torch-2.11.0.dev20260201%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"]),
        # both bases between two windows
        ("2024-03-16", place(),
         ["{OLD}cpu/torch-2.3.0.dev20240316%2Bcpu-cp311-cp311-linux_x86_64.whl",
          "{OLD}cpu/torch-2.4.0.dev20240316%2Bcpu-cp311-cp311-linux_x86_64.whl"]),
        # free-threaded
        ("2025-06-02", place("cu128", "3.13t"),
         ["{OLD}cu128/torch-2.8.0.dev20250602%2Bcu128-cp313-cp313t-manylinux_2_28_x86_64.whl"]),
        # macOS: no local part, and the ABI tag came later
        ("2024-03-21", place("cpu", "3.11", "macosx_arm64"),
         ["{OLD}cpu/torch-2.4.0.dev20240321-cp311-none-macosx_11_0_arm64.whl",
          "{OLD}cpu/torch-2.4.0.dev20240321-cp311-cp311-macosx_11_0_arm64.whl"]),
        ("2022-11-04", place("cpu", "3.7", "macosx_x86_64"),
         ["{OLD}cpu/torch-1.14.0.dev20221104-cp37-none-macosx_10_9_x86_64.whl"]),
        ("2024-04-01", place("cpu", "3.11", "macosx_x86_64"), []),
        # Windows
        ("2024-12-01", place("cu124", "3.12", "win_amd64"),
         ["{OLD}cu124/torch-2.6.0.dev20241201%2Bcu124-cp312-cp312-win_amd64.whl"]),
        # aarch64 has had wheels with a local part and without
        ("2021-02-12", place("cpu", "3.8", "linux_aarch64"),
         ["{OLD}cpu/torch-1.9.0.dev20210212%2Bcpu-cp38-cp38-linux_aarch64.whl",
          "{OLD}cpu/torch-1.9.0.dev20210212-cp38-cp38-linux_aarch64.whl"]),
        # another root instead of both hosts
        ("2026-08-20", place(index_url="https://mirror.example.org/torch/"),
         ["https://mirror.example.org/torch/torch-2.15.0.dev20260820%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl"]),
        # a platform that the profile does not describe
        ("2026-08-20", place("cpu", "3.11", "win_arm64"), []),
    ],
)  # fmt: skip
def test_the_candidates_of_a_day_are_the_urls_that_such_wheels_had(
    day: str, where: Place, urls: list[str]
) -> None:
    found = list(candidates(where, date.fromisoformat(day)))
    assert [wheel.url for wheel in found] == [url.format(OLD=OLD, NEW=NEW) for url in urls]
    assert all(wheel.filename == wheel.url.rpartition("/")[2].replace("%2B", "+") for wheel in found)


def test_the_first_day_is_that_of_the_oldest_window() -> None:
    assert place().first_day == date(2020, 11, 8)


def test_a_wheel_that_is_no_longer_listed_is_found_by_its_name(tmp_path: Path) -> None:
    night = Night(date(2024, 12, 20), listed=False)
    with serve([night]) as server:
        found = prober(on_server(server), tmp_path).ask(on(night.day))
        asked = [method for method, _ in server.requests]
    assert found is not None and found.wheel is not None
    assert (found.stamp, found.version) == (Stamp(night.day), night.version)
    assert found.wheel.url.startswith(f"{server.url}{FOLDER}/torch-{night.version.replace('+', '%2B')}-")
    assert found.wheel.size_bytes == len(night.file().content)
    assert asked == ["HEAD", "HEAD"]  # manylinux_2_28 first, then linux


def test_a_day_without_a_nightly_costs_one_request_a_candidate(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        where = on_server(server)
        expected = len(list(candidates(where, date(2024, 12, 20))))
        assert prober(where, tmp_path).ask(on(date(2024, 12, 20))) is None
        assert [method for method, _ in server.requests] == ["HEAD"] * expected


def test_where_names_of_wheels_are_not_known_no_day_has_a_nightly(tmp_path: Path) -> None:
    assert prober(None, tmp_path).ask(on(date(2024, 5, 1))) is None


@pytest.mark.parametrize(
    ("exists", "later", "asked_again"),
    [
        (True, timedelta(days=400), False),
        (False, timedelta(days=6, hours=23), False),
        (False, timedelta(days=7), True),
    ],
)
def test_answers_are_remembered_and_an_absent_file_is_asked_for_again_after_a_week(
    tmp_path: Path, exists: bool, later: timedelta, asked_again: bool
) -> None:
    day = date(2024, 5, 1)
    with serve([Night(day, base="2.4.0", listed=False)] if exists else []) as server:
        first = prober(on_server(server), tmp_path).ask(on(day))
        server.requests.clear()
        second = prober(on_server(server), tmp_path, NOW + later).ask(on(day))
        assert bool(server.requests) is asked_again
    assert first == second
    assert (first is not None) is exists


def test_a_server_that_fails_is_not_taken_for_a_missing_nightly(tmp_path: Path) -> None:
    night = Night(date(2024, 5, 1), base="2.4.0", listed=False)
    with serve([night]) as server:
        path = night.file().path
        server.faults[path] = lambda handler: handler.reply(503, Content(b""))
        with pytest.raises(Unreachable, match="HTTP 503"):
            prober(on_server(server), tmp_path).ask(on(night.day))
        del server.faults[path]
        assert prober(on_server(server), tmp_path).ask(on(night.day)) is not None


@pytest.mark.parametrize("status", [403, 404])
def test_an_absence_is_believed_only_of_a_host_that_still_gives_what_it_has(
    tmp_path: Path, status: int
) -> None:
    listed, hidden = Night(date(2026, 11, 1)), Night(date(2024, 5, 1), base="2.4.0", listed=False)
    with serve([listed, hidden], missing_status=status) as server:
        where = on_server(server)
        known = Wheel(listed.file().name, server.url + listed.file().path.replace("+", "%2B"))
        blocked = dict(server.contents)
        server.contents.clear()
        with pytest.raises(Refused, match="may be blocking requests"):
            prober(where, tmp_path, known=[known]).ask(on(hidden.day))
        server.contents.update(blocked)
        # nothing was remembered of the time when it refused everything
        assert prober(where, tmp_path, known=[known]).ask(on(hidden.day)) is not None
        assert prober(where, tmp_path, known=[known]).ask(on(date(2024, 5, 2))) is None


def test_a_day_with_wheels_for_other_pythons_only_names_one_of_them(tmp_path: Path) -> None:
    night = Night(date(2024, 5, 1), base="2.4.0", tag="cp38-cp38-linux_x86_64", listed=False)
    with serve([night]) as server:
        mine = prober(on_server(server, "3.11"), tmp_path)
        assert mine.ask(on(night.day)) is None
        found = mine.ask_for_others(on(night.day))
        assert mine.ask_for_others(on(date(2024, 5, 2))) is None
    assert found is not None
    assert (found.version, found.wheel, found.other_targets) == (night.version, None, ("Python 3.8",))
    assert prober(None, tmp_path).ask_for_others(on(night.day)) is None
