"""A wheel that could do harm is refused with its reason, and no true one is."""

from __future__ import annotations

import csv
import io
import stat
import struct
import time
import unicodedata
import warnings
import zipfile
import zlib
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reversion import download_torch

from nightly_bisect.index.archive import CorruptWheel
from nightly_bisect.index.wheel_safety import HostileWheel, refuse_hostile
from nightly_bisect.standin.wheels import make_wheel, standin_torch

VERSION = "2.6.0.dev20241201+cpu"
NAME = f"torch-{VERSION}-py3-none-any.whl"
INFO = f"torch-{VERSION}.dist-info"
SCRIPTS = f"torch-{VERSION}.data/scripts"
USUAL = ("torch/__init__.py", "torch/version.py", f"{INFO}/METADATA", f"{INFO}/WHEEL")

Tamper = Callable[[zipfile.ZipFile], None]


def write(folder: Path, *names: str, tamper: Tamper | None = None, record: str | None = None) -> Path:
    """Write a wheel with the usual members and ``names``, all of them in RECORD unless it is given.

    ``tamper`` changes the archive after its members are written, before its directory is.
    """
    path = folder / NAME
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of names that are there already
        for name in (*USUAL, *names):
            info = zipfile.ZipInfo("")
            info.filename = name  # the constructor would cut it at a NUL
            archive.writestr(info, "" if name.endswith("/") else f"# {name!r}\n", zipfile.ZIP_DEFLATED)
        archive.writestr(f"{INFO}/RECORD", record_of(*USUAL, *names) if record is None else record)
        if tamper is not None:
            tamper(archive)
    return path


def record_of(*names: str) -> str:
    buffer = io.StringIO()
    files = [name for name in names if not name.endswith("/")]
    csv.writer(buffer).writerows([name, "", ""] for name in [*files, f"{INFO}/RECORD"])
    return buffer.getvalue()


def rewrite(path: Path, change: Callable[[bytearray], object]) -> Path:
    """Change the bytes of a finished archive; its first member's own header stands at 0."""
    content = bytearray(path.read_bytes())
    change(content)
    path.write_bytes(content)
    return path


def reason(path: Path) -> str:
    with pytest.raises(HostileWheel) as caught:
        refuse_hostile(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../evil.pth", "'../evil.pth' climbs out of its folder with '..'"),
        ("torch/../../evil.pth", "'torch/../../evil.pth' climbs out of its folder with '..'"),
        (f"{SCRIPTS}/../../bin/sh", f"'{SCRIPTS}/../../bin/sh' climbs out of its folder with '..'"),
        ("..", "'..' climbs out of its folder with '..'"),
        ("/etc/cron.d/evil", "'/etc/cron.d/evil' is an absolute path"),
        (f"{SCRIPTS}//etc/evil", f"'{SCRIPTS}//etc/evil' has an empty part in its path"),
        ("torch/./a.py", "'torch/./a.py' has an empty part in its path"),
        ("./torch/version.py", "'./torch/version.py' has an empty part in its path"),
        ("C:/evil.dll", "'C:/evil.dll' names a drive"),
        ("c:evil.dll", "'c:evil.dll' names a drive"),
        (f"{SCRIPTS}/C:/evil.exe", f"'{SCRIPTS}/C:/evil.exe' names a drive"),
        ("torch\\..\\evil.py", r"'torch\\..\\evil.py' has a backslash in its name"),
        ("torch/a\0.py", r"'torch/a\x00.py' has a control character in its name"),
        ("torch/\x1b[2J.py", r"'torch/\x1b[2J.py' has a control character in its name"),
        ("torch/a\n.py", r"'torch/a\n.py' has a control character in its name"),
        ("torch/\x9b2J.py", r"'torch/\x9b2J.py' has a control character in its name"),
        ("torch/version.py", "'torch/version.py' is in it twice"),
        ("torch/version.py/a.py", "'torch/version.py' is a file and a folder at once"),
        ("torch/version.py/", "'torch/version.py' is a file and a folder at once"),
    ],
)
def test_a_hostile_name_is_refused(tmp_path: Path, name: str, said: str) -> None:
    assert reason(write(tmp_path, name)) == said


def test_two_spellings_of_one_name_are_refused(tmp_path: Path) -> None:
    names = [unicodedata.normalize(form, "torch/é.py") for form in ("NFC", "NFD")]
    assert reason(write(tmp_path, *names)) == "'torch/é.py' is in it twice"


def test_a_long_name_is_cut_in_the_reason(tmp_path: Path) -> None:
    assert len(reason(write(tmp_path, "../" + "x" * 5000))) < 300


def set_mode(mode: int) -> Tamper:
    def tamper(archive: zipfile.ZipFile) -> None:
        archive.infolist()[0].external_attr = (mode | 0o644) << 16

    return tamper


def set_field(field: str, value: int, at: int = 0) -> Tamper:
    return lambda archive: setattr(archive.infolist()[at], field, value)


def drop_from_directory(archive: zipfile.ZipFile) -> None:
    del archive.filelist[1]


def claim_1_1_gib(archive: zipfile.ZipFile) -> None:
    archive.infolist()[0].file_size = 11 * 2**30 // 10


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (set_mode(stat.S_IFLNK), "'torch/__init__.py' is a symbolic link"),
        (set_mode(stat.S_IFCHR), "'torch/__init__.py' is a device or another special file"),
        (set_mode(stat.S_IFBLK), "'torch/__init__.py' is a device or another special file"),
        (set_mode(stat.S_IFIFO), "'torch/__init__.py' is a device or another special file"),
        (set_field("flag_bits", 0x1), "'torch/__init__.py' is encrypted"),
        (set_field("file_size", 31 * 2**30), "it unpacks to 31.0 GiB, more than 30 GiB"),
        (set_field("file_size", 3), "'torch/__init__.py' has another size in its own header"),
        (set_field("compress_type", 0), "'torch/__init__.py' is packed otherwise by its own header"),
        (set_field("header_offset", 0, at=1), "'torch/version.py' lies over another member"),
        (drop_from_directory, f"bytes before '{INFO}/METADATA' belong to no member"),
    ],
)
def test_a_hostile_directory_is_refused(tmp_path: Path, tamper: Tamper, said: str) -> None:
    path = write(tmp_path, tamper=tamper)
    assert reason(path).endswith(said)


def test_a_bomb_is_refused_by_its_ratio(tmp_path: Path) -> None:
    said = reason(write(tmp_path, tamper=claim_1_1_gib))
    assert said.startswith("it unpacks to 1.1 GiB, ")
    assert said.endswith(" times its size")


@pytest.mark.slow
def test_a_true_bomb_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    path = write(tmp_path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("torch/zeros.bin", "w", force_zip64=True) as file,
    ):
        for _ in range(1025):
            file.write(bytes(2**20))
    began = time.process_time()
    assert "GiB" in reason(path)
    assert time.process_time() - began < 0.5


def test_a_member_of_another_name_in_its_own_header_is_refused(tmp_path: Path) -> None:
    def rename(content: bytearray) -> None:
        at = content.index(b"torch/__init__.py")
        content[at : at + 17] = b"torch/../../b.pth"

    said = "'torch/__init__.py' has another name in its own header"
    assert reason(rewrite(write(tmp_path), rename)) == said


def test_a_member_without_a_header_of_its_own_is_refused(tmp_path: Path) -> None:
    path = rewrite(write(tmp_path), lambda content: content.__setitem__(3, 0))
    assert reason(path) == "'torch/__init__.py' has no header of its own"


def test_a_name_in_an_extra_field_is_refused(tmp_path: Path) -> None:
    name, other = b"torch/a.py", b"torch/b.py"
    info = zipfile.ZipInfo(name.decode())
    info.extra = struct.pack("<HHBL", 0x7075, 5 + len(other), 1, zlib.crc32(name)) + other
    path = write(tmp_path, tamper=lambda archive: archive.writestr(info, ""))
    assert reason(path) == "'torch/a.py' has a second name in an extra field"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda content: content.extend(b"PK"), "something follows its directory"),
        (lambda content: content.__setitem__(slice(0, 0), b"#!/bin/sh\n"), "its directory is not where its end record says"),
        (lambda content: struct.pack_into("<H", content, len(content) - 12, 4), "its directory has 5 members but claims 4"),
    ],
)  # fmt: skip
def test_an_archive_that_readers_may_find_differently_is_refused(
    tmp_path: Path, change: Callable[[bytearray], object], said: str
) -> None:
    assert reason(rewrite(write(tmp_path), change)) == said


def test_a_comment_which_could_hold_another_archive_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, tamper=lambda archive: setattr(archive, "comment", b"PK of another archive"))
    assert reason(path) == "something follows its directory"


@pytest.mark.parametrize("record", [record_of(*USUAL[1:]), record_of(*USUAL, "torch/gone.py"), ""])
def test_a_sloppy_record_is_not_hostile(tmp_path: Path, record: str) -> None:
    refuse_hostile(write(tmp_path, record=record))


def test_what_is_no_archive_is_corrupt_rather_than_hostile(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"<html>Sign in to this network</html>")
    with pytest.raises(CorruptWheel):
        refuse_hostile(tmp_path / NAME)


@pytest.mark.parametrize(
    "names",
    [
        ("torch/", "torch/lib/", "torch/lib/libtorch.so"),
        (f"{SCRIPTS}/torchrun", "functorch/__init__.py", "one_file.py"),
        ("torch/A.py", "torch/a.py"),
        ("torch/..hidden", "torch/...", "torch/a..b", "torch/.keep"),
        ("torch/with, comma.py", 'torch/with "quotes".py', "torch/größe.py"),
        ("torch/version.py.orig", "torch/version", "torch/version-2/a.py"),
    ],
)
def test_an_unusual_but_harmless_name_passes(tmp_path: Path, names: tuple[str, ...]) -> None:
    refuse_hostile(write(tmp_path, *names))


def test_a_wheel_written_to_a_pipe_passes(tmp_path: Path) -> None:
    """Such a writer puts the sizes behind each member instead of into its header."""

    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

        def tell(self) -> int:
            raise io.UnsupportedOperation

        def seek(self, offset: int, whence: int = 0) -> int:
            raise io.UnsupportedOperation

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in USUAL:
            archive.writestr(name, "text")
        archive.writestr(f"{INFO}/RECORD", record_of(*USUAL))
    (tmp_path / NAME).write_bytes(pipe.getvalue())
    refuse_hostile(tmp_path / NAME)


def test_the_stand_in_wheels_pass(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(make_wheel("torch", VERSION, standin_torch(date(2024, 12, 1), VERSION, "")))
    refuse_hostile(path)


_parts = st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="/\\:"), max_size=12)
_folders = st.lists(_parts.map(lambda part: part + "-d"), max_size=4)
_paths = st.tuples(_folders, _parts.map(lambda part: part + ".py")).map(lambda p: "/".join([*p[0], p[1]]))


@settings(deadline=None)  # it writes to the disk
@given(st.lists(_paths, max_size=20, unique_by=lambda name: unicodedata.normalize("NFC", name)))
def test_any_wheel_of_safe_names_passes(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    refuse_hostile(write(tmp_path_factory.mktemp("safe"), *names))


@settings(deadline=None)  # it writes to the disk
@given(_paths, st.sampled_from(["..", ".", "", "C:", "\\", "\0"]), st.integers(0, 4))
def test_any_safe_name_with_one_unsafe_part_is_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, unsafe: str, at: int
) -> None:
    parts = name.split("/")
    parts.insert(min(at, len(parts) - 1), unsafe)
    reason(write(tmp_path_factory.mktemp("unsafe"), "/".join(parts)))


@pytest.mark.slow
def test_an_archive_of_too_many_members_is_refused(tmp_path: Path) -> None:
    member = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, *[0] * 4, *[0] * 3, 1, *[0] * 6) + b"a"
    directory = member * 500_001
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, len(directory), 0, 0)
    (tmp_path / NAME).write_bytes(directory + end)
    assert reason(tmp_path / NAME) == "it has 500,001 members, more than 500,000"


@pytest.mark.slow
def test_the_true_torch_wheel_passes_at_once(tmp_path: Path) -> None:
    path = download_torch(tmp_path)
    began = time.process_time()
    refuse_hostile(path)
    assert time.process_time() - began < 2  # 0.4 s where this was written, half of it zipfile's
