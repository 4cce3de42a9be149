"""Which wheels a Python on a platform can use, and how people name both."""

from __future__ import annotations

import sys

import pytest
from packaging.tags import Tag, parse_tag, sys_tags

from nightly_bisect.errors import UsageError
from nightly_bisect.index.targets import host_family, host_python, make_target, python_of


@pytest.mark.parametrize(
    ("written", "python", "interpreter", "abi"),
    [
        ("3.11", "3.11", "cp311", "cp311"),
        ("3.11.4", "3.11", "cp311", "cp311"),
        ("311", "3.11", "cp311", "cp311"),
        ("cp311", "3.11", "cp311", "cp311"),
        ("python3.11", "3.11", "cp311", "cp311"),
        (" 3.13T ", "3.13t", "cp313", "cp313t"),
        ("cp314t", "3.14t", "cp314", "cp314t"),
        ("3.8", "3.8", "cp38", "cp38"),
        ("3.7", "3.7", "cp37", "cp37m"),
        ("3.6", "3.6", "cp36", "cp36m"),
    ],
)
def test_a_python_is_understood_as_people_write_it(
    written: str, python: str, interpreter: str, abi: str
) -> None:
    target = make_target(written, "linux_x86_64")
    assert (target.python, target.interpreter, target.abi) == (python, interpreter, abi)


@pytest.mark.parametrize("written", ["", "3", "three", "3.11.x", "3.111", "pypy3.10", "3.11-dev", "3.11tt"])
def test_what_is_no_python_version_is_a_usage_error_that_quotes_it(written: str) -> None:
    with pytest.raises(UsageError, match="--python") as caught:
        make_target(written)
    assert repr(written) in caught.value.what


@pytest.mark.parametrize(
    ("written", "family"),
    [
        ("linux_x86_64", "linux_x86_64"),
        ("linux_aarch64", "linux_aarch64"),
        ("manylinux_2_28_x86_64", "linux_x86_64"),
        ("macosx_arm64", "macosx_arm64"),
        ("macosx_14_0_arm64", "macosx_arm64"),
        ("macosx_x86_64", "macosx_x86_64"),
        ("win_amd64", "win_amd64"),
        ("win_arm64", "win_arm64"),
        ("win32", "win32"),
    ],
)
def test_a_platform_may_be_one_that_this_machine_is_not(written: str, family: str) -> None:
    target = make_target("3.11", written)
    assert target.family == family
    assert str(target) == f"Python 3.11 on {family}"


@pytest.mark.parametrize("written", ["", "linux", "beos_x86_64", "macosx_ppc", "win_amd64 ", "x86_64"])
def test_what_is_no_platform_is_a_usage_error_with_examples(written: str) -> None:
    with pytest.raises(UsageError, match="--platform") as caught:
        make_target("3.11", written)
    assert "linux_x86_64" in caught.value.hint


USABLE, NOT = True, False


@pytest.mark.parametrize(
    ("python", "platform", "tag", "usable"),
    [
        ("3.11", "linux_x86_64", "cp311-cp311-linux_x86_64", USABLE),
        ("3.11", "linux_x86_64", "cp311-cp311-manylinux_2_28_x86_64", USABLE),
        ("3.11", "linux_x86_64", "cp311-cp311-manylinux1_x86_64", USABLE),
        ("3.11", "linux_x86_64", "py3-none-any", USABLE),
        ("3.11", "linux_x86_64", "cp38-abi3-manylinux2014_x86_64", USABLE),
        ("3.11", "linux_x86_64", "cp312-cp312-linux_x86_64", NOT),
        ("3.11", "linux_x86_64", "cp311-cp311-linux_aarch64", NOT),
        ("3.11", "linux_x86_64", "cp311-cp311-win_amd64", NOT),
        ("3.11", "linux_x86_64", "cp311-cp311-musllinux_1_2_x86_64", NOT),
        ("3.11", "manylinux_2_17_x86_64", "cp311-cp311-manylinux2014_x86_64", USABLE),
        ("3.11", "manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_28_x86_64", NOT),
        ("3.7", "linux_x86_64", "cp37-cp37m-linux_x86_64", USABLE),
        ("3.7", "linux_x86_64", "cp37-cp37-linux_x86_64", NOT),
        ("3.13", "linux_x86_64", "cp313-cp313t-manylinux_2_28_x86_64", NOT),
        ("3.13t", "linux_x86_64", "cp313-cp313t-manylinux_2_28_x86_64", USABLE),
        ("3.13t", "linux_x86_64", "cp313-cp313-manylinux_2_28_x86_64", NOT),
        ("3.11", "linux_aarch64", "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64", USABLE),
        ("3.11", "macosx_arm64", "cp311-none-macosx_11_0_arm64", USABLE),
        ("3.13", "macosx_arm64", "cp313-cp313-macosx_14_0_arm64", USABLE),
        ("3.13", "macosx_13_0_arm64", "cp313-cp313-macosx_14_0_arm64", NOT),
        ("3.7", "macosx_x86_64", "cp37-none-macosx_10_9_x86_64", USABLE),
        ("3.11", "macosx_arm64", "cp311-none-macosx_10_9_x86_64", NOT),
        ("3.13", "win_amd64", "cp313-cp313-win_amd64", USABLE),
        ("3.13", "win_arm64", "cp313-cp313-win_amd64", NOT),
    ],
)
def test_a_target_uses_the_wheels_made_for_it_and_no_others(
    python: str, platform: str, tag: str, usable: bool
) -> None:
    rank = make_target(python, platform).best_rank(parse_tag(tag))
    assert (rank is not None) is usable


@pytest.mark.parametrize(
    ("python", "platform", "better", "worse"),
    [
        ("3.11", "linux_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-linux_x86_64"),
        ("3.11", "linux_x86_64", "cp311-cp311-manylinux_2_28_x86_64", "cp311-cp311-manylinux2014_x86_64"),
        ("3.11", "linux_x86_64", "cp311-cp311-linux_x86_64", "py3-none-any"),
        ("3.11", "macosx_arm64", "cp311-cp311-macosx_14_0_arm64", "cp311-cp311-macosx_11_0_arm64"),
        ("3.11", "macosx_arm64", "cp311-cp311-macosx_11_0_arm64", "cp311-none-macosx_11_0_arm64"),
    ],
)
def test_the_more_specific_wheel_ranks_first(python: str, platform: str, better: str, worse: str) -> None:
    target = make_target(python, platform)
    best, second = target.best_rank(parse_tag(better)), target.best_rank(parse_tag(worse))
    assert best is not None and second is not None and best < second


def test_without_a_wish_the_target_is_this_interpreter_on_this_machine() -> None:
    target = make_target()
    assert target.interpreter == f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert (target.python, target.family) == (host_python(), host_family())
    native = [tag for tag in sys_tags() if tag.interpreter.startswith(("cp", "py3"))]
    assert [tag for tag in native if target.best_rank([tag]) is None] == []


def test_nothing_to_choose_from_has_no_rank() -> None:
    assert make_target("3.11", "linux_x86_64").best_rank([]) is None


@pytest.mark.parametrize(
    ("tag", "python"),
    [
        (Tag("cp311", "cp311", "linux_x86_64"), "3.11"),
        (Tag("cp37", "cp37m", "linux_x86_64"), "3.7"),
        (Tag("cp313", "cp313t", "linux_x86_64"), "3.13t"),
        (Tag("cp311", "none", "macosx_11_0_arm64"), "3.11"),
        (Tag("py3", "none", "any"), "any"),
    ],
)
def test_the_python_of_a_wheel_is_named_for_people(tag: Tag, python: str) -> None:
    assert python_of(tag) == python
