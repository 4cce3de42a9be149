"""The variables that make the compiler's caches cold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nightly_runners.cold import absent_when_cold, cold_variables


def test_every_cache_has_an_empty_folder_of_its_own(tmp_path: Path) -> None:
    variables = cold_variables(tmp_path / "cold")
    folders = [Path(value) for name, value in variables.items() if name != "TORCHINDUCTOR_COMPILE_THREADS"]
    assert len(set(folders)) == 4
    for folder in folders:
        assert folder.is_relative_to(tmp_path / "cold")
        assert list(folder.iterdir()) == []
    assert variables["TORCHINDUCTOR_COMPILE_THREADS"] == "1"


def test_what_ignores_the_cache_variable_follows_the_temporary_folder(tmp_path: Path) -> None:
    variables = cold_variables(tmp_path / "cold")
    words = [sys.executable, "-c", "import tempfile; print(tempfile.gettempdir())"]
    printed = subprocess.run(
        words, env={**os.environ, **variables}, capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == variables["TMPDIR"]


def test_a_folder_that_was_used_before_is_not_cold(tmp_path: Path) -> None:
    cold_variables(tmp_path / "cold")
    with pytest.raises(FileExistsError):
        cold_variables(tmp_path / "cold")


def test_switches_that_are_not_cold_are_never_set(tmp_path: Path) -> None:
    assert not any(absent_when_cold(name) for name in cold_variables(tmp_path / "cold"))


@pytest.mark.parametrize(
    "name",
    [
        "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE",
        "TORCHINDUCTOR_AUTOGRAD_REMOTE_CACHE",
        "TORCHINDUCTOR_AUTOTUNE_REMOTE_CACHE",
        "TORCHINDUCTOR_BUNDLED_AUTOTUNE_REMOTE_CACHE",
        "TORCH_COMPILE_JOB_ID",
        "TORCH_COMPILE_STICKY_PGO_KEY",
        "TORCH_COMPILE_STICKY_PGO_READ",
        "TORCH_COMPILE_STICKY_PGO_WRITE",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_LOCAL_PGO",
        "TORCH_DYNAMO_AUTOMATIC_DYNAMIC_REMOTE_PGO",
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_FORCE_DISABLE_CACHES",
        "TORCH_COMPILE_DISABLE",
        "TORCHDYNAMO_DISABLE",
    ],
)
def test_what_brings_in_another_cache_or_switches_compiling_off_must_be_absent(name: str) -> None:
    assert absent_when_cold(name)


@pytest.mark.parametrize(
    "name",
    ["TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_FX_GRAPH_CACHE", "OMP_NUM_THREADS", "TORCH_LOGS", ""],
)
def test_other_variables_that_the_user_asked_for_stay(name: str) -> None:
    assert not absent_when_cold(name)
