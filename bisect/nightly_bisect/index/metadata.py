"""What a wheel says of itself, read from its files; nothing of it is run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import default_environment
from packaging.metadata import Metadata, parse_email
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from nightly_bisect.index.archive import CorruptWheel, reading_wheel
from nightly_bisect.index.wheel_names import parse_wheel

_LARGEST_METADATA_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class WheelMetadata:
    """A wheel's name, version and requirements, and the packages that it brings."""

    name: str
    version: Version
    requirements: tuple[Requirement, ...]
    top_level: tuple[str, ...]

    def active(self, python: str) -> list[Requirement]:
        """Return the requirements that hold on this machine with ``python`` (``3.11``)."""
        machine = marker_environment(python)
        return [
            requirement
            for requirement in self.requirements
            if requirement.marker is None or requirement.marker.evaluate(machine)
        ]


def marker_environment(python: str) -> dict[str, str]:
    """Return what markers see on this machine with ``python``, taken for its first patch release."""
    plain = python.rstrip("t")
    return {
        **default_environment(),  # type: ignore[dict-item]
        "python_version": plain,
        "python_full_version": f"{plain}.0",
        "implementation_version": f"{plain}.0",
        "extra": "",
    }


def read_metadata(path: Path) -> WheelMetadata:
    """Read a wheel's METADATA; raise `CorruptWheel` when it is not what the file name says."""
    name = parse_wheel(path.name)
    with reading_wheel(path) as archive:
        infos = [i for i in archive.infolist() if i.filename.endswith(".dist-info/METADATA")]
        infos = [i for i in infos if i.filename.count("/") == 1]
        if len(infos) != 1 or infos[0].file_size > _LARGEST_METADATA_BYTES:
            raise CorruptWheel("it has not exactly one METADATA of a sensible size")
        try:
            raw, _ = parse_email(archive.read(infos[0]))
            metadata = Metadata.from_raw(raw, validate=False)
            found, version = canonicalize_name(metadata.name), metadata.version
            requirements = tuple(metadata.requires_dist or ())
        except (ExceptionGroup, ValueError) as error:
            raise CorruptWheel(f"its METADATA cannot be read: {error}") from error
        top_level = _top_level(archive.namelist())
    if (found, version) != (name.project, name.version):
        raise CorruptWheel(f"its METADATA says {found} {version}")
    return WheelMetadata(found, version, requirements, top_level)


def recorded_commit(path: Path, attribute: str) -> str | None:
    """Read the commit out of the wheel's own source: ``package.module.name`` is ``name = 'hex'``."""
    module, _, name = attribute.rpartition(".")
    try:
        with reading_wheel(path) as archive:
            source = archive.read(module.replace(".", "/") + ".py").decode(errors="replace")
    except (KeyError, CorruptWheel):
        return None
    match = re.search(rf"^{re.escape(name)}\b[^=\n]*=\s*['\"]([0-9a-f]{{7,40}})['\"]", source, re.MULTILINE)
    return match[1] if match else None


def _top_level(names: list[str]) -> tuple[str, ...]:
    found = []
    for name in names:
        first, _, rest = name.partition("/")
        if rest == "__init__.py":
            found.append(first)
        elif not rest and first.endswith(".py"):
            found.append(first.removesuffix(".py"))
    return tuple(dict.fromkeys(found))
