"""What a bisection tells while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Observation


@dataclass(frozen=True, slots=True)
class Working:
    """Something goes on: ``what`` is a phrase such as "installing 2.5.0.dev20240602"."""

    what: str


@dataclass(frozen=True, slots=True)
class Downloading:
    """Bytes came; ``expected_bytes`` is None where the server does not say."""

    filename: str
    received_bytes: int
    expected_bytes: int | None


@dataclass(frozen=True, slots=True)
class Tested:
    """A trial ended; ``steps_left`` may follow if all can be tested (None: not known yet)."""

    observation: Observation
    judgement: Judgement
    steps_left: int | None


Event = Working | Downloading | Tested
Listener = Callable[[Event], None]
