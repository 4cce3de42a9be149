"""Profiles: what is known of a package with dated builds, read from TOML (see docs/profiles.md)."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightly_bisect.errors import UsageError

RELEASES = "release"
"""The channel of stable releases, which every package on the default index has."""


@dataclass(frozen=True, slots=True)
class IndexSource:
    """Where dated wheels are listed; ``url`` None means the default package index."""

    url: str | None = None
    hosts: tuple[str, ...] = ()
    default_channel: str | None = None
    channels: tuple[str, ...] = ()
    only_here: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Identity:
    """How a trial proves which build it tested, and where the build names its commit.

    Metadata always counts; ``version_attribute`` names the module's own version where it tells the
    date as well.
    """

    by_import: bool = False
    version_attribute: str | None = None
    commit_attribute: str | None = None


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of days; an open end is None."""

    first: date | None = None
    last: date | None = None

    def __contains__(self, day: date) -> bool:
        return (self.first is None or self.first <= day) and (self.last is None or day <= self.last)


@dataclass(frozen=True, slots=True)
class FileForm:
    """How the wheels of one platform are named: every combination is a candidate."""

    platform: str
    tags: tuple[tuple[str, Period], ...]
    locals: tuple[str, ...]
    abis: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unlisted:
    """How to look for wheels that the page no longer lists."""

    url: str
    newer_url: str | None
    newer_since: date | None
    files: tuple[FileForm, ...]
    base_versions: tuple[tuple[str, Period], ...]
    pythons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one package. ``import_name`` None: found in the wheel."""

    package: str
    import_name: str | None
    repository: str | None = None
    main_commit_in_message: re.Pattern[str] | None = None
    index: IndexSource = field(default_factory=IndexSource)
    identity: Identity = field(default_factory=Identity)
    unlisted: Unlisted | None = None

    def as_release(self) -> Profile:
        """Return the same package as its stable releases on the default index."""
        # A release records a commit of its release branch; only nightlies need the detour to main.
        return replace(self, index=IndexSource(), unlisted=None, main_commit_in_message=None)


def builtin_profiles() -> dict[str, Path]:
    """Return the profiles that come with the tool, by package name."""
    return {path.stem: path for path in sorted(_configs().glob("*.toml")) if path.stem != "example"}


def load_profile(package: str, channel: str | None) -> Profile:
    """Return the built-in profile of ``package``; for releases any package name will do."""
    name = canonicalize_name(package)
    known = builtin_profiles()
    if name in known:
        return read_profile(known[name])
    if channel == RELEASES:
        return Profile(package=name, import_name=None)
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    meant = f"did you mean {' or '.join(near)}? Otherwise " if near else ""
    raise UsageError(
        f"There is no profile for the package {package!r}; known: {', '.join(known)}.",
        hint=f"{meant}describe it with `--profile FILE` (docs/profiles.md), "
        "or bisect its stable releases with `--channel release`",
    )


def read_profile(path: Path) -> Profile:
    """Read a profile; raise `UsageError` naming the file and the key that is wrong."""
    try:
        table = _Table(tomllib.loads(path.read_text(encoding="utf-8")), "")
    except OSError as error:
        raise UsageError(
            f"The profile {path} cannot be read: {error.strerror}.",
            hint="give the path of a TOML file to `--profile`",
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The profile {path} is not TOML: {error}.",
            hint="configs/torch.toml in the repository is an example",
        ) from error
    try:
        return _profile(table)
    except _Wrong as error:
        raise UsageError(f"The profile {path}: {error}.", hint="docs/profiles.md lists the keys") from error


class _Wrong(Exception):
    """A key of a profile is missing, unknown, or of another type."""


class _Table:
    """A TOML table whose keys are taken one by one, with their types checked."""

    def __init__(self, values: dict[str, Any], where: str) -> None:
        self._values = dict(values)
        self._where = where

    def take(self, key: str, kind: type, default: Any = None) -> Any:
        value = self._values.pop(key, default)
        if value is not None and not isinstance(value, kind):
            raise _Wrong(f"`{self._where}{key}` must be a {kind.__name__}")
        return value

    def need(self, key: str, kind: type) -> Any:
        value = self.take(key, kind)
        if value is None:
            raise _Wrong(f"`{self._where}{key}` is missing")
        return value

    def strings(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        value = self.take(key, list, list(default))
        if not all(isinstance(item, str) for item in value):
            raise _Wrong(f"`{self._where}{key}` must be a list of strings")
        return tuple(value)

    def day(self, key: str) -> date | None:
        value = self._values.pop(key, None)
        if value is None or type(value) is date:
            return value
        try:
            return date.fromisoformat(value)
        except (TypeError, ValueError):
            raise _Wrong(f"`{self._where}{key}` must be a day, YYYY-MM-DD") from None

    def table(self, key: str) -> _Table:
        return _Table(self.take(key, dict, {}), f"{self._where}{key}.")

    def tables(self, key: str) -> Iterator[_Table]:
        for item in self.take(key, list, []):
            if not isinstance(item, dict):
                raise _Wrong(f"`{self._where}{key}` must be a list of tables")
            yield _Table(item, f"{self._where}{key}.")

    def empty(self) -> bool:
        return not self._values

    def done(self) -> None:
        if self._values:
            raise _Wrong(f"unknown key `{self._where}{next(iter(self._values))}`")


def _profile(table: _Table) -> Profile:
    commits = table.table("commits")
    pattern = commits.take("main_commit_in_message", str)
    commits.done()
    try:
        main_commit = re.compile(pattern) if pattern else None
    except re.error as error:
        raise _Wrong(f"`commits.main_commit_in_message` is not a regular expression: {error}") from error
    if main_commit is not None and main_commit.groups < 1:
        raise _Wrong("`commits.main_commit_in_message` must hold the commit in a group ( )")
    profile = Profile(
        package=canonicalize_name(table.need("package", str)),
        import_name=table.take("import_name", str),
        repository=table.take("repository", str),
        main_commit_in_message=main_commit,
        index=_index(table.table("index")),
        identity=_identity(table.table("identity")),
        unlisted=_unlisted(table.table("unlisted")),
    )
    table.done()
    return profile


def _index(table: _Table) -> IndexSource:
    source = IndexSource(
        url=table.take("url", str),
        hosts=table.strings("hosts"),
        default_channel=table.take("default_channel", str),
        channels=table.strings("channels"),
        only_here=frozenset(canonicalize_name(name) for name in table.strings("only_here")),
    )
    table.done()
    return source


def _identity(table: _Table) -> Identity:
    identity = Identity(
        by_import=table.take("import", bool, False),
        version_attribute=table.take("version_attribute", str),
        commit_attribute=table.take("commit_attribute", str),
    )
    table.done()
    return identity


def _unlisted(table: _Table) -> Unlisted | None:
    if table.empty():
        return None
    newer = table.table("newer")
    unlisted = Unlisted(
        url=_with_slash(table.need("url", str)),
        newer_url=_with_slash(newer.take("url", str)),
        newer_since=newer.day("since"),
        files=tuple(_file_form(form) for form in table.tables("files")),
        base_versions=tuple(_window(window) for window in table.tables("base_versions")),
        pythons=table.strings("pythons"),
    )
    newer.done()
    table.done()
    return unlisted


def _file_form(table: _Table) -> FileForm:
    form = FileForm(
        platform=table.need("platform", str),
        tags=tuple(_tag(tag) for tag in table.tables("tags")),
        locals=table.strings("locals", ("",)),
        abis=table.strings("abis", ("{abi}",)),
    )
    table.done()
    for text in (*form.locals, *form.abis):
        if re.search(r"[{}]", text.replace("{channel}", "").replace("{abi}", "")):
            raise _Wrong(f"`unlisted.files` has {text!r}; only {{channel}} and {{abi}} can stand in braces")
    return form


def _tag(table: _Table) -> tuple[str, Period]:
    tag: str = table.need("tag", str)
    period = Period(table.day("since"), table.day("until"))
    table.done()
    return tag, period


def _window(table: _Table) -> tuple[str, Period]:
    version: str = table.need("version", str)
    period = Period(table.day("first"), table.day("last"))
    table.done()
    try:
        Version(version)
    except InvalidVersion as error:
        raise _Wrong(f"`unlisted.base_versions.version` is {version!r}, which is no version") from error
    return version, period


def _with_slash(url: Any) -> Any:
    return url if url is None else url.rstrip("/") + "/"


def _configs() -> Path:
    packaged = Path(str(resources.files("nightly_bisect"))) / "configs"
    # An editable install has no package data: the checkout's own folder serves.
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "configs"
