"""What servers answered, remembered in a file between runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from nightly_bisect.errors import StorageFault
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.web import FileInfo

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
URL = "https://example.org/torch-2.6.0.dev20241201%2Bcpu-cp311-cp311-linux_x86_64.whl"
WHOLE = FileInfo(URL, 184_000_000, '"tag"', "89dc" * 16)


def test_what_was_never_asked_is_not_known(tmp_path: Path) -> None:
    assert Memory(tmp_path / "not" / "there").recall(URL, NOW) is None


@pytest.mark.parametrize("info", [WHOLE, FileInfo(URL, None, None, None)])
def test_a_file_that_was_seen_is_remembered_for_good(tmp_path: Path, info: FileInfo) -> None:
    Memory(tmp_path).keep(URL, info, NOW)
    assert Memory(tmp_path).recall(URL, NOW + timedelta(days=1000)) == info


@pytest.mark.parametrize(
    ("later", "known"),
    [
        (timedelta(0), False),
        (timedelta(days=7) - timedelta(seconds=1), False),
        (timedelta(days=7), None),
        (timedelta(days=400), None),
    ],
)
def test_an_absent_file_is_remembered_for_a_week(
    tmp_path: Path, later: timedelta, known: bool | None
) -> None:
    Memory(tmp_path).keep(URL, None, NOW.astimezone(timezone(timedelta(hours=9))))
    assert Memory(tmp_path).recall(URL, NOW + later) is known


def test_the_last_answer_counts(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    for info, known in ((None, False), (WHOLE, WHOLE), (None, False)):
        memory.keep(URL, info, NOW)
        assert memory.recall(URL, NOW) == known
    assert memory.recall(URL + "?", NOW) is None


def test_a_damaged_file_is_a_storage_fault_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "answers.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(StorageFault, match=r"answers\.sqlite") as caught:
        Memory(tmp_path).recall(URL, NOW)
    assert "--cache-dir" in caught.value.hint


def test_a_folder_that_is_none_is_a_storage_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFault, match="cannot be used"):
        Memory(tmp_path / "file").keep(URL, None, NOW)
