"""A bisection from options to answer: what the command line and the service share."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from packaging.requirements import Requirement

import nightly_bisect
from nightly_bisect.bisection.check import Check
from nightly_bisect.bisection.conclusion import conclude, ended_early
from nightly_bisect.bisection.course import Question
from nightly_bisect.bisection.ends import Ends, Span, find_span
from nightly_bisect.bisection.events import Listener, Working
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.bisection.trial import Tester, TrialSettings
from nightly_bisect.errors import BisectError
from nightly_bisect.index.catalog import Catalog, Request, load_catalog
from nightly_bisect.index.commits import main_commit
from nightly_bisect.index.dependencies import NightlyIndex
from nightly_bisect.index.downloads import WheelStore
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.page import Unreadable
from nightly_bisect.index.targets import host_family
from nightly_bisect.index.web import Web
from nightly_bisect.judge import Counts, Rules
from nightly_bisect.model import Find, Nightly, UnlistedDay
from nightly_bisect.report.answer import Answer, Setting
from nightly_bisect.search import most_trials
from nightly_runners.venv_runner import VenvRunner


@dataclass(frozen=True, slots=True)
class Options:
    """All that a bisection depends on, as the user gave it. Times in seconds."""

    ends: Ends
    request: Request
    check: Check
    name: str
    cache: Path
    state: Path
    rules: Rules = field(default_factory=Rules)
    requirements: tuple[Requirement, ...] = ()
    requirement_files: tuple[Path, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 1800.0
    install_timeout_s: float = 1200.0
    keep: bool = False
    dependency_index: str | None = None
    profile_path: Path | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will cost, before anything is installed.

    ``unlisted`` days may or may not have a nightly. ``wheel_bytes`` is the newest's size, where known.
    """

    span: Span
    unlisted: int
    without_wheel: int
    most_trials: int | None
    to_download: int | None
    wheel_bytes: int | None
    notes: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def most_bytes(self) -> int | None:
        """The bytes of wheels to download at most; dependencies come on top, once."""
        if self.to_download is None or self.wheel_bytes is None:
            return None
        return self.to_download * self.wheel_bytes


class Session:
    """One bisection; ``caller`` is the environment that variables are taken from."""

    def __init__(
        self,
        options: Options,
        *,
        listener: Listener,
        now: datetime,
        caller: Mapping[str, str],
    ) -> None:
        self.options = options
        self._listener = listener
        self._now = now
        self._caller = caller
        self._web = Web()
        self._store = WheelStore(options.cache / "wheels", self._web)
        self._bisection: Bisection | None = None
        self._tester: Tester | None = None
        self._span: Span | None = None
        self._notes: tuple[str, ...] = ()

    def plan(self) -> Plan:
        """Read the index, settle the ends, and count what the search may cost."""
        options = self.options
        self._listener(Working(f"reading the index of {options.request.profile.package}"))
        memory = Memory(options.cache)
        catalog = load_catalog(options.request, self._web, memory, self._now)
        self._span = find_span(catalog, options.ends, self._now)
        self._notes = (*self._span.notes, *catalog.notes())
        self._bisection = self._make_bisection(catalog, self._span)
        return self._count(self._span, catalog.unreadable)

    def run(self) -> Answer:
        """Run the search to its end; raise `BisectError` when something else ends it."""
        bisection = self._bisection
        assert bisection is not None and self._tester is not None, "plan() comes first"
        self._tester.verify_runner()
        move = bisection.run()
        self._listener(Working("looking up the commits"))
        profile = self.options.request.profile
        return conclude(
            bisection,
            move,
            self._setting(),
            self._notes,
            lambda commit: main_commit(profile, commit, self._web, self._caller),
        )

    def ended_early(self, error: BisectError | None) -> Answer:
        """Return what is known when ``error``, or Ctrl-C (None), ended the run."""
        return ended_early(self._bisection, self._setting(), error, self._notes)

    def _make_bisection(self, catalog: Catalog, span: Span) -> Bisection:
        options = self.options
        settings = TrialSettings(
            options.check,
            options.request,
            options.state / options.name,
            options.requirements,
            options.requirement_files,
            options.variables,
            options.timeout_s,
            options.install_timeout_s,
            options.rules.match,
            options.dependency_index,
        )
        self._tester = Tester(
            settings,
            self._store,
            NightlyIndex(options.request, self._web),
            VenvRunner(options.cache, keep=options.keep, caller=self._caller),
            self._listener,
        )
        question = Question(options.ends.find, options.rules, span.walk_back)
        return Bisection(span.slots, question, self._tester, catalog, self._listener)

    def _count(self, span: Span, unreadable: tuple[Unreadable, ...]) -> Plan:
        nightlies = [slot for slot in span.slots if isinstance(slot, Nightly)]
        usable = [n for n in nightlies if n.wheel is not None]
        trials = None if span.walk_back else 2 + most_trials(len(span.slots))
        stored = sum(self._store.is_stored(n.wheel) for n in usable if n.wheel)
        newest = usable[-1].wheel
        assert newest is not None
        size = newest.size_bytes
        if size is None:
            info = self._web.file_info(newest.url)
            size = info.size_bytes if info else None
        unlisted = sum(isinstance(slot, UnlistedDay) for slot in span.slots)
        return Plan(
            span,
            unlisted,
            len(nightlies) - len(usable),
            trials,
            None if trials is None else max(0, min(trials, len(usable) + unlisted - stored)),
            size,
            self._notes,
            unreadable,
        )

    def _setting(self) -> Setting:
        options = self.options
        request = options.request
        return Setting(
            options.ends.find,
            request.profile.package,
            request.channel,
            str(request.target),
            request.profile.repository,
            options.name,
            shlex.join(_reproduce(options, self._span)),
            options.check.script.name if options.check.script else shlex.join(options.check.argv),
            options.check.text,
            _environment(request),
        )


def _environment(request: Request) -> tuple[tuple[str, str], ...]:
    return (
        ("nightly-bisect", nightly_bisect.__version__),
        ("package", request.profile.package),
        ("channel", request.channel or "-"),
        ("python of the trials", request.target.python),
        ("system", platform.platform()),
        ("machine", platform.machine()),
    )


def _reproduce(options: Options, span: Span | None) -> list[str]:
    """Return the words of a command that asks the same question on another day."""
    request, rules = options.request, options.rules
    words = ["nightly-bisect", *_end_words(options, span)]
    if options.profile_path is not None:
        words += ["--profile", str(options.profile_path)]
    elif request.profile.package != "torch":
        words += ["--package", request.profile.package]
    if request.channel is not None:
        words += ["--channel", request.channel]
    words += ["--python", request.target.python]
    if request.index_url is not None:
        words += ["--index-url", request.index_url]
    if request.all_builds:
        words.append("--all-builds")
    for requirement in options.requirements:
        words += ["--with", str(requirement)]
    for path in options.requirement_files:
        words += ["-r", str(path)]
    if options.timeout_s != Options.__dataclass_fields__["timeout_s"].default:
        words += ["--timeout", f"{options.timeout_s:g}"]
    if rules.on_crash is not Counts.BAD:
        words += ["--on-crash", rules.on_crash.value]
    if rules.on_timeout is not Counts.AUTO:
        words += ["--on-timeout", rules.on_timeout.value]
    if rules.any_failure:
        words.append("--any-failure")
    if rules.match is not None:
        words += ["--match", rules.match.pattern]
    for name in options.variables:
        words += ["--env", name]
    return [*words, *_check_words(options.check)]


def _end_words(options: Options, span: Span | None) -> list[str]:
    """Name the ends by what they turned out to be: ``today`` means another day tomorrow."""
    ends = options.ends
    if span is None:
        early, late = (ends.good, ends.bad) if ends.find is Find.REGRESSION else (ends.bad, ends.good)
    else:
        early = None if span.walk_back else _end_word(span.slots[0], options)
        late = _end_word(span.slots[-1], options)
    names = ("--good", "--bad") if ends.find is Find.REGRESSION else ("--bad", "--good")
    words = ["--find-fix"] if ends.find is Find.FIX else []
    for name, value in zip(names, (early, late), strict=True):
        if value is not None:
            words += [name, value]
    return words


def _end_word(slot: Nightly | UnlistedDay, options: Options) -> str:
    request = options.request
    if isinstance(slot, Nightly) and (request.releases or request.all_builds):
        return slot.version
    return str(slot.stamp)


def _check_words(check: Check) -> list[str]:
    if check.script is None:
        return ["--", *check.argv]
    try:
        script = str(check.script.relative_to(check.folder))
    except ValueError:
        script = str(check.script)
    arguments = check.argv[2:] if check.argv[0] == "python" else check.argv[1:]
    return [script, *arguments]


def same_machine(request: Request) -> bool:
    """Tell whether wheels for the request's platform run here."""
    return request.target.family == host_family()
