"""Which function a check's source defines."""

from __future__ import annotations

import pytest

from nightly_bisect.bisection.functions import default_metric, defined_function
from nightly_bisect.errors import UsageError


@pytest.mark.parametrize(
    ("text", "function"),
    [
        ("def check(): pass", "check"),
        ("import torch\ndef benchmark():\n    return lambda: None", "benchmark"),
        ("def compile_fn(): pass\ndef helper(): pass", "compile_fn"),
        ("def measure(size=3, *rest, deep=False, **more): pass", "measure"),
        ("@wrapped\ndef fingerprint(): pass", "fingerprint"),
        ("from common import outputs", "outputs"),
        ("from common import run as check", "check"),
        ("from .torch import check", "check"),
        ("def check(): pass\ndef check(): pass", "check"),
        (r"x = '\d'" + "\ndef check(): pass", "check"),  # Python warns of the escape
    ],
)
def test_the_function_at_the_top_level_is_found(text: str, function: str) -> None:
    assert defined_function(text) == function


@pytest.mark.parametrize(
    "text",
    [
        "",
        "print('hello')",
        "def main(): pass",
        "def outer():\n    def check(): pass",
        "class Suite:\n    def check(self): pass",
        "from common import check as other",
        "import check",
        "import torch.utils.benchmark as benchmark",
        "from torch.utils import benchmark",
        "from numpy.testing import measure",
        "def check(x, y): assert x == y\ncheck(1, 1)",
        "def check(*, x): pass",
        "def check(x, /): pass",
        "async def check(x): pass",
        "check = 3",
        "def check(:",
        "\0",
        "(" * 100_000,
    ],
    ids=lambda text: text[:30],
)
def test_a_script_without_one_is_judged_by_its_exit_status(text: str) -> None:
    assert defined_function(text) is None


def test_several_functions_are_one_too_many() -> None:
    with pytest.raises(UsageError, match=r"defines benchmark\(\), check\(\)") as caught:
        defined_function("def check(): pass\nfrom common import benchmark")
    assert "rename" in caught.value.hint


def test_an_async_function_is_refused() -> None:
    with pytest.raises(UsageError, match=r"check\(\) by async def") as caught:
        defined_function("async def check(): pass")
    assert "asyncio.run" in caught.value.hint


def test_every_function_has_its_metric() -> None:
    assert default_metric("check") is None
    assert default_metric("benchmark") == "time"
    assert default_metric("compile_fn") == "compile_time"
    for function in ("measure", "fingerprint", "outputs"):
        assert default_metric(function) == function
