"""The cache of wheels: what comes is checked, hashed and kept, or nothing is."""

from __future__ import annotations

import errno
import hashlib
import io
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from nightly_bisect.errors import StorageFault, Unreachable
from nightly_bisect.index.archive import CorruptWheel
from nightly_bisect.index.downloads import StoredWheel, WheelStore, storage_faults
from nightly_bisect.index.web import Web
from nightly_bisect.index.wheel_safety import HostileWheel
from nightly_bisect.model import Wheel
from nightly_bisect.standin.server import Content, Handler, LoopbackServer
from nightly_bisect.standin.wheels import make_wheel

Respond = Callable[[Handler], None]

WEB = Web(pause=lambda _: None)
NAME = "torch-2.6.0.dev20241201+cpu-py3-none-any.whl"
WHOLE = make_wheel("torch", "2.6.0.dev20241201+cpu", {"torch/__init__.py": "value = 1\n"})
REBUILT = make_wheel("torch", "2.6.0.dev20241201+cpu", {"torch/__init__.py": "value = 2\n"})
PATH = f"/whl/{NAME}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer({PATH: Content(WHOLE)}) as server:
        yield server


@pytest.fixture
def store(tmp_path: Path) -> WheelStore:
    return WheelStore(tmp_path / "wheels", WEB)


def listed(server: LoopbackServer, sha256: str | None = None) -> Wheel:
    return Wheel(NAME, server.url + PATH.replace("+", "%2B"), sha256)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def silent(filename: str, received: int, expected: int | None) -> None:
    """Show no progress."""


def fetch(store: WheelStore, wheel: Wheel) -> StoredWheel:
    stored = store.fetch(wheel, silent)
    assert stored is not None
    assert sha256(stored.path.read_bytes()) == stored.sha256
    assert stored.path.stat().st_size == stored.size_bytes
    return stored


def methods(server: LoopbackServer) -> list[str]:
    return [method for method, _ in server.requests]


def files(folder: Path) -> set[str]:
    names = {path.name for path in folder.rglob("*") if path.is_file()} - {".lock", "used"}
    return {name for name in names if not name.startswith(".use-")}


def on_get(*responds: Respond) -> Respond:
    """Answer HEAD with the whole wheel, and each GET otherwise."""
    left = iter(responds)

    def respond(handler: Handler) -> None:
        (whole if handler.command == "HEAD" else next(left))(handler)

    return respond


def whole(handler: Handler) -> None:
    handler.reply(200, Content(WHOLE))


def cut_short(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(WHOLE)))
    handler.end_headers()
    handler.wfile.write(WHOLE[: len(WHOLE) // 2])
    handler.close_connection = True


def cut_short_and_silent(handler: Handler) -> None:
    """Send half of the wheel without a word on its size."""
    handler.send_response(200)
    handler.end_headers()
    handler.wfile.write(WHOLE[: len(WHOLE) // 2])
    handler.close_connection = True


def without_an_end(handler: Handler) -> None:
    """Send as many bytes as promised, the last of them zeros."""
    handler.reply(200, Content(WHOLE[:-22] + bytes(22)))


def test_a_wheel_is_stored_with_the_hash_of_its_bytes(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    progress: list[tuple[str, int, int | None]] = []
    assert not store.is_stored(listed(server))
    stored = store.fetch(listed(server), lambda *report: progress.append(report))
    assert stored is not None
    assert (stored.path.name, stored.sha256, stored.size_bytes) == (NAME, sha256(WHOLE), len(WHOLE))
    assert stored.path.read_bytes() == WHOLE
    assert progress[-1] == (NAME, len(WHOLE), len(WHOLE))
    assert store.is_stored(listed(server))
    assert files(tmp_path) == {NAME, "record.json"}
    assert methods(server) == ["HEAD", "GET"]


@pytest.mark.parametrize(("promise", "again"), [(None, ["HEAD"]), (sha256(WHOLE), [])])
def test_a_stored_wheel_is_not_downloaded_again(
    server: LoopbackServer, store: WheelStore, promise: str | None, again: list[str]
) -> None:
    first = fetch(store, listed(server, promise))
    server.requests.clear()
    assert fetch(store, listed(server, promise)) == first
    assert methods(server) == again


@pytest.mark.parametrize("with_tags", [True, False])
def test_a_wheel_uploaded_anew_under_its_name_is_downloaded_anew(
    server: LoopbackServer, store: WheelStore, with_tags: bool
) -> None:
    larger = (
        REBUILT
        if with_tags
        else make_wheel("torch", "2.6.0.dev20241201+cpu", {"torch/more.py": "x = 1\n" * 99})
    )
    content = [WHOLE]
    if not with_tags:
        server.faults[PATH] = lambda handler: handler.reply(200, Content(content[0]))
    assert fetch(store, listed(server)).sha256 == sha256(WHOLE)
    server.contents[PATH], content[0] = Content(larger), larger
    assert fetch(store, listed(server)).sha256 == sha256(larger)
    # and a promise of the index decides without asking
    server.requests.clear()
    assert fetch(store, listed(server, sha256(larger))).sha256 == sha256(larger)
    assert methods(server) == []


def test_a_stored_wheel_with_another_hash_than_the_index_promises_is_downloaded_anew(
    server: LoopbackServer, store: WheelStore
) -> None:
    fetch(store, listed(server, sha256(WHOLE)))
    server.contents[PATH] = Content(REBUILT)
    assert fetch(store, listed(server, sha256(REBUILT))).sha256 == sha256(REBUILT)


@pytest.mark.parametrize("status", [403, 404])
def test_a_wheel_that_the_server_has_not_is_gone_and_one_that_it_lost_is_kept(
    server: LoopbackServer, store: WheelStore, tmp_path: Path, status: int
) -> None:
    server.missing_status = status
    other = replace(listed(server), url=f"{server.url}/whl/other.whl")
    assert store.fetch(other, silent) is None
    assert files(tmp_path) == set()
    kept = fetch(store, listed(server))
    del server.contents[PATH]
    assert fetch(store, listed(server)) == kept


def test_a_listed_wheel_that_answers_head_but_not_get_is_gone(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    server.faults[PATH] = on_get(lambda handler: handler.reply(403, Content(b"")))
    assert store.fetch(listed(server), silent) is None
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        (cut_short, ["HEAD", "GET", "GET"]),  # seen at once: the same request again
        (cut_short_and_silent, ["HEAD", "GET", "HEAD", "GET"]),  # seen when it is checked
        (without_an_end, ["HEAD", "GET", "HEAD", "GET"]),
    ],
)
def test_a_body_that_is_not_whole_is_downloaded_again(
    server: LoopbackServer, store: WheelStore, tmp_path: Path, fault: Respond, requests: list[str]
) -> None:
    server.faults[PATH] = on_get(fault, whole)
    assert fetch(store, listed(server)).sha256 == sha256(WHOLE)
    assert files(tmp_path) == {NAME, "record.json"}
    assert methods(server) == requests


def test_a_body_that_is_never_whole_is_a_fault_of_the_network_and_leaves_nothing(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    server.faults[PATH] = on_get(*[cut_short] * 4)
    with pytest.raises(Unreachable, match="4 tries"):
        store.fetch(listed(server), silent)
    assert files(tmp_path) == set()


def archive(**members: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, text in members.items():
            file.writestr(name.replace("__", "/"), text)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("body", "promise", "why"),
    [
        (b"<html><body>Sign in</body></html>", None, "not a zip file"),
        (b"", None, "not a zip file"),
        (WHOLE[:-30], None, "not a zip file"),
    ],
)
def test_what_stays_wrong_is_tried_three_times_and_leaves_nothing(
    server: LoopbackServer, store: WheelStore, tmp_path: Path, body: bytes, promise: str | None, why: str
) -> None:
    server.contents[PATH] = Content(body)
    with pytest.raises(CorruptWheel, match=why):
        store.fetch(listed(server, promise), silent)
    assert methods(server) == ["HEAD", "GET"] * 3
    assert files(tmp_path) == set()


@pytest.mark.parametrize(("body", "promise"), [(WHOLE, "0" * 64), (REBUILT, sha256(WHOLE))])
def test_other_bytes_than_promised_are_asked_for_once_more_and_kept_to_be_looked_at(
    server: LoopbackServer, store: WheelStore, tmp_path: Path, body: bytes, promise: str
) -> None:
    caches: list[str | None] = []

    def respond(handler: Handler) -> None:
        if handler.command == "GET":
            caches.append(handler.headers.get("Cache-Control"))
        handler.reply(200, Content(body))

    server.faults[PATH] = respond
    why = f"its sha256 is {sha256(body)}, the index promised {promise}; the file is kept as .*/.mismatch"
    with pytest.raises(CorruptWheel, match=why):
        store.fetch(listed(server, promise), silent)
    assert methods(server) == ["HEAD", "GET"] * 2
    assert caches == [None, "no-cache"]
    assert files(tmp_path) == {".mismatch"}
    (kept,) = tmp_path.rglob(".mismatch")
    assert kept.read_bytes() == body


def test_more_or_fewer_bytes_than_head_promised_are_not_the_wheel(
    server: LoopbackServer, store: WheelStore
) -> None:
    server.faults[PATH] = on_get(*[lambda handler: handler.reply(200, Content(REBUILT + bytes(5)))] * 3)
    with pytest.raises(CorruptWheel, match=f"{len(REBUILT) + 5} bytes came instead of {len(WHOLE)}"):
        store.fetch(listed(server), silent)


def test_a_wrong_file_under_the_name_of_a_stored_one_does_not_replace_it(
    server: LoopbackServer, store: WheelStore
) -> None:
    kept = fetch(store, listed(server))
    server.contents[PATH] = Content(b"<html>Sign in</html>")
    with pytest.raises(CorruptWheel):
        store.fetch(listed(server), silent)
    server.contents[PATH] = Content(WHOLE)
    server.requests.clear()
    assert fetch(store, listed(server)) == kept
    assert methods(server) == ["HEAD"]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    path.write_bytes(bytes(1) + path.read_bytes()[1:])


def forget(path: Path) -> None:
    (path.parent / "record.json").unlink()


def scribble(path: Path) -> None:
    (path.parent / "record.json").write_text('{"url": 1}')


@pytest.mark.parametrize("damage", [shorten, flip, forget, scribble, Path.unlink])
@pytest.mark.parametrize("promise", [None, sha256(WHOLE)])
def test_a_stored_wheel_that_was_damaged_is_downloaded_again(
    server: LoopbackServer, store: WheelStore, damage: Callable[[Path], None], promise: str | None
) -> None:
    first = fetch(store, listed(server, promise))
    damage(first.path)
    assert fetch(store, listed(server, promise)) == first


def test_a_download_that_fills_the_disk_leaves_nothing_behind(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    def fail(filename: str, received: int, expected: int | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(StorageFault):
        store.fetch(listed(server), fail)
    assert files(tmp_path) == set()
    fetch(store, listed(server))


def interrupt(filename: str, received: int, expected: int | None) -> None:
    raise KeyboardInterrupt


def in_halves(ranges: list[str | None], etag: str | None = '"tag"') -> Respond:
    """Answer a GET with the first half and no more, one for the rest with all of it."""

    def respond(handler: Handler) -> None:
        asked = handler.headers.get("Range")
        headers = {"ETag": etag} if etag else {}
        if handler.command == "HEAD":
            handler.reply(200, Content(WHOLE), headers)
            return
        ranges.append(asked)
        if asked is None:
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(WHOLE)))
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(WHOLE[:HALF])
            handler.close_connection = True
            return
        rest = {**headers, "Content-Range": f"bytes {HALF}-{len(WHOLE) - 1}/{len(WHOLE)}"}
        handler.reply(206, Content(WHOLE[HALF:]), rest)

    return respond


HALF = len(WHOLE) // 2


@pytest.mark.parametrize("etag", ['"tag"', None])
def test_what_came_before_an_interruption_is_not_asked_for_again(
    server: LoopbackServer, store: WheelStore, tmp_path: Path, etag: str | None
) -> None:
    ranges: list[str | None] = []
    server.faults[PATH] = in_halves(ranges, etag)
    with pytest.raises(KeyboardInterrupt):
        store.fetch(listed(server), interrupt)
    if etag is None:  # nothing says whether the server will have the same file
        assert files(tmp_path) == set()
        return
    assert files(tmp_path) == {".part", ".part.json"}
    assert fetch(WheelStore(tmp_path / "wheels", WEB), listed(server)).sha256 == sha256(WHOLE)
    assert ranges == [None, f"bytes={HALF}-"]
    assert files(tmp_path) == {NAME, "record.json"}


def test_a_part_of_another_version_is_thrown_away(server: LoopbackServer, store: WheelStore) -> None:
    ranges: list[str | None] = []
    server.faults[PATH] = in_halves(ranges)
    with pytest.raises(KeyboardInterrupt):
        store.fetch(listed(server), interrupt)
    del server.faults[PATH]
    server.contents[PATH] = Content(REBUILT)
    assert fetch(store, listed(server)).sha256 == sha256(REBUILT)


def test_a_part_that_was_damaged_on_the_disk_does_not_become_a_wheel(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    ranges: list[str | None] = []
    server.faults[PATH] = in_halves(ranges)
    with pytest.raises(KeyboardInterrupt):
        store.fetch(listed(server), interrupt)
    (part,) = tmp_path.rglob(".part")
    part.write_bytes(bytes(part.stat().st_size))
    assert fetch(store, listed(server)).sha256 == sha256(WHOLE)
    assert ranges == [None, f"bytes={HALF}-", None, f"bytes={HALF}-"]


def test_a_part_that_is_whole_already_is_only_checked(
    server: LoopbackServer, store: WheelStore, tmp_path: Path
) -> None:
    ranges: list[str | None] = []
    server.faults[PATH] = in_halves(ranges)
    with pytest.raises(KeyboardInterrupt):
        store.fetch(listed(server), interrupt)
    (part,) = tmp_path.rglob(".part")
    part.write_bytes(WHOLE)
    assert fetch(store, listed(server)).sha256 == sha256(WHOLE)
    assert ranges == [None]


def test_two_at_once_download_a_wheel_once(server: LoopbackServer, tmp_path: Path) -> None:
    def one(_: int) -> StoredWheel:
        return fetch(WheelStore(tmp_path, Web(pause=lambda _: None)), listed(server))

    with ThreadPoolExecutor(4) as pool:
        stored = set(pool.map(one, range(4)))
    assert len(stored) == 1
    assert methods(server).count("GET") == 1


def test_one_name_at_two_addresses_is_two_wheels(server: LoopbackServer, store: WheelStore) -> None:
    server.contents[f"/other/{NAME}"] = Content(REBUILT)
    elsewhere = Wheel(NAME, f"{server.url}/other/{NAME.replace('+', '%2B')}")
    assert fetch(store, listed(server)).sha256 == sha256(WHOLE)
    assert fetch(store, elsewhere).sha256 == sha256(REBUILT)


def test_a_wheel_that_does_not_fit_on_the_disk_is_not_begun(
    server: LoopbackServer, store: WheelStore
) -> None:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**17))
        handler.end_headers()

    server.faults[PATH] = respond
    with pytest.raises(StorageFault, match=r"needs about 400000000\.0 GB") as caught:
        store.fetch(listed(server), silent)
    assert "--cache-dir" in caught.value.hint
    assert methods(server) == ["HEAD"]


def test_a_cache_that_is_no_folder_is_a_storage_fault(server: LoopbackServer, tmp_path: Path) -> None:
    (tmp_path / "wheels").write_text("")
    with pytest.raises(StorageFault, match="cannot be written") as caught:
        WheelStore(tmp_path / "wheels", WEB).fetch(listed(server), silent)
    assert "--cache-dir" in caught.value.hint


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.ENOSPC, "no space left"),
        (errno.EDQUOT, "no space left"),
        (errno.EROFS, "cannot be written"),
        (errno.EACCES, "cannot be written"),
        (errno.EIO, "cannot be written"),
    ],
)
def test_errors_of_the_disk_are_storage_faults(tmp_path: Path, number: int, message: str) -> None:
    with pytest.raises(StorageFault, match=message) as caught, storage_faults(tmp_path):
        raise OSError(number, "as the disk says")
    assert str(tmp_path) in caught.value.what


def test_other_errors_are_not_the_disks(tmp_path: Path) -> None:
    with pytest.raises(ProcessLookupError), storage_faults(tmp_path):
        raise ProcessLookupError(errno.ESRCH, "no such process")


def test_a_flipped_byte_inside_is_not_stored(server: LoopbackServer, store: WheelStore) -> None:
    with zipfile.ZipFile(io.BytesIO(WHOLE)) as archive:
        at = archive.getinfo("torch/__init__.py").header_offset + 30 + len("torch/__init__.py") + 3
    server.contents[PATH] = Content(WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :])
    with pytest.raises(CorruptWheel):
        store.fetch(listed(server), lambda *_: None)


def test_a_stored_wheel_serves_while_the_server_is_down(server: LoopbackServer, store: WheelStore) -> None:
    first = store.fetch(listed(server), lambda *_: None)
    server.faults[PATH] = lambda handler: handler.reply(503, Content(b"down"))
    assert store.fetch(listed(server), lambda *_: None) == first


def test_a_hostile_wheel_is_not_asked_for_again(server: LoopbackServer, store: WheelStore) -> None:
    files = {"torch/__init__.py": "", "../escaped.py": ""}
    server.contents[PATH] = Content(make_wheel("torch", "2.6.0.dev20241201+cpu", files))
    with pytest.raises(HostileWheel, match="climbs out of its folder"):
        store.fetch(listed(server), lambda *_: None)
    assert [method for method, _ in server.requests] == ["HEAD", "GET"]
