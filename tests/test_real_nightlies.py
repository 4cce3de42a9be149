"""True dated nightlies from the default package index (torchx-nightly needs no torch)."""

from __future__ import annotations

import io
import json
import zipfile

import pytest
import requests
from loopback import Tool
from pypi_simple import PyPISimple

CHECK = """
import importlib.util, torchx
assert importlib.util.find_spec("torchx.examples"), "torchx.examples is gone"
"""

# The package `torchx.examples` left the wheel between these two consecutive nightlies; there were
# none in between. Established by looking into both wheels, as the first test does again.
LAST_GOOD, FIRST_BAD = "2026.1.26", "2026.2.27"


def _has_examples(version: str) -> bool:
    with PyPISimple() as index:
        packages = index.get_project_page("torchx-nightly").packages
    url = next(p.url for p in packages if p.version == version and p.package_type == "wheel")
    content = requests.get(url, timeout=60).content
    return "torchx/examples/__init__.py" in zipfile.ZipFile(io.BytesIO(content)).namelist()


@pytest.mark.slow
def test_the_wheels_themselves_show_where_the_examples_went() -> None:
    assert _has_examples(LAST_GOOD)
    assert not _has_examples(FIRST_BAD)


@pytest.mark.slow
def test_a_true_change_is_found_among_true_nightlies(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    options = ("--package", "torchx-nightly", "--good", "2025-12-01", "--bad", "2026-04-30")
    ran = tool.run(*options, "--json", "-", "check.py")
    assert ran.code == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert result["last_good"]["version"] == LAST_GOOD
    assert result["first_bad"]["version"] == FIRST_BAD
    assert any("31 days between them" in note for note in result["notes"])
    assert all(trial["outcome"] in ("passed", "failed") for trial in result["trials"])


@pytest.mark.slow
def test_stable_releases_are_bisected_by_version(tool: Tool) -> None:
    # `packaging.metadata` came with 23.1.
    tool.write("check.py", "import packaging.metadata\n")
    options = ("--package", "packaging", "--channel", "release", "--find-fix")
    ran = tool.run(*options, "--bad", "22.0", "--good", "24.0", "--json", "-", "check.py")
    assert ran.code == 0, ran.stderr
    assert json.loads(ran.stdout)["first_good"]["version"] == "23.1"


@pytest.mark.slow
@pytest.mark.parametrize("package", ["pyg-nightly", "tensordict-nightly", "keras-nightly"])
def test_the_other_profiles_list_their_nightlies(tool: Tool, package: str) -> None:
    ran = tool.run("list", "--package", package, "--since", "2026-10-01", "--until", "2026-10-20")
    assert ran.code == 0, ran.stderr
    assert len(ran.stdout.splitlines()) >= 10
    assert ran.stdout.splitlines() == sorted(ran.stdout.splitlines())
