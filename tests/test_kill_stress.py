"""A short form of benchmarks/kill_stress.py: bisections are killed at random moments, and nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent.parent / "benchmarks/kill_stress.py"


@pytest.mark.slow
def test_o01_bisections_killed_at_random_moments_lose_nothing() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--kills", "15", "--seed", "5"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "15 kills" in done.stdout
    assert "0 observations lost, 0 different answers, 0 processes left" in done.stdout
