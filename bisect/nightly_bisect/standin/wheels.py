"""Make small real wheels, byte for byte the same each time."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from datetime import date

_EPOCH = (2020, 1, 1, 0, 0, 0)


def make_wheel(
    project: str,
    version: str,
    files: Mapping[str, str],
    *,
    requires: Sequence[str] = (),
    metadata_version: str | None = None,
    tag: str = "py3-none-any",
) -> bytes:
    """Return a wheel with the given text ``files``.

    ``metadata_version`` makes METADATA name another version than the file's.
    """
    folder = f"{project.replace('-', '_')}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {project}",
        f"Version: {metadata_version or version}",
        *(f"Requires-Dist: {requirement}" for requirement in requires),
        "",
    ]
    contents = {
        **files,
        f"{folder}/METADATA": "\n".join(metadata),
        f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: stand-in\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = [f"{name},sha256={_digest(text)},{len(text.encode())}" for name, text in contents.items()]
    contents[f"{folder}/RECORD"] = "\n".join([*record, f"{folder}/RECORD,,", ""])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), text)
    return buffer.getvalue()


def wheel_filename(project: str, version: str, tag: str) -> str:
    """Return the file name of a wheel."""
    return f"{project.replace('-', '_')}-{version}-{tag}.whl"


def standin_torch(day: date, version: str, body: str) -> dict[str, str]:
    """Return the files of a stand-in torch whose ``__init__`` ends with ``body``."""
    return {
        "torch/__init__.py": f"from torch.version import __version__, git_version\n{body}\n",
        "torch/version.py": f"__version__ = {version!r}\ngit_version = {nightly_commit(day)!r}\n",
    }


def nightly_commit(day: date) -> str:
    """Return the made-up commit of the nightly branch that the build of ``day`` records."""
    return hashlib.sha1(f"nightly branch {day}".encode()).hexdigest()


def main_commit(day: date) -> str:
    """Return the made-up commit of the main branch behind the build of ``day``."""
    return hashlib.sha1(f"main branch {day}".encode()).hexdigest()


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
