"""Cut the power while the journal is written, and count what was lost of what it had confirmed.

    sudo python benchmarks/power_cut.py --cuts 100 --seed 1

SIGKILL can't show this: what a killed process wrote is safe with the kernel. Here the file system (ext4 on a loop
device) is shut down in the middle of it, as if the machine were gone: what was not flushed is lost. Then it is mounted
again. Counted, and to be 0: confirmed entries that are not there, journals that can't be read, files that have
their name and not their content. Exits with 1 otherwise, and with 77 where the machine allows no such thing (it needs
root on Linux).
"""

from __future__ import annotations

import argparse
import fcntl
import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from datetime import UTC, date, datetime
from pathlib import Path

from nightly_bisect.errors import BisectError
from nightly_bisect.index.parts import sync_folder, write_whole
from nightly_bisect.journal import Journal, Record
from nightly_bisect.model import Asked, Stamp, UnlistedDay

_EXT4_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_FILE_BYTES = 20_000
WHAT = ("entries", "files")


def main() -> int:
    """Cut so often; print the figures; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.write[0], Path(arguments.write[1]))
    chance = random.Random(arguments.seed)
    started = time.monotonic()
    found: list[str] = []
    confirmed = 0
    with tempfile.TemporaryDirectory(prefix="power-cut-") as name:
        for number in range(arguments.cuts):
            folder = Path(name) / str(number)
            folder.mkdir()
            # One at a time: to flush a file flushes others with it.
            count, findings = cut(folder, WHAT[number % 2], chance)
            confirmed += count
            found += findings
    for text in found:
        print(f"  {text}")
    print(
        f"seed {arguments.seed}: {arguments.cuts} power cuts in {time.monotonic() - started:.0f} s, {confirmed} "
        f"confirmed writes: {len(found)} lost"
    )
    return 1 if found or not confirmed else 0


def cut(folder: Path, what: str, chance: random.Random) -> tuple[int, list[str]]:
    """Write on a disk, cut its power, look at what is left; return what was confirmed and what was lost."""
    image, disk = folder / "image", folder / "disk"
    disk.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * 2**20)
    if not _runs("mkfs.ext4", "-q", "-F", str(image)) or not _mounted(image, disk):
        print("skipped: no ext4 can be mounted from a file here (that needs root)")
        sys.exit(77)
    confirmed: list[int] = []
    try:
        command = [sys.executable, __file__, "--write", what, str(disk)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
            assert writer.stdout
            confirmed += [int(writer.stdout.readline()) for _ in range(chance.randrange(1, 60))]
            time.sleep(chance.uniform(0, 0.01))  # somewhere in the next writes
            # What it says later doesn't count: then the machine is gone, and a flush that was under way ends somehow.
            os.set_blocking(writer.stdout.fileno(), False)
            confirmed += [int(line) for line in (writer.stdout.read() or b"").splitlines()]
            shut_down(disk)
            writer.kill()
        _runs("umount", str(disk))
        # A copy: as long as any namespace still has the dead one mounted, its image only gives that again.
        copy = image.with_name("copy")
        shutil.copyfile(image, copy)
        assert _mounted(copy, disk)
        return len(confirmed), losses(disk, what, confirmed)
    finally:
        _runs("umount", "-l", str(disk))


def shut_down(disk: Path) -> None:
    """Let the file system be gone, with what was not flushed."""
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(descriptor)


def losses(disk: Path, what: str, confirmed: list[int]) -> list[str]:
    """Return what was confirmed and is not there, or not whole."""
    if what == "files":
        files = {int(path.name): path.read_bytes() for path in disk.glob("files/[0-9]*")}
        torn = [
            f"file {number} is not whole" for number, content in files.items() if content != _content(number)
        ]
        return [*(f"file {number}" for number in confirmed if number not in files), *torn]
    try:
        entries = Journal(disk / "journal.sqlite").entries("it")
    except BisectError as error:
        return [str(error)]
    there = [entry.asked.day.stamp.day.toordinal() for entry in entries if entry.asked]
    order = [] if there == list(range(1, len(there) + 1)) else [f"entries {there}"]
    return [*(f"entry {number}" for number in confirmed if number not in there), *order]


def write(what: str, disk: Path) -> None:
    """Write entries or files for ever; print the number of each when it is safe."""
    journal = Journal(disk / "journal.sqlite")
    journal.begin(Record("it", datetime.now(UTC), {}, disk, None, (), False, ()))
    (disk / "files").mkdir()
    sync_folder(disk)
    for number in itertools.count(1):
        if what == "entries":
            journal.append_asked("it", Asked(UnlistedDay(Stamp(date.fromordinal(number))), None))
        else:
            write_whole(disk / "files" / str(number), _content(number))
            sync_folder(disk / "files")
        os.write(sys.stdout.fileno(), b"%d\n" % number)  # at once and whole, whatever is buffered


def _content(number: int) -> bytes:
    return random.Random(number).randbytes(_FILE_BYTES)


def _mounted(image: Path, disk: Path) -> bool:
    return _runs("mount", "-o", "loop", str(image), str(disk))


def _runs(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main())
