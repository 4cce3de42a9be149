"""A bisection from options to answer: what the command line and the service share."""

from __future__ import annotations

import contextlib
import platform
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import nightly_bisect
from nightly_bisect.bisection.conclusion import conclude, ended_early
from nightly_bisect.bisection.course import CONFIRMATIONS, Question, TestNext
from nightly_bisect.bisection.ends import Span, find_span
from nightly_bisect.bisection.events import Listener, Working
from nightly_bisect.bisection.locks import held_lock
from nightly_bisect.bisection.loop import Bisection
from nightly_bisect.bisection.options import Options, reproduce_words
from nightly_bisect.bisection.preparation import Preparer
from nightly_bisect.bisection.reuse import Reuse, trial_key
from nightly_bisect.bisection.streak import Streak
from nightly_bisect.bisection.trial import Tester
from nightly_bisect.errors import BisectError, Unreachable
from nightly_bisect.index.cache import Cache
from nightly_bisect.index.catalog import Request, load_catalog, place_of
from nightly_bisect.index.commits import main_commit
from nightly_bisect.index.dependencies import NightlyIndex
from nightly_bisect.index.downloads import WheelStore, storage_faults
from nightly_bisect.index.listings import Listings
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.page import Unreadable
from nightly_bisect.index.targets import host_family
from nightly_bisect.index.unlisted import Prober
from nightly_bisect.index.web import Web
from nightly_bisect.journal import Entry, Journal, Kind, Record, effective
from nightly_bisect.model import Asked, Nightly, Observation, Outcome, UnlistedDay, Verdict, Wheel
from nightly_bisect.report.answer import Answer, Setting
from nightly_bisect.search import most_trials
from nightly_runners.hostnoise import changes_between, host_noise
from nightly_runners.venv_runner import VenvRunner

MOST_OPEN = 8
"""So many environments stay while a noisy check goes back and forth between nightlies."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run will cost, before anything is installed.

    ``unlisted`` days may or may not have a nightly. ``wheel_bytes`` is the newest's size, where known.
    """

    span: Span
    unlisted: int
    without_wheel: int
    most_trials: int | None
    confirmations: int
    to_download: int | None
    wheel_bytes: int | None
    notes: tuple[str, ...]
    unreadable: tuple[Unreadable, ...]
    is_noisy: bool = False
    sweep: int = 0

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
        self.journal = Journal(journal_path(options.state))
        self._listener = listener
        self._now = now
        self._caller = caller
        self._cache = Cache(options.cache)
        self._web = Web(may_redirect_to=options.request.allows_host)
        self._store = WheelStore(options.cache / "wheels", self._web, self._make_room)
        self._memory = Memory(options.cache)
        self._preparer = Preparer(
            options,
            self._store,
            NightlyIndex(options.request, self._web),
            VenvRunner(options.cache, keep=options.keep, caller=self._caller),
            listener,
        )
        self._tester = Tester(
            options,
            self._preparer,
            Reuse(options, self.journal),
            listener,
            MOST_OPEN if options.is_noisy else 0,
        )
        self._bisection: Bisection | None = None
        self._span: Span | None = None
        self._notes: tuple[str, ...] = ()
        self._is_new = True

    def plan(self) -> Plan:
        """Read the index, settle the ends, and count what the search may cost."""
        options = self.options
        self._listener(Working(f"reading the index of {options.request.profile.package}"))
        catalog = load_catalog(options.request, self._web, Listings(options.cache), self._memory, self._now)
        span = find_span(catalog, options.ends, self._now)
        self._set_out(span, (*span.notes, *catalog.notes()), catalog.prober, ())
        return self._count(span, catalog.unreadable)

    def take_up(self, record: Record, entries: Sequence[Entry]) -> None:
        """Go on with a bisection of the journal, over the nightlies that it began with."""
        span = Span(record.slots, record.walk_back, ())
        nightlies = [slot for slot in record.slots if isinstance(slot, Nightly)]
        place = place_of(self.options.request, nightlies)
        wheels = [nightly.wheel for nightly in nightlies if nightly.wheel]
        prober = Prober(place, wheels, self._web, self._memory, self._now)
        self._is_new = False
        answers = [entry.asked for entry in entries if entry.asked is not None]
        self._set_out(span, record.notes, prober, effective(entries), answers)

    def run(self) -> Answer:
        """Run the search to its end; raise `BisectError` when something else ends it."""
        bisection, options = self._bisection, self.options
        assert bisection is not None, "plan() or take_up() comes first"
        with held_lock(options.logs, options.name):
            if self._is_new:
                self.journal.begin(self._record())
                self._is_new = False
            try:
                if isinstance(bisection.move, TestNext):
                    with storage_faults(options.cache):
                        self._cache.sweep()
                    self._preparer.verify_runner()
                with self._watching_the_machine():
                    bisection.run()
            finally:
                self._tester.close()
                self._store.let_go()
        return self.conclusion()

    @contextlib.contextmanager
    def _watching_the_machine(self) -> Iterator[None]:
        """Note what else moved on the machine while noisy checks were run."""
        before = host_noise()
        yield
        if self._bisection is not None and self._bisection.is_noisy:
            changes = changes_between(before, host_noise())
            self._notes = (*self._notes, *(f"While it measured: {change}" for change in changes))

    @property
    def is_answered(self) -> bool:
        """Whether the observations give the answer already."""
        assert self._bisection is not None
        return not isinstance(self._bisection.move, TestNext)

    @property
    def observations(self) -> Sequence[Observation]:
        """What holds so far."""
        return self._bisection.observations if self._bisection else ()

    def conclusion(self, *, with_commits: bool = True) -> Answer:
        """Make the answer of what was observed; nothing is tested, and without commits nobody asked."""
        bisection = self._bisection
        assert bisection is not None
        look_up = self._look_up if with_commits else lambda commit: None
        return conclude(bisection, bisection.move, self._setting(), self._notes, look_up)

    def _look_up(self, commit: str) -> str | None:
        self._listener(Working("looking up the commits"))
        return main_commit(self.options.request.profile, commit, self._web, self._caller)

    def ended_early(self, error: BisectError | None) -> Answer:
        """Return what is known when ``error``, or Ctrl-C (None), ended the run."""
        return ended_early(self._bisection, self._setting(), error, self._notes)

    def _set_out(
        self,
        span: Span,
        notes: tuple[str, ...],
        prober: Prober,
        observations: Sequence[Observation],
        answers: Sequence[Asked] = (),
    ) -> None:
        options = self.options
        question = Question(
            options.ends.find,
            options.rules,
            span.walk_back,
            options.confirm,
            options.repeat,
            options.noise,
            options.sweep,
        )
        self._span = span
        self._notes = notes
        self._bisection = Bisection(
            span.slots,
            question,
            self._tester,
            prober,
            self._listener,
            self._keep,
            observations,
            answers,
            Streak().note,
        )

    def _make_room(self, coming_bytes: int) -> None:
        """Keep the cache within its budget; it may exceed it by what is in use, and then says so."""
        ends = {self._store.folder_of(wheel) for wheel in self._end_wheels()}
        room = self._cache.make_room(self.options.cache_bytes, ends, coming_bytes=coming_bytes)
        if not room.is_enough:
            self._listener(Working("the cache grows beyond --cache-size: all that is left in it is needed"))

    def _end_wheels(self) -> list[Wheel]:
        """Return the wheels at both ends, those of the range and those that it has narrowed to."""
        bisection = self._bisection
        if bisection is None:
            return []
        judged, positions = bisection.judged(), {0, len(bisection.slots) - 1}
        for verdict in (Verdict.GOOD, Verdict.BAD):
            alike = [position for position, judgement in judged.items() if judgement.verdict is verdict]
            positions |= {min(alike), max(alike)} if alike else set()
        slots = [bisection.slots[position] for position in positions]
        return [slot.wheel for slot in slots if isinstance(slot, Nightly) and slot.wheel]

    def _keep(self, learned: Observation | Asked) -> None:
        if isinstance(learned, Asked):
            self.journal.append_asked(self.options.name, learned)
        else:
            self._keep_trial(learned)

    def _keep_trial(self, observation: Observation) -> None:
        # What is unreachable is a fact about the network of this hour: resuming tries again.
        if observation.outcome is not Outcome.UNREACHABLE:
            key = trial_key(self.options, observation.wheel_sha256)
            self.journal.append(self.options.name, Kind.TRIAL, observation, key)
        if self._bisection is not None and self._bisection.is_noisy:
            self._tester.most_open = MOST_OPEN
        tested = observation.nightly.wheel
        self._store.let_go(but=[*self._end_wheels(), *([tested] if tested else [])])

    def _record(self) -> Record:
        options, span = self.options, self._span
        assert span is not None
        return Record(
            options.name,
            self._now,
            dict(options.arguments),
            options.check.folder,
            options.check.sha256,
            span.slots,
            span.walk_back,
            self._notes,
        )

    def _count(self, span: Span, unreadable: tuple[Unreadable, ...]) -> Plan:
        nightlies = [slot for slot in span.slots if isinstance(slot, Nightly)]
        usable = [n for n in nightlies if n.wheel is not None]
        trials = None if span.walk_back else 2 + most_trials(len(span.slots))
        stored = sum(self._store.is_stored(n.wheel) for n in usable if n.wheel)
        newest = usable[-1].wheel
        assert newest is not None
        size = newest.size_bytes
        if size is None:
            with contextlib.suppress(Unreachable):  # a plan without a size is a plan, too
                info = self._web.file_info(newest.url)
                size = info.size_bytes if info else None
        unlisted = sum(isinstance(slot, UnlistedDay) for slot in span.slots)
        return Plan(
            span,
            unlisted,
            len(nightlies) - len(usable),
            trials,
            CONFIRMATIONS if self.options.confirm else 0,
            None if trials is None else max(0, min(trials, len(usable) + unlisted - stored)),
            size,
            self._notes,
            unreadable,
            self.options.is_noisy,
            self.options.sweep,
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
            None if self._is_new else f"nightly-bisect resume {options.name}",
            shlex.join(reproduce_words(options, self._span)),
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


def same_machine(request: Request) -> bool:
    """Tell whether wheels for the request's platform run here."""
    return request.target.family == host_family()


def journal_path(state: Path) -> Path:
    """Return where the journal lies in the user's state folder."""
    return state / "journal.sqlite"
