"""True torch: the CPU wheel re-versioned into nightlies, one of which brings a wrong result."""

from __future__ import annotations

import mmap
from datetime import date
from pathlib import Path

import pytest
from loopback import FOLDER, Tool, days
from reversion import download_torch, reversion

from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, LoopbackServer
from nightly_bisect.standin.wheels import nightly_commit

WRONG_SOFTMAX = """
_true_softmax = softmax
def softmax(*args, **kwargs):
    return _true_softmax(*args, **kwargs) * 1.01
"""

CHECK = """
import torch
total = torch.nn.functional.softmax(torch.arange(8.0), dim=0).sum()
torch.testing.assert_close(total, torch.tensor(1.0))
"""


@pytest.mark.slow
def test_a_wrong_result_planted_in_true_torch_is_found(tool: Tool, tmp_path: Path) -> None:
    first_bad = date(2026, 9, 4)
    true = download_torch(tmp_path / "true")
    files, contents = [], {}
    for day in days(date(2026, 9, 1), 5):
        version = f"2.15.0.dev{day:%Y%m%d}+cpu"
        appended = {"torch/nn/functional.py": WRONG_SOFTMAX} if day >= first_bad else {}
        wheel = reversion(true, version, nightly_commit(day), appended, tmp_path)
        with wheel.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        contents[f"{FOLDER}/{wheel.name}"] = Content(mapped)  # type: ignore[arg-type]
        files.append(File(f"{FOLDER}/{wheel.name}", b""))
    page = index_page("torch", files, Era.SIDECARS)
    contents[f"{FOLDER}/torch/"] = Content(page, "text/html")
    tool.write("check.py", CHECK)
    with LoopbackServer(contents) as server:
        ran = tool.bisect(server, "--good", "2026-09-01", "check.py", timeout_s=550)
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-09-04"
    assert ran.result["first_bad"]["commit"] == nightly_commit(first_bad)
    assert len([trial for trial in ran.result["trials"] if trial["repeat"] == 0]) == 4
    assert "Tensor-likes are not close" in ran.stderr or "Scalars are not close" in ran.stderr
    assert "sympy" in ran.result["trials"][0]["installed"]
    assert ran.result["dependency_changes"] == []
