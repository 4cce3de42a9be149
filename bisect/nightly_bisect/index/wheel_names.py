"""What a wheel's name and place say: its project, version, date, channel and tags. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from nightly_bisect.model import Stamp, Wheel
from nightly_bisect.when import stamp_of

# Channels whose wheels carry another local label than the channel's name.
_LOCAL_LABEL = {
    "cpu-cxx11-abi": "cpu.cxx11.abi",
    "cu117_pypi_cudnn": "cu117.with.pypi.cudnn",
}

# What file systems take; a page may claim anything.
_LONGEST_NAME = 255


@dataclass(frozen=True, slots=True)
class WheelName:
    """A wheel's name, taken apart. ``stamp`` is None for versions without a date."""

    project: str
    version: Version
    stamp: Stamp | None
    tags: frozenset[Tag]


class NotAWheel(ValueError):
    """A file name that is not a wheel's; the text says why."""


def parse_wheel(filename: str) -> WheelName:
    """Take a wheel's file name apart; raise `NotAWheel`."""
    if not filename.endswith(".whl") or "/" in filename or "\\" in filename:
        raise NotAWheel("not a wheel's name")
    if len(filename) > _LONGEST_NAME or not (filename.isascii() and filename.isprintable()):
        raise NotAWheel("not a name that a wheel's file can have")
    try:
        project, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, ValueError) as error:
        raise NotAWheel(f"not a wheel's name: {error}") from error
    return WheelName(canonicalize_name(project), version, stamp_of(version), tags)


def belongs_to_channel(wheel: Wheel, name: WheelName, channel: str, home_url: str | None) -> bool:
    """Tell whether a listed wheel is of ``channel``.

    A page can hold all channels, and what is stored beside them. The local part of the version
    decides; a wheel without one (macOS, old aarch64) belongs to the folder that it lies in, and to the
    channel whose root is ``home_url``.
    """
    local = name.version.local
    if local is not None:
        return local == local_label(channel)
    if channel_folder(wheel.url) == channel:
        return True
    return home_url is not None and _folder_path(wheel.url) == urlsplit(home_url).path.strip("/")


def local_label(channel: str) -> str:
    """Return the local label of a channel's wheels; mostly its name."""
    return _LOCAL_LABEL.get(channel, channel)


def channel_of_label(label: str) -> str:
    """Return the channel whose wheels carry a local label."""
    return next((channel for channel, other in _LOCAL_LABEL.items() if other == label), label)


def channel_folder(url: str) -> str:
    """Return the last folder of a file's URL."""
    return _folder_path(url).rpartition("/")[2]


def _folder_path(url: str) -> str:
    return unquote(urlsplit(url).path).rpartition("/")[0].strip("/")
