"""What a bisection depends on, and the command that asks the same again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from nightly_bisect.bisection.check import Check
from nightly_bisect.bisection.ends import Ends, Span
from nightly_bisect.bisection.noisy import Noise
from nightly_bisect.index.catalog import Request
from nightly_bisect.judge import Counts, Rules
from nightly_bisect.model import Find, Nightly, UnlistedDay
from nightly_runners.contract import CompilerCache


@dataclass(frozen=True, slots=True)
class Options:
    """All that a bisection depends on, as the user gave it. Times in seconds.

    ``arguments`` is the command line as JSON values, for resuming.
    """

    ends: Ends
    request: Request
    check: Check
    name: str
    cache: Path
    state: Path
    rules: Rules = field(default_factory=Rules)
    requirements: tuple[Requirement, ...] = ()
    requirement_files: tuple[Path, ...] = ()
    requirement_hashes: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 1800.0
    install_timeout_s: float = 1200.0
    keep: bool = False
    cache_bytes: int = 40 * 2**30
    dependency_index: str | None = None
    profile_path: Path | None = None
    fresh: bool = False
    confirm: bool = True
    repeat: int = 1
    noise: Noise = field(default_factory=Noise)
    sweep: int = 0
    budget_s: float = 10.0
    compiler_cache: CompilerCache = CompilerCache.COLD
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_noisy(self) -> bool:
        """Whether runs of one nightly are expected to differ."""
        return self.noise.is_flaky or (self.noise.metric is not None and self.rules.threshold is None)

    @property
    def logs(self) -> Path:
        """The folder for the logs of the trials."""
        return self.state / "bisections" / self.name


def reproduce_words(options: Options, span: Span | None) -> list[str]:
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
    if options.dependency_index is not None:
        words += ["--dependency-index", options.dependency_index]
    if options.timeout_s != Options.__dataclass_fields__["timeout_s"].default:
        words += ["--timeout", f"{options.timeout_s:g}"]
    if rules.on_crash is not Counts.BAD:
        words += ["--on-crash", rules.on_crash.value]
    if rules.on_timeout is not Counts.AUTO:
        words += ["--on-timeout", rules.on_timeout.value]
    if rules.any_failure:
        words.append("--any-failure")
    words += _noise_words(options)
    if options.repeat > 1:
        words += ["--repeat", str(options.repeat)]
    if not options.confirm:
        words.append("--no-confirm")
    if rules.match is not None:
        words += ["--match", rules.match.pattern]
    for item in options.arguments.get("env") or ():
        words += ["--env", item]
    if options.arguments.get("cache_dir") is not None:
        words += ["--cache-dir", options.arguments["cache_dir"]]
    if options.cache_bytes != Options.__dataclass_fields__["cache_bytes"].default:
        words += ["--cache-size", str(options.cache_bytes)]
    return [*words, *_check_words(options.check)]


def _noise_words(options: Options) -> list[str]:
    noise, threshold = options.noise, options.rules.threshold
    words = ["--flaky"] if noise.is_flaky else []
    if options.sweep:
        words += ["--sweep", str(options.sweep)]
    if options.arguments.get("metric") is not None:
        words += ["--metric", options.arguments["metric"]]
    if threshold is not None:
        words += ["--threshold", f"{threshold.value:g}"]
    if noise.lower_is_worse:
        words.append("--lower-is-worse")
    if noise.min_effect:
        words += ["--min-effect", f"{noise.min_effect:g}"]
    if options.budget_s != Options.__dataclass_fields__["budget_s"].default:
        words += ["--budget", f"{options.budget_s:g}"]
    if options.compiler_cache is not CompilerCache.COLD:
        words += ["--cache", options.compiler_cache.value]
    if noise.confidence != Noise().confidence:
        words += ["--confidence", f"{noise.confidence:g}"]
    return words


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
