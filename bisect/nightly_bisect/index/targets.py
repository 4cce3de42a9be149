"""Targets: the Python and platform that wheels are chosen for."""

from __future__ import annotations

import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, platform_tags

from nightly_bisect.errors import UsageError

# Newest glibc and macOS that a foreign target is assumed to have: newer than any wheel needs.
_NEWEST_GLIBC = 45
_NEWEST_MACOS = (27, 0)
_LEGACY_MANYLINUX = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True)
class Target:
    """A Python (``3.11``, ``3.13t``) on a platform family (``linux_x86_64``, ``macosx_arm64``).

    ``rank`` orders the wheel tags that it can use, the best first.
    """

    python: str
    family: str
    rank: dict[Tag, int]

    @property
    def interpreter(self) -> str:
        """The interpreter tag, ``cp311``."""
        return "cp" + self.python.rstrip("t").replace(".", "")

    @property
    def abi(self) -> str:
        """The ABI tag, ``cp311``, ``cp313t`` or, before Python 3.8, ``cp37m``."""
        return _abi(self.python)

    def best_rank(self, tags: Iterable[Tag]) -> int | None:
        """Return the rank of a wheel with ``tags``, or None when the target cannot use it."""
        return min((self.rank[tag] for tag in tags if tag in self.rank), default=None)

    def __str__(self) -> str:
        return f"Python {self.python} on {self.family}"


def make_target(python: str | None = None, platform: str | None = None) -> Target:
    """Return the target asked for; by default this interpreter and this machine."""
    python = _python(python)
    platforms = list(platform_tags()) if platform is None else list(_platforms(platform))
    family = _family(platforms[0])
    version = tuple(int(part) for part in python.rstrip("t").split("."))
    tags = [
        *cpython_tags(version, abis=[_abi(python)], platforms=platforms),
        *compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    ]
    return Target(python, family, {tag: rank for rank, tag in reversed(list(enumerate(tags)))})


def host_python() -> str:
    """Return the version of the running interpreter in the form of a target."""
    free_threaded = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return f"{sys.version_info.major}.{sys.version_info.minor}{free_threaded}"


def host_family() -> str:
    """Return the platform family of this machine."""
    return _family(next(iter(platform_tags())))


def python_of(tag: Tag) -> str:
    """Name the Python of a wheel tag for people: ``3.11``, ``3.13t``; ``any`` for pure wheels."""
    match = re.fullmatch(r"cp(\d)(\d+)", tag.interpreter)
    if not match:
        return "any"
    suffix = "t" if tag.abi.endswith("t") and tag.abi.startswith("cp") else ""
    return f"{match[1]}.{match[2]}{suffix}"


def _python(text: str | None) -> str:
    if text is None:
        return host_python()
    match = re.fullmatch(r"(?:cp|python)?(\d)\.?(\d{1,2})(?:\.\d+)?(t?)", text.strip().lower())
    if not match:
        raise UsageError(f"--python {text!r} is not a Python version.", hint="write it as 3.11 or 3.13t")
    return f"{match[1]}.{match[2]}{match[3]}"


def _abi(python: str) -> str:
    digits = python.rstrip("t").replace(".", "")
    if python.endswith("t"):
        return f"cp{digits}t"
    return f"cp{digits}m" if digits in ("36", "37") else f"cp{digits}"


def _platforms(text: str) -> Iterator[str]:
    if match := re.fullmatch(r"(?:manylinux_2_(\d+)|linux)_(\w+)", text):
        newest = int(match[1]) if match[1] else _NEWEST_GLIBC
        for minor in range(newest, 4, -1):
            yield f"manylinux_2_{minor}_{match[2]}"
            if minor in _LEGACY_MANYLINUX:
                yield f"{_LEGACY_MANYLINUX[minor]}_{match[2]}"
        yield f"linux_{match[2]}"
    elif match := re.fullmatch(r"macosx(?:_(\d+)_(\d+))?_(arm64|x86_64)", text):
        version = (int(match[1]), int(match[2])) if match[1] else _NEWEST_MACOS
        yield from mac_platforms(version, match[3])
    elif re.fullmatch(r"win_(amd64|arm64)|win32", text):
        yield text
    else:
        raise UsageError(
            f"--platform {text!r} is not a platform that wheels are built for.",
            hint="for example linux_x86_64, linux_aarch64, macosx_arm64, win_amd64",
        )


def _family(platform: str) -> str:
    match = re.fullmatch(r"(manylinux|musllinux|linux|macosx)\d*_(?:\d+_\d+_)?(\w+)", platform)
    if not match:
        return platform
    return f"{'macosx' if match[1] == 'macosx' else 'linux'}_{match[2]}"
