"""How a nightly's check is to be run: what the loop asks of the tester."""

from __future__ import annotations

from dataclasses import dataclass

from nightly_bisect.model import Nightly


@dataclass(frozen=True, slots=True)
class Visit:
    """``runs`` of the check, numbered from ``first_repeat``, in a new environment if ``afresh``.

    With a ``reference`` each run is a pair: that nightly's check runs right before or after it.
    ``until_failure``: what follows a run that did not pass is left out.
    """

    runs: int = 1
    first_repeat: int = 0
    reference: Nightly | None = None
    afresh: bool = False
    until_failure: bool = False

    @property
    def is_single(self) -> bool:
        """Whether one verdict is all that is wanted."""
        return self.runs == 1 and self.reference is None
