"""Drive the search engine through simulated nightlies and hold it to the bars.

    python benchmarks/search_bars.py --trials 1000 --jobs 2

A simulated nightly costs 60 units to install, the first run included, and 2 for each further run. Every
scenario is seeded and drives `nightly_bisect.search` and `nightly_bisect.measure` themselves; beside them
stand simpler methods in the same worlds. Exits with 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from multiprocessing import Pool

import numpy as np

from nightly_bisect.measure.flaky import Tally, next_flaky
from nightly_bisect.measure.paired import next_paired
from nightly_bisect.measure.posterior import Decided, Run, Situation, Vector
from nightly_bisect.search import Found, Range, Side, Test, next_step

INSTALL, CHECK = 60.0, 2.0
MOST_RUNS = 20_000


class OutOfRuns(Exception):
    """A method didn't come to an end."""


@dataclass
class World:
    """Nightlies 0 … ``last``; those from ``first`` on lie after the change (none when it is beyond)."""

    last: int
    first: int
    rng: np.random.Generator
    rates: tuple[float, float] = (0.0, 1.0)
    step: float = 0.0
    noise: float = 0.0
    outliers: float = 0.0
    drift: float = 0.0
    untestable: frozenset[int] = frozenset()
    installed: set[int] = field(default_factory=set)
    cost: float = 0.0
    runs: int = 0
    trials: int = 0
    drifted: float = 0.0

    def fails(self, i: int) -> bool | None:
        """Run a check that passes or fails; None when it can't be tested."""
        self._pay(i)
        if i in self.untestable:
            return None
        return bool(self.rng.random() < self.rates[i >= self.first])

    def log_time(self, i: int) -> float:
        """Measure once; the logarithm of the time."""
        self._pay(i)
        value = (math.log1p(self.step) if i >= self.first else 0.0) + self.drifted
        value += self.rng.normal() * self.noise
        if self.outliers and self.rng.random() < self.outliers:
            value += self.rng.exponential(0.25)
        return float(value)

    def pair(self, i: int, number: int) -> float:
        """Measure a nightly beside the reference, who is first alternates; the difference of logarithms."""
        if number % 2:
            reference = self.log_time(0)
            return self.log_time(i) - reference
        candidate = self.log_time(i)
        return candidate - self.log_time(0)

    def _pay(self, i: int) -> None:
        units = CHECK if i in self.installed else INSTALL
        self.trials += i not in self.installed
        self.installed.add(i)
        self.cost += units
        self.runs += 1
        if self.runs > MOST_RUNS:
            raise OutOfRuns
        if self.drift:  # a reflected random walk of the machine's speed
            self.drifted += self.rng.normal() * self.drift * math.sqrt(units / 500)
            while abs(self.drifted) > self.drift:
                self.drifted = math.copysign(2 * self.drift, self.drifted) - self.drifted


Claim = tuple[int, int, float] | None
"""The change lies after the first position and at the second at the latest; None: no difference."""


def situation(world: World, confidence: float) -> Situation:
    """Return what the engine is told beside the evidence."""
    return Situation(
        world.last + 1,
        world.untestable & world.installed,
        frozenset(world.installed),
        INSTALL,
        CHECK,
        confidence,
    )


def engine_flaky(world: World, confidence: float = 0.95) -> Claim:
    """Ask the engine what to do until it has an answer."""
    tallies: dict[int, Tally] = {}
    while isinstance(step := next_flaky(situation(world, confidence), tallies), Run):
        for _ in range(step.runs):
            failed = world.fails(step.position)
            old = tallies.get(step.position, Tally(0, 0))
            tallies[step.position] = Tally(old.failures + bool(failed), old.runs + 1)
            if failed and step.until_failure:
                break
    return (step.before, step.after, step.confidence) if isinstance(step, Decided) else None


def engine_paired(world: World, confidence: float = 0.95) -> Claim:
    """Ask the engine what to do until it has an answer."""
    pairs: dict[int, list[float]] = {}
    while isinstance(step := next_paired(situation(world, confidence), pairs), Run):
        for _ in range(step.runs):
            found = pairs.setdefault(step.position, [])
            found.append(world.pair(step.position, len(found)))
    return (step.before, step.after, step.confidence) if isinstance(step, Decided) else None


def engine_exact(world: World) -> Claim:
    """Ask the search what to test until it has an answer; the ends are known."""
    sides, untestable = {0: Side.BEFORE, world.last: Side.AFTER}, set[int]()
    while isinstance(step := next_step(world.last + 1, sides, untestable), Test):
        failed = world.fails(step.index)
        if failed is None:
            untestable.add(step.index)
        else:
            sides[step.index] = Side.AFTER if failed else Side.BEFORE
    assert isinstance(step, Found | Range)
    return (step.index - 1, step.index, 1.0) if isinstance(step, Found) else (step.first - 1, step.last, 1.0)


def plain(world: World) -> Claim:
    """Bisect at midpoints, each nightly run once."""
    return repeated(1)(world)


def repeated(runs: int) -> Callable[[World], Claim]:
    """Bisect at midpoints; bad is what fails once in so many runs."""

    def method(world: World) -> Claim:
        low, high = 0, world.last
        while high - low > 1:
            middle = (low + high) // 2
            failed = any(world.fails(middle) for _ in range(runs))
            low, high = (low, middle) if failed else (middle, high)
        return low, high, 1.0

    return method


def medians(runs: int) -> Callable[[World], Claim]:
    """Bisect at midpoints by medians, against the middle between the ends' medians."""

    def method(world: World) -> Claim:
        def median(i: int) -> float:
            return float(np.median([world.log_time(i) for _ in range(runs)]))

        level = (median(0) + median(world.last)) / 2
        low, high = 0, world.last
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if median(middle) > level else (middle, high)
        return low, high, 1.0

    return method


def bayesect(world: World) -> Claim:
    """Follow git_bayesect's published rule: beta priors of the rates, least expected entropy, no costs."""
    last = world.last
    log_beta = np.vectorize(lambda a, b: math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b))
    runs, failures = np.zeros(last + 1), np.zeros(last + 1)
    new, old = (0.9, 0.1), (0.05, 0.95)

    def xlogx(x: Vector) -> Vector:
        result: Vector = x * np.log2(np.maximum(x, 1e-300))
        return result

    for _ in range(MOST_RUNS):
        runs_left, failures_left = np.cumsum(runs)[:-1], np.cumsum(failures)[:-1]
        runs_right, failures_right = runs.sum() - runs_left, failures.sum() - failures_left
        log_weight = log_beta(new[0] + failures_right, new[1] + runs_right - failures_right)
        log_weight = log_weight + log_beta(old[0] + failures_left, old[1] + runs_left - failures_left)
        p = np.exp(log_weight - log_weight.max())
        p /= p.sum()
        best = int(np.argmax(p))
        if p[best] >= 0.95:
            return best, best + 1, float(p[best])
        fail_new = (new[0] + failures_right) / (sum(new) + runs_right)
        fail_old = (old[0] + failures_left) / (sum(old) + runs_left)

        def split(if_new: Vector, if_old: Vector) -> Vector:
            new_side, old_side = np.cumsum(if_new), np.cumsum(if_old[::-1])[::-1]
            both: Vector = np.concatenate([[0], new_side]) + np.concatenate([old_side, [0]])
            return both

        fail, ok = split(p * fail_new, p * fail_old), split(p * (1 - fail_new), p * (1 - fail_old))
        ent_fail = split(xlogx(p * fail_new), xlogx(p * fail_old))
        ent_ok = split(xlogx(p * (1 - fail_new)), xlogx(p * (1 - fail_old)))
        i = int(np.argmin(xlogx(fail) - ent_fail + xlogx(ok) - ent_ok))
        runs[i] += 1
        failures[i] += bool(world.fails(i))
    raise OutOfRuns


def git_skip(world: World) -> Claim:
    """Bisect at midpoints; what can't be tested is skipped as git does, at a pseudo-random place near it."""
    low, high, skipped, state = 0, world.last, set[int](), 1
    while inside := [i for i in range(low + 1, high) if i not in skipped]:
        if any(low < i < high for i in skipped):
            # git: candidates by how evenly they split; one at a pseudo-random 1.5-power share of the way.
            inside.sort(key=lambda i: abs(2 * i - low - high))
            state = (state * 1103515245 + 12345) & 0xFFFFFFFF
            chance = ((state >> 16) & 0x7FFF) / 32768
            i = inside[int(len(inside) * chance**1.5)]
        else:
            i = (low + high) // 2
        failed = world.fails(i)
        if failed is None:
            skipped.add(i)
        elif failed:
            high = i
        else:
            low = i
    return low, high, 1.0


@dataclass(frozen=True)
class Scenario:
    """Worlds of one kind and the bar of the engine in them."""

    name: str
    last: int
    make: dict[str, object]
    methods: tuple[tuple[str, Callable[[World], Claim]], ...]
    least_right: float | None = None
    most_cost: float | None = None
    most_claims: float | None = None
    streaks: tuple[float, float] | None = None
    no_change: bool = False


def scenarios() -> list[Scenario]:
    """Return the rows of the table of bars."""
    rows: list[Scenario] = []
    for n in (30, 200, 800):
        rows.append(Scenario(f"exact N={n}", n, {}, (("engine", engine_exact), ("midpoints", plain)), 1.0))
    for share in (0.1, 0.3):
        for length in (1.0, 4.0):
            name = f"untestable {share:.0%}" + (" in streaks of 4" if length > 1 else "")
            methods = (("engine", engine_exact), ("git's skip", git_skip))
            rows.append(Scenario(name, 200, {}, methods, 1.0, streaks=(share, length)))
    simple = (("once", plain), ("5 times", repeated(5)), ("git_bayesect", bayesect))
    for n, bars in ((200, (760, 870, 1330, 710)), (800, (910, 1040, 1580, 850))):
        for rates, bar in zip(((0.0, 0.5), (0.0, 0.3), (0.0, 0.1), (0.1, 0.9)), bars, strict=True):
            name = f"flaky ({rates[1]}, {rates[0]}) N={n}"
            rows.append(Scenario(name, n, {"rates": rates}, (("engine", engine_flaky), *simple), 0.95, bar))
    few = (("median of 5", medians(5)), ("median of 15", medians(15)))
    for noise, outliers, drift, limits in (
        (0.02, 0.0, 0.0, {0.03: (0.95, 1250), 0.05: (0.97, 900), 0.1: (0.99, 750), 0.3: (0.99, 750)}),
        (0.05, 0.0, 0.0, {0.03: (0.90, 3000), 0.05: (0.95, 1700), 0.1: (0.98, 1000)}),
        (0.02, 0.05, 0.05, {0.03: (0.95, 1400), 0.05: (0.97, 1000), 0.1: (0.99, 800)}),
    ):
        for step, (right, cost) in limits.items():
            name = f"step {step:.0%}, noise {noise:.0%}" + (", outliers and drift" if outliers else "")
            make: dict[str, object] = {"step": step, "noise": noise, "outliers": outliers, "drift": drift}
            rows.append(Scenario(name, 200, make, (("engine", engine_paired), *few), right, cost))
    for q in (0.0, 0.3):
        make = {"rates": (q, q)}
        rows.append(
            Scenario(
                f"no change, flaky {q}",
                200,
                make,
                (("engine", engine_flaky),),
                most_claims=0.01,
                no_change=True,
            )
        )
    for noise, outliers, drift in ((0.02, 0.0, 0.0), (0.02, 0.05, 0.05)):
        make = {"noise": noise, "outliers": outliers, "drift": drift}
        name = f"no change, noise {noise:.0%}" + (", outliers and drift" if outliers else "")
        rows.append(Scenario(name, 200, make, (("engine", engine_paired),), most_claims=0.01, no_change=True))
    return rows


def broken_nights(last: int, rng: np.random.Generator, share: float, length: float) -> frozenset[int]:
    """Return untestable nightlies between the ends: single ones, or streaks of a mean length."""
    if length <= 1:
        return frozenset(int(i) for i in range(1, last) if rng.random() < share)
    leave = 1 / length
    enter = leave * share / (1 - share)
    is_broken, broken = bool(rng.random() < share), set()
    for i in range(1, last):
        if is_broken:
            broken.add(i)
        is_broken = bool(rng.random() >= leave) if is_broken else bool(rng.random() < enter)
    return frozenset(broken)


@dataclass(frozen=True)
class Row:
    """How one method did in one world."""

    is_right: bool
    has_claimed: bool
    cost: float
    trials: int
    confidence: float
    longest_s: float


def play(job: tuple[int, int, int, int]) -> Row:
    """Run one method of a scenario in one seeded world."""
    number, method, seed, trial = job
    scenario = scenarios()[number]
    rng = np.random.default_rng([seed, number, trial])
    first = scenario.last + 1 if scenario.no_change else int(rng.integers(1, scenario.last + 1))
    broken = broken_nights(scenario.last, rng, *scenario.streaks) if scenario.streaks else frozenset()
    world = World(scenario.last, first, rng, untestable=broken, **scenario.make)  # type: ignore[arg-type]
    started = time.perf_counter()
    try:
        claim = scenario.methods[method][1](world)
    except OutOfRuns:
        claim = None
    took = time.perf_counter() - started
    right = claim is not None and claim[0] < first <= claim[1]
    if claim is not None and scenario.streaks:
        # The range must hold the truth, and nothing that could be tested.
        right = right and all(i in broken for i in range(claim[0] + 1, claim[1]))
    elif claim is not None:
        right = right and claim[1] == claim[0] + 1
    each = took / max(world.runs, 1)
    return Row(right, claim is not None, world.cost, world.trials, claim[2] if claim else 0.0, each)


def judge_rows(scenario: Scenario, rows: list[Row], others: dict[str, list[Row]]) -> list[str]:
    """Return which bars the engine's rows miss."""
    missed = []
    right, cost = np.mean([r.is_right for r in rows]), np.mean([r.cost for r in rows])
    if scenario.least_right is not None and right < scenario.least_right:
        missed.append(f"right {right:.1%} < {scenario.least_right:.0%}")
    if scenario.most_cost is not None and cost > scenario.most_cost:
        missed.append(f"cost {cost:.0f} > {scenario.most_cost:.0f}")
    if scenario.most_claims is not None:
        claims = np.mean([r.has_claimed for r in rows])
        if claims > scenario.most_claims:
            missed.append(f"claims {claims:.1%} > {scenario.most_claims:.0%}")
    if scenario.name.startswith("exact"):
        depth = math.ceil(math.log2(scenario.last))
        best = depth - (2**depth - scenario.last) / scenario.last
        trials = [r.trials for r in rows]
        if max(trials) > depth or np.mean(trials) > best + 0.05:
            missed.append(f"trials {np.mean(trials):.2f}, at most {max(trials)} > {best:.2f}, {depth}")
    if scenario.streaks:
        theirs = np.mean([r.trials for r in others["git's skip"]])
        if np.mean([r.trials for r in rows]) > theirs:
            missed.append(f"trials {np.mean([r.trials for r in rows]):.2f} > git's skip {theirs:.2f}")
    claimed = [r for r in rows if r.has_claimed]
    if scenario.most_cost is not None and claimed and np.mean([r.is_right for r in claimed]) < 0.95:
        missed.append(f"right in {np.mean([r.is_right for r in claimed]):.1%} of its claims at 0.95")
    return missed


def main(words: Iterable[str] | None = None) -> int:
    """Print the table; return 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="rows whose name holds one of these words, by commas")
    parser.add_argument("--engine-only", action="store_true", help="leave the simpler methods out")
    arguments = parser.parse_args(None if words is None else list(words))
    wanted = [word for word in arguments.only.split(",") if word]
    failed = False
    with Pool(arguments.jobs) as pool:
        for number, scenario in enumerate(scenarios()):
            if wanted and not any(word in scenario.name for word in wanted):
                continue
            found: dict[str, list[Row]] = {}
            for method, (name, _) in enumerate(scenario.methods):
                if method and arguments.engine_only and not scenario.streaks:
                    continue
                trials = (
                    arguments.trials
                    if method == 0
                    else arguments.trials
                    if scenario.streaks
                    else min(arguments.trials, 200)
                )
                jobs = [(number, method, arguments.seed, trial) for trial in range(trials)]
                found[name] = pool.map(play, jobs, chunksize=10)
            for name, rows in found.items():
                claims = [r for r in rows if r.has_claimed]
                print(
                    f"{scenario.name:<42} {name:<13} right {np.mean([r.is_right for r in rows]):7.1%}  "
                    f"claims {len(claims) / len(rows):7.1%}  cost {np.mean([r.cost for r in rows]):7.0f}  "
                    f"trials {np.mean([r.trials for r in rows]):6.2f}  "
                    f"{1000 * np.mean([r.longest_s for r in rows]):6.1f} ms a run",
                    flush=True,
                )
            missed = judge_rows(scenario, found["engine"], found)
            print(
                f"{scenario.name:<42} {'MISSED: ' + '; '.join(missed) if missed else 'bars met'}", flush=True
            )
            failed |= bool(missed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
