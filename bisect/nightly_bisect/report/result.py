"""The answer as the JSON of docs/json.md. Keys are only ever added."""

from __future__ import annotations

import math
from typing import Any

from nightly_bisect.judge import Judgement
from nightly_bisect.model import Estimate, Observation
from nightly_bisect.report.answer import Answer, Build, Status

SCHEMA = 1


def as_json(answer: Answer) -> dict[str, Any]:
    """Return the result document."""
    setting = answer.setting
    last, first = (word.replace(" ", "_") for word in answer.words)
    return {
        "schema": SCHEMA,
        "status": answer.status.value,
        "exit_code": answer.exit_code,
        "find": setting.find.value,
        "package": setting.package,
        "channel": setting.channel,
        "target": setting.target,
        "sentence": answer.sentence,
        "hint": answer.hint,
        last: _build(answer.before),
        first: _build(answer.first),
        "suspects": [_build(s.build, reason=s.reason) for s in answer.suspects],
        "confidence": _confidence(answer),
        "compare_url": answer.compare_url,
        "dependency_changes": [
            {"name": c.name, "before": c.before, "after": c.after} for c in answer.dependency_changes
        ],
        "metric": _metric(answer.estimate),
        "changes": [
            {"after": _build(s.before), "at_latest": _build(s.after), "text": s.text} for s in answer.shifts
        ],
        "trials": [_trial(seen, judgement) for seen, judgement in answer.trials],
        "notes": list(answer.notes),
        "bisection": setting.bisection,
        "reproduce": setting.reproduce,
        "resume": setting.resume,
    }


def _confidence(answer: Answer) -> float | None:
    if answer.confidence is not None:
        return round(answer.confidence, 4)
    # Deterministic checks: certain, as far as the check itself is.
    return 1.0 if answer.status is Status.FOUND else None


def _metric(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {
        "name": estimate.metric or "failure_rate",
        "unit": estimate.unit,
        "before": estimate.before,
        "after": estimate.after,
        "change": estimate.change if math.isfinite(estimate.change) else None,
        "interval": list(estimate.interval) if estimate.interval else None,
    }


def _build(build: Build | None, **more: Any) -> dict[str, Any] | None:
    if build is None:
        return None
    return {
        "date": build.date,
        "version": build.version,
        "commit": build.commit,
        "main_commit": build.main_commit,
        **more,
    }


def _trial(seen: Observation, judgement: Judgement) -> dict[str, Any]:
    return {
        "date": str(seen.nightly.stamp),
        "version": seen.nightly.version,
        "commit": seen.commit,
        "wheel_sha256": seen.wheel_sha256,
        "verdict": judgement.verdict.value,
        "outcome": seen.outcome.value,
        "repeat": seen.repeat,
        "reason": judgement.reason,
        "samples": [{"metric": m.name, "unit": m.unit, "value": m.value} for m in seen.metrics],
        "reference": seen.reference,
        "beside": [{"metric": m.name, "unit": m.unit, "value": m.value} for m in seen.beside],
        "fingerprint": seen.fingerprint,
        "install_s": _rounded(seen.install_s),
        "check_s": _rounded(seen.check_s),
        "python": seen.python,
        "installed": {i.name: i.version for i in seen.installed},
        "signature": str(seen.signature) if seen.signature else None,
        "log": str(seen.log) if seen.log else None,
        "notes": list(seen.notes),
    }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
