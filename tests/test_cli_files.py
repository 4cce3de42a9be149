"""Files that the user asked for, and what an older or newer version wrote down."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightly_bisect.cli.files import write_document
from nightly_bisect.cli.run import RunArguments, as_values, from_values
from nightly_bisect.errors import StorageFault, UsageError


class Full:
    """A stdout whose disk is full, or whose reader has gone."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def write(self, text: str) -> None:
        raise self.error

    def flush(self) -> None:
        """Nothing is held back."""


def test_a_full_disk_behind_stdout_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", Full(OSError(28, "No space left on device")))
    with pytest.raises(StorageFault, match="No space left"):
        write_document(Path("-"), "text")


@pytest.mark.parametrize("stdout", [None, Full(BrokenPipeError(32, "Broken pipe"))])
def test_a_reader_that_has_gone_is_none(monkeypatch: pytest.MonkeyPatch, stdout: object) -> None:
    monkeypatch.setattr("sys.stdout", stdout)
    write_document(Path("-"), "text")


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageFault, match="cannot be written"):
        write_document(tmp_path / "no" / "such.json", "text")
    write_document(tmp_path / "it.json", "text")
    assert (tmp_path / "it.json").read_text() == "text"


def test_the_command_line_survives_being_written_down() -> None:
    arguments = RunArguments(check=["check.py"], good="2026-08-01", sweep=5, report=Path("/tmp/r.md"))
    assert from_values(as_values(arguments)) == arguments


def test_what_a_newer_version_wrote_down_is_said_so() -> None:
    values = as_values(RunArguments(check=["check.py"]))
    with pytest.raises(UsageError, match="begun by a newer nightly-bisect: it has shiny"):
        from_values({**values, "shiny": True})


def test_what_began_before_the_confirmation_goes_on_without_it() -> None:
    values = as_values(RunArguments(check=["check.py"]))
    del values["confirm"]
    assert from_values(values).confirm is False
