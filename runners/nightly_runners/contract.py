"""What a runner promises: prepare an environment, identify what is in it, run a check there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from nightly_runners.readings import Number, Reading


@dataclass(frozen=True, slots=True)
class Order:
    """What to install into a fresh environment, and nothing else.

    ``wheels`` maps the names of distributions to local files; the first is the package itself.
    ``requirements`` and ``requirement_files`` are resolved on the default package index (or
    ``dependency_index``), except for the names in ``excluded``, which are never asked for there.
    """

    python: str
    wheels: Mapping[str, Path]
    requirements: tuple[str, ...] = ()
    requirement_files: tuple[Path, ...] = ()
    excluded: frozenset[str] = frozenset()
    dependency_index: str | None = None
    timeout_s: float = 1200.0


@dataclass(frozen=True, slots=True)
class Subject:
    """The package whose identity is asked for. Attributes are dotted: ``torch.version.git_version``."""

    distribution: str
    import_name: str | None
    by_import: bool
    version_attribute: str | None = None
    commit_attribute: str | None = None


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """Why the package could not be imported: an exception's type and first line, or a signal."""

    kind: str
    text: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """What is really in the environment, as its own interpreter sees it."""

    python: str | None
    metadata_version: str | None = None
    module_version: str | None = None
    module_file: str | None = None
    commit: str | None = None
    failure: ImportFailure | None = None


class CompilerCache(StrEnum):
    """In which state the compiler's caches are measured; ``BOTH``: cold, then warm, in one run."""

    COLD = "cold"
    WARM = "warm"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Job:
    """A function of the check that is called in place of running the check as a script.

    ``outputs`` is where outputs are saved, ``expected_outputs`` those that they are compared with.
    """

    function: str
    check: Path
    arguments: tuple[str, ...] = ()
    budget_s: float = 10.0
    outputs: Path | None = None
    expected_outputs: Path | None = None
    cache: CompilerCache = CompilerCache.COLD


@dataclass(frozen=True, slots=True)
class Command:
    """The user's check: ``argv`` whose first word is looked up in the environment first, or a ``job``."""

    argv: tuple[str, ...]
    folder: Path
    variables: Mapping[str, str]
    timeout_s: float
    job: Job | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """How a process ended. ``status`` is None when it did not end by itself.

    ``dropped_bytes`` counts the output that exceeded the bounded logs.
    """

    status: int | None
    signal: int | None
    timed_out: bool
    seconds: float
    stdout: Path
    stderr: Path
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Uncaught:
    """An exception that ended a Python of the check; ``own``: its first one, which started the others.

    ``frame`` is the source line of the deepest frame outside installed packages.
    """

    own: bool
    kind: str
    text: str
    frame: str


@dataclass(frozen=True, slots=True)
class Testimony:
    """What the witness in the environment noted while the check ran.

    ``elsewhere`` are files outside the environment that the package was imported from.
    """

    from_environment: bool
    elsewhere: tuple[str, ...]
    uncaught: tuple[Uncaught, ...] = ()
    numbers: tuple[Number, ...] = ()


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a check; ``reading`` is what a job measured, None when it measured nothing."""

    finished: Finished
    testimony: Testimony
    reading: Reading | None = None


class NotPrepared(Exception):
    """The environment could not be made of what was ordered; the text is the installer's reason."""


class CannotStart(Exception):
    """A program is not there or not executable: what a shell reports as 126 or 127."""


class InstallerFault(Exception):
    """The installer failed for a reason that has nothing to do with the nightly.

    ``kind`` is ``network``, ``disk``, ``python``, ``missing`` or ``machine``.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


class Environment(Protocol):
    """One environment with one nightly in it."""

    @property
    def installed(self) -> Mapping[str, str]:
        """Names and versions of the distributions in it."""

    def identify(self, subject: Subject, variables: Mapping[str, str]) -> Identity:
        """Import the subject in the environment's interpreter and report what it is."""

    def run(self, command: Command) -> Ran:
        """Run the check to its end or its time-out; nothing of it is left running.

        Raise `CannotStart` when there is nothing to run.
        """


class Runner(Protocol):
    """Makes environments."""

    def verify(self, python: str, logs: Path) -> None:
        """Raise `InstallerFault` when no environment with that Python can be made."""

    def prepare(self, order: Order, logs: Path) -> AbstractContextManager[Environment]:
        """Make a fresh environment; raise `NotPrepared` or `InstallerFault`."""
