"""What a wheel says of itself, read from real archives."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from nightly_bisect.index.archive import CorruptWheel
from nightly_bisect.index.metadata import read_metadata, recorded_commit
from nightly_bisect.standin.wheels import make_wheel

VERSION = "2.6.0.dev20241201+cpu"
NAME = f"torch-{VERSION}-py3-none-any.whl"
FOLDER = f"torch-{VERSION}.dist-info"
HEAD = f"Metadata-Version: 2.1\nName: torch\nVersion: {VERSION}\n"


def wheel(folder: Path, **files: str) -> Path:
    """Write an archive; ``METADATA`` stands for the file of that name in its place."""
    path = folder / NAME
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"{FOLDER}/METADATA" if name == "METADATA" else name, text)
    return path


def test_name_version_requirements_and_packages_are_read(tmp_path: Path) -> None:
    path = tmp_path / NAME
    sources = {"torch/__init__.py": "", "torch/version.py": "", "functorch/__init__.py": "", "one_file.py": "", "torch/lib/__init__.py": ""}  # fmt: skip
    path.write_bytes(
        make_wheel("torch", VERSION, sources, requires=["filelock", "triton==3.2.0+git35c6c7c6"])
    )
    found = read_metadata(path)
    assert (found.name, str(found.version)) == ("torch", VERSION)
    assert [str(requirement) for requirement in found.requirements] == [
        "filelock",
        "triton==3.2.0+git35c6c7c6",
    ]
    assert found.top_level == ("torch", "functorch", "one_file")


@pytest.mark.parametrize(
    ("written", "file"),
    [
        ("2.6.0.DEV20241201+CPU", NAME),
        (VERSION, "Torch-2.6.0.dev20241201+cpu-py3-none-any.whl"),
    ],
)
def test_another_spelling_of_the_same_version_is_the_same(tmp_path: Path, written: str, file: str) -> None:
    path = tmp_path / file
    path.write_bytes(make_wheel("torch", VERSION, {}, metadata_version=written))
    assert str(read_metadata(path).version) == VERSION


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        (HEAD.replace("20241201", "20241130"), "says torch 2.6.0.dev20241130"),
        (HEAD.replace("+cpu", ""), "says torch 2.6.0.dev20241201$"),
        (HEAD.replace("torch", "evil"), "says evil"),
        ("", "cannot be read"),
        ("Metadata-Version: 2.1\nName: torch\n", "cannot be read"),
        (f"Metadata-Version: 2.1\nVersion: {VERSION}\n", "cannot be read"),
        (HEAD.replace(VERSION, "newest"), "cannot be read"),
        (HEAD + "Requires-Dist: triton ===\n", "cannot be read"),
        (HEAD + "Requires-Dist: x; python == 'y'\n", "cannot be read"),
        (HEAD + "Name: two\n", "cannot be read"),
        (HEAD + "\n" + "x" * (4 * 2**20), "sensible size"),
    ],
)
def test_metadata_that_is_not_what_the_file_name_says_is_corrupt(
    tmp_path: Path, metadata: str, why: str
) -> None:
    with pytest.raises(CorruptWheel, match=why):
        read_metadata(wheel(tmp_path, METADATA=metadata))


@pytest.mark.parametrize(
    "files",
    [
        {"torch/__init__.py": ""},
        {"METADATA": HEAD, "evil-1.0.dist-info/METADATA": HEAD},
        {"torch/_vendor/x-1.0.dist-info/METADATA": HEAD},
    ],
)
def test_a_wheel_has_exactly_one_metadata(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(CorruptWheel, match="not exactly one METADATA"):
        read_metadata(wheel(tmp_path, **files))


def test_the_metadata_of_what_is_vendored_does_not_count(tmp_path: Path) -> None:
    path = wheel(tmp_path, METADATA=HEAD, **{"torch/_vendor/x-1.0.dist-info/METADATA": "Name: x"})
    assert read_metadata(path).name == "torch"


def test_a_damaged_metadata_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / NAME
    content = make_wheel("torch", VERSION, {"torch/__init__.py": ""})
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        start = archive.getinfo(f"{FOLDER}/METADATA").header_offset + 30 + len(f"{FOLDER}/METADATA")
    path.write_bytes(content[:start] + b"\xff" * 8 + content[start + 8 :])
    with pytest.raises(CorruptWheel, match=r"cannot be read|not a readable zip file"):
        read_metadata(path)


@pytest.mark.parametrize(
    ("requirement", "python", "active"),
    [
        ("filelock", "3.11", True),
        ("setuptools; python_version >= '3.12'", "3.11", False),
        ("setuptools; python_version >= '3.12'", "3.12", True),
        ("setuptools; python_version >= '3.12'", "3.13t", True),
        ("triton==3.9.0+gitaad2a60d; python_version < '3.15'", "3.9", True),
        ("triton==3.9.0+gitaad2a60d; python_version < '3.15'", "3.15t", False),
        ("x; python_full_version >= '3.12.0'", "3.11", False),
        ("x; python_full_version >= '3.12.0'", "3.12", True),
        ("x; implementation_version < '3.10'", "3.9", True),
        ("opt-einsum; extra == 'opt-einsum'", "3.11", False),
        ("colorama; platform_system == 'Nowhere'", "3.11", False),
    ],
)
def test_a_requirement_holds_for_the_python_of_the_trial_and_not_for_ours(
    tmp_path: Path, requirement: str, python: str, active: bool
) -> None:
    path = wheel(tmp_path, METADATA=f"{HEAD}Requires-Dist: {requirement}\n")
    assert bool(read_metadata(path).active(python)) is active


@pytest.mark.parametrize(
    ("source", "commit"),
    [
        (f"__version__ = '2.6.0'\ngit_version = '{'a1' * 20}'\ncuda = None\n", "a1" * 20),
        (f'from typing import Optional\ngit_version: Optional[str] = "{"a1" * 20}"\n', "a1" * 20),
        ("git_version = 'deadbee'\n", "deadbee"),
        (f"git_version_of_other = '{'a1' * 20}'\n", None),
        ("git_version = 'Unknown'\n", None),
        ("git_version = None\n", None),
        ("", None),
        (None, None),
    ],
)
def test_the_commit_is_read_from_the_wheels_own_source(
    tmp_path: Path, source: str | None, commit: str | None
) -> None:
    files = {"METADATA": HEAD} if source is None else {"METADATA": HEAD, "torch/version.py": source}
    assert recorded_commit(wheel(tmp_path, **files), "torch.version.git_version") == commit


def test_a_file_that_is_no_archive_records_no_commit(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"<html>Sign in</html>")
    assert recorded_commit(tmp_path / NAME, "torch.version.git_version") is None
