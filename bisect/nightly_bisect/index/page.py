"""Read one page of a package index, HTML or JSON, into rows. Pure: no network.

A page of the PyTorch index has had several forms over the years: links relative to the root of the
host or absolute to another host, ``%2B`` in them and ``+`` in their text, with and without
``#sha256=``, with and without metadata and upload-time attributes, in lexicographic order, and with
text that is not escaped. The file name is therefore taken from the link's target, which is what
gets downloaded, and never from its text.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from nightly_bisect.errors import NotAnIndex
from nightly_bisect.model import Wheel

if TYPE_CHECKING:
    from pypi_simple.html import Link

_TIMESTAMP = re.compile(r"<!--\s*TIMESTAMP\s+(\d+)\s*-->")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
_JSON = "application/vnd.pypi.simple.v1+json"


@dataclass(frozen=True, slots=True)
class Row:
    """A wheel on a page; ``uploaded`` only where the index tells it."""

    wheel: Wheel
    uploaded: datetime | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A row that was left out, and why."""

    text: str
    why: str


@dataclass(frozen=True, slots=True)
class Page:
    """What one page lists. ``written`` is when the index says that it wrote the page."""

    url: str
    rows: tuple[Row, ...]
    unreadable: tuple[Unreadable, ...]
    written: datetime | None


def read_page(body: bytes, url: str, content_type: str) -> Page:
    """Read a page; raise `NotAnIndex` when it cannot be one, or was cut short."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == _JSON:
        rows, unreadable = _json_rows(body, url)
        return Page(url, rows, unreadable, None)
    text = body.decode("utf-8", errors="replace")
    lowered = text.lower()
    if "<html" in lowered and "</html" not in lowered:
        raise _not_an_index(url, "was cut short: its end is missing")
    if "<a" not in lowered:
        raise _not_an_index(url, f"holds no links ({kind or 'no content type'}, {len(body)} bytes)")
    rows, unreadable = _html_rows(text, url)
    written = _TIMESTAMP.search(text)
    return Page(url, rows, unreadable, _from_epoch(written[1]) if written else None)


def _html_rows(text: str, url: str) -> tuple[tuple[Row, ...], tuple[Unreadable, ...]]:
    from pypi_simple import UnsupportedRepoVersionError
    from pypi_simple.html import RepositoryPage

    try:
        # Without a base URL: one malformed link must not take the whole page with it.
        links = RepositoryPage.from_html(text).links
    except (UnsupportedRepoVersionError, ValueError, AssertionError) as error:
        raise _not_an_index(url, f"could not be understood: {error}") from error
    rows: list[Row] = []
    unreadable: list[Unreadable] = []
    for link in links:
        row = _html_row(link, url)
        (rows if isinstance(row, Row) else unreadable).append(row)  # type: ignore[arg-type]
    return _without_doubles(rows, unreadable)


def _html_row(link: Link, page_url: str) -> Row | Unreadable:
    try:
        target, fragment = urldefrag(urljoin(page_url, link.url))
        parts = urlsplit(target)
    except ValueError as error:
        return Unreadable(link.url, f"not a URL: {error}")
    if parts.scheme not in ("http", "https"):
        return Unreadable(link.url, "not an http link")
    if "data-yanked" in link.attrs:
        return Unreadable(link.url, "yanked")
    filename = unquote(parts.path).rpartition("/")[2]
    digest = _SHA256.search(fragment)
    uploaded = link.attrs.get("data-upload-time")
    return Row(
        Wheel(filename, target, digest[1].lower() if digest else None),
        _from_iso(uploaded) if isinstance(uploaded, str) else None,
    )


def _json_rows(body: bytes, url: str) -> tuple[tuple[Row, ...], tuple[Unreadable, ...]]:
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    try:
        packages = ProjectPage.from_json_data(json.loads(body), url).packages
    except (UnsupportedRepoVersionError, ValueError) as error:
        raise _not_an_index(url, "is not the JSON of an index page") from error
    rows = [
        Row(
            Wheel(package.filename, package.url, package.digests.get("sha256"), package.size),
            package.upload_time,
        )
        for package in packages
        if not package.is_yanked
    ]
    yanked = [Unreadable(p.filename, "yanked") for p in packages if p.is_yanked]
    return _without_doubles(rows, yanked)


def _without_doubles(
    rows: list[Row], unreadable: list[Unreadable]
) -> tuple[tuple[Row, ...], tuple[Unreadable, ...]]:
    """Keep the first of the rows that name one file; say it where they disagree."""
    kept: dict[str, Row] = {}
    for row in rows:
        first = kept.setdefault(row.wheel.filename, row)
        if first.wheel.sha256 != row.wheel.sha256:
            unreadable.append(Unreadable(row.wheel.filename, "listed twice with different hashes"))
    return tuple(kept.values()), tuple(unreadable)


def _not_an_index(url: str, why: str) -> NotAnIndex:
    return NotAnIndex(
        f"The page {url} {why}.",
        url=url,
        hint="open it in a browser: a login page of the network, or a wrong --index-url, looks so; "
        "a page that was cut short is worth another try",
    )


def _from_epoch(seconds: str) -> datetime | None:
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _from_iso(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
