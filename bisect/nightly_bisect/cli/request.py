"""What `run` and `list` have in common: from arguments to a request for nightlies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs

from nightly_bisect.errors import UsageError
from nightly_bisect.index.catalog import Request, check_channel
from nightly_bisect.index.profiles import RELEASES, load_profile, read_profile
from nightly_bisect.index.targets import make_target


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatArguments:
    """The options that say which nightlies are meant."""

    package: str = "torch"
    profile: Path | None = None
    channel: str | None = None
    python: str | None = None
    platform: str | None = None
    index_url: str | None = None
    all_builds: bool = False
    cache_dir: Path | None = None
    json_file: Path | None = None
    quiet: bool = False
    verbose: bool = False

    @property
    def cache(self) -> Path:
        """The folder for wheels, environments and remembered answers."""
        return (self.cache_dir or Path(platformdirs.user_cache_dir("nightly-bisect"))).absolute()

    @property
    def level(self) -> int:
        """How much is printed."""
        return -1 if self.quiet else 1 if self.verbose else 0


def make_request(arguments: WhatArguments) -> Request:
    """Return the request; raise `UsageError`."""
    if arguments.profile is not None:
        profile = read_profile(arguments.profile)
    else:
        profile = load_profile(arguments.package, arguments.channel)
    channel = check_channel(profile, arguments.channel)
    if channel == RELEASES:
        profile = profile.as_release()
    url = arguments.index_url
    if url is not None and not _is_web_url(url):
        raise UsageError(f"--index-url {url!r} is not an http(s) URL.", hint="write it as https://…/")
    target = make_target(arguments.python, arguments.platform)
    return Request(profile, channel, target, url, arguments.all_builds)


def state_folder() -> Path:
    """Return the folder for the journal and the logs."""
    return Path(platformdirs.user_state_dir("nightly-bisect"))


def here() -> Path:
    """Return the folder where the user stands; raise `UsageError` when it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise UsageError("The folder you stand in no longer exists.", hint="go to another one") from None


def _is_web_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
