"""Trials: the check run in a prepared environment, and what its end means."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import replace

from nightly_bisect.bisection.events import Listener, Working
from nightly_bisect.bisection.options import Options
from nightly_bisect.bisection.preparation import CRASHES, Prepared, Preparer, fault_of, one_line
from nightly_bisect.bisection.reuse import Reuse
from nightly_bisect.bisection.visit import Visit
from nightly_bisect.errors import CheckCannotRun, NotAnIndex, Unreachable
from nightly_bisect.index.downloads import storage_faults
from nightly_bisect.model import Metric, Nightly, Observation, Outcome, Signature
from nightly_bisect.signature import Failure, read_failure, tail_of
from nightly_runners.contract import (
    CannotStart,
    Command,
    Finished,
    InstallerFault,
    Job,
    Ran,
    Subject,
    Testimony,
)
from nightly_runners.processes import signal_name, tail_lines
from nightly_runners.readings import Number, printed_metrics

_SKIP = 125
_NOT_RUNNABLE = (126, 127)
_FAILURES = (
    Outcome.FAILED,
    Outcome.CRASHED,
    Outcome.NOT_RUNNABLE,
    Outcome.TIMED_OUT,
    Outcome.EXHAUSTED,
)


class Tester:
    """Runs the check in environments with nightlies, each fresh for its first visit.

    For checks that are run again and again the last ``most_open`` environments stay.
    """

    def __init__(
        self, options: Options, preparer: Preparer, reuse: Reuse, listener: Listener, most_open: int = 0
    ) -> None:
        self._options = options
        self._preparer = preparer
        self._reuse = reuse
        self._listener = listener
        self.most_open = most_open
        self._has_measured = False
        self._open: dict[str, tuple[Prepared, contextlib.ExitStack]] = {}

    @property
    def installed(self) -> frozenset[str]:
        """The versions whose environments are there: a run in them costs no install."""
        return frozenset(self._open)

    def close(self) -> None:
        """Remove the environments that are still there."""
        self._close_all_but(0)

    def test(self, nightly: Nightly, visit: Visit) -> Generator[Observation]:
        """Run the check, one observation for each run; raise `BisectError` for what is no fact about it."""
        self._options.check.refuse_changes()
        try:
            yield from self._test(nightly, visit)
        except (Unreachable, NotAnIndex) as error:
            # One nightly that the network keeps from being tested is stepped around; an outage is not.
            reason = one_line(error.what)
            yield Observation(nightly, Outcome.UNREACHABLE, reason, repeat=visit.first_repeat)
        finally:
            self._close_all_but(self.most_open)

    def _test(self, nightly: Nightly, visit: Visit) -> Generator[Observation]:
        if visit.afresh:
            self._close(nightly.version)
            if visit.reference is not None:
                self._close(visit.reference.version)
        ready = self._ready(nightly, visit)
        reference = None if visit.reference is None else self._ready(visit.reference, visit)
        if not isinstance(ready, Prepared):
            yield replace(ready, repeat=visit.first_repeat, afresh=visit.afresh)
            return
        if reference is not None and not isinstance(reference, Prepared):
            raise CheckCannotRun(
                f"The nightly to compare with, {visit.reference}, can no longer be tested: {reference.reason}.",
                hint="`nightly-bisect resume` tries again; what was measured is kept",
            )
        for repeat in range(visit.first_repeat, visit.first_repeat + visit.runs):
            seen = replace(self._pair(ready, reference, repeat), afresh=visit.afresh)
            yield seen
            if visit.until_failure and seen.outcome is not Outcome.PASSED:
                return
            if ready.seen.install_s is not None:  # the next run didn't need it
                ready = replace(ready, seen=replace(ready.seen, install_s=None))
                self._open[nightly.version] = ready, self._open[nightly.version][1]

    def _pair(self, ready: Prepared, reference: Prepared | None, repeat: int) -> Observation:
        """Run the check once, and beside it once in the reference: who is first alternates."""
        if reference is None:
            return replace(self._run(ready), repeat=repeat)
        if repeat % 2:
            beside, seen = self._run(reference), self._run(ready)
        else:
            seen, beside = self._run(ready), self._run(reference)
        return replace(seen, repeat=repeat, reference=beside.nightly.version, beside=beside.metrics)

    def _ready(self, nightly: Nightly, visit: Visit) -> Prepared | Observation:
        """Return the nightly's environment, made at need, or what was seen instead."""
        if nightly.version in self._open:
            self._open[nightly.version] = self._open.pop(nightly.version)  # the last used is the last
            return self._open[nightly.version][0]
        stored = self._preparer.fetch(nightly)
        if isinstance(stored, Observation):
            return stored
        may_reuse = visit.is_single and not self._options.is_noisy
        if may_reuse and (earlier := self._reuse.earlier(nightly, stored.sha256, visit.first_repeat)):
            return earlier
        with contextlib.ExitStack() as held:
            prepared = self._preparer.prepare(nightly, stored, held)
            seen = prepared.seen if isinstance(prepared, Prepared) else prepared
            if note := self._reuse.rebuilt(nightly, stored.sha256):
                seen = replace(seen, notes=(*seen.notes, note))
            if not isinstance(prepared, Prepared):
                return seen
            prepared = replace(prepared, seen=seen)
            self._open[nightly.version] = prepared, held.pop_all()
        return prepared

    def _close_all_but(self, count: int) -> None:
        for version in list(self._open)[: len(self._open) - count]:
            self._close(version)

    def _close(self, version: str) -> None:
        if version in self._open:
            self._open.pop(version)[1].close()

    def _run(self, ready: Prepared) -> Observation:
        """Run the check once in an environment."""
        seen, check = ready.seen, self._options.check
        self._listener(Working(f"checking {seen.nightly.version}"))
        variables, timeout_s = self._options.variables, self._options.timeout_s
        command = Command(check.argv, check.folder, variables, timeout_s, self._job())
        logs = seen.log or self._options.logs
        with storage_faults(logs):
            try:
                ran = ready.environment.run(command)
            except CannotStart as error:
                return replace(seen, outcome=Outcome.NOT_RUNNABLE, reason=str(error))
            except InstallerFault as error:
                raise fault_of(error, self._options.logs) from error
            seen = self._conclude(seen, ready.subject, ran.finished, ran.testimony)
            return self._with_numbers(seen, ready, ran)

    def _job(self) -> Job | None:
        check, options = self._options.check, self._options
        if check.function is None:
            return None
        assert check.script is not None
        expected = options.logs / "expected-outputs"
        return Job(
            check.function,
            check.script,
            check.argv[2:],
            options.budget_s,
            options.logs / "outputs",
            expected if expected.exists() else None,
            options.compiler_cache,
        )

    def _with_numbers(self, seen: Observation, ready: Prepared, ran: Ran) -> Observation:
        """Add what the run measured; a function that never came to its end has measured nothing."""
        if self._options.check.function is not None and seen.outcome is Outcome.PASSED:
            if ran.reading is None:
                reason = "the check ended its process by itself: nothing was measured"
                return replace(seen, outcome=Outcome.ODD_STATUS, reason=reason)
            self._keep_outputs()
        read = ran.reading.numbers if ran.reading else ()
        printed = printed_metrics(tail_lines(ran.finished.stdout, count=10_000))
        builtin = [Number("wall_time", "s", ran.finished.seconds, (ran.finished.seconds,))]
        if ready.wheel_bytes is not None:
            builtin.append(Number("wheel_size", "B", float(ready.wheel_bytes), (float(ready.wheel_bytes),)))
        numbers: dict[str, Number] = {}
        for number in (*printed, *read, *ran.testimony.numbers, *ready.numbers, *builtin):
            numbers.setdefault(number.name, number)
        metrics = tuple(Metric(n.name, n.unit or None, n.value, n.samples) for n in numbers.values())
        seen = replace(seen, metrics=metrics, fingerprint=ran.reading.fingerprint if ran.reading else None)
        self._refuse_silence(seen)
        return seen

    def _keep_outputs(self) -> None:
        """Keep the outputs of the first nightly that has some: the good end's, which the others must equal."""
        made, expected = self._options.logs / "outputs", self._options.logs / "expected-outputs"
        if self._options.check.function == "outputs" and made.exists() and not expected.exists():
            made.replace(expected)

    def _refuse_silence(self, seen: Observation) -> None:
        """Raise `CheckCannotRun` when the first run that ends well doesn't report the number in question."""
        metric = self._options.noise.metric
        if metric is None or seen.outcome is not Outcome.PASSED or self._has_measured:
            return
        if seen.metric(metric) is None:
            there = ", ".join(m.name for m in seen.metrics)
            raise CheckCannotRun(
                f"The check reported no number {metric!r} with {seen.nightly}.",
                hint=f"print a line `nightly-bisect: {metric}=NUMBER`, or use one of these: {there}",
            )
        self._has_measured = True

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
        return replace(seen, outcome=outcome, reason=one_line(reason))

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


def read_ending(finished: Finished) -> tuple[Outcome, str]:
    """Say what an exit status or signal means (docs/checks.md has the table)."""
    status, number = finished.status, finished.signal
    if finished.timed_out:
        return Outcome.TIMED_OUT, f"did not end within {finished.seconds:.0f} s"
    if status is not None and status > 128 and signal_name(status - 128) is not None:
        number = status - 128  # a shell's way to report a signal
    if number is not None:
        name = signal_name(number) or f"signal {number}"
        return (Outcome.CRASHED if number in CRASHES else Outcome.KILLED), name
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
