"""What lies in an environment, read from its files: nothing of it is run."""

from __future__ import annotations

import base64
import csv
import hashlib
import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_SOURCES = (".py", ".pth", ".pyi", ".json", ".txt")


def site_packages(environment: Path) -> Path:
    """Return the folder that packages are installed into."""
    windows = environment / "Lib" / "site-packages"
    return windows if windows.is_dir() else next(environment.glob("lib/python*/site-packages"))


def inventory(site: Path) -> dict[str, str]:
    """Return the versions of the distributions in ``site``, by canonical name."""
    return {canonicalize_name(d.metadata["Name"]): d.version for d in _distributions(site)}


def verified_files(site: Path) -> list[tuple[str, str]]:
    """Verify every file against its wheel's RECORD and give the environment sources of its own.

    Environments share their files with the installer's cache, and so with each other, by hard
    links: a check that writes into an installed file changes it everywhere. Sources, which is what
    people patch, are therefore copied; for the rest a later install finds the change. Return
    (distribution, file) for what is not as recorded.
    """
    expected = [
        (canonicalize_name(d.metadata["Name"]), site / path, digest)
        for d in _distributions(site)
        for path, digest in _recorded(d)
    ]
    with ThreadPoolExecutor() as pool:
        same = pool.map(lambda item: _verify(item[1], item[2]), expected)
        return [(n, str(p.relative_to(site))) for (n, p, _), ok in zip(expected, same, strict=True) if not ok]


def missing_requirements(site: Path, names: frozenset[str]) -> list[str]:
    """Return what is required of ``names`` and is not there: "x needs y"."""
    present = inventory(site)
    return [
        f"{d.metadata['Name']} needs {requirement}"
        for d in _distributions(site)
        for requirement in _requirements(d)
        if canonicalize_name(requirement.name) in names and canonicalize_name(requirement.name) not in present
    ]


def _distributions(site: Path) -> Iterable[Distribution]:
    return distributions(path=[str(site)])


def _requirements(distribution: Distribution) -> Iterator[Requirement]:
    for text in distribution.requires or []:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield requirement


def _recorded(distribution: Distribution) -> Iterator[tuple[str, str]]:
    record = distribution.read_text("RECORD")
    for row in csv.reader((record or "").splitlines()):
        # The installer writes some files itself and lists them without a promise of the wheel's.
        if len(row) >= 2 and row[1].startswith("sha256=") and not row[0].startswith(("..", "/")):
            yield row[0], row[1]


def _verify(path: Path, expected: str) -> bool:
    try:
        if path.suffix in _SOURCES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).digest()
            if path.stat().st_nlink > 1:
                _detach(path, content)
        else:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").digest()
    except FileNotFoundError:
        return False
    return expected == "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _detach(path: Path, content: bytes) -> None:
    """Replace a hard link by a file of its own."""
    own = path.with_name(f"{path.name}.own")
    own.write_bytes(content)
    shutil.copymode(path, own)
    own.replace(path)
