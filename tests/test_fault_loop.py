"""A short form of benchmarks/fault_loop.py: the n-th operation on a file fails, the answer is right or there is none."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks/fault_loop.py"


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        ("--errno", "EIO", "--every", "45"),
        ("--errno", "ENOSPC", "--lasting", "--every", "60"),
        ("--operation", "write", "--errno", "SHORT", "--every", "60"),
        ("--operation", "rename", "--errno", "EIO", "--every", "7"),
    ],
    ids=["once", "a full disk", "half a write", "rename"],
)
def test_whatever_operation_fails_the_answer_is_right_or_there_is_none(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    # Another place in each run, so that in time all are tried; the seed is in what it prints.
    seed = random.randrange(10**6)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--seed", str(seed), "--folder", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 wrong, 0 rough, 0 lost" in done.stdout
