"""One trial: get a nightly's wheel, install it, verify what was installed, run the check."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from nightly_bisect.bisection.events import Downloading, Listener, Working
from nightly_bisect.bisection.options import Options
from nightly_bisect.bisection.reuse import Reuse
from nightly_bisect.errors import (
    CheckCannotRun,
    NotAnIndex,
    NothingInstallable,
    StorageFault,
    Unreachable,
)
from nightly_bisect.index.archive import CorruptWheel
from nightly_bisect.index.dependencies import NightlyIndex, NotOnIndex
from nightly_bisect.index.downloads import (
    StoredWheel,
    WheelStore,
    no_space,
    storage_faults,
)
from nightly_bisect.index.metadata import (
    WheelMetadata,
    marker_environment,
    read_metadata,
    recorded_commit,
)
from nightly_bisect.index.wheel_safety import HostileWheel
from nightly_bisect.model import Installed, Nightly, Observation, Outcome, Signature
from nightly_bisect.signature import Failure, read_failure, tail_of
from nightly_runners.contract import (
    CannotStart,
    Command,
    Environment,
    Finished,
    Identity,
    InstallerFault,
    NotPrepared,
    Order,
    Runner,
    Subject,
    Testimony,
)
from nightly_runners.processes import signal_name, tail_lines
from nightly_runners.venv_runner import printable_bytes

_SKIP = 125
_NOT_RUNNABLE = (126, 127)
_FAILURES = (
    Outcome.FAILED,
    Outcome.CRASHED,
    Outcome.NOT_RUNNABLE,
    Outcome.TIMED_OUT,
    Outcome.EXHAUSTED,
)
_CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE)


class Tester:
    """Tests nightlies one after the other, each in a fresh environment."""

    def __init__(
        self,
        options: Options,
        store: WheelStore,
        index: NightlyIndex,
        runner: Runner,
        reuse: Reuse,
        listener: Listener,
    ) -> None:
        self._options = options
        self._store = store
        self._index = index
        self._runner = runner
        self._reuse = reuse
        self._listener = listener

    def verify_runner(self) -> None:
        """Raise `BisectError` when no environment can be made here: better before gigabytes come."""
        state = self._options.logs
        with storage_faults(state):
            state.mkdir(parents=True, exist_ok=True)
            try:
                self._runner.verify(self._options.request.target.python, state)
            except InstallerFault as error:
                raise _fault(error, state) from error

    def test(self, nightly: Nightly) -> Observation:
        """Run one trial to its end; raise `BisectError` for what is no fact about the nightly."""
        self._options.check.refuse_changes()
        started = time.monotonic()
        try:
            return self._test(nightly, started)
        except (Unreachable, NotAnIndex) as error:
            # One nightly that the network keeps from being tested is stepped around; an outage is not.
            return Observation(nightly, Outcome.UNREACHABLE, _one_line(error.what))

    def _test(self, nightly: Nightly, started: float) -> Observation:
        assert nightly.wheel is not None
        try:
            stored = self._store.fetch(nightly.wheel, self._progress)
        except HostileWheel as error:
            return Observation(nightly, Outcome.NOT_INSTALLED, f"its wheel is refused: {error}")
        except CorruptWheel as error:
            return Observation(nightly, Outcome.NOT_INSTALLED, f"its wheel is corrupt: {error}")
        if stored is None:
            return Observation(nightly, Outcome.GONE, "the server no longer has its wheel")
        if (earlier := self._reuse.earlier(nightly, stored.sha256)) is not None:
            return earlier
        observation = self._test_wheel(nightly, stored, started)
        if note := self._reuse.rebuilt(nightly, stored.sha256):
            observation = replace(observation, notes=(*observation.notes, note))
        return observation

    def _test_wheel(self, nightly: Nightly, stored: StoredWheel, started: float) -> Observation:
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
                with self._runner.prepare(order, logs) as environment:
                    seen = replace(
                        seen,
                        install_s=time.monotonic() - started,
                        installed=_installed(environment),
                        log=logs,
                    )
                    if missing := self._not_installed(environment):
                        return replace(seen, reason=f"the installer left out {', '.join(missing)}")
                    return self._test_environment(seen, environment, metadata)
            except (NotPrepared, NotOnIndex, CorruptWheel) as error:
                return replace(
                    seen,
                    reason=_one_line(str(error)),
                    install_s=time.monotonic() - started,
                    log=logs,
                )
            except InstallerFault as error:
                raise _fault(error, self._options.logs) from error

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

    def _test_environment(
        self, seen: Observation, environment: Environment, metadata: WheelMetadata
    ) -> Observation:
        profile = self._options.request.profile
        subject = Subject(
            profile.package,
            profile.import_name or _guess_import_name(metadata),
            profile.identity.by_import,
            profile.identity.version_attribute,
            profile.identity.commit_attribute,
        )
        self._listener(Working(f"importing {seen.nightly.version}"))
        identity = environment.identify(subject, self._options.variables)
        seen = replace(seen, python=identity.python, commit=identity.commit or seen.commit)
        if (problem := _wrong_build(identity, seen.nightly)) is not None:
            return replace(seen, outcome=Outcome.WRONG_BUILD, reason=problem)
        if identity.failure is not None:
            failure = Failure(identity.failure.kind, identity.failure.text)
            return replace(
                seen,
                outcome=_outcome_of_import(failure),
                status=identity.failure.status,
                reason=_one_line(f"import {subject.import_name}: {failure}"),
                signature=failure.signature,
            )
        self._listener(Working(f"checking {seen.nightly.version}"))
        check = self._options.check
        command = Command(check.argv, check.folder, self._options.variables, self._options.timeout_s)
        try:
            finished, testimony = environment.run(command)
        except CannotStart as error:
            return replace(seen, outcome=Outcome.NOT_RUNNABLE, reason=str(error))
        return self._conclude(seen, subject, finished, testimony)

    def _conclude(
        self, seen: Observation, subject: Subject, finished: Finished, testimony: Testimony
    ) -> Observation:
        if testimony.elsewhere:
            raise CheckCannotRun(
                f"The check imported {subject.import_name} from {testimony.elsewhere[0]}, not the nightly.",
                hint=f"run it from a folder without a {subject.import_name} of its own",
            )
        if not testimony.from_environment and subject.import_name is not None:
            note = f"the check never imported {subject.import_name}"
            seen = replace(seen, notes=(*seen.notes, note))
        outcome, reason = read_ending(finished)
        stdout, stderr = (list(tail_lines(log)) for log in (finished.stdout, finished.stderr))
        seen = replace(seen, check_s=finished.seconds, status=finished.status, tail=tail_of(stdout, stderr))
        if outcome is Outcome.CRASHED:
            seen = replace(seen, signature=Signature("signal", reason))
        elif outcome is Outcome.TIMED_OUT:
            seen = replace(seen, signature=Signature("timed out", ""))
        elif outcome in (Outcome.FAILED, Outcome.NOT_RUNNABLE):
            failure = self._failure(finished, testimony, stdout, stderr)
            seen = replace(seen, signature=failure.signature)
            reason = f"{reason}: {failure}" if str(failure) else reason
            outcome = Outcome.EXHAUSTED if failure.is_exhaustion else outcome
        if outcome in _FAILURES:
            seen = replace(seen, matched=self._matches(finished))
        return replace(seen, outcome=outcome, reason=_one_line(reason))

    def _failure(
        self, finished: Finished, testimony: Testimony, stdout: list[str], stderr: list[str]
    ) -> Failure:
        """Name the failure: the exception that ended the check's own Python, else what it printed."""
        own = [e for e in testimony.uncaught if e.own] or list(testimony.uncaught)
        if own:
            return Failure(own[-1].kind, own[-1].text, own[-1].frame)
        is_script = self._options.check.argv[0] == "python" and self._options.check.script is not None
        return read_failure(stdout, stderr, is_script=is_script)

    def _matches(self, finished: Finished) -> bool | None:
        match = self._options.rules.match
        if match is None:
            return None
        logs = (
            log.read_text(encoding="utf-8", errors="backslashreplace")
            for log in (finished.stdout, finished.stderr)
        )
        return any(match.search(text) for text in logs)

    def _progress(self, filename: str, received: int, expected: int | None) -> None:
        self._listener(Downloading(filename, received, expected))


def read_ending(finished: Finished) -> tuple[Outcome, str]:
    """Say what an exit status or signal means (docs/checks.md has the table)."""
    status, number = finished.status, finished.signal
    if finished.timed_out:
        return Outcome.TIMED_OUT, f"did not end within {finished.seconds:.0f} s"
    if status is not None and status > 128 and signal_name(status - 128) is not None:
        number = status - 128  # a shell's way to report a signal
    if number is not None:
        name = signal_name(number) or f"signal {number}"
        return (Outcome.CRASHED if number in _CRASHES else Outcome.KILLED), name
    assert status is not None
    if status == 0:
        return Outcome.PASSED, "exit 0"
    if status == _SKIP:
        return Outcome.SKIPPED, "exit 125: the check asks to skip"
    if status in _NOT_RUNNABLE:
        return Outcome.NOT_RUNNABLE, f"exit {status}"
    if status < _SKIP:
        return Outcome.FAILED, f"exit {status}"
    return Outcome.ODD_STATUS, f"exit {status} is neither a pass nor a failure (1–124)"


def _outcome_of_import(failure: Failure) -> Outcome:
    """Tell an import that failed from one that the machine or somebody else ended."""
    if failure.is_exhaustion:
        return Outcome.EXHAUSTED
    if failure.kind.startswith("SIG") and failure.kind not in {crash.name for crash in _CRASHES}:
        return Outcome.KILLED
    return Outcome.NOT_IMPORTABLE


def _wrong_build(identity: Identity, nightly: Nightly) -> str | None:
    """Compare what was imported with what was asked for."""
    for what, found in (
        ("metadata", identity.metadata_version),
        ("module", identity.module_version),
    ):
        if found is not None and not _same_build(found, nightly.version):
            return f"asked for {nightly.version}, but the {what} says {_one_line(found)}"
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


def _fault(error: InstallerFault, state: Path) -> Exception:
    text = _one_line(str(error))
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


def _one_line(text: str, longest: int = 400) -> str:
    line = " ".join(printable_bytes(text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
