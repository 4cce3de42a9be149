"""Faults of the index and the network: the rows N01 to N18 of docs/faults.md."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest
from loopback import CHECK, FOLDER, GOOD, NATIVE_TAG, Ran, Tool, bad_from, nights, serve
from test_bad_input import assert_refused
from true_verdicts import assert_no_false_verdict, journal_rows

from nightly_bisect.errors import Unreachable
from nightly_bisect.index.web import Web
from nightly_bisect.standin.pages import Era, index_page
from nightly_bisect.standin.server import Content, Handler, LoopbackServer

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import mutated_pages

Respond = Callable[[Handler], None]

PAGE = f"{FOLDER}/torch/"
FIRST_BAD = date(2026, 8, 4)
ROW = nights(date(2026, 8, 1), 5, bad_from(FIRST_BAD))
ENDS = ("--good", "2026-08-01", "--bad", "2026-08-05", "--no-confirm")
BODY = index_page("torch", [night.file() for night in ROW], Era.SIDECARS)


def page_requests(server: LoopbackServer) -> int:
    return server.requests.count(("GET", PAGE))


def status(code: int, **headers: str) -> Respond:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(code, Content(b"<html>Error</html>", "text/html"), named)


def answer(body: bytes, kind: str = "text/html", **headers: str) -> Respond:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.reply(200, Content(body, kind), named)


def cut_half_way(handler: Handler) -> None:
    """Promise the whole page and send half of it."""
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.send_header("Content-Length", str(len(BODY)))
    handler.end_headers()
    handler.wfile.write(BODY[: len(BODY) // 2])
    handler.close_connection = True


def found(ran: Ran, tool: Tool) -> None:
    """The run gave the right answer, and no false verdict on the way."""
    assert ran.code == 0, (ran.stdout, ran.stderr)
    assert ran.result["first_bad"]["date"] == str(FIRST_BAD)
    assert_no_false_verdict(ran, tool.folder, FIRST_BAD)


def resumed(tool: Tool, name: str) -> Ran:
    """Go on with a bisection; it writes its JSON where it was told to in the beginning."""
    result = tool.folder / "result.json"
    result.unlink(missing_ok=True)
    ran = tool.run("resume", name)
    if result.exists():
        ran.result = json.loads(result.read_text())
    return ran


@pytest.fixture(scope="module")
def begun() -> Iterator[tuple[Tool, LoopbackServer]]:
    """A bisection that a fault ended after both ends were tested, and its server, which is well again."""
    with tempfile.TemporaryDirectory(prefix="nightly-bisect-") as name, serve(ROW) as server:
        tool = Tool(Path(name))
        tool.write("check.py", CHECK)
        server.faults |= {night.file().path: status(503) for night in ROW[1:-1]}
        ran = tool.bisect(server, *ENDS, "--name", "it", "check.py")
        assert ran.code == 5 and len(ran.verdicts) >= 2, ran.stderr
        server.faults.clear()
        yield tool, server


LOGIN = b"<html><body>Welcome. <a href='/login'>Log in</a> to use this network.</body></html>"


@pytest.mark.parametrize(
    ("fault", "requests", "said"),
    [
        pytest.param(status(403), 1, "HTTP 403", id="n04 forbidden"),
        pytest.param(status(404), 1, "no page", id="n06 not there"),
        pytest.param(status(429, Retry_After="x"), 4, "HTTP 429", id="n08 wait for x"),
        pytest.param(status(429, Retry_After="-1"), 4, "HTTP 429", id="n08 wait for less than nothing"),
        pytest.param(status(429, Retry_After="1e9"), 4, "HTTP 429", id="n08 wait for no number"),
        pytest.param(status(500), 4, "HTTP 500", id="n10 failing for ever"),
        pytest.param(cut_half_way, 4, "IncompleteRead", id="n11 fewer bytes than promised"),
        pytest.param(answer(BODY[: len(BODY) // 2]), 1, "was cut short", id="n11 cut before it was sent"),
        pytest.param(answer(b'{"detail": "no"}', "application/json"), 1, "holds no links", id="n12 JSON"),
        pytest.param(
            answer(b'{"meta": {}}', "application/vnd.pypi.simple.v1+json"),
            1,
            "is not the JSON",
            id="n12 JSON of no index",
        ),
        pytest.param(
            answer(bytes(range(256)) * 64, "application/octet-stream"), 1, "holds no links", id="n12 bytes"
        ),
        pytest.param(answer(gzip.compress(BODY)), 1, "holds no links", id="n12 gzip as text"),
        pytest.param(
            answer(b"\x1f\x8bjunk", Content_Encoding="gzip"), 4, "failed to decode", id="n12 broken gzip"
        ),
        pytest.param(answer(b""), 1, "holds no links", id="n12 empty"),
        pytest.param(answer(LOGIN), 1, "lists no dated build", id="n13 captive portal"),
        pytest.param(
            status(302, Location="/login"), 1, "lists no dated build", id="n13 portal behind a redirect"
        ),
        pytest.param(
            status(302, Location=PAGE), 6, "redirects more than 5 times", id="n14 redirects without end"
        ),
        pytest.param(
            status(302, Location="file:///etc/passwd"), 1, "is not followed", id="n14 redirect to a file"
        ),
    ],
)
def test_a_page_that_fails_is_told_after_so_many_requests_and_nothing_that_was_tested_is_lost(
    begun: tuple[Tool, LoopbackServer], tmp_path: Path, fault: Respond, requests: int, said: str
) -> None:
    tool, server = begun
    kept = journal_rows(tool.folder)
    server.requests.clear()
    server.contents["/login"] = Content(LOGIN, "text/html")
    server.faults[PAGE] = fault
    try:
        ran = tool.bisect(server, *ENDS, "--cache-dir", str(tmp_path), "check.py")
    finally:
        server.faults.clear()
    assert_refused(ran, 5, said)
    assert page_requests(server) == requests
    assert not [path for _, path in server.requests if path.endswith(".whl")]
    assert ran.result["status"] == "failed" and not ran.result["trials"]
    assert journal_rows(tool.folder) == kept


def in_a_netless_namespace(tool: Tool, *words: str) -> Ran:
    """Run the real command where there is no network at all, not even to itself."""
    if subprocess.run(["unshare", "-n", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a network namespace needs the right to make one")
    done = subprocess.run(
        ["unshare", "-n", sys.executable, "-m", "nightly_bisect", *words],
        cwd=tool.folder,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            "XDG_CACHE_HOME": str(tool.folder / "cache"),
            "XDG_STATE_HOME": str(tool.folder / "state"),
            "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
            "COLUMNS": "200",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("url", "said"), [("http://192.0.2.1/whl", "unreachable"), ("http://index.invalid/whl", "resol")]
)
def test_n01_without_a_network_the_index_is_unreachable(tool: Tool, url: str, said: str) -> None:
    tool.write("check.py", CHECK)
    ran = in_a_netless_namespace(tool, *ENDS, "--index-url", url, "check.py")
    assert_refused(ran, 5, "in 4 tries", said)


def test_n01_a_bisection_whose_network_went_away_can_be_resumed(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        server.faults |= {night.file().path: status(503) for night in ROW[1:-1]}
        assert tool.bisect(server, *ENDS, "--name", "it", "check.py").code == 5
        server.faults.clear()
        kept = journal_rows(tool.folder)
        ran = in_a_netless_namespace(tool, "resume", "it")
        assert_refused(ran, 5, "in 4 tries", "nreachable")
        assert ran.stdout.splitlines()[-1] == "resume: nightly-bisect resume it"
        assert journal_rows(tool.folder) == kept
        server.requests.clear()
        found(resumed(tool, "it"), tool)
        tested = {path for method, path in server.requests if method == "GET" and path.endswith(".whl")}
    assert not tested & {ROW[0].file().path, ROW[-1].file().path}


def test_n02_a_page_that_drips_byte_by_byte_is_given_up_at_the_deadline() -> None:
    ended = threading.Event()

    def drip(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        with contextlib.suppress(OSError):
            while not ended.wait(0.005):
                handler.wfile.write(b"<")

    started = time.monotonic()
    with LoopbackServer() as server:
        server.faults["/torch/"] = drip
        # A clock on which the minute for a page is over in a fraction of a second.
        web = Web(pause=lambda _: None, clock=lambda: 200 * time.monotonic())
        try:
            with pytest.raises(Unreachable, match="no whole page in 60 s") as caught:
                web.page(f"{server.url}/torch/")
        finally:
            ended.set()
    assert caught.value.exit_code == 5
    assert server.requests == [("GET", "/torch/")]
    assert time.monotonic() - started < 20


def test_n03_a_server_that_takes_no_connection_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nightly_bisect.index.web._CONNECT_S", 0.2)
    pauses: list[float] = []
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        # The queue is full: the kernel drops what else knocks, as a firewall does.
        for _ in range(4):
            knocking = waiting.enter_context(socket.socket())
            knocking.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                knocking.connect(listener.getsockname())
        host, port = listener.getsockname()
        with pytest.raises(Unreachable, match=r"in 4 tries: .*timed out") as caught:
            Web(pause=pauses.append).page(f"http://{host}:{port}/torch/")
    assert caught.value.exit_code == 5
    assert len(pauses) == 3


def test_n05_a_listed_wheel_that_the_server_refuses_is_stepped_around(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = nights(date(2026, 8, 1), 9, bad_from(FIRST_BAD))
    with serve(row) as server:
        refused = row[4].file().path
        server.faults[refused] = status(403)
        ran = tool.bisect(server, "--good", "2026-08-01", "--bad", "2026-08-09", "--no-confirm", "check.py")
    found(ran, tool)
    assert ran.outcomes["2026-08-05"] == "gone"
    assert server.requests.count(("HEAD", refused)) == 1
    assert ("GET", refused) not in server.requests


@pytest.mark.parametrize(
    "fault", [status(429, Retry_After="0"), status(500)], ids=["n07 429 with a wait", "n09 500"]
)
def test_n07_n09_what_passes_after_two_failures_costs_three_requests(tool: Tool, fault: Respond) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:

        def twice(handler: Handler) -> None:
            (fault if page_requests(server) < 3 else answer(BODY))(handler)

        server.faults[PAGE] = twice
        ran = tool.bisect(server, *ENDS, "check.py")
        assert page_requests(server) == 3
    found(ran, tool)


def test_n08_a_server_that_asks_for_years_is_waited_for_two_minutes_at_a_time() -> None:
    pauses: list[float] = []
    with LoopbackServer() as server:
        server.faults["/torch/"] = status(429, Retry_After="1000000000")
        with pytest.raises(Unreachable, match="in 4 tries: HTTP 429"):
            Web(pause=pauses.append).page(f"{server.url}/torch/")
        assert len(server.requests) == 4
    assert pauses == [120.0] * 3


@pytest.mark.parametrize(
    "fault", [status(500), answer(BODY[: len(BODY) // 2])], ids=["n10 failing", "n11 cut"]
)
def test_n10_n11_the_last_good_listing_gives_the_same_answer(tool: Tool, fault: Respond) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server:
        found(tool.bisect(server, *ENDS, "check.py"), tool)
        server.faults[PAGE] = fault
        ran = tool.bisect(server, *ENDS, "check.py")
    found(ran, tool)
    assert "is used instead: what was built since is not in it" in ran.stderr


def peak_memory_kib(tool: Tool, server: LoopbackServer) -> int:
    """Return the peak memory of a run over a page that is none; what this process had before doesn't count."""
    peak = tool.folder / "peak"
    code = (
        "import atexit, re, runpy, sys\n"
        f"atexit.register(lambda: open({str(peak)!r}, 'w').write(re.search(r'VmHWM:\\s+(\\d+)',"
        " open('/proc/self/status').read())[1]))\n"
        "sys.argv[0] = 'nightly_bisect'\n"
        "runpy.run_module('nightly_bisect', run_name='__main__', alter_sys=True)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, *ENDS, "--index-url", server.url + FOLDER, "check.py"],
        cwd=tool.folder,
        env={
            **{name: os.environ[name] for name in ("PATH", "HOME")},
            "XDG_CACHE_HOME": str(tool.folder / "cache"),
            "XDG_STATE_HOME": str(tool.folder / "state"),
            "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 5, ran.stderr
    return int(peak.read_text())


def in_pieces(kind: str, piece: bytes, count: int, **headers: str) -> Respond:
    def respond(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(piece) * count))
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        with contextlib.suppress(OSError):
            for _ in range(count):
                handler.wfile.write(piece)
        handler.close_connection = True

    return respond


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
def test_n12_a_page_of_200_mb_costs_little_memory(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = b"<a href='/whl/x.whl'>x</a><br/>\n" * 1000
    squeezed = gzip.compress(b"<html>" + row * (200_000_000 // len(row)), 1)
    with LoopbackServer() as server:
        server.faults[PAGE] = answer(b"<html></html>")
        usual_kib = peak_memory_kib(tool, server)
        for fault in (
            in_pieces("text/html", row, 200_000_000 // len(row)),
            in_pieces("application/vnd.pypi.simple.v1+json", b"[" * 10**5, 2000),
            answer(squeezed, Content_Encoding="gzip"),
        ):
            server.faults[PAGE] = fault
            server.requests.clear()
            assert peak_memory_kib(tool, server) - usual_kib < 64 * 1024
            assert page_requests(server) == 1


@pytest.mark.parametrize("what", ["page", "wheel"])
def test_n14_another_host_than_the_profiles_is_never_asked(tool: Tool, what: str) -> None:
    tool.write("check.py", CHECK)
    with serve(ROW) as server, LoopbackServer() as foreign:
        path = PAGE if what == "page" else ROW[0].file().path
        target = foreign.url.replace("127.0.0.1", "localhost") + "/x"
        server.faults[path] = status(302, Location=target)
        profile = f"""
            package = "torch"
            import_name = "torch"
            [index]
            url = "{server.url}{FOLDER}/"
            hosts = ["127.0.0.1"]
            default_channel = "cpu"
            [identity]
            import = true
        """
        tool.write("mine.toml", profile)
        ran = tool.run(*ENDS, "--profile", "mine.toml", "check.py")
        assert foreign.requests == []
    assert_refused(ran, 5, "redirects to another host, localhost")


def make_certificate(folder: Path, name: str, first: str, last: str) -> Path:
    """Return a file with a certificate for ``name``, signed by itself, and its key; times as 20260101000000Z."""
    (folder / "new").mkdir(parents=True)
    (folder / "index").write_text("")
    (folder / "ca.cnf").write_text(
        "[ca]\ndefault_ca = here\n[here]\n"
        f"database = {folder}/index\nnew_certs_dir = {folder}/new\nrand_serial = yes\n"
        "default_md = sha256\npolicy = any\nx509_extensions = names\n"
        f"[any]\ncommonName = supplied\n[names]\nsubjectAltName = DNS:{name}\nbasicConstraints = CA:TRUE\n"
    )
    key, request, signed = (str(folder / name) for name in ("key.pem", "request.pem", "signed.pem"))
    make = ["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", f"/CN={name}", "-keyout", key, "-out", request]  # fmt: skip
    sign = ["openssl", "ca", "-config", str(folder / "ca.cnf"), "-selfsign", "-batch", "-notext", "-keyfile", key,
            "-in", request, "-startdate", first, "-enddate", last, "-out", signed]  # fmt: skip
    for command in (make, sign):
        subprocess.run(command, check=True, capture_output=True, timeout=60)
    both = folder / "both.pem"
    both.write_text(Path(key).read_text() + Path(signed).read_text())
    return both


@pytest.mark.parametrize(
    ("name", "first", "last", "trusted", "said"),
    [
        ("localhost", "20200101000000Z", "21200101000000Z", False, "self-signed"),
        ("localhost", "20200101000000Z", "20210101000000Z", True, "expired"),
        ("localhost", "21100101000000Z", "21200101000000Z", True, "not yet valid"),
        ("elsewhere.example", "20200101000000Z", "21200101000000Z", True, "ostname mismatch"),
    ],
)
def test_n15_a_certificate_that_is_not_right_is_never_done_without(
    tool: Tool, name: str, first: str, last: str, trusted: bool, said: str
) -> None:
    tool.write("check.py", CHECK)
    certificate = make_certificate(tool.folder / "tls", name, first, last)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    variables = {"SSL_CERT_FILE": str(certificate)} if trusted else {}
    with serve(ROW) as server:
        server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
        url = server.url.replace("http://127.0.0.1", "https://localhost") + FOLDER
        ran = tool.run(*ENDS, "--index-url", url, "check.py", variables=variables)
        assert server.requests == []
    assert_refused(ran, 5, "is not trusted", said, "never tried without TLS")


def test_n16_mutated_pages_are_read_or_refused_and_no_cut_hides_a_nightly(tmp_path: Path) -> None:
    reader = mutated_pages.Reader(tmp_path)
    figures = mutated_pages.read_mutations(reader, 400, seed=3)
    assert figures.faults == []
    assert figures.ended.total() == 400
    for form in mutated_pages.true_forms():
        assert reader.nightlies(form.body, form.content_type, form.channel) == mutated_pages.NIGHTS
        cuts = mutated_pages.read_cuts(reader, form, every=3)
        assert cuts.faults == cuts.silent == []


LONG = "9" * 5000


@pytest.mark.parametrize(
    "name",
    [
        f"torch-2.6.0.dev20260803+cpu-cp3{LONG}-none-win_amd64.whl",
        "torch-2.6.0.dev20260803+cpu-cp3\u00b2-none-win_amd64.whl",
        f"torch-2.6.0.dev20260803+cpu-{NATIVE_TAG}.{'x' * 300}.whl",
        f"torch-2.6.0.dev20260803+cpu-{NATIVE_TAG}.\0.whl",
        f"torch-2.6.0.dev20260803+cpu-{NATIVE_TAG}.\ud800.whl",
        f"torch-2.6.0.dev20260803+cpu-{NATIVE_TAG}.\x1b[2J.whl",
    ],
    ids=[
        "digits without end",
        "a digit that is no number",
        "too long",
        "NUL",
        "half a character",
        "a control code",
    ],
)
def test_n16_a_name_that_no_file_can_have_is_left_out_and_told(tool: Tool, name: str) -> None:
    tool.write("check.py", CHECK)
    urls = [night.file().path.replace("+", "%2B") for night in ROW]
    rows = [{"filename": n.file().name, "url": url, "hashes": {}} for n, url in zip(ROW, urls, strict=True)]
    rows[2] = {"filename": name, "url": urls[2], "hashes": {}}
    page = {"meta": {"api-version": "1.0"}, "name": "torch", "files": rows}
    with serve(ROW) as server:
        server.contents[PAGE] = Content(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")
        ran = tool.bisect(server, *ENDS, "-v", "check.py")
    assert ran.code == 0, (ran.stdout, ran.stderr)
    assert_no_false_verdict(ran, tool.folder, FIRST_BAD)
    assert "2026-08-03" not in ran.verdicts
    assert "1 rows of the index page could not be used" in ran.stderr


def test_n17_rows_that_cannot_be_used_are_counted_and_the_rest_is_searched(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    path = ROW[2].file().path
    odd = [
        '<a href="/whl/nightly/cpu/torch-2.6.0%2Bcpu-py3-none-any.whl">no date</a>',
        '<a href="/whl/nightly/cpu/torch-2.6.0.dev20250231%2Bcpu-py3-none-any.whl">no such day</a>',
        f'<a href="{path}#sha256={"0" * 64}">one hash</a><a href="{path}#sha256={"1" * 64}">another</a>',
        '<a href="javascript:alert(1)">x</a>',
        '<a href="http://[/torch-2.6.0.dev20260803-py3-none-any.whl">x</a>',
        '<a href="/whl/nightly/cpu/torch-2.6.0.dev20260803%2Bcpu-py3-none-any.whl" data-yanked="broken">x</a>',
    ]
    with serve([night for night in ROW if night is not ROW[2]]) as server:
        body = server.contents[PAGE].body.replace(b"</body>", "".join(odd).encode() + b"</body>")
        server.contents[PAGE] = Content(body, "text/html")
        server.contents[path] = Content(ROW[2].file().content)
        ran = tool.bisect(server, *ENDS, "-v", "check.py")
    assert ran.code == 3, ran.stderr  # the hashes of the night before the first bad one disagree
    assert_no_false_verdict(ran, tool.folder, FIRST_BAD)
    assert ran.verdicts["2026-08-03"] == "untestable"
    assert [s["date"] for s in ran.result["suspects"]] == ["2026-08-03", "2026-08-04"]
    assert "6 rows of the index page could not be used" in ran.stderr
    for said in ("no date in its version", "not an http link", "different hashes", "not a URL", "yanked"):
        assert said in ran.stderr


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_n18_a_listing_that_changes_between_two_sittings_changes_no_answer(tool: Tool, change: str) -> None:
    tool.write("check.py", CHECK)
    row = nights(date(2026, 8, 1), 9, bad_from(FIRST_BAD))
    with serve(row) as server:
        server.faults |= {night.file().path: status(503) for night in row[1:-1]}
        first = tool.bisect(server, "--good", "2026-08-01", "--no-confirm", "--name", "it", "check.py")
        assert_refused(first, 5, "503")
        server.faults.clear()
        later = nights(date(2026, 8, 10), 5, lambda day: GOOD)
        listed = [*row, *later] if change == "grows" else row[6:]
        page = index_page("torch", [night.file() for night in listed], Era.SIDECARS)
        server.contents[PAGE] = Content(page, "text/html")
        server.requests.clear()
        ran = resumed(tool, "it")
        got = {path for method, path in server.requests if method == "GET" and path.endswith(".whl")}
    found(ran, tool)
    assert {"2026-08-01", "2026-08-09"} <= set(ran.verdicts)
    assert not got & {row[0].file().path, row[-1].file().path}
