"""Which nightlies exist for a channel, Python and platform, as a page on loopback tells it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from loopback import FOLDER, TAG, Night, days, serve
from pypi_simple import PYPI_SIMPLE_ENDPOINT

from nightly_bisect.errors import NoSuchPage, NotAnIndex, Refused, UsageError
from nightly_bisect.index.catalog import Catalog, Request, check_channel, load_catalog, no_wheel
from nightly_bisect.index.listings import Listings
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profiles import RELEASES, IndexSource, Profile, load_profile
from nightly_bisect.index.targets import Target, make_target
from nightly_bisect.index.web import Web
from nightly_bisect.model import Nightly, Stamp, UnlistedDay
from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, LoopbackServer

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WEB = Web(pause=lambda _: None)
TORCH = load_profile("torch", None)
LINUX = make_target("3.11", "linux_x86_64")
MAC = make_target("3.11", "macosx_arm64")
NATIVE = "cp311-cp311-linux_x86_64"
MANYLINUX = "cp311-cp311-manylinux_2_28_x86_64"
ARM = "cp311-cp311-manylinux_2_28_aarch64"


def torch(day: str, local: str = "+cpu", tag: str = MANYLINUX, *, base: str = "2.16.0", folder: str = "cpu") -> str:  # fmt: skip
    """Return the path of a wheel below the folder of nightlies."""
    return f"{folder}/torch-{base}.dev{day.replace('-', '')}{local}-{tag}.whl".removeprefix("/")


def load(
    paths: Iterable[str],
    tmp_path: Path,
    *,
    profile: Profile = TORCH,
    channel: str | None = "cpu",
    target: Target = LINUX,
    root: str = FOLDER,
    era: Era = Era.SIDECARS,
    all_builds: bool = False,
) -> Catalog:
    """Return the catalog of a page that lists ``paths``; ``root`` is the folder of the index."""
    files = [File(f"/whl/nightly/{path}", path.encode()) for path in paths]
    page = Content(index_page(profile.package, files, era, "https://download-r2.pytorch.org"), "text/html")
    with LoopbackServer({f"{root}/{profile.package}/": page}) as server:
        request = Request(profile, channel, target, server.url + root, all_builds)
        return load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)


def versions(catalog: Catalog) -> list[str]:
    return [nightly.version for nightly in catalog.nightlies]


def listed_days(catalog: Catalog) -> list[str]:
    return [str(nightly.stamp) for nightly in catalog.nightlies]


def wheels(catalog: Catalog) -> list[str]:
    return [nightly.wheel.filename for nightly in catalog.nightlies if nightly.wheel]


@pytest.mark.parametrize("era", Era)
def test_nightlies_are_in_order_of_time_whatever_the_order_of_the_page(tmp_path: Path, era: Era) -> None:
    paths = [
        torch("2025-09-09", base="2.9.0"),
        torch("2025-09-10", base="2.10.0"),
        torch("2025-09-08", base="2.9.0"),
    ]
    catalog = load(paths, tmp_path, era=era)
    assert listed_days(catalog) == ["2025-09-08", "2025-09-09", "2025-09-10"]
    assert catalog.newest.version == "2.10.0.dev20250910+cpu"
    assert catalog.unreadable == ()


@pytest.mark.parametrize(
    ("channel", "target", "kept"),
    [
        ("cpu", LINUX, ["2.16.0.dev20261101+cpu"]),
        ("cpu", MAC, ["2.16.0.dev20261101"]),
        ("cu128", LINUX, ["2.16.0.dev20261101+cu128"]),
        ("rocm6.2.4", LINUX, ["2.16.0.dev20261101+rocm6.2.4"]),
        ("cpu-cxx11-abi", LINUX, ["2.16.0.dev20261101+cpu.cxx11.abi"]),
    ],
)
def test_the_page_of_all_channels_gives_those_of_the_channel_only(
    tmp_path: Path, channel: str, target: Target, kept: list[str]
) -> None:
    paths = [
        torch("2026-11-01"),
        torch("2026-11-01", "", "cp311-none-macosx_11_0_arm64"),
        torch("2026-11-01", "+cu128", folder="cu128"),
        torch("2026-11-01", "+xpu", folder="xpu"),
        torch("2026-11-01", "+rocm6.2.4", folder="rocm6.2.4"),
        torch("2026-11-01", "+cpu.cxx11.abi", folder="cpu-cxx11-abi"),
    ]
    catalog = load(paths, tmp_path, channel=channel, target=target, root="/whl/nightly")
    assert versions(catalog) == kept


def test_old_wheels_at_the_root_do_not_count_on_a_channels_page(tmp_path: Path) -> None:
    old = torch("2019-07-01", "", "cp311-cp311-linux_x86_64", base="1.2.0", folder="")
    catalog = load([old, torch("2026-11-01", "+cu128", folder="cu128")], tmp_path, channel="cu128", root="/whl/nightly/cu128")  # fmt: skip
    assert listed_days(catalog) == ["2026-11-01"]


@pytest.mark.parametrize(
    ("tags", "chosen"),
    [
        ([NATIVE, MANYLINUX], MANYLINUX),
        ([NATIVE], NATIVE),
        ([ARM, NATIVE, "cp312-cp312-manylinux_2_28_x86_64"], NATIVE),
    ],
)
def test_the_wheel_that_fits_the_target_best_is_chosen(tmp_path: Path, tags: list[str], chosen: str) -> None:
    catalog = load([torch("2025-01-10", tag=tag, base="2.7.0") for tag in tags], tmp_path)
    assert wheels(catalog) == [f"torch-2.7.0.dev20250110+cpu-{chosen}.whl"]


@pytest.mark.parametrize(
    ("bases", "chosen"),
    [
        ({"2.9.0": MANYLINUX, "2.10.0": MANYLINUX}, "2.10.0"),
        ({"2.9.0": MANYLINUX, "2.10.0": ARM}, "2.9.0"),
    ],
)
def test_of_two_base_versions_in_one_night_the_newer_that_fits_counts(
    tmp_path: Path, bases: dict[str, str], chosen: str
) -> None:
    catalog = load([torch("2025-09-10", tag=tag, base=base) for base, tag in bases.items()], tmp_path)
    assert versions(catalog) == [f"{chosen}.dev20250910+cpu"]
    assert len(wheels(catalog)) == 1


def test_a_night_with_wheels_for_others_only_stays_and_says_for_whom(tmp_path: Path) -> None:
    others = [
        torch("2026-11-02", tag=tag) for tag in ("cp312-cp312-win_amd64", ARM, "cp313-cp313t-linux_x86_64")
    ]
    catalog = load([torch("2026-11-01"), *others, torch("2026-11-03")], tmp_path)
    assert [bool(nightly.wheel) for nightly in catalog.nightlies] == [True, False, True]
    assert catalog.nightlies[1].other_targets == (
        "3.11 (Linux aarch64)",
        "3.12 (Windows amd64)",
        "3.13t (Linux x86_64)",
    )
    assert catalog.nightlies[0].other_targets == ()


def test_no_wheel_for_the_target_at_all_is_an_error_that_says_what_exists(tmp_path: Path) -> None:
    paths = [
        torch("2026-11-01", tag=tag) for tag in ("cp312-cp312-linux_x86_64", "cp39-cp39-linux_x86_64", ARM)
    ]
    catalog = load(paths, tmp_path)
    error = no_wheel(catalog.request, catalog.nightlies)
    assert "Python 3.11 on linux_x86_64" in error.what
    assert "3.9 (Linux x86_64), 3.11 (Linux aarch64), 3.12 (Linux x86_64)" in error.what
    assert "--python 3.12" in error.hint


def test_no_wheel_for_the_platform_at_all_does_not_name_a_python(tmp_path: Path) -> None:
    catalog = load([torch("2026-11-01", tag=ARM)], tmp_path)
    assert "--platform" in no_wheel(catalog.request, catalog.nightlies).hint


@pytest.mark.parametrize(
    ("package", "filenames", "stamps"),
    [
        ("pyg-nightly",
         ["pyg_nightly-2.0.5.dev20220402-py3-none-any.whl", "pyg_nightly-2.9.0.dev20261027-py3-none-any.whl"],
         [Stamp(date(2022, 4, 2)), Stamp(date(2026, 10, 27))]),
        ("torchx-nightly",
         ["torchx_nightly-2026.10.26-py3-none-any.whl", "torchx_nightly-2026.9.3-py3-none-any.whl"],
         [Stamp(date(2026, 9, 3)), Stamp(date(2026, 10, 26))]),
        ("tensordict-nightly",
         ["tensordict_nightly-2024.5.1-cp311-cp311-manylinux1_x86_64.whl", "tensordict_nightly-2026.10.26-py3-none-any.whl",
          "tensordict_nightly-2026.10.26.tar.gz"],
         [Stamp(date(2024, 5, 1)), Stamp(date(2026, 10, 26))]),
        # several a day: the last that has a wheel
        ("keras-nightly",
         ["keras_nightly-3.16.0.dev2026102704-py3-none-any.whl", "keras_nightly-3.16.0.dev2026102712-py3-none-any.whl",
          "keras_nightly-3.16.0.dev2026102720-cp27-cp27m-win32.whl", "keras_nightly-3.16.0.dev2026102603-py3-none-any.whl"],
         [Stamp(date(2026, 10, 26), 3), Stamp(date(2026, 10, 27), 12)]),
    ],
)  # fmt: skip
def test_the_date_forms_of_other_nightlies_are_read(
    tmp_path: Path, package: str, filenames: list[str], stamps: list[Stamp]
) -> None:
    catalog = load(filenames, tmp_path, profile=load_profile(package, None), channel=None)
    assert [nightly.stamp for nightly in catalog.nightlies] == stamps
    assert len(wheels(catalog)) == len(stamps)
    assert catalog.unreadable == ()


def test_all_builds_of_a_day_are_there_when_they_are_asked_for(tmp_path: Path) -> None:
    names = [f"keras_nightly-3.16.0.dev20261027{hour:02}-py3-none-any.whl" for hour in (20, 4, 12)]
    catalog = load(
        names, tmp_path, profile=load_profile("keras-nightly", None), channel=None, all_builds=True
    )
    assert [nightly.stamp.serial for nightly in catalog.nightlies] == [4, 12, 20]


def test_rows_that_cannot_be_understood_are_counted_and_named(tmp_path: Path) -> None:
    odd = ["cpu/torch-2.17.0.dev20261203+cpu-cp311-cp311-linux_x86_64.whl", "cpu/torch-2.6.0.dev20250231+cpu-cp311-cp311-linux_x86_64.whl", "cpu/torch-2.16.0-cp311-cp311-linux_x86_64.whl",
           "cpu/torch-x-cp311-cp311-linux_x86_64.whl", "cpu/torch_nightly.html"]  # fmt: skip
    other = ["cpu/torchvision-0.31.0.dev20261101+cpu-cp311-cp311-linux_x86_64.whl", "cpu/torch-2.16.0.tar.gz",
             torch("2026-11-30") + ".metadata"]  # fmt: skip
    catalog = load([torch("2026-11-30"), *odd, *other], tmp_path)
    assert listed_days(catalog) == ["2026-11-30"]
    assert {f"cpu/{left_out.text}" for left_out in catalog.unreadable} == set(odd)
    assert catalog.notes() == ["5 rows of the index page could not be used (-v names them)."]


@pytest.mark.parametrize(
    "paths",
    [
        ["login.html", "help/"],
        ["cpu/torchvision-0.31.0.dev20261101+cpu-cp311-cp311-linux_x86_64.whl"],
        ["cpu/torch-2.16.0+cpu-cp311-cp311-linux_x86_64.whl"],
        ["cpu/torch-2.16.0.dev20261101.tar.gz"],
        [],
    ],
)
def test_a_page_without_a_single_nightly_is_an_error_and_never_no_nightlies(
    tmp_path: Path, paths: list[str]
) -> None:
    with pytest.raises(NotAnIndex, match=r"/whl/nightly/cpu/torch/ (lists no dated build|holds no links)"):
        load(paths, tmp_path)


def test_a_login_page_in_place_of_the_index_is_an_error_that_says_so(tmp_path: Path) -> None:
    portal = b"<html><body><a href='/help'>Help</a><form action='/login'></form></body></html>"
    with LoopbackServer({"/login": Content(portal, "text/html")}) as server:
        server.faults["/torch/"] = lambda h: h.reply(302, Content(b""), {"Location": "/login"})
        with pytest.raises(NotAnIndex, match="/login lists no dated build of torch") as caught:
            load_catalog(
                Request(TORCH, "cpu", LINUX, server.url), WEB, Listings(tmp_path), Memory(tmp_path), NOW
            )
    assert "login page" in caught.value.hint


def test_a_channel_that_the_page_lacks_is_an_error_that_names_those_it_has(tmp_path: Path) -> None:
    paths = [torch("2026-11-01", f"+{label}", folder=label) for label in ("cu126", "cu128", "xpu")]
    with pytest.raises(
        NoSuchPage, match="nothing of the channel 'cu129'; it has: cu126, cu128, xpu"
    ) as caught:
        load(paths, tmp_path, channel="cu129", root="/whl/nightly")
    assert "--channel cu12" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "kind"), [(403, Refused), (404, NoSuchPage)]
)  # fmt: skip
def test_a_channel_without_a_page_is_an_error_that_names_channels_near_it(
    tmp_path: Path, status: int, kind: type[Exception]
) -> None:
    with LoopbackServer(missing_status=status) as server:
        request = Request(TORCH, "cu133", LINUX, server.url)
        with pytest.raises(kind) as caught:
            load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)
        assert len(server.requests) == 1
    assert "no channel 'cu133'; near it: cu13" in str(caught.value)


def test_a_frozen_page_is_told_by_the_age_of_its_newest_nightly(tmp_path: Path) -> None:
    paths = [torch("2025-03-10", "+cu124", base="2.7.0", folder="cu124")]
    (note,) = load(paths, tmp_path, channel="cu124", root="/whl/nightly/cu124").notes()
    assert "of 2025-03-10" in note
    assert "written on 2026-12-01" in note  # from the timestamp comment
    assert "may no longer be built" in note


@pytest.mark.parametrize(("newest", "notes"), [("2026-11-30", 0), ("2026-11-24", 0), ("2026-11-23", 1)])
def test_a_week_without_a_nightly_is_no_frozen_page_yet(tmp_path: Path, newest: str, notes: int) -> None:
    assert len(load([torch(newest)], tmp_path).notes()) == notes


def test_the_window_begins_after_the_last_large_hole(tmp_path: Path) -> None:
    strays = [torch("2023-10-10", base="2.2.0"), torch("2026-08-01", base="2.14.0")]
    window = [torch(f"2026-10-{day:02}") for day in (1, 2, 12, 13)]  # ten days are no large hole
    catalog = load([*strays, *window], tmp_path)
    assert catalog.window_start == date(2026, 10, 1)
    assert catalog.first_day == date(2020, 11, 8)


def test_days_before_the_window_are_asked_for_and_missing_days_within_it_are_not(tmp_path: Path) -> None:
    catalog = load([torch(day) for day in ("2026-09-27", "2026-10-10", "2026-10-12")], tmp_path)
    slots = catalog.slots(date(2026, 9, 26), date(2026, 10, 12))
    kinds = {str(slot.stamp): "listed" if isinstance(slot, Nightly) else "to ask" for slot in slots}
    assert [slot.stamp for slot in slots] == sorted(slot.stamp for slot in slots)
    to_ask = [
        "2026-09-26",
        "2026-09-28",
        "2026-09-29",
        "2026-09-30",
        *(f"2026-10-{day:02}" for day in range(1, 10)),
    ]
    assert [day for day, kind in kinds.items() if kind == "to ask"] == to_ask
    assert [day for day, kind in kinds.items() if kind == "listed"] == [
        "2026-09-27",
        "2026-10-10",
        "2026-10-12",
    ]
    assert catalog.slots(date(2026, 10, 11), date(2026, 10, 11)) == []
    assert catalog.slots(date(2026, 12, 1), date(2026, 12, 9)) == []


def test_no_day_before_the_first_attested_one_is_asked_for(tmp_path: Path) -> None:
    slots = load([torch("2026-11-01")], tmp_path).slots(date(2019, 1, 1), date(2020, 11, 9))
    assert [str(slot.stamp) for slot in slots] == ["2020-11-08", "2020-11-09"]


@pytest.mark.parametrize(
    ("package", "channel", "target", "path"),
    [
        ("pyg-nightly", None, LINUX, "pyg_nightly-2.9.0.dev20261027-py3-none-any.whl"),
        ("torch", "cpu", make_target("3.12", "win_arm64"), torch("2026-11-01", tag="cp312-cp312-win_arm64")),
    ],
)
def test_where_names_of_unlisted_wheels_are_not_known_only_listed_days_count(
    tmp_path: Path, package: str, channel: str | None, target: Target, path: str
) -> None:
    catalog = load([path], tmp_path, profile=load_profile(package, None), channel=channel, target=target)
    assert catalog.slots(date(2024, 1, 1), date(2026, 12, 1)) == list(catalog.nightlies)
    assert catalog.first_day == catalog.newest.stamp.day


def test_a_day_that_is_not_listed_is_found_below_the_root_of_the_index(tmp_path: Path) -> None:
    hidden = Night(date(2026, 9, 1), base="2.15.0", listed=False, tag=f"{TAG}-{TAG}-manylinux_2_28_x86_64")
    with serve([hidden, *(Night(day, base="2.16.0") for day in days(date(2026, 11, 1), 3))]) as server:
        request = Request(TORCH, "cpu", make_target(None, "linux_x86_64"), server.url + FOLDER)
        catalog = load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)
        gone, there = (UnlistedDay(Stamp(hidden.day + timedelta(days=n))) for n in (-1, 0))
        assert catalog.ask(gone) is None
        found = catalog.ask(there)
    assert found is not None and found.wheel is not None
    assert found.version == hidden.version
    assert [method for method, _ in server.requests] == [
        "GET",
        "HEAD",
        "HEAD",
        "HEAD",
    ]  # absent, but not blocked; there


@pytest.mark.parametrize(
    ("hosts", "kept"),
    [
        ((), 3),
        (("pytorch.org",), 2),
        (("download-r2.pytorch.org",), 1),
        (("torch.org",), 0),
        (("evil.example",), 1),
    ],
)
def test_files_on_hosts_that_the_profile_does_not_name_are_left_out(
    tmp_path: Path, hosts: tuple[str, ...], kept: int
) -> None:
    links = [
        f"https://{host}/whl/nightly/cpu/torch-2.16.0.dev2026110{day}%2Bcpu-{MANYLINUX}.whl"
        for day, host in enumerate(
            ("download.pytorch.org", "download-r2.pytorch.org", "evil.example"), start=1
        )
    ]
    body = "<html><body>" + "".join(f'<a href="{link}">x</a>' for link in links) + "</body></html>"
    with LoopbackServer({"/cpu/torch/": Content(body.encode(), "text/html")}) as server:
        profile = replace(TORCH, index=IndexSource(f"{server.url}/{{channel}}/", hosts, "cpu"))
        request = Request(profile, "cpu", LINUX)
        if not kept:
            with pytest.raises(NotAnIndex, match="on a host that the profile doesn't allow"):
                load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)
            return
        catalog = load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)
        named = load_catalog(
            replace(request, index_url=f"{server.url}/cpu"), WEB, Listings(tmp_path), Memory(tmp_path), NOW
        )
    assert len(catalog.nightlies) == kept
    assert len(catalog.unreadable) == 3 - kept
    assert len(named.nightlies) == 3  # an index that the user named may use any host


def test_releases_are_the_stable_versions_in_order_with_the_day_of_their_upload(tmp_path: Path) -> None:
    uploads = {"2.10.0": "2026-01-21T01:00:00+09:00", "2.9.0": "2025-10-15T10:00:00Z", "2.9.1": "2025-11-12T10:00:00Z",
               "2.11.0rc1": "2026-02-01T10:00:00Z", "2.10.0.dev20250910": "2025-09-10T10:00:00Z"}  # fmt: skip
    files = [
        {"filename": f"torch-{version}-{MANYLINUX}.whl", "url": f"torch-{version}.whl", "hashes": {}, "upload-time": time}
        for version, time in uploads.items()
    ]  # fmt: skip
    body = {"meta": {"api-version": "1.1"}, "name": "torch", "versions": [], "files": files}
    page = Content(json.dumps(body).encode(), "application/vnd.pypi.simple.v1+json")
    with LoopbackServer({"/simple/torch/": page}) as server:
        request = Request(TORCH.as_release(), RELEASES, LINUX, f"{server.url}/simple")
        catalog = load_catalog(request, WEB, Listings(tmp_path), Memory(tmp_path), NOW)
    assert versions(catalog) == ["2.9.0", "2.9.1", "2.10.0"]
    assert listed_days(catalog) == ["2025-10-15", "2025-11-12", "2026-01-20"]
    assert catalog.slots(date(2025, 1, 1), date(2026, 12, 1)) == list(catalog.nightlies)
    assert catalog.notes() == []


@pytest.mark.parametrize(
    ("package", "channel", "index_url", "root"),
    [
        ("torch", "cu128", None, "https://download.pytorch.org/whl/nightly/cu128/"),
        ("torch", "cu128", "https://m.example.org/{channel}", "https://m.example.org/cu128/"),
        ("torch", "cu128", "https://m.example.org/all//", "https://m.example.org/all/"),
        ("pyg-nightly", None, None, PYPI_SIMPLE_ENDPOINT),
    ],
)
def test_the_root_of_an_index_ends_with_one_slash(
    package: str, channel: str | None, index_url: str | None, root: str
) -> None:
    assert Request(load_profile(package, None), channel, LINUX, index_url).root_url == root


@pytest.mark.parametrize(
    ("package", "asked", "channel"),
    [
        ("torch", None, "cpu"),
        ("torch", "cu128", "cu128"),
        ("torch", RELEASES, RELEASES),
        ("pyg-nightly", None, None),
        ("pyg-nightly", RELEASES, RELEASES),
    ],
)
def test_the_channel_is_the_asked_one_or_the_packages_own(
    package: str, asked: str | None, channel: str | None
) -> None:
    assert check_channel(load_profile(package, None), asked) == channel


def test_a_channel_for_a_package_without_channels_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="pyg-nightly has no channels"):
        check_channel(load_profile("pyg-nightly", None), "cpu")
