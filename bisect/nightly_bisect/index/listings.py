"""The last good listing of each index page: what a run falls back on when the index fails."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nightly_bisect.index.parts import write_whole
from nightly_bisect.index.web import Document


@dataclass(frozen=True, slots=True)
class KeptListing:
    """A page as it was read at ``read_at``; ``wheels`` is how many of the package it listed."""

    document: Document
    read_at: datetime
    wheels: int


class Listings:
    """Listings below ``folder``, one file for each address: a line of JSON, then the body."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "listings"

    def keep(self, url: str, listing: KeptListing) -> None:
        """Keep a listing under the address that was asked; that it can't be written is no fault yet."""
        document = listing.document
        head = {
            "schema": 1,
            "asked": url,
            "url": document.url,
            "content_type": document.content_type,
            "read_at": listing.read_at.astimezone(UTC).isoformat(),
            "wheels": listing.wheels,
            "sha256": hashlib.sha256(document.body).hexdigest(),
        }
        # The run has the page itself. A disk that takes nothing is found out when it matters.
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(url), json.dumps(head).encode() + b"\n" + document.body)

    def recall(self, url: str) -> KeptListing | None:
        """Return what was kept; None when there is nothing, or not as it was written."""
        try:
            first, _, body = self._path(url).read_bytes().partition(b"\n")
            head = json.loads(first)
            if (head["schema"], head["asked"]) != (1, url):
                return None
            if head["sha256"] != hashlib.sha256(body).hexdigest():
                return None
            document = Document(str(head["url"]), body, str(head["content_type"]))
            return KeptListing(document, datetime.fromisoformat(head["read_at"]), int(head["wheels"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _path(self, url: str) -> Path:
        return self._folder / hashlib.sha256(url.encode()).hexdigest()[:20]
