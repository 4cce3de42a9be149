"""All HTTP that the tool itself does: bounded in tries, time, size and redirects.

Retries are for what may pass by itself (no connection, 429, 5xx, a body cut short). TLS failures,
refusals and misleading redirects are final at once.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import urljoin, urlsplit

from nightly_bisect.errors import Denied, NoSuchPage, NotAnIndex, Refused, Unreachable

if TYPE_CHECKING:
    import requests

T = TypeVar("T")

ABSENT = (403, 404, 410)
"""What servers answer for a file that is not there; PyTorch's says 403."""

_RETRIES = 3
_FIRST_DELAY_S = 2.0
_LONGEST_WAIT_S = 120.0
_CONNECT_S, _READ_S = 10.0, 30.0
_HEADERS_S = 60.0
_PAGE_DEADLINE_S = 60.0
_PAGE_LIMIT_BYTES = 16 * 2**20
_SLOWEST_BYTES_PER_S, _SLOW_WINDOW_S = 1024, 30.0
_REDIRECTS = 5
_CHUNK = 2**18
# A connection that breaks again and again still brings a large wheel, if each piece is worth a try.
_PIECE_BYTES = 2**20
_MOST_PIECES = 50
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Document:
    """A page that was read whole; ``url`` is where it came from in the end."""

    url: str
    body: bytes
    content_type: str


@dataclass(frozen=True, slots=True)
class FileInfo:
    """What a server tells of a file before it is fetched."""

    url: str
    size_bytes: int | None
    etag: str | None
    sha256: str | None


class Receiver(Protocol):
    """Takes the bytes of one file. What came before a cut stays, so that it can be continued."""

    @property
    def received(self) -> int:
        """How many bytes are here, from the first on."""

    @property
    def etag(self) -> str | None:
        """The version of the file that they are of, as the server named it."""

    def begin(self, etag: str | None, size_bytes: int | None) -> None:
        """Forget what came: the file comes from its first byte on."""

    def append(self, chunk: bytes) -> None:
        """Take the bytes that follow."""


class Web:
    """One HTTP session.

    ``may_redirect_to`` says of a host whether pages and files may come from it. ``pause`` and ``clock``
    (seconds) can be replaced in tests.
    """

    def __init__(
        self,
        *,
        may_redirect_to: Callable[[str], bool] = lambda host: True,
        pause: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._may_redirect_to = may_redirect_to
        self._pause = pause
        self._clock = clock
        self._opened: requests.Session | None = None
        # A knob for tests, as uv has one: what is tested is the retrying, not the waiting.
        self._first_delay_s = float(os.environ.get("NIGHTLY_BISECT_RETRY_DELAY_S", _FIRST_DELAY_S))

    def page(self, url: str) -> Document:
        """Read an index page; raise `NoSuchPage`, `Refused`, `NotAnIndex` or `Unreachable`."""
        import pypi_simple

        def read() -> Document:
            with self._open("GET", url, headers={"Accept": pypi_simple.ACCEPT_JSON_PREFERRED}) as r:
                if r.status_code == 404:
                    raise NoSuchPage(
                        f"The index has no page {url} (404).",
                        url=url,
                        hint="check the package, the channel and --index-url",
                    )
                self._raise_for_status(r, url)
                started = self._clock()
                body = bytearray()
                for chunk in self._chunks(r):
                    body += chunk
                    if len(body) > _PAGE_LIMIT_BYTES:
                        raise NotAnIndex(
                            f"The page {url} is larger than {_PAGE_LIMIT_BYTES // 2**20} MiB.",
                            url=url,
                            hint="--index-url must be the root of a package index",
                        )
                    if self._clock() - started > _PAGE_DEADLINE_S:
                        raise _TryAgain(f"no whole page in {_PAGE_DEADLINE_S:.0f} s")
                return Document(r.url, bytes(body), r.headers.get("Content-Type", ""))

        return self._with_retries(url, read, deadline_s=_PAGE_DEADLINE_S)

    def json(self, url: str, headers: dict[str, str]) -> Any:
        """Read a small JSON document, in one try and a few seconds: for what the run can do without."""
        with self._open("GET", url, headers=headers, timeout_s=5.0) as r:
            r.raise_for_status()
            return r.json()

    def file_info(self, url: str) -> FileInfo | None:
        """Ask with HEAD whether a file is there; None when it is absent."""

        def ask() -> FileInfo | None:
            with self._open("HEAD", url, headers={"Accept-Encoding": "identity"}) as r:
                if r.status_code in ABSENT:
                    return None
                self._raise_for_status(r, url)
                if r.status_code != 200 or r.headers.get("Content-Type", "").startswith("text/html"):
                    raise Refused(
                        f"{url} is answered with a page (HTTP {r.status_code}), not with the file.",
                        url=url,
                        hint="a login page of the network does this; open the URL in a browser",
                    )
                length = r.headers.get("Content-Length", "")
                return FileInfo(
                    url,
                    int(length) if _is_number(length) else None,
                    r.headers.get("ETag"),
                    # PyTorch's uploads carry the hash as object metadata.
                    r.headers.get("x-amz-meta-checksum-sha256"),
                )

        return self._with_retries(url, ask)

    def download(self, url: str, receiver: Receiver, *, is_again: bool = False) -> bool:
        """Bring a file to ``receiver``, going on where a cut left it; False when absent.

        ``is_again``: what came before was wrong, so caches on the way must not serve it once more.
        """

        def fetch() -> bool:
            headers = {"Accept-Encoding": "identity"}
            if is_again:
                headers |= {"Cache-Control": "no-cache", "Pragma": "no-cache"}
            # Only a strong ETag says that two pieces are of the same bytes.
            etag = receiver.etag
            if continues := receiver.received > 0 and etag is not None and etag.startswith('"'):
                headers |= {"Range": f"bytes={receiver.received}-", "If-Range": str(etag)}
            with self._open("GET", url, headers=headers) as r:
                if r.status_code in ABSENT:
                    return False
                if continues and r.status_code == 416:
                    receiver.begin(None, None)
                    raise _TryAgain("the server has fewer bytes than came already")
                self._raise_for_status(r, url)
                length = r.headers.get("Content-Length", "")
                if r.status_code != 206:
                    receiver.begin(r.headers.get("ETag"), int(length) if _is_number(length) else None)
                elif not (continues and _is_continuation(r, receiver)):
                    receiver.begin(None, None)
                    raise _TryAgain("the server sent another piece than was asked for")
                for chunk in self._steady(self._chunks(r)):
                    receiver.append(chunk)
                return True

        return self._with_retries(url, fetch, progress=lambda: receiver.received)

    def _with_retries(
        self,
        url: str,
        attempt: Callable[[], T],
        *,
        deadline_s: float | None = None,
        progress: Callable[[], int] = lambda: 0,
    ) -> T:
        """Try until it works, ``_RETRIES`` more times at most.

        After ``deadline_s``, what servers asked us to wait aside, no new try begins. ``progress`` tells
        the bytes that came so far: a try that brought a piece of a file doesn't count.
        """
        import requests
        import urllib3

        passing = (
            requests.RequestException,
            urllib3.exceptions.HTTPError,
            ConnectionError,
            TimeoutError,
        )
        tries = failures = pieces = 0
        end = None if deadline_s is None else self._clock() + deadline_s
        while True:
            tries += 1
            failures += 1
            before = progress()
            wait: float | None = None
            try:
                return attempt()
            except _TryAgain as error:
                why, wait = error.why, error.wait_s
            except (
                ValueError
            ) as error:  # what is no URL, here or in a redirect; requests' own are of this kind
                raise Refused(
                    f"{url} cannot be asked for: {_plain(error)}.", url=url, hint="check --index-url"
                ) from error
            except requests.exceptions.SSLError as error:
                if not _is_cut_short(error):
                    raise _tls_refusal(url, error) from error
                why = _plain(error)
            except passing as error:
                why = _plain(error)
            if progress() - before >= _PIECE_BYTES and pieces < _MOST_PIECES:
                pieces, failures = pieces + 1, 1
            if failures > _RETRIES or (end is not None and self._clock() >= end):
                break
            delay = self._first_delay_s * 2 ** (failures - 1)
            pause_s = min(delay if wait is None else wait, _LONGEST_WAIT_S)
            if end is not None and wait is not None:
                end += pause_s
            self._pause(pause_s)
        raise Unreachable(
            f"Nothing usable came from {url} in {tries} {'try' if tries == 1 else 'tries'}: {why}.",
            url=url,
            hint="check the network and the proxy (HTTPS_PROXY), then run the same command again: "
            "wheels that were downloaded are kept",
        )

    @contextlib.contextmanager
    def _open(
        self, method: str, url: str, headers: dict[str, str], timeout_s: float | None = None
    ) -> Iterator[requests.Response]:
        """Open ``url``, following redirects by hand: bounded, and never away from https."""
        session = self._session()
        timeout = (timeout_s or _CONNECT_S, timeout_s or _READ_S)
        target = url
        for _ in range(_REDIRECTS + 1):
            response = session.request(
                method, target, headers=headers, stream=True, allow_redirects=False, timeout=timeout
            )
            location = response.headers.get("Location")
            if location is None or not 300 <= response.status_code < 400:
                with response:
                    yield response
                return
            response.close()
            before = urlsplit(target)
            try:
                target = urljoin(target, location)
                after = urlsplit(target)
            except ValueError as error:
                raise Refused(
                    f"{url} redirects to what is no URL.", url=url, hint="check --index-url"
                ) from error
            if after.scheme not in ("http", "https") or (before.scheme, after.scheme) == (
                "https",
                "http",
            ):
                raise Refused(
                    f"{url} redirects to {target}, which is not followed.",
                    url=url,
                    hint="a login page of the network does this; check --index-url",
                )
            if after.hostname != before.hostname and not self._may_follow(before.hostname, after.hostname):
                raise Refused(
                    f"{url} redirects to another host, {after.hostname}, which is not followed.",
                    url=url,
                    hint="a login page of the network does this; a mirror of your own goes into --index-url",
                )
            if after.netloc != before.netloc:
                headers = {k: v for k, v in headers.items() if k.lower() != "authorization"}
        raise Refused(f"{url} redirects more than {_REDIRECTS} times.", url=url, hint="check --index-url")

    def _may_follow(self, source: str | None, target: str | None) -> bool:
        """Tell whether a redirect may lead to another host: never from the network to this machine."""
        if target is None or (_is_loopback(target) and not _is_loopback(source or "")):
            return False
        return self._may_redirect_to(target)

    def _raise_for_status(self, response: requests.Response, url: str) -> None:
        status = response.status_code
        if status == 429 or status >= 500:
            raise _TryAgain(f"HTTP {status}", _retry_after(response.headers.get("Retry-After")))
        if status >= 400:
            raise Denied(
                f"The server refused {url} (HTTP {status}).",
                url=url,
                hint="PyTorch's server answers 403 for a channel that does not exist as well as "
                "when it blocks: check the channel, then the network",
            )

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        while chunk := response.raw.read1(_CHUNK, decode_content=True):
            yield chunk

    def _steady(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass chunks on while they come at a bearable rate."""
        since, got = self._clock(), 0
        for chunk in chunks:
            got += len(chunk)
            if (elapsed := self._clock() - since) > _SLOW_WINDOW_S:
                if got < _SLOWEST_BYTES_PER_S * elapsed:
                    raise _TryAgain(f"less than {_SLOWEST_BYTES_PER_S} bytes a second")
                since, got = self._clock(), 0
            yield chunk

    def _session(self) -> requests.Session:
        if self._opened is None:
            self._opened = _new_session()
        return self._opened


class _TryAgain(Exception):
    """Something that may pass by itself; ``wait_s`` is what the server asked for."""

    def __init__(self, why: str, wait_s: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.wait_s = wait_s


def _new_session() -> requests.Session:
    import requests
    from requests.adapters import HTTPAdapter

    pools = _pools_with_bounded_headers()
    # Trust what the system trusts (this honours SSL_CERT_FILE and SSL_CERT_DIR) and, beside it,
    # what requests adds by itself (certifi, REQUESTS_CA_BUNDLE): company proxies sign their own.
    context = ssl.create_default_context()

    class Adapter(HTTPAdapter):
        def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
            super().init_poolmanager(*args, ssl_context=context, **kwargs)
            self.poolmanager.pool_classes_by_scheme = pools

        def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
            manager = super().proxy_manager_for(proxy, ssl_context=context, **kwargs)
            manager.pool_classes_by_scheme = pools
            return manager

    session = requests.Session()
    session.mount("https://", Adapter())
    session.mount("http://", Adapter())
    session.headers["User-Agent"] = "nightly-bisect"
    return session


def _pools_with_bounded_headers() -> dict[str, Any]:
    """Return urllib3's connection pools, with an end to headers that drip.

    A socket's time-out is for each packet, and the headers come before anything of ours runs.
    """
    from urllib3.connection import HTTPConnection, HTTPSConnection
    from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

    class Plain(HTTPConnection):
        def getresponse(self) -> Any:
            with _ended_after(_HEADERS_S, self.sock):
                return super().getresponse()

    class Secure(HTTPSConnection):
        def getresponse(self) -> Any:
            with _ended_after(_HEADERS_S, self.sock):
                return super().getresponse()

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


@contextlib.contextmanager
def _ended_after(seconds: float, connected: socket.socket) -> Iterator[None]:
    has_ended = threading.Event()

    def end() -> None:
        has_ended.set()
        with contextlib.suppress(OSError):
            # The one of the plain socket: that of a TLS one takes its state away from the reader.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
    if has_ended.is_set():  # headers that are cut short look whole to http.client
        raise TimeoutError(f"the headers did not end within {seconds:.0f} s")


def _tls_refusal(url: str, error: Exception) -> Refused:
    return Refused(
        f"The certificate of {urlsplit(url).netloc} is not trusted: {_plain(error)}.",
        url=url,
        hint="behind a company proxy, name its certificate file in SSL_CERT_FILE or "
        "REQUESTS_CA_BUNDLE; the connection is never tried without TLS",
    )


def _is_cut_short(error: BaseException) -> bool:
    """Tell a TLS connection that broke off from one that was not to be trusted."""
    text = str(error)
    return "EOF" in text or "reset by peer" in text


def _is_continuation(response: requests.Response, receiver: Receiver) -> bool:
    match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    is_same = response.headers.get("ETag") in (None, receiver.etag)
    return match is not None and is_same and int(match[1]) == receiver.received


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")


def _retry_after(header: str | None) -> float | None:
    if header is None:
        return None
    if _is_number(header.strip()):
        return float(header)
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    return None


def _is_number(text: str) -> bool:
    # Headers may hold characters that are digits to Python and nothing to int().
    return text.isascii() and text.isdecimal()


def _plain(error: BaseException) -> str:
    """Return the innermost reason of a nest of connection errors, in one line."""
    while error.args and isinstance(inner := error.args[0], BaseException):
        error = inner
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return _plain(reason)
    text = str(error).strip() or type(error).__name__
    return text.rpartition(">: ")[2].rstrip(".")
