from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from loopback import Tool

from nightly_runners.venv_runner import find_interpreter


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return Tool(tmp_path)


@pytest.fixture(scope="session")
def other_python() -> str:
    """A Python of another version than this one, which uv finds or installs."""
    for python in ("3.10", "3.12", "3.13", "3.9"):
        found = find_interpreter(python, os.environ)
        if os.sep in found or shutil.which(f"python{python}"):
            return python
    pytest.skip("no other Python is installed here")
