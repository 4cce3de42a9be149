"""Start the real command many times in little time: one process imports it, and forks for each run.

As a program, this is that process. It reads one job a line (JSON) from stdin, and answers each by two lines,
the process id when it starts and the wait status when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

_LAZY = ("requests", "urllib3", "filelock", "uv", "bs4", "pypi_simple", "rich.progress", "rich.console")


@dataclass(frozen=True)
class Fault:
    """What `fault_shim.c` is armed with in the run. ``error`` -1: a write of half the bytes."""

    below: str
    operation: int
    at: int
    error: int
    lasting: bool
    report: str


class Command:
    """Runs `nightly-bisect` in a folder, one run at a time."""

    def __init__(self, preload: Path | None = None) -> None:
        variables = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=variables,
            bufsize=0,
        )
        self._running: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._running, signal.SIGKILL)
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def start(
        self, words: Sequence[str], folder: Path, variables: Mapping[str, str], fault: Fault | None = None
    ) -> int:
        """Begin a run, its output in ``out.txt`` and ``err.txt``; return its process id."""
        job = {
            "words": list(words),
            "folder": str(folder),
            "variables": dict(variables),
            "fault": asdict(fault) if fault else None,
        }
        assert self._process.stdin
        self._process.stdin.write(json.dumps(job).encode() + b"\n")
        self._running = int(self._line())
        return self._running

    def wait(self, timeout_s: float) -> int | None:
        """Return the exit code, negative for a signal; None when the run goes on after that time."""
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            return None
        self._running = None
        return os.waitstatus_to_exitcode(int(self._line()))

    def kill(self) -> None:
        """End the run without warning."""
        assert self._running is not None
        os.kill(self._running, signal.SIGKILL)
        while self.wait(60) is None:
            pass

    def _line(self) -> bytes:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process that starts the runs has died")
        return line


def left_over(folder: Path) -> list[str]:
    """Return the processes that belong to a folder, a moment after its run."""
    deadline = time.monotonic() + 2
    while found := [p for p in psutil.process_iter() if _belongs(p, str(folder))]:
        if time.monotonic() > deadline:
            return [str(p) for p in found]
        time.sleep(0.01)
    return []


def _belongs(process: psutil.Process, folder: str) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and (
            f"{folder}/" in " ".join(process.cmdline()) or f"{process.cwd()}/".startswith(f"{folder}/")
        )
    except psutil.Error:
        return False


def _serve() -> None:
    for package in ("nightly_bisect", "nightly_runners"):
        module = importlib.import_module(package)
        for found in pkgutil.walk_packages(module.__path__, f"{package}."):
            if not found.name.endswith(".__main__") and ".guest." not in found.name:
                importlib.import_module(found.name)
    for name in _LAZY:
        importlib.import_module(name)
    while line := sys.stdin.buffer.readline():
        pid = os.fork()
        if pid == 0:
            _run(json.loads(line))
        _answer(pid)
        _answer(os.waitpid(pid, 0)[1])


def _answer(number: int) -> None:
    sys.stdout.buffer.write(b"%d\n" % number)
    sys.stdout.buffer.flush()


def _run(job: Mapping[str, object]) -> None:
    os.chdir(str(job["folder"]))
    for descriptor, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, "out.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, "err.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(name, flags, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.environ.clear()
    os.environ.update(job["variables"])  # type: ignore[call-overload]
    tempfile.tempdir = None  # of these variables, not of those at the start
    time.tzset()
    if job["fault"] is not None:
        _arm(Fault(**job["fault"]))  # type: ignore[arg-type]
    from nightly_bisect.cli import main

    main(job["words"])  # type: ignore[arg-type]


def _arm(fault: Fault) -> None:
    shim = ctypes.CDLL(None)
    shim.fault_arm.argtypes = (
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_char_p,
    )
    shim.fault_arm.restype = None
    shim.fault_arm(
        fault.below.encode(), fault.operation, fault.at, fault.error, fault.lasting, fault.report.encode()
    )


if __name__ == "__main__":
    _serve()
