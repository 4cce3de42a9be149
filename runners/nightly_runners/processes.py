"""The one module that starts processes: a list of words, a deadline, bounded logs, no leftovers.

Everything runs contained (see `containment`) where the machine allows it. Beside that, on Linux this
process makes itself the reaper of orphans, so that a daemon that was left behind is found among its
descendants and ended as well.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from nightly_runners.containment import HOLDERS, Containment, contained
from nightly_runners.contract import CannotStart, Finished, InstallerFault

GRACE_S = 5.0
"""Between the polite signal and SIGKILL."""

HEAD_BYTES = TAIL_BYTES = 2**20
"""What is kept of each output stream."""

_PIPE_LINGER_S = 1.0
_NOTHING_TO_START = (errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.ENOTDIR, errno.ELOOP, errno.EISDIR)
_PR_SET_CHILD_SUBREAPER = 36


def run_bounded(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    logs: Path,
    name: str,
) -> Finished:
    """Run a command; its output goes to ``logs/name.out`` and ``logs/name.err``.

    Raise `CannotStart` when there is nothing to start, `InstallerFault` when the machine starts
    nothing any more, and `OSError` when the logs cannot be written. Whatever it started is gone when this returns, also
    when this is left by an exception (Ctrl-C).
    """
    how = containment()  # before orphans are adopted: trying leaves some
    _adopt_orphans()
    stdout, stderr = logs / f"{name}.out", logs / f"{name}.err"
    with stdout.open("wb") as out_file, stderr.open("wb") as err_file:
        strangers = _descendants()
        started = time.monotonic()
        process = _start(argv, folder, environment, how)
        readers = [_BoundedLog(process.stdout, out_file), _BoundedLog(process.stderr, err_file)]
        timed_out = False
        try:
            try:
                process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                timed_out = True
                _terminate(process, how)
            seconds = time.monotonic() - started
        finally:
            _sweep(process, strangers)
            for reader in readers:
                reader.finish()
    code = process.returncode
    return Finished(
        status=code if code is not None and code >= 0 and not timed_out else None,
        signal=-code if code is not None and code < 0 else None,
        timed_out=timed_out,
        seconds=seconds,
        stdout=stdout,
        stderr=stderr,
        dropped_bytes=sum(reader.dropped_bytes for reader in readers),
    )


@functools.cache
def containment() -> Containment:
    """Return the best way that works on this machine, by trying them."""
    wanted = os.environ.get("NIGHTLY_BISECT_CONTAINMENT")
    for how in [Containment(wanted)] if wanted else Containment:
        if how is Containment.REAPER or works(how):
            return how
    return Containment.REAPER


def works(how: Containment) -> bool:
    """Try a way of containment."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        words = contained(["true"], how, is_root=_is_root())
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=10, check=False)
        return done.returncode == 0
    return False


def _start(
    argv: Sequence[str], folder: Path, environment: Mapping[str, str], how: Containment
) -> subprocess.Popen[bytes]:
    if shutil.which(argv[0], path=environment.get("PATH", os.defpath)) is None:
        raise CannotStart(f"{argv[0]}: not found, or not executable")
    try:
        return subprocess.Popen(
            contained(argv, how, is_root=_is_root()),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        if error.errno in _NOTHING_TO_START:
            raise CannotStart(f"{argv[0]}: {error.strerror}") from error
        raise InstallerFault("machine", f"{argv[0]} could not be started: {error.strerror}") from error


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


class _BoundedLog:
    """Copies a pipe into a file: the first mebibyte as it comes, the last one at the end."""

    def __init__(self, pipe: object, file: object) -> None:
        self._pipe = pipe
        self._file = file
        self._tail = bytearray()
        self._written = 0
        self.dropped_bytes = 0
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._copy, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait a moment for what is still in the pipe, then write the tail."""
        self._thread.join(_PIPE_LINGER_S)
        if self.failure is not None:
            raise self.failure
        if self.dropped_bytes:
            self._write(f"\n[… {self.dropped_bytes} bytes dropped …]\n".encode())
        self._write(bytes(self._tail))

    def _copy(self) -> None:
        try:
            with self._pipe:  # type: ignore[attr-defined]
                while chunk := self._pipe.read1(2**16):  # type: ignore[attr-defined]
                    self._take(chunk)
        except OSError as error:
            self.failure = error
        except ValueError:
            pass  # the file was closed: this pipe outlived its process

    def _take(self, chunk: bytes) -> None:
        head = chunk[: max(0, HEAD_BYTES - self._written)]
        if head:
            self._write(head)
            self._written += len(head)
        self._tail += chunk[len(head) :]
        if (surplus := len(self._tail) - TAIL_BYTES) > 0:
            del self._tail[:surplus]
            self.dropped_bytes += surplus

    def _write(self, data: bytes) -> None:
        self._file.write(data)  # type: ignore[attr-defined]
        self._file.flush()  # type: ignore[attr-defined]


def _terminate(process: subprocess.Popen[bytes], how: Containment) -> None:
    """Ask the check's processes to end, and wake what they stopped so that it can."""
    with contextlib.suppress(psutil.Error):
        level = {psutil.Process(process.pid)}
        asked = {*level, *_descendants_of(level)}
        # What holds the namespace must live, or it would take the others with it at once.
        for _ in range(HOLDERS[how]):
            asked -= level
            level = {child for parent in level for child in parent.children()}
        for other in asked:
            with contextlib.suppress(psutil.Error):
                other.terminate()
                other.resume()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)


def _sweep(process: subprocess.Popen[bytes], strangers: set[psutil.Process]) -> None:
    """Kill what is left: the group, then every descendant that was not there before."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_S)
    for _ in range(100):
        left = [p for p in _descendants() - strangers if p.pid != process.pid]
        if not left:
            return
        for other in left:
            with contextlib.suppress(psutil.Error):
                other.kill()
        _reap(left)


def _reap(processes: list[psutil.Process]) -> None:
    """Collect orphans that became our own children."""
    psutil.wait_procs(processes, timeout=0.2)
    for process in processes:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(process.pid, os.WNOHANG)


def _descendants() -> set[psutil.Process]:
    return _descendants_of({psutil.Process()})


def _descendants_of(processes: Iterable[psutil.Process]) -> set[psutil.Process]:
    return {child for process in processes for child in process.children(recursive=True)}


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_name(number: int) -> str | None:
    """Return the name of a signal, ``SIGSEGV``, or None when there is none of that number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def tail_lines(path: Path, count: int = 200) -> Iterator[str]:
    """Yield the last lines of a log, decoded with undecodable bytes shown as escapes."""
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        lines = file.read().decode("utf-8", errors="backslashreplace").splitlines()
    yield from lines[-count:]
