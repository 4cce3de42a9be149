"""An index server on loopback: pages, wheels, HEAD, ranges, and 403 for what is not there."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import unquote, urlsplit

Respond = Callable[["Handler"], None]
"""Writes a whole response by itself: how a test injects a fault for a path."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a path answers with."""

    body: bytes
    kind: str = "application/octet-stream"


class LoopbackServer:
    """Serves ``contents`` by decoded path, on 127.0.0.1 and a free port.

    ``faults`` come before contents. ``requests`` records (method, path) in order.
    """

    def __init__(self, contents: Mapping[str, Content] | None = None, *, missing_status: int = 403) -> None:
        self.contents = dict(contents or {})
        self.faults: dict[str, Respond] = {}
        self.missing_status = missing_status
        self.requests: list[tuple[str, str]] = []
        self._server = _QuietServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.owner = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,), daemon=True)

    @property
    def url(self) -> str:
        """The root of the server, without a slash at its end."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: a client that goes away early is no news."""


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD as an object store behind a web server does."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing on stderr."""

    def reply(self, status: int, content: Content, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response."""
        self.send_response(status)
        self.send_header("Content-Type", content.kind)
        self.send_header("Content-Length", str(len(content.body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content.body)

    def _answer(self) -> None:
        owner: LoopbackServer = self.server.owner  # type: ignore[attr-defined]
        path = unquote(urlsplit(self.path).path)
        owner.requests.append((self.command, path))
        if path in owner.faults:
            owner.faults[path](self)
            return
        content = owner.contents.get(path)
        # A raw plus in a URL is not the plus of the stored name.
        if content is None or "+" in self.path:
            self.reply(
                owner.missing_status,
                Content(b"<Error><Code>AccessDenied</Code></Error>", "application/xml"),
            )
            return
        self._send(content)

    def _send(self, content: Content) -> None:
        headers = {
            "ETag": f'"{hashlib.md5(content.body).hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not match or not any(match.groups()):
            self.reply(200, content, headers)
            return
        size = len(content.body)
        first, last = match.groups()
        start = int(first) if first else max(0, size - int(last))
        stop = min(int(last) + 1, size) if first and last else size
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        self.reply(206, Content(content.body[start:stop], content.kind), headers)
