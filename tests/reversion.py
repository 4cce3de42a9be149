"""Support: make "nightlies" of the true torch wheel, with other versions and a planted fault."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path


def download_torch(folder: Path, version: str = "2.13.0") -> Path:
    """Fetch the true CPU wheel with pip, which knows where this machine keeps it."""
    folder.mkdir(parents=True, exist_ok=True)
    words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
    subprocess.run([*words, f"torch=={version}"], check=True, stdout=subprocess.DEVNULL)
    return next(folder.glob("torch-*.whl"))


def reversion(wheel: Path, version: str, commit: str, appended: Mapping[str, str], folder: Path) -> Path:
    """Write the wheel anew as ``version``, with text ``appended`` to some of its files.

    Everything else is copied as it lies there, compressed: a 200 MB wheel takes about a second.
    """
    parts = wheel.name.split("-")
    target = folder / "-".join([parts[0], version, *parts[2:]])
    new_info = f"{parts[0]}-{version}.dist-info"
    with zipfile.ZipFile(wheel) as old:
        old_info = next(n for n in old.namelist() if n.endswith(".dist-info/METADATA")).partition("/")[0]
        changed = {name: old.read(name) + text.encode() for name, text in appended.items()}
        changed["torch/version.py"] = _version_file(old.read("torch/version.py").decode(), version, commit)
        for name in old.namelist():
            if name.startswith(old_info + "/") and not name.endswith("/"):
                changed[name] = old.read(name)
        changed[f"{old_info}/METADATA"] = _metadata(changed[f"{old_info}/METADATA"], version)
        changed[f"{old_info}/RECORD"] = _record(
            changed[f"{old_info}/RECORD"].decode(), changed, old_info, new_info
        )
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
            _copy_raw(old, new, set(changed))
            for name, content in changed.items():
                new.writestr(name.replace(old_info, new_info), content)
    return target


def _copy_raw(old: zipfile.ZipFile, new: zipfile.ZipFile, left_out: set[str]) -> None:
    """Copy members without unpacking them: their bytes as they lie between two local headers."""
    assert old.fp is not None and new.fp is not None
    members = sorted(old.infolist(), key=lambda info: info.header_offset)
    ends = [info.header_offset for info in members[1:]] + [old.start_dir]
    for info, end in zip(members, ends, strict=True):
        if info.filename in left_out:
            continue
        old.fp.seek(info.header_offset)
        data = old.fp.read(end - info.header_offset)
        info.header_offset = new.fp.tell()
        new.fp.write(data)
        new.filelist.append(info)
        new.NameToInfo[info.filename] = info
    new.start_dir = new.fp.tell()
    new._didModify = True  # type: ignore[attr-defined]


def _version_file(text: str, version: str, commit: str) -> bytes:
    lines = [
        f"__version__ = {version!r}"
        if line.startswith("__version__ =")
        else f"git_version = {commit!r}"
        if line.startswith("git_version =")
        else line
        for line in text.splitlines()
    ]
    return ("\n".join(lines) + "\n").encode()


def _metadata(content: bytes, version: str) -> bytes:
    lines = content.decode().split("\n")
    at = next(i for i, line in enumerate(lines) if line.startswith("Version: "))
    lines[at] = f"Version: {version}"
    return "\n".join(lines).encode()


def _record(text: str, changed: Mapping[str, bytes], old_info: str, new_info: str) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for name, digest, size in csv.reader(text.splitlines()):
        if name in changed and digest:
            content = changed[name]
            raw = hashlib.sha256(content).digest()
            digest = "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
            size = str(len(content))
        writer.writerow([name.replace(old_info, new_info), digest, size])
    return buffer.getvalue().encode()
