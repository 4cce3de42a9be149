"""Write index pages as the PyTorch index has written them over the years."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

# The index lists so many of the newest versions; older wheels stay where they are.
KEPT_VERSIONS = 60


class Era(Enum):
    """The forms of the page, by what a row looks like."""

    HASHED = "root-relative links with #sha256="
    SIDECARS = "root-relative links with metadata attributes and no hash"
    MIRRORED = "absolute links to another host, with metadata attributes and upload times"


@dataclass(frozen=True, slots=True)
class File:
    """A wheel as it lies on a server: its path below the host's root, and its bytes."""

    path: str
    content: bytes

    @property
    def name(self) -> str:
        """The file's name."""
        return self.path.rpartition("/")[2]


def index_page(project: str, files: Iterable[File], era: Era, mirror_url: str = "") -> bytes:
    """Return the page of a project, rows in lexicographic order as the real one has them.

    ``mirror_url`` is the other host, without a slash at its end, for `Era.MIRRORED`.
    """
    rows = [_row(file, era, mirror_url) for file in sorted(files, key=lambda file: file.path)]
    text = "\n".join(
        [
            "<!DOCTYPE html>",
            "<html>",
            "  <body>",
            f"    <h1>Links for {project}</h1>",
            *(f"    {row}<br/>" for row in rows),
            "  </body>",
            "</html>",
            "<!--TIMESTAMP 1796094855-->",
        ]
    )
    return text.encode()


def kept_versions(files: Mapping[str, File]) -> list[str]:
    """Return the newest ``KEPT_VERSIONS`` of the versions in ``files`` (a mapping from version)."""
    from packaging.version import Version

    return sorted(files, key=Version)[-KEPT_VERSIONS:]


def _row(file: File, era: Era, mirror_url: str) -> str:
    href = file.path.replace("+", "%2B")
    digest = hashlib.sha256(file.content).hexdigest()
    sidecar = hashlib.sha256(b"metadata of " + file.content).hexdigest()
    attributes = f'data-dist-info-metadata="sha256={sidecar}" data-core-metadata="sha256={sidecar}"'
    match era:
        case Era.HASHED:
            return f'<a href="{href}#sha256={digest}">{file.name}</a>'
        case Era.SIDECARS:
            return f'<a href="{href}" {attributes}>{file.name}</a>'
        case Era.MIRRORED:
            return (
                f'<a href="{mirror_url}{href}" {attributes} '
                f'data-upload-time="2026-10-26T11:02:33Z">{file.name}</a>'
            )
