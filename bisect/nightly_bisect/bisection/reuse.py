"""Verdicts of earlier bisections: the same check over the same bytes need not run again."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import replace
from pathlib import Path

from nightly_bisect.bisection.options import Options
from nightly_bisect.journal import Journal
from nightly_bisect.model import Nightly, Observation, Outcome

# What the check itself decided; everything else may have passed by itself since.
TAKEN = "verdict taken from the bisection"

_MOST_MODULES = 500
_REUSABLE = (Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED)


def trial_key(options: Options, wheel_sha256: str | None) -> str | None:
    """Return what must be equal for a verdict to hold again; None where that cannot be known.

    A plain command runs files that are not known here, so only a script's verdicts are reused, and only
    with the same modules beside it, in the same folder of the same machine.
    """
    check = options.check
    if wheel_sha256 is None or check.script is None or check.function == "outputs":
        return None
    parts = {
        "wheel": wheel_sha256,
        "check": check.sha256,
        "arguments": check.argv[2:] if check.argv[0] == "python" else check.argv[1:],
        "python": options.request.target.python,
        "requirements": [str(requirement) for requirement in options.requirements],
        "requirement files": options.requirement_hashes,
        "beside": _modules_beside(check.script),
        "folder": str(check.folder),
        "machine": platform.node(),
        "dependency index": options.dependency_index,
        "variables": dict(options.variables),
        "timeout_s": options.timeout_s,
        "compiler cache": options.compiler_cache.value,
        "match": options.rules.match.pattern if options.rules.match else None,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _modules_beside(script: Path) -> dict[str, str]:
    """Return the hashes of the modules that a script can import from its own folder."""
    modules = sorted(script.parent.glob("*.py"))[:_MOST_MODULES]
    return {
        module.name: hashlib.sha256(module.read_bytes()).hexdigest() for module in modules if module.is_file()
    }


class Reuse:
    """Looks up what the journal knows of a wheel's bytes."""

    def __init__(self, options: Options, journal: Journal) -> None:
        self._options = options
        self._journal = journal

    def earlier(self, nightly: Nightly, wheel_sha256: str, repeat: int) -> Observation | None:
        """Return what an earlier bisection saw in its run of that number, with a note of where it comes from."""
        key = None if self._options.fresh else trial_key(self._options, wheel_sha256)
        found = self._journal.earlier(key, repeat, self._options.name) if key else None
        if found is None or found[1].outcome not in _REUSABLE:
            return None
        name, observation = found
        note = f"{TAKEN} {name} (--fresh tests anew)"
        others = tuple(other for other in observation.notes if not other.startswith(TAKEN))
        return replace(observation, nightly=nightly, notes=(*others, note))

    def rebuilt(self, nightly: Nightly, wheel_sha256: str) -> str | None:
        """Say that other bytes were once tested under the same name."""
        if nightly.wheel is None:
            return None
        other = self._journal.other_bytes(nightly.wheel.url, wheel_sha256)
        if other is None:
            return None
        return f"rebuilt: {nightly.wheel.filename} was {other[:16]} when it was tested before"
