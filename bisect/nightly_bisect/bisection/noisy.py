"""The course of a bisection whose runs differ: checks that fail now and then, numbers with noise. Pure.

Gathers from the runs of each nightly what the engine in `nightly_bisect.measure` goes by, and turns its
decision into the next move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Find, Observation, Verdict

_INSTALL_S, _CHECK_S = 60.0, 2.0


@dataclass(frozen=True, slots=True)
class Noise:
    """What is known and wanted of a noisy check.

    ``metric`` is the number that is compared, None for pass and fail. ``min_effect`` is the smallest
    relative change that matters. ``confidence`` is wanted of the answer.
    """

    metric: str | None = None
    is_flaky: bool = False
    lower_is_worse: bool = False
    min_effect: float = 0.0
    confidence: float = 0.95


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that an environment and a run take, as measured so far."""

    install_s: float
    check_s: float


def costs(runs: Mapping[int, Sequence[Observation]]) -> Costs:
    """Return the means of what was measured; a guess before there is anything."""
    every = [o for of_one in runs.values() for o in of_one]
    installs = [o.install_s for o in every if o.install_s]
    checks = [o.check_s for o in every if o.check_s]
    return Costs(
        sum(installs) / len(installs) if installs else _INSTALL_S,
        max(sum(checks) / len(checks), 1e-3) if checks else _CHECK_S,
    )


def tallies(judged: Mapping[int, Sequence[Judgement]], find: Find) -> dict[int, tuple[int, int]]:
    """Return the runs of each nightly that lie on the later side's kind, and all that tell something.

    The later side fails more often where a regression is looked for, less often for a fix.
    """
    late = Verdict.BAD if find is Find.REGRESSION else Verdict.GOOD
    counted = {
        i: [j.verdict is late for j in of_one if j.verdict in (Verdict.GOOD, Verdict.BAD)]
        for i, of_one in judged.items()
    }
    return {i: (sum(alike), len(alike)) for i, alike in counted.items() if alike}


def has_two_verdicts(judged: Mapping[int, Sequence[Judgement]]) -> bool:
    """Tell whether a nightly passed and failed: its check is flaky, or the machine is."""
    return any({Verdict.GOOD, Verdict.BAD} <= {j.verdict for j in of_one} for of_one in judged.values())


def differences(of_one: Sequence[Observation], metric: str) -> list[float]:
    """Return the logarithms of candidate over reference, one for each pair that measured both."""
    pairs = []
    for seen in of_one:
        value, beside = seen.metric(metric), seen.beside_metric(metric)
        if value is not None and beside is not None and value > 0 and beside > 0:
            pairs.append(math.log(value / beside))
    return pairs
