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
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote, urljoin, urlsplit

from nightly_bisect.errors import NotAnIndex
from nightly_bisect.model import Wheel

if TYPE_CHECKING:
    from pypi_simple.html import Link

_TIMESTAMP = re.compile(r"<!--\s*TIMESTAMP\s+(\d+)\s*-->")
_SHA256 = re.compile(r"sha256=([0-9a-fA-F]{64})")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_LARGEST_SIZE = 2**63
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
    from bs4.exceptions import ParserRejectedMarkup
    from pypi_simple import UnsupportedRepoVersionError
    from pypi_simple.html import RepositoryPage

    try:
        # Without a base URL: one malformed link must not take the whole page with it.
        links = RepositoryPage.from_html(text).links
    except (UnsupportedRepoVersionError, ParserRejectedMarkup, ValueError, AssertionError) as error:
        raise _not_an_index(url, f"could not be understood: {error}") from error
    return _sorted_out([_html_row(link, url) for link in links])


def _html_row(link: Link, page_url: str) -> Row | Unreadable:
    if "data-yanked" in link.attrs:
        return Unreadable(link.url, "yanked")
    href, _, fragment = link.url.partition("#")
    digest = _SHA256.search(fragment)
    uploaded = link.attrs.get("data-upload-time")
    return _row(
        href,
        page_url,
        sha256=digest[1] if digest else None,
        uploaded=_from_iso(uploaded) if isinstance(uploaded, str) else None,
    )


def _json_rows(body: bytes, url: str) -> tuple[tuple[Row, ...], tuple[Unreadable, ...]]:
    from pypi_simple import ProjectPage, UnsupportedRepoVersionError

    try:
        packages = ProjectPage.from_json_data(json.loads(body)).packages
    except (UnsupportedRepoVersionError, ValueError, RecursionError) as error:
        raise _not_an_index(url, "is not the JSON of an index page") from error
    return _sorted_out(
        [
            Unreadable(package.filename, "yanked")
            if package.is_yanked
            else _row(
                package.url,
                url,
                filename=package.filename,
                sha256=package.digests.get("sha256"),
                size_bytes=package.size,
                uploaded=package.upload_time,
            )
            for package in packages
        ]
    )


def _row(
    href: str,
    page_url: str,
    *,
    sha256: str | None,
    filename: str | None = None,
    size_bytes: int | None = None,
    uploaded: datetime | None = None,
) -> Row | Unreadable:
    try:
        target = urljoin(page_url, href)
        parts = urlsplit(target)
    except ValueError as error:
        return Unreadable(href, f"not a URL: {error}")
    # Parsers disagree about a backslash: one would check another host than the other asks. And what JSON
    # escapes may be no character at all, which nothing could store.
    if parts.scheme not in ("http", "https") or "\\" in target or not target.isprintable():
        return Unreadable(href, "not an http link")
    filename = filename or unquote(parts.path).rpartition("/")[2]
    # What no file can have tells nothing.
    digest = sha256.lower() if sha256 and _DIGEST.fullmatch(sha256) else None
    size_bytes = size_bytes if size_bytes is not None and 0 <= size_bytes < _LARGEST_SIZE else None
    return Row(Wheel(filename, target, digest, size_bytes), _in_utc(uploaded))


def _sorted_out(
    found: Sequence[Row | Unreadable],
) -> tuple[tuple[Row, ...], tuple[Unreadable, ...]]:
    """Keep one row of each URL, the one with a hash; say it where hashes disagree."""
    unreadable = [item for item in found if isinstance(item, Unreadable)]
    kept: dict[str, Row] = {}
    for row in found:
        if not isinstance(row, Row):
            continue
        first = kept.setdefault(row.wheel.url, row)
        if None in (first.wheel.sha256, row.wheel.sha256):
            kept[row.wheel.url] = first if first.wheel.sha256 else row
        elif first.wheel.sha256 != row.wheel.sha256:
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
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _in_utc(moment: datetime | None) -> datetime | None:
    """Return a moment, of UTC where nothing else is said; None for one at the end of all dates."""
    try:
        aware = moment and (moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        return aware and aware.astimezone(UTC)
    except OverflowError:
        return None
