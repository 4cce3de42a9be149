"""All faults of the web that a loopback server can play, with the requests and waits they cost."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nightly_bisect.errors import IndexFault, NoSuchPage, NotAnIndex, Refused, Unreachable
from nightly_bisect.index.web import FileInfo, Web
from nightly_bisect.standin.server import Content, Handler, LoopbackServer

Respond = Callable[[Handler], None]

PAGE = Content(b"<html><body><a href='x.whl'>x</a></body></html>", "text/html")
PATIENCE = [2.0, 4.0, 8.0]
"""The waits between the four tries that anything gets which may pass by itself."""


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer({"/torch/": PAGE}) as server:
        yield server


@pytest.fixture(scope="module")
def all_pauses() -> list[float]:
    return []


@pytest.fixture(scope="module", autouse=True)
def usual_delays() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NIGHTLY_BISECT_RETRY_DELAY_S", raising=False)
        yield


@pytest.fixture(scope="module")
def web(all_pauses: list[float]) -> Web:
    return Web(pause=all_pauses.append)


@pytest.fixture
def pauses(all_pauses: list[float]) -> list[float]:
    """The waits of this test."""
    all_pauses.clear()
    return all_pauses


def status(code: int, **headers: str) -> Respond:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(code, Content(b"<html>Error</html>", "text/html"), named)


def redirect(location: str) -> Respond:
    return status(302, Location=location)


def answer(content: Content) -> Respond:
    return lambda handler: handler.reply(200, content)


def in_turn(*responds: Respond) -> Respond:
    """Answer each request otherwise."""
    left = iter(responds)
    return lambda handler: next(left)(handler)


def cut_short(handler: Handler) -> None:
    """Promise more bytes than are sent."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(PAGE.body)
    handler.close_connection = True


def chunks_cut_short(handler: Handler) -> None:
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(PAGE.body), PAGE.body))
    handler.close_connection = True


def hang_up(handler: Handler) -> None:
    handler.close_connection = True


def gzipped(body: bytes) -> Respond:
    content = Content(body, "text/html")
    return lambda handler: handler.reply(200, content, {"Content-Encoding": "gzip"})


class Receiver:
    """Keeps what a download brings, as a part of a file does."""

    def __init__(self, on_chunk: Callable[[bytes], None] = lambda chunk: None) -> None:
        self.body = b""
        self.etag: str | None = None
        self.size_bytes: int | None = None
        self.begun = 0
        self._on_chunk = on_chunk

    @property
    def received(self) -> int:
        return len(self.body)

    def begin(self, etag: str | None, size_bytes: int | None) -> None:
        self.body, self.etag, self.size_bytes = b"", etag, size_bytes
        self.begun += 1

    def append(self, chunk: bytes) -> None:
        self.body += chunk
        self._on_chunk(chunk)


def test_a_page_is_read_with_its_address_and_type(server: LoopbackServer, web: Web) -> None:
    document = web.page(f"{server.url}/torch/")
    assert (document.url, document.body) == (f"{server.url}/torch/", PAGE.body)
    assert document.content_type == "text/html"


def test_a_compressed_page_is_read(server: LoopbackServer, web: Web) -> None:
    server.faults["/torch/"] = gzipped(gzip.compress(PAGE.body))
    assert web.page(f"{server.url}/torch/").body == PAGE.body


@pytest.mark.parametrize(
    "fault", [status(500), status(429), status(503), cut_short, chunks_cut_short, hang_up]
)
def test_what_passes_by_itself_is_tried_again(
    server: LoopbackServer, web: Web, pauses: list[float], fault: Respond
) -> None:
    server.faults["/torch/"] = in_turn(fault, fault, answer(PAGE))
    assert web.page(f"{server.url}/torch/").body == PAGE.body
    assert len(server.requests) == 3
    assert pauses == PATIENCE[:2]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (status(500), "HTTP 500"),
        (status(504), "HTTP 504"),
        (status(429), "HTTP 429"),
        (cut_short, "IncompleteRead"),
        (chunks_cut_short, "IncompleteRead"),
        (hang_up, "closed connection without response"),
        (gzipped(b"this is no gzip"), "failed to decode"),
    ],
)
def test_what_does_not_pass_is_given_up_after_four_tries_and_the_reason_is_told(
    server: LoopbackServer, web: Web, pauses: list[float], fault: Respond, why: str
) -> None:
    server.faults["/torch/"] = fault
    with pytest.raises(Unreachable, match=f"{server.url}/torch/ in 4 tries: .*{why}"):
        web.page(f"{server.url}/torch/")
    assert len(server.requests) == 4
    assert pauses == PATIENCE


def test_where_nobody_listens_is_unreachable(web: Web, pauses: list[float]) -> None:
    with LoopbackServer() as server:
        url = server.url
    with pytest.raises(Unreachable, match="refused"):
        web.page(f"{url}/torch/")
    assert pauses == PATIENCE


@pytest.mark.parametrize(
    ("code", "kind"), [(400, Refused), (401, Refused), (403, Refused), (404, NoSuchPage), (410, Refused)]
)
def test_a_refusal_is_final_at_once(
    server: LoopbackServer, web: Web, pauses: list[float], code: int, kind: type[IndexFault]
) -> None:
    server.faults["/torch/"] = status(code)
    with pytest.raises(kind, match=str(code)) as caught:
        web.page(f"{server.url}/torch/")
    assert caught.value.url == f"{server.url}/torch/"
    assert len(server.requests) == 1
    assert pauses == []


@pytest.mark.parametrize(
    ("header", "wait"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("1000000000", 120.0),
        ("9" * 400, 120.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Tue, 31 Dec 2999 23:59:59 GMT", 120.0),
        # what is no time leaves the usual wait
        ("-1", 2.0),
        ("1e9", 2.0),
        ("soon", 2.0),
        ("", 2.0),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_the_wait_that_a_server_asks_for_is_kept_up_to_two_minutes(
    server: LoopbackServer, web: Web, pauses: list[float], code: int, header: str, wait: float
) -> None:
    server.faults["/torch/"] = in_turn(status(code, Retry_After=header), answer(PAGE))
    web.page(f"{server.url}/torch/")
    assert pauses == [wait]


@pytest.mark.parametrize("location", ["/other/", "other/", "../other/", "{url}/other/", "//{host}/other/"])
def test_a_redirect_is_followed_and_the_page_is_where_it_ended(
    server: LoopbackServer, web: Web, location: str
) -> None:
    server.contents["/other/"] = server.contents["/index/other/"] = PAGE
    host = server.url.removeprefix("http://")
    server.faults["/index/"] = redirect(location.format(url=server.url, host=host))
    document = web.page(f"{server.url}/index/")
    assert document.body == PAGE.body
    assert document.url in (f"{server.url}/other/", f"{server.url}/index/other/")


@pytest.mark.parametrize(("hops", "followed"), [(5, True), (6, False)])
def test_five_redirects_are_followed_and_no_more(
    server: LoopbackServer, web: Web, hops: int, followed: bool
) -> None:
    for hop in range(hops):
        server.faults[f"/{hop}"] = redirect(f"/{hop + 1}" if hop + 1 < hops else "/torch/")
    if followed:
        assert web.page(f"{server.url}/0").body == PAGE.body
    else:
        with pytest.raises(Refused, match="redirects more than 5 times"):
            web.page(f"{server.url}/0")
    assert len(server.requests) == 6


def test_a_redirect_loop_is_refused_without_a_wait(
    server: LoopbackServer, web: Web, pauses: list[float]
) -> None:
    server.faults["/torch/"] = redirect("/torch/")
    with pytest.raises(Refused, match="redirects more than 5 times"):
        web.page(f"{server.url}/torch/")
    assert pauses == []


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "ftp://example.org/", "javascript:alert(1)", "data:,x"]
)
@pytest.mark.parametrize("method", ["page", "file_info", "download"])
def test_a_redirect_away_from_the_web_is_refused(
    server: LoopbackServer, web: Web, pauses: list[float], location: str, method: str
) -> None:
    server.faults["/torch/"] = redirect(location)
    url = f"{server.url}/torch/"
    calls: dict[str, Callable[[], object]] = {
        "page": lambda: web.page(url),
        "file_info": lambda: web.file_info(url),
        "download": lambda: web.download(url, Receiver()),
    }
    with pytest.raises(Refused, match="which is not followed"):
        calls[method]()
    assert len(server.requests) == 1
    assert pauses == []


def test_credentials_stay_with_the_host_that_they_are_for(server: LoopbackServer, web: Web) -> None:
    got: list[str | None] = []

    def note(handler: Handler) -> None:
        got.append(handler.headers.get("Authorization"))
        handler.reply(200, Content(b"{}", "application/json"))

    with LoopbackServer() as other:
        server.faults["/same"], server.faults["/away"] = redirect("/here"), redirect(f"{other.url}/there")
        server.faults["/here"] = other.faults["/there"] = note
        for path in ("/here", "/same", "/away"):
            assert web.json(server.url + path, {"Authorization": "Bearer secret"}) == {}
    assert got == ["Bearer secret", "Bearer secret", None]


def test_json_is_asked_for_once_only(server: LoopbackServer, web: Web, pauses: list[float]) -> None:
    import requests

    server.faults["/api"] = status(503)
    with pytest.raises(requests.HTTPError):
        web.json(f"{server.url}/api", {})
    assert len(server.requests) == 1
    assert pauses == []


def test_a_page_that_grows_too_large_is_no_index(server: LoopbackServer, web: Web) -> None:
    server.faults["/torch/"] = gzipped(gzip.compress(bytes(17 * 2**20), 1))
    with pytest.raises(NotAnIndex, match="is larger than 16 MiB"):
        web.page(f"{server.url}/torch/")
    assert len(server.requests) == 1


def test_a_page_that_drips_is_given_up(server: LoopbackServer, pauses: list[float]) -> None:
    clock = itertools.count(0.0, 61.0)
    web = Web(pause=pauses.append, clock=lambda: next(clock))
    with pytest.raises(Unreachable, match="in 1 try: no whole page in 60 s"):
        web.page(f"{server.url}/torch/")
    assert len(server.requests) == 1  # a minute for the page in all, not for each try
    assert pauses == []


def test_headers_that_drip_are_ended(
    server: LoopbackServer, web: Web, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = threading.Event()

    def drip(handler: Handler) -> None:
        with contextlib.suppress(OSError):
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while not ended.wait(0.01):
                handler.wfile.write(b"x")
        handler.close_connection = True

    monkeypatch.setattr("nightly_bisect.index.web._HEADERS_S", 0.05)
    server.faults["/torch/"] = drip
    try:
        with pytest.raises(Unreachable, match="in 4 tries"):
            web.page(f"{server.url}/torch/")
    finally:
        ended.set()
    assert pauses == PATIENCE


@pytest.mark.parametrize("code", [403, 404, 410])
def test_a_file_that_is_not_there_is_absent_and_no_error(
    server: LoopbackServer, web: Web, pauses: list[float], code: int
) -> None:
    server.faults["/x.whl"] = status(code)
    receiver = Receiver()
    assert web.file_info(f"{server.url}/x.whl") is None
    assert web.download(f"{server.url}/x.whl", receiver) is False
    assert receiver.begun == 0
    assert len(server.requests) == 2
    assert pauses == []


def test_what_a_server_tells_of_a_file_is_kept(server: LoopbackServer, web: Web) -> None:
    server.faults["/x.whl"] = lambda handler: handler.reply(
        200, Content(b"bytes"), {"ETag": '"tag"', "x-amz-meta-checksum-sha256": "89dc" * 16}
    )
    url = f"{server.url}/x.whl"
    assert web.file_info(url) == FileInfo(url, 5, '"tag"', "89dc" * 16)
    assert server.requests == [("HEAD", "/x.whl")]


def test_a_file_of_unknown_size_is_a_file(server: LoopbackServer, web: Web) -> None:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.close_connection = True

    server.faults["/x.whl"] = respond
    assert web.file_info(f"{server.url}/x.whl") == FileInfo(f"{server.url}/x.whl", None, None, None)


def test_a_server_that_fails_does_not_make_a_file_absent(
    server: LoopbackServer, web: Web, pauses: list[float]
) -> None:
    server.faults["/x.whl"] = status(503)
    with pytest.raises(Unreachable):
        web.file_info(f"{server.url}/x.whl")
    assert len(server.requests) == 4
    assert pauses == PATIENCE


def test_a_plus_in_a_name_is_asked_for_as_the_index_writes_it(server: LoopbackServer, web: Web) -> None:
    server.contents["/torch-2.6.0+cpu.whl"] = Content(b"bytes")
    assert web.file_info(f"{server.url}/torch-2.6.0%2Bcpu.whl") is not None


@pytest.mark.parametrize("fault", [status(500), cut_short, hang_up])
def test_a_download_begins_anew_after_a_failure(
    server: LoopbackServer, web: Web, pauses: list[float], fault: Respond
) -> None:
    body = bytes(range(256)) * 4096
    server.faults["/x.whl"] = in_turn(fault, answer(Content(body)))
    receiver = Receiver()
    assert web.download(f"{server.url}/x.whl", receiver) is True
    assert receiver.body == body
    assert len(server.requests) == 2
    assert pauses == [2.0]


def test_a_download_is_told_its_size_and_comes_uncompressed(server: LoopbackServer, web: Web) -> None:
    asked: list[str | None] = []

    def respond(handler: Handler) -> None:
        asked.append(handler.headers.get("Accept-Encoding"))
        handler.reply(200, Content(b"bytes"))

    server.faults["/x.whl"] = respond
    receiver = Receiver()
    assert web.download(f"{server.url}/x.whl", receiver)
    assert (asked, receiver.size_bytes, receiver.body) == (["identity"], 5, b"bytes")


@pytest.mark.parametrize(("bytes_per_s", "bearable"), [(10, False), (4096, True)])
def test_a_download_below_a_thousand_bytes_a_second_is_given_up(
    server: LoopbackServer, pauses: list[float], bytes_per_s: int, bearable: bool
) -> None:
    now = [0.0]

    def in_pieces(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        handler.wfile.write((b"1000\r\n" + bytes(4096) + b"\r\n") * 64 + b"0\r\n\r\n")

    def pass_time(chunk: bytes) -> None:
        now[0] += len(chunk) / bytes_per_s

    receiver = Receiver(pass_time)
    server.faults["/x.whl"] = in_pieces
    web = Web(pause=pauses.append, clock=lambda: now[0])
    if bearable:
        assert web.download(f"{server.url}/x.whl", receiver)
        assert receiver.received == 64 * 4096
        return
    with pytest.raises(Unreachable, match="less than 1024 bytes a second"):
        web.download(f"{server.url}/x.whl", receiver)
    assert pauses == PATIENCE


BODY = bytes(range(256)) * 4096


def piece(first: int, etag: str = '"one"', said_first: int | None = None, body: bytes = BODY) -> Respond:
    """Answer with the bytes from ``first`` on, as the rest of what was asked for."""
    said = first if said_first is None else said_first
    headers = {"Content-Range": f"bytes {said}-{len(body) - 1}/{len(body)}", "ETag": etag}
    return lambda handler: handler.reply(206, Content(body[first:]), headers)


def cut_at(count: int, etag: str | None = '"one"') -> Respond:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(BODY)))
        if etag:
            handler.send_header("ETag", etag)
        handler.end_headers()
        handler.wfile.write(BODY[:count])
        handler.close_connection = True

    return respond


def noting(headers: list[dict[str, str | None]], respond: Respond) -> Respond:
    def noted(handler: Handler) -> None:
        names = ("Range", "If-Range", "Cache-Control")
        headers.append({name: handler.headers.get(name) for name in names})
        respond(handler)

    return noted


NOTHING_ASKED = {"Range": None, "If-Range": None, "Cache-Control": None}
REST_ASKED = {"Range": "bytes=1000-", "If-Range": '"one"', "Cache-Control": None}


@pytest.mark.parametrize(
    ("answers", "asked", "begun"),
    [
        ([cut_at(1000), piece(1000)], [NOTHING_ASKED, REST_ASKED], 1),
        # The server ignores the range, or has another version by now: from the beginning.
        ([cut_at(1000), answer(Content(BODY))], [NOTHING_ASKED, REST_ASKED], 2),
        # The wrong piece, or one of another version, is not stitched to what is here.
        (
            [cut_at(1000), piece(900), answer(Content(BODY))],
            [NOTHING_ASKED, REST_ASKED, NOTHING_ASKED],
            3,
        ),
        (
            [cut_at(1000), piece(1000, etag='"two"'), answer(Content(BODY))],
            [NOTHING_ASKED, REST_ASKED, NOTHING_ASKED],
            3,
        ),
        ([cut_at(1000), status(416), answer(Content(BODY))], [NOTHING_ASKED, REST_ASKED, NOTHING_ASKED], 3),
        # Only a strong ETag makes two pieces of one file.
        ([cut_at(1000, etag=None), answer(Content(BODY))], [NOTHING_ASKED, NOTHING_ASKED], 2),
        ([cut_at(1000, etag='W/"one"'), answer(Content(BODY))], [NOTHING_ASKED, NOTHING_ASKED], 2),
        ([piece(0), answer(Content(BODY))], [NOTHING_ASKED, NOTHING_ASKED], 2),
    ],
)
def test_a_download_goes_on_where_it_was_cut(
    server: LoopbackServer,
    web: Web,
    answers: list[Respond],
    asked: list[dict[str, str | None]],
    begun: int,
) -> None:
    headers: list[dict[str, str | None]] = []
    server.faults["/x.whl"] = noting(headers, in_turn(*answers))
    receiver = Receiver()
    assert web.download(f"{server.url}/x.whl", receiver)
    assert receiver.body == BODY
    assert headers == asked
    assert receiver.begun == begun


def test_tries_that_bring_a_piece_do_not_count(
    server: LoopbackServer, web: Web, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nightly_bisect.index.web._PIECE_BYTES", 1000)

    def next_piece(handler: Handler) -> None:
        first = int(handler.headers["Range"].removeprefix("bytes=").rstrip("-"))
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes {first}-{len(BODY) - 1}/{len(BODY)}")
        handler.send_header("Content-Length", str(len(BODY) - first))
        handler.end_headers()
        is_last = len(server.requests) == 12
        handler.wfile.write(BODY[first:] if is_last else BODY[first : first + 1000])
        handler.close_connection = not is_last

    server.faults["/x.whl"] = in_turn(cut_at(1000), *[next_piece] * 11)
    receiver = Receiver()
    assert web.download(f"{server.url}/x.whl", receiver)
    assert receiver.body == BODY
    assert pauses == [2.0] * 11


def test_what_was_wrong_is_not_taken_from_a_cache_on_the_way(server: LoopbackServer, web: Web) -> None:
    headers: list[dict[str, str | None]] = []
    server.faults["/x.whl"] = noting(headers, answer(Content(BODY)))
    assert web.download(f"{server.url}/x.whl", Receiver(), is_again=True)
    assert headers == [{**NOTHING_ASKED, "Cache-Control": "no-cache"}]


@pytest.mark.parametrize("method", ["page", "file_info", "download"])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_redirect_leads_only_to_hosts_that_are_allowed(
    server: LoopbackServer, pauses: list[float], method: str, allowed: bool
) -> None:
    asked: list[str] = []

    def may_redirect_to(host: str) -> bool:
        asked.append(host)
        return allowed

    web = Web(may_redirect_to=may_redirect_to, pause=pauses.append)
    calls: dict[str, Callable[[str], object]] = {
        "page": web.page,
        "file_info": web.file_info,
        "download": lambda url: web.download(url, Receiver()),
    }
    with LoopbackServer({"/x": Content(b"x")}) as other:
        server.faults["/x"] = redirect(other.url.replace("127.0.0.1", "localhost") + "/x")
        if allowed:
            calls[method](f"{server.url}/x")
        else:
            with pytest.raises(Refused, match="redirects to another host, localhost"):
                calls[method](f"{server.url}/x")
        assert len(other.requests) == allowed
    assert asked == ["localhost"]
    assert pauses == []


@pytest.mark.parametrize("target", ["127.0.0.1", "[::1]", "localhost", "here.localhost", "127.8.8.8"])
def test_no_redirect_leads_from_the_network_to_this_machine(web: Web, target: str) -> None:
    host = target.strip("[]")
    assert not web._may_follow("download.pytorch.org", host)
    assert web._may_follow("127.0.0.1", host)


def test_an_error_of_the_receiver_is_nobodys_network(
    server: LoopbackServer, web: Web, pauses: list[float]
) -> None:
    server.contents["/x.whl"] = Content(b"bytes")

    def fail(chunk: bytes) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        web.download(f"{server.url}/x.whl", Receiver(fail))
    assert pauses == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost that nobody trusts, with its key in the same file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    path = tmp_path_factory.mktemp("tls") / "localhost.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
               "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
               "-keyout", str(path), "-out", f"{path}.crt"]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def secure(server: LoopbackServer, certificate: Path) -> str:
    """The root of ``server``, which speaks TLS from now on."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    return server.url.replace("http://127.0.0.1", "https://localhost")


def test_an_untrusted_certificate_is_refused_at_once(
    server: LoopbackServer, secure: str, web: Web, pauses: list[float]
) -> None:
    with pytest.raises(Refused, match=r"certificate of localhost:\d+ is not trusted") as caught:
        web.page(f"{secure}/torch/")
    assert "SSL_CERT_FILE" in caught.value.hint
    assert server.requests == []
    assert pauses == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_a_certificate_that_the_user_names_is_trusted(
    secure: str, certificate: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(certificate))
    assert Web().page(f"{secure}/torch/").body == PAGE.body


def test_a_redirect_from_https_to_http_is_refused(
    server: LoopbackServer, secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server.faults["/torch/"] = redirect("http://127.0.0.1:9/torch/")
    with pytest.raises(Refused, match=r"redirects to http://127\.0\.0\.1:9/torch/, which is not followed"):
        Web().page(f"{secure}/torch/")
    assert len(server.requests) == 1


def test_a_redirect_to_what_is_no_url_is_refused(server: LoopbackServer, web: Web) -> None:
    server.faults["/torch/"] = status(302, Location="http://[")
    with pytest.raises(Refused):
        web.page(f"{server.url}/torch/")


@pytest.mark.parametrize("url", ["foo/torch/", "ftp://127.0.0.1/torch/", "http://[::1/torch/"])
def test_what_is_no_web_address_is_refused_at_once(web: Web, pauses: list[float], url: str) -> None:
    with pytest.raises(Refused):
        web.page(url)
    assert pauses == []


def test_a_length_that_is_no_number_is_no_length(server: LoopbackServer, web: Web) -> None:
    def odd(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "\xb2")
        handler.end_headers()

    server.faults["/x.whl"] = odd
    info = web.file_info(f"{server.url}/x.whl")
    assert info is not None
    assert info.size_bytes is None


@pytest.mark.parametrize("code", [200, 204, 304])
def test_only_a_file_makes_a_file_exist(server: LoopbackServer, web: Web, code: int) -> None:
    server.faults["/x.whl"] = status(302, Location="/login")
    server.faults["/login"] = status(code)
    with pytest.raises(Refused):
        web.file_info(f"{server.url}/x.whl")


def test_the_trust_of_the_system_reaches_a_proxy_too() -> None:
    adapter = Web()._session().get_adapter("https://download.pytorch.org/")
    manager = adapter.proxy_manager_for("http://127.0.0.1:9")  # type: ignore[attr-defined]
    assert manager.connection_pool_kw["ssl_context"] is not None
