"""Verdicts of earlier bisections: the same check over the same bytes need not run again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from nightly_bisect.bisection.options import Options
from nightly_bisect.journal import Journal
from nightly_bisect.model import Nightly, Observation, Outcome

# What the check itself decided; everything else may have passed by itself since.
_REUSABLE = (Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED)


def trial_key(options: Options, wheel_sha256: str | None) -> str | None:
    """Return what must be equal for a verdict to hold again; None where that cannot be known.

    A plain command runs files that are not known here, so only a script's verdicts are reused.
    """
    check = options.check
    if wheel_sha256 is None or check.script is None:
        return None
    parts = {
        "wheel": wheel_sha256,
        "check": check.sha256,
        "arguments": check.argv[2:] if check.argv[0] == "python" else check.argv[1:],
        "python": options.request.target.python,
        "requirements": [str(requirement) for requirement in options.requirements],
        "files": [hashlib.sha256(p.read_bytes()).hexdigest() for p in options.requirement_files],
        "dependency index": options.dependency_index,
        "variables": dict(options.variables),
        "timeout_s": options.timeout_s,
        "match": options.rules.match.pattern if options.rules.match else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Reuse:
    """Looks up what the journal knows of a wheel's bytes."""

    def __init__(self, options: Options, journal: Journal) -> None:
        self._options = options
        self._journal = journal

    def earlier(self, nightly: Nightly, wheel_sha256: str) -> Observation | None:
        """Return an earlier trial's observation, with a note of where it comes from."""
        key = trial_key(self._options, wheel_sha256)
        found = self._journal.earlier(key) if key and not self._options.fresh else None
        if found is None or found[1].outcome not in _REUSABLE:
            return None
        name, observation = found
        note = f"verdict taken from the bisection {name} (--fresh tests anew)"
        return replace(observation, nightly=nightly, notes=(note,))

    def rebuilt(self, nightly: Nightly, wheel_sha256: str) -> str | None:
        """Say that other bytes were once tested under the same name."""
        if nightly.wheel is None:
            return None
        other = self._journal.other_bytes(nightly.wheel.url, wheel_sha256)
        if other is None:
            return None
        return f"rebuilt: {nightly.wheel.filename} was {other[:16]} when it was tested before"
