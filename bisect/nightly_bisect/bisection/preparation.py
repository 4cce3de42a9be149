"""From a nightly to an environment with it in it, verified: the wheel, what else it needs, the import."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightly_bisect.bisection.events import Downloading, Listener, Working
from nightly_bisect.bisection.options import Options
from nightly_bisect.errors import NothingInstallable, StorageFault, Unreachable
from nightly_bisect.index.archive import CorruptWheel
from nightly_bisect.index.dependencies import NightlyIndex, NotOnIndex
from nightly_bisect.index.downloads import StoredWheel, WheelStore, no_space, storage_faults
from nightly_bisect.index.metadata import (
    WheelMetadata,
    marker_environment,
    read_metadata,
    recorded_commit,
)
from nightly_bisect.index.wheel_safety import HostileWheel
from nightly_bisect.model import Installed, Nightly, Observation, Outcome
from nightly_bisect.signature import Failure
from nightly_runners.contract import (
    Environment,
    Identity,
    InstallerFault,
    NotPrepared,
    Order,
    Runner,
    Subject,
)
from nightly_runners.readings import Number
from nightly_runners.venv_runner import printable_bytes

CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE)


@dataclass(frozen=True, slots=True)
class Prepared:
    """An environment that holds the nightly which ``seen`` describes; what runs there fills in the rest.

    ``numbers`` are those that are known before any check has run.
    """

    seen: Observation
    environment: Environment
    subject: Subject
    wheel_bytes: int | None = None
    numbers: tuple[Number, ...] = ()


class Preparer:
    """Gets wheels and makes environments of them."""

    def __init__(
        self,
        options: Options,
        store: WheelStore,
        index: NightlyIndex,
        runner: Runner,
        listener: Listener,
    ) -> None:
        self._options = options
        self._store = store
        self._index = index
        self._runner = runner
        self._listener = listener

    def verify_runner(self) -> None:
        """Raise `BisectError` when no environment can be made here: better before gigabytes come."""
        state = self._options.logs
        with storage_faults(state):
            state.mkdir(parents=True, exist_ok=True)
            try:
                self._runner.verify(self._options.request.target.python, state)
            except InstallerFault as error:
                raise fault_of(error, state) from error

    def fetch(self, nightly: Nightly) -> StoredWheel | Observation:
        """Return the wheel's file, or why it is none; raise `BisectError` for network and disk."""
        assert nightly.wheel is not None
        try:
            stored = self._store.fetch(nightly.wheel, self._progress)
        except HostileWheel as error:
            return Observation(nightly, Outcome.NOT_INSTALLED, f"its wheel is refused: {error}")
        except CorruptWheel as error:
            return Observation(nightly, Outcome.NOT_INSTALLED, f"its wheel is corrupt: {error}")
        return stored or Observation(nightly, Outcome.GONE, "the server no longer has its wheel")

    def prepare(
        self, nightly: Nightly, stored: StoredWheel, held: contextlib.ExitStack
    ) -> Prepared | Observation:
        """Install a nightly and import it; return why it could not be.

        ``held`` keeps the environment until it is closed. Raise `BisectError` for what is no fact about
        the nightly.
        """
        started = time.monotonic()
        seen = Observation(nightly, Outcome.NOT_INSTALLED, "", wheel_sha256=stored.sha256)
        try:
            metadata = read_metadata(stored.path)
        except CorruptWheel as error:
            return replace(seen, outcome=Outcome.WRONG_BUILD, reason=f"not the wheel it is named: {error}")
        attribute = self._options.request.profile.identity.commit_attribute
        seen = replace(seen, commit=recorded_commit(stored.path, attribute) if attribute else None)
        logs = self._options.logs / f"{nightly.stamp}-{nightly.version.replace('+', '-')}"
        with storage_faults(logs):
            logs.mkdir(parents=True, exist_ok=True)
            try:
                order = self._order(nightly, stored, metadata)
                self._listener(Working(f"installing {nightly.version}"))
                environment = held.enter_context(self._runner.prepare(order, logs))
            except (NotPrepared, NotOnIndex, CorruptWheel) as error:
                return replace(
                    seen,
                    reason=one_line(str(error)),
                    install_s=time.monotonic() - started,
                    log=logs,
                )
            except InstallerFault as error:
                raise fault_of(error, self._options.logs) from error
            seen = replace(
                seen, install_s=time.monotonic() - started, installed=_installed(environment), log=logs
            )
            if missing := self._not_installed(environment):
                return replace(seen, reason=f"the installer left out {', '.join(missing)}")
            prepared = self._identified(seen, environment, metadata)
            if isinstance(prepared, Prepared):
                return replace(prepared, wheel_bytes=stored.size_bytes)
            return prepared

    def _identified(
        self, seen: Observation, environment: Environment, metadata: WheelMetadata
    ) -> Prepared | Observation:
        """Import the package: what comes must be the build that was asked for."""
        profile = self._options.request.profile
        subject = Subject(
            profile.package,
            profile.import_name or _guess_import_name(metadata),
            profile.identity.by_import,
            profile.identity.version_attribute,
            profile.identity.commit_attribute,
        )
        self._listener(Working(f"importing {seen.nightly.version}"))
        try:
            identity = environment.identify(subject, self._options.variables)
        except InstallerFault as error:
            raise fault_of(error, self._options.logs) from error
        seen = replace(seen, python=identity.python, commit=identity.commit or seen.commit)
        if (problem := _wrong_build(identity, seen.nightly)) is not None:
            return replace(seen, outcome=Outcome.WRONG_BUILD, reason=problem)
        if identity.failure is not None:
            failure = Failure(identity.failure.kind, identity.failure.text)
            return replace(
                seen,
                outcome=_outcome_of_import(failure),
                status=identity.failure.status,
                reason=one_line(f"import {subject.import_name}: {failure}"),
                signature=failure.signature,
            )
        return Prepared(seen, environment, subject)

    def _order(self, nightly: Nightly, stored: StoredWheel, metadata: WheelMetadata) -> Order:
        """Say what to install; what only the nightly index may serve is fetched from it."""
        options = self._options
        python = options.request.target.python
        wheels = {metadata.name: stored.path}
        plain: list[str] = []
        for requirement in [*metadata.active(python), *options.requirements]:
            name = canonicalize_name(requirement.name)
            if name == metadata.name:
                continue
            if requirement.url is None and self._index.must_serve(requirement):
                found = self._store.fetch(self._index.find(requirement, nightly.stamp), self._progress)
                if found is None:
                    raise NotOnIndex(f"the nightly index lists {requirement} but no longer has it")
                wheels[name] = found.path
            elif requirement in options.requirements:
                plain.append(str(requirement))
        pinned = {canonicalize_name(r.name) for r in options.requirements if r.url is not None}
        return Order(
            python,
            wheels,
            tuple(plain),
            options.requirement_files,
            self._index.only_here - set(wheels) - pinned,
            options.dependency_index,
            options.install_timeout_s,
        )

    def _not_installed(self, environment: Environment) -> list[str]:
        machine = marker_environment(self._options.request.target.python)
        return [
            str(requirement)
            for requirement in self._options.requirements
            if canonicalize_name(requirement.name) not in environment.installed
            and (requirement.marker is None or requirement.marker.evaluate(machine))
        ]

    def _progress(self, filename: str, received: int, expected: int | None) -> None:
        self._listener(Downloading(filename, received, expected))


def one_line(text: str, longest: int = 400) -> str:
    """Return a text on one line, cut to a bearable length."""
    line = " ".join(printable_bytes(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _outcome_of_import(failure: Failure) -> Outcome:
    """Tell an import that failed from one that the machine or somebody else ended."""
    if failure.is_exhaustion:
        return Outcome.EXHAUSTED
    if failure.kind.startswith("SIG") and failure.kind not in {crash.name for crash in CRASHES}:
        return Outcome.KILLED
    return Outcome.NOT_IMPORTABLE


def _wrong_build(identity: Identity, nightly: Nightly) -> str | None:
    """Compare what was imported with what was asked for."""
    for what, found in (
        ("metadata", identity.metadata_version),
        ("module", identity.module_version),
    ):
        if found is not None and not _same_build(found, nightly.version):
            return f"asked for {nightly.version}, but the {what} says {one_line(found)}"
    return None


def _same_build(found: str, wanted: str) -> bool:
    try:
        one, other = Version(found), Version(wanted)
    except InvalidVersion:
        return False
    same_local = one.local is None or other.local is None or one.local == other.local
    return one.public == other.public and same_local


def _installed(environment: Environment) -> tuple[Installed, ...]:
    return tuple(Installed(n, v) for n, v in sorted(environment.installed.items()))


def _guess_import_name(metadata: WheelMetadata) -> str | None:
    """Choose the package that a wheel is imported by: the one named like it, else its first."""
    wanted = metadata.name.replace("-", "_")
    return wanted if wanted in metadata.top_level else next(iter(metadata.top_level), None)


def fault_of(error: InstallerFault, state: Path) -> Exception:
    """Return the error that ends a run for a fault of the installer or the machine."""
    text = one_line(str(error))
    match error.kind:
        case "disk":
            return no_space(state)
        case "network":
            return Unreachable(
                f"The installer could not reach the package index: {text}",
                url="the default package index",
                hint="check the network and the proxy, then run the same command again; a mirror of "
                "your own goes into --dependency-index",
            )
        case "machine":
            return StorageFault(
                f"The machine starts no more programs: {text}.",
                hint="free some memory or processes, then run the same command again",
            )
        case "python":
            return NothingInstallable(
                f"No environment can be made with that Python: {text}",
                hint="install it, or use --python with one that you have",
            )
        case _:
            return NothingInstallable(
                f"{text}.",
                hint="install it with `pip install 'uv>=0.13'` into the same environment",
            )
