"""Hostile wheels: what an archive's own directory shows of them, before anything is unpacked."""

from __future__ import annotations

import io
import re
import stat
import struct
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO
from zipfile import ZipFile, ZipInfo

from nightly_bisect.index.archive import CorruptWheel, reading_wheel

_MOST_MEMBERS = 500_000
_MOST_UNPACKED_BYTES = 30 * 2**30
# Text compresses a hundredfold at times; it is a bomb only when it is also large.
_MOST_RATIO = 100
_HARMLESS_UNPACKED_BYTES = 2**30

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"(?:^|/)[A-Za-z]:")

_ENCRYPTED, _HAS_DESCRIPTOR, _IS_UTF8 = 0x1, 0x8, 0x800
_LONGEST_DESCRIPTOR_BYTES = 24
_UNICODE_PATH_FIELD = 0x7075
_IN_ZIP64 = 0xFFFFFFFF
_COUNT_IN_ZIP64 = 0xFFFF
# Of a member's own header: signature, flags, method, sizes packed and unpacked, lengths of name and extra.
_LOCAL_HEADER = struct.Struct("<4s2xHH8xIIHH")
# Of the record that ends an archive: signature, count of members, where the directory starts.
_END_RECORD = struct.Struct("<4s6xH4xI2x")


class HostileWheel(CorruptWheel):
    """Unpacking this wheel could do harm, or give other files than it shows; the text says why."""


def refuse_hostile(path: Path) -> None:
    """Raise `HostileWheel` for a wheel that must not be unpacked.

    Read its directory and its members' own headers, but none of the members. Raise `CorruptWheel` when
    it isn't a readable archive at all. An incomplete RECORD is sloppy, not hostile: it is no matter here.
    """
    with reading_wheel(path) as archive, path.open("rb", buffering=0) as file:
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise HostileWheel(f"it has {len(members):,} members, more than {_MOST_MEMBERS:,}")
        for member in members:
            _refuse_member(member)
        _refuse_collisions(members)
        _refuse_bomb(members, path.stat().st_size)
        _refuse_second_directory(archive, file)
        _refuse_other_headers(archive, file)


def _refuse_member(member: ZipInfo) -> None:
    # The reader cuts a name at its first NUL, and newer ones take it from an extra field.
    name = member.orig_filename
    fault = _fault_of_name(name)
    mode = stat.S_IFMT(member.external_attr >> 16)
    if fault is None and (name != member.filename or _UNICODE_PATH_FIELD in _extra_fields(member.extra)):
        fault = "has a second name in an extra field"
    elif fault is None and mode == stat.S_IFLNK:
        fault = "is a symbolic link"
    elif fault is None and mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        fault = "is a device or another special file"
    elif fault is None and member.flag_bits & _ENCRYPTED:
        fault = "is encrypted"
    if fault is not None:
        raise HostileWheel(f"{_shown(name)} {fault}")


def _fault_of_name(name: str) -> str | None:
    parts = name.removesuffix("/").split("/")
    if _CONTROL.search(name):
        return "has a control character in its name"
    if "\\" in name:
        return "has a backslash in its name"
    if name.startswith("/"):
        return "is an absolute path"
    if ".." in parts:
        return "climbs out of its folder with '..'"
    if _DRIVE.search(name):
        return "names a drive"
    # Installers cut `x.data/scripts/` off and join the rest: with `//` in it, that is absolute.
    if "" in parts or "." in parts:
        return "has an empty part in its path"
    return None


def _extra_fields(extra: bytes) -> Iterator[int]:
    while len(extra) >= 4:
        field, size_bytes = struct.unpack_from("<HH", extra)
        yield field
        extra = extra[4 + size_bytes :]


def _refuse_collisions(members: Sequence[ZipInfo]) -> None:
    """Refuse two members for one place: which of them is unpacked depends on the installer."""
    places = sorted(
        (unicodedata.normalize("NFC", member.filename.removesuffix("/")) + "/", member.is_dir())
        for member in members
    )
    # With a slash at the end of each, what lies below a place follows it directly.
    for (place, is_folder), (following, is_next_folder) in pairwise(places):
        if place == following and is_folder == is_next_folder:
            raise HostileWheel(f"{_shown(place.removesuffix('/'))} is in it twice")
        if not is_folder and following.startswith(place):
            raise HostileWheel(f"{_shown(place.removesuffix('/'))} is a file and a folder at once")


def _refuse_bomb(members: Sequence[ZipInfo], packed_bytes: int) -> None:
    unpacked_bytes = sum(member.file_size for member in members)
    size = f"{unpacked_bytes / 2**30:,.1f} GiB"
    if unpacked_bytes > _MOST_UNPACKED_BYTES:
        raise HostileWheel(f"it unpacks to {size}, more than {_MOST_UNPACKED_BYTES // 2**30} GiB")
    # Against the file's own size: members that share their bytes can't make the ratio look small.
    if unpacked_bytes > _HARMLESS_UNPACKED_BYTES and unpacked_bytes > _MOST_RATIO * packed_bytes:
        raise HostileWheel(f"it unpacks to {size}, {unpacked_bytes // packed_bytes:,} times its size")


def _refuse_second_directory(archive: ZipFile, file: BinaryIO) -> None:
    """Refuse an archive in which another reader may find another directory than ours did."""
    file.seek(-_END_RECORD.size, io.SEEK_END)
    signature, count, start = _END_RECORD.unpack(file.read(_END_RECORD.size))
    if signature != b"PK\5\6" or archive.comment:
        raise HostileWheel("something follows its directory")
    if count not in (len(archive.infolist()), _COUNT_IN_ZIP64):
        raise HostileWheel(f"its directory has {len(archive.infolist())} members but claims {count}")
    if start not in (archive.start_dir, _IN_ZIP64):
        raise HostileWheel("its directory is not where its end record says")


def _refuse_other_headers(archive: ZipFile, file: BinaryIO) -> None:
    """Refuse members whose own headers say otherwise than the directory, or that lie over each other.

    Some readers go by the directory and some by the headers; they must see the same files.
    """
    end, slack_bytes = 0, 0
    for member in sorted(archive.infolist(), key=lambda info: info.header_offset):
        _refuse_gap(member.filename, member.header_offset - end, slack_bytes)
        end = member.header_offset + _length_as_headed(member, file) + member.compress_size
        slack_bytes = _LONGEST_DESCRIPTOR_BYTES if member.flag_bits & _HAS_DESCRIPTOR else 0
    _refuse_gap("the directory", archive.start_dir - end, slack_bytes)


def _refuse_gap(before: str, gap_bytes: int, slack_bytes: int) -> None:
    if gap_bytes < 0:
        raise HostileWheel(f"{_shown(before)} lies over another member")
    if gap_bytes > slack_bytes:
        raise HostileWheel(f"{gap_bytes} bytes before {_shown(before)} belong to no member")


def _length_as_headed(member: ZipInfo, file: BinaryIO) -> int:
    """Return the length of a member's own header, which must agree with the directory."""
    name = member.orig_filename.encode("utf-8" if member.flag_bits & _IS_UTF8 else "cp437")
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER.size + len(name))
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        raise HostileWheel(f"{_shown(member.filename)} has no header of its own")
    _, flags, method, packed, unpacked, name_length, extra_length = _LOCAL_HEADER.unpack_from(header)
    if name_length != len(name) or header[_LOCAL_HEADER.size :] != name:
        raise HostileWheel(f"{_shown(member.filename)} has another name in its own header")
    if (flags, method) != (member.flag_bits, member.compress_type):
        raise HostileWheel(f"{_shown(member.filename)} is packed otherwise by its own header")
    sizes_stand_elsewhere = flags & _HAS_DESCRIPTOR or _IN_ZIP64 in (packed, unpacked)
    if not sizes_stand_elsewhere and (packed, unpacked) != (member.compress_size, member.file_size):
        raise HostileWheel(f"{_shown(member.filename)} has another size in its own header")
    return _LOCAL_HEADER.size + int(name_length) + int(extra_length)


def _shown(name: str) -> str:
    """Return a name as it can be printed: whatever a terminal would act on is escaped."""
    return repr(name if len(name) <= 200 else f"{name[:199]}…")
