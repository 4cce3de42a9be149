"""The last good listing of an index: when it stands in, and that nothing gets lost silently."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from loopback import days

from nightly_bisect.errors import IndexFault, NoSuchPage, NotAnIndex, Refused
from nightly_bisect.index.catalog import Catalog, Request, load_catalog
from nightly_bisect.index.listings import Listings
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profiles import load_profile
from nightly_bisect.index.targets import make_target
from nightly_bisect.index.web import Web
from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, Handler, LoopbackServer

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
WEB = Web(pause=lambda _: None)
TORCH = load_profile("torch", None)
LINUX = make_target("3.11", "linux_x86_64")


def files(count: int) -> list[File]:
    """Return consecutive nightlies, the last one of the day before."""
    return [
        File(f"/torch-2.16.0.dev{day:%Y%m%d}+cpu-cp311-cp311-manylinux_2_28_x86_64.whl", b"")
        for day in days(date(2026, 12, 1) - timedelta(days=count), count)
    ]


def load(server: LoopbackServer, folder: Path, now: datetime = NOW) -> Catalog:
    return load_catalog(Request(TORCH, "cpu", LINUX, server.url), WEB, Listings(folder), Memory(folder), now)


def cut_at(body: bytes, count: int) -> Callable[[Handler], None]:
    """Send the first bytes of a page as if they were all."""
    return lambda handler: handler.reply(200, Content(body[:count], "text/html"))


SIGN_IN = b"<html><body>Sign in to the network: <a href='/login'>here</a></body></html>"


@pytest.mark.parametrize("fault", ["down", "captive portal", "cut", "garbage"])
def test_the_last_good_listing_stands_in_for_an_index_that_fails(tmp_path: Path, fault: str) -> None:
    body = index_page("torch", files(5), Era.SIDECARS)
    with LoopbackServer({"/torch/": Content(body, "text/html")}) as server:
        before = load(server, tmp_path)
        bodies = {"captive portal": SIGN_IN, "cut": body[: len(body) // 2], "garbage": b"\x1f\x8b\xff"}
        if fault == "down":
            server.faults["/torch/"] = lambda handler: handler.reply(503, Content(b""))
        else:
            server.contents["/torch/"] = Content(bodies[fault], "text/html")
        after = load(server, tmp_path, NOW + timedelta(hours=9))
        with pytest.raises(IndexFault):
            load(server, tmp_path / "elsewhere")
        with pytest.raises(IndexFault):
            load(server, tmp_path, NOW + timedelta(days=8))
    assert after.nightlies == before.nightlies
    assert before.notes() == []
    (note,) = after.notes()
    assert "The index could not be read" in note
    assert f"Its listing of {NOW:%Y-%m-%d %H:%M} UTC, 9 hours old, is used instead" in note


@pytest.mark.parametrize("code", [403, 404])
def test_nothing_stands_in_for_a_page_that_is_not_there_any_more(tmp_path: Path, code: int) -> None:
    page = index_page("torch", files(5), Era.SIDECARS)
    with LoopbackServer({"/torch/": Content(page, "text/html")}, missing_status=code) as server:
        load(server, tmp_path)
        del server.contents["/torch/"]
        with pytest.raises((Refused, NoSuchPage)):
            load(server, tmp_path)


def test_a_page_that_is_cut_anywhere_never_lists_fewer_nightlies(tmp_path: Path) -> None:
    body = index_page("torch", files(50), Era.SIDECARS)
    with LoopbackServer() as server:
        for part in range(50):
            server.faults["/torch/"] = cut_at(body, len(body) * part // 50)
            with pytest.raises(NotAnIndex):
                load(server, tmp_path)
        server.faults["/torch/"] = cut_at(body, len(body))
        assert len(load(server, tmp_path).nightlies) == 50


@pytest.mark.parametrize(("left", "said"), [(7, True), (8, False), (10, False)])
def test_a_listing_that_shrinks_is_told_and_does_not_replace_the_kept_one(
    tmp_path: Path, left: int, said: bool
) -> None:
    with LoopbackServer() as server:
        for count in (10, left, left):
            page = index_page("torch", files(10)[-count:], Era.SIDECARS)
            server.contents["/torch/"] = Content(page, "text/html")
            catalog = load(server, tmp_path)
            assert len(catalog.nightlies) == count
    assert [note for note in catalog.notes() if "there were 10" in note] == catalog.notes()
    assert bool(catalog.notes()) is said


@pytest.mark.parametrize("damage", [lambda text: text[:-1], lambda text: b"{}\n", lambda text: b"\xff"])
def test_a_kept_listing_that_was_damaged_is_none(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    page = index_page("torch", files(5), Era.SIDECARS)
    with LoopbackServer({"/torch/": Content(page, "text/html")}) as server:
        load(server, tmp_path)
        (kept,) = (tmp_path / "listings").iterdir()
        kept.write_bytes(damage(kept.read_bytes()))
        server.contents["/torch/"] = Content(SIGN_IN, "text/html")
        with pytest.raises(NotAnIndex):
            load(server, tmp_path)
