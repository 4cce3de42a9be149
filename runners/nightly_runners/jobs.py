"""Functions of a check as jobs for the guest: the files that go in and come out, and the compiler's caches."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from nightly_runners.cold import absent_when_cold, cold_variables
from nightly_runners.contract import CompilerCache, Job, Ran
from nightly_runners.readings import Reading, UnreadableResult, read_result

_WARM = "compile_time", "compile_wall_time"


@contextlib.contextmanager
def own_folder(root: Path) -> Iterator[Path]:
    """Make a folder for one run of a job, removed after it."""
    with TemporaryDirectory(dir=root, prefix="run-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def job_variables(job: Job, asked: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the variables of caches that are this run's own; the user may only ask for more compile threads.

    A cache that was asked for would be shared by the nightlies: neither cold nor theirs.
    """
    if job.function != "compile_fn":
        return {}
    own = cold_variables(folder / "caches")
    return {
        name: v for name, v in own.items() if name != "TORCHINDUCTOR_COMPILE_THREADS" or name not in asked
    }


def without_caches(asked: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that were asked for, but where caches are our own those that would bring in others."""
    return {name: value for name, value in asked.items() if not (own and absent_when_cold(name))}


def write_job(job: Job, folder: Path) -> Path:
    """Write what the guest reads; return its folder."""
    folder.mkdir()
    content = {
        "schema": 1,
        "check": str(job.check),
        "arguments": list(job.arguments),
        "function": job.function,
        "budget_s": job.budget_s,
        "outputs": str(job.outputs) if job.outputs else None,
        "expected_outputs": str(job.expected_outputs) if job.expected_outputs else None,
    }
    (folder / "job.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def read_job(folder: Path) -> Reading | None:
    """Read what the guest wrote; None when that is nothing that can be used."""
    try:
        return read_result(folder / "result.json")
    except UnreadableResult:
        return None


def merged(cold: Ran, warm: Ran, cache: CompilerCache) -> Ran:
    """Return the warm run, or both as one: what was compiled warm is called so."""
    if cache is CompilerCache.WARM or cold.reading is None or warm.reading is None:
        return warm
    again = [replace(n, name=f"{n.name}_warm") for n in warm.reading.numbers if n.name in _WARM]
    return replace(cold, reading=replace(cold.reading, numbers=(*cold.reading.numbers, *again)))
