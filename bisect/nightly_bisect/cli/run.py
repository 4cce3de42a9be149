"""`nightly-bisect run`, the default command."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from nightly_bisect.bisection.check import Check, command_check, script_check
from nightly_bisect.bisection.ends import Ends, refuse_misread
from nightly_bisect.bisection.functions import default_metric
from nightly_bisect.bisection.noisy import Noise
from nightly_bisect.bisection.options import Options
from nightly_bisect.bisection.session import Session, same_machine
from nightly_bisect.cli.cache import DEFAULT_SIZE, parse_size
from nightly_bisect.cli.files import write_document
from nightly_bisect.cli.request import WhatArguments, here, make_request, state_folder
from nightly_bisect.cli.screen import Screen, result_text
from nightly_bisect.errors import BisectError, StorageFault, UsageError
from nightly_bisect.index.catalog import Request
from nightly_bisect.index.dependencies import plain_requirements, read_requirements
from nightly_bisect.index.downloads import storage_faults
from nightly_bisect.judge import Counts, Rules, Threshold
from nightly_bisect.model import Find
from nightly_bisect.report.answer import Answer
from nightly_bisect.report.markdown import as_markdown
from nightly_bisect.report.result import as_json
from nightly_runners.contract import CompilerCache


@dataclass(frozen=True, kw_only=True, slots=True)
class RunArguments(WhatArguments):
    """The command line of `run`, as typer read it."""

    check: list[str]
    good: str | None = None
    bad: str | None = None
    find_fix: bool = False
    with_: list[str] | None = None
    requirements: list[Path] | None = None
    dependency_index: str | None = None
    timeout: float = 1800.0
    install_timeout: float = 1200.0
    on_crash: str = "bad"
    on_timeout: Counts = Counts.AUTO
    any_failure: bool = False
    match: str | None = None
    env: list[str] | None = None
    name: str | None = None
    keep: bool = False
    cache_size: str = DEFAULT_SIZE
    fresh: bool = False
    confirm: bool = True
    repeat: int = 1
    flaky: bool = False
    metric: str | None = None
    threshold: float | None = None
    min_effect: str = "0"
    lower_is_worse: bool = False
    confidence: float = 0.95
    sweep: int = 0
    compiler_cache: CompilerCache = CompilerCache.COLD
    budget: float = 10.0
    report: Path | None = None
    dry_run: bool = False


def run(arguments: RunArguments) -> int:
    """Run a bisection; return the exit code."""
    options = make_options(arguments, here())
    return run_session(options, arguments, datetime.now(UTC), os.environ)


def run_session(options: Options, arguments: RunArguments, now: datetime, caller: Mapping[str, str]) -> int:
    """Plan, run, and write the results."""
    screen = Screen(arguments.level)
    session = Session(options, listener=screen.show, now=now, caller=caller)

    def begin() -> bool:
        screen.plan(session.plan())
        return not arguments.dry_run

    return drive(session, begin, arguments, screen)


def drive(session: Session, begin: Callable[[], bool], arguments: RunArguments, screen: Screen) -> int:
    """Begin and run a session; what was tested is written also when an error ends it.

    ``begin`` returns whether there is anything to run.
    """
    error: BisectError | None = None
    try:
        with screen.live(), storage_faults(session.options.cache):
            if not begin():
                return 0
            answer = session.run()
    except BisectError as caught:
        error = caught
        answer = session.ended_early(caught)
    except KeyboardInterrupt:
        answer = session.ended_early(None)
    except Exception:
        bug = BisectError("A bug in nightly-bisect itself ended the run.", hint="what was tested is kept")
        finish(session.ended_early(bug), arguments, screen, bug)
        raise
    finish(answer, arguments, screen, error)
    return answer.exit_code


def make_options(arguments: RunArguments, folder: Path) -> Options:
    """Verify everything that can be verified before the network is touched.

    ``folder`` is where the user stands, or stood.
    """
    check = _check(arguments.check, folder)
    noise = _noise(arguments, check)
    request = make_request(arguments)
    if not same_machine(request):
        raise UsageError(
            f"Wheels for {request.target.family} do not run on this machine.",
            hint="--platform of another system is for `nightly-bisect list`",
        )
    _check_targets(arguments)
    ends = Ends(Find.FIX if arguments.find_fix else Find.REGRESSION, arguments.good, arguments.bad)
    refuse_misread(ends, datetime.now(UTC))
    for path in arguments.requirements or []:
        if not path.is_file():
            raise UsageError(f"-r {path}: there is no such file.", hint="give a requirements file")
    return Options(
        ends=ends,
        request=request,
        check=check,
        name=_name(arguments.name, request.profile.package),
        cache=arguments.cache,
        state=state_folder(),
        rules=_rules(arguments, check, noise),
        requirements=_requirements(arguments, request),
        requirement_files=tuple(path.absolute() for path in arguments.requirements or []),
        requirement_hashes=tuple(
            hashlib.sha256(path.read_bytes()).hexdigest() for path in arguments.requirements or []
        ),
        variables=_variables(arguments.env or [], os.environ),
        timeout_s=arguments.timeout,
        install_timeout_s=arguments.install_timeout,
        keep=arguments.keep,
        cache_bytes=parse_size("--cache-size", arguments.cache_size),
        dependency_index=arguments.dependency_index,
        profile_path=arguments.profile,
        fresh=arguments.fresh,
        confirm=arguments.confirm,
        repeat=arguments.repeat,
        noise=noise,
        sweep=_sweep(arguments),
        budget_s=arguments.budget,
        compiler_cache=arguments.compiler_cache,
        arguments=as_values(arguments),
    )


def as_values(arguments: RunArguments) -> dict[str, Any]:
    """Return the command line as JSON values; paths are made absolute, for any later folder."""
    values: dict[str, Any] = {}
    for item in fields(arguments):
        value = getattr(arguments, item.name)
        if isinstance(value, Path):
            value = str(value.absolute())
        elif item.name == "requirements" and value:
            value = [str(path.absolute()) for path in value]
        values[item.name] = value
    return values


def from_values(values: Mapping[str, Any]) -> RunArguments:
    """Return the command line that `as_values` wrote."""
    paths = ("profile", "cache_dir", "json_file", "report")
    read: dict[str, Any] = {
        name: Path(v) if name in paths and v is not None else v for name, v in values.items()
    }
    if read.get("requirements"):
        read["requirements"] = [Path(path) for path in read["requirements"]]
    if unknown := values.keys() - {item.name for item in fields(RunArguments)}:
        raise UsageError(
            f"This bisection was begun by a newer nightly-bisect: it has {', '.join(sorted(unknown))}.",
            hint="use that version to go on with it",
        )
    read.setdefault("confirm", False)  # began before there was such a thing
    read["on_timeout"] = Counts(read["on_timeout"])
    read["compiler_cache"] = CompilerCache(read.get("compiler_cache", CompilerCache.COLD))
    return RunArguments(**read)


def _requirements(arguments: RunArguments, request: Request) -> tuple[Requirement, ...]:
    """Read ``--with``, and of ``-r`` files what only the nightly index may serve."""
    asked = read_requirements(arguments.with_ or [])
    in_files = [
        requirement
        for path in arguments.requirements or []
        for requirement in plain_requirements(path.read_text(encoding="utf-8", errors="replace"))
    ]
    for requirement in (*asked, *in_files):
        if canonicalize_name(requirement.name) == request.profile.package:
            raise UsageError(
                f"The check's requirements name {requirement}, which is what is bisected.",
                hint="leave it out of --with and -r",
            )
    only_here = request.profile.index.only_here
    return (*asked, *(r for r in in_files if canonicalize_name(r.name) in only_here))


def _check_targets(arguments: RunArguments) -> None:
    """Refuse now what could not be written after hours."""
    if arguments.report is not None and arguments.report.suffix != ".md":
        raise UsageError(
            f"--report {arguments.report} does not end in .md.", hint="the report is written as Markdown"
        )
    for option, path in (("--json", arguments.json_file), ("--report", arguments.report)):
        if path is not None and str(path) != "-" and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UsageError(
                f"{option} {path} cannot be written there.", hint="name a file in a folder that exists"
            )


def _check(words: Sequence[str], folder: Path) -> Check:
    if words[0] == "--":
        if len(words) == 1:
            raise UsageError(
                "There is no command after `--`.", hint="for example `-- pytest -x test_mine.py`"
            )
        return command_check(tuple(words[1:]), folder)
    rest = list(words[1:])
    if "--" in rest:
        # The doubled one (see `with_default_command`) was the check's own.
        rest.remove("--")
    return script_check(Path(words[0]), tuple(rest), folder)


def _rules(arguments: RunArguments, check: Check, noise: Noise) -> Rules:
    try:
        match = re.compile(arguments.match) if arguments.match is not None else None
    except re.error as error:
        raise UsageError(
            f"--match {arguments.match!r} is not a regular expression: {error}.",
            hint="put a backslash before characters such as ( [ * + ?",
        ) from error
    threshold = None
    if noise.metric is not None and arguments.threshold is not None:
        threshold = Threshold(noise.metric, arguments.threshold, arguments.lower_is_worse)
    return Rules(
        Counts(arguments.on_crash),
        arguments.on_timeout,
        arguments.any_failure,
        match,
        noise.metric,
        threshold,
        by_fingerprint=check.function == "fingerprint",
    )


_MEASURING = ("benchmark", "compile_fn", "measure")
_COMPARING = ("fingerprint", "outputs")


def _noise(arguments: RunArguments, check: Check) -> Noise:
    metric = arguments.metric
    if metric is None and check.function in _MEASURING:
        metric = default_metric(check.function)
    if check.function in _COMPARING and arguments.good is None:
        raise UsageError(
            f"{check.function}() is compared with the good end's.",
            hint="name a nightly that is right with --good",
        )
    if arguments.flaky and metric is not None:
        raise UsageError(
            "--flaky is for checks that pass or fail, --metric for numbers.", hint="leave one of them out"
        )
    if metric is None:
        for option, is_given in (
            ("--threshold", arguments.threshold is not None),
            ("--lower-is-worse", arguments.lower_is_worse),
            ("--min-effect", arguments.min_effect != "0"),
        ):
            if is_given:
                raise UsageError(f"{option} needs a number.", hint="name it with --metric")
    noise = Noise(
        metric,
        arguments.flaky,
        arguments.lower_is_worse,
        _share("--min-effect", arguments.min_effect),
        arguments.confidence,
    )
    is_noisy = noise.is_flaky or (metric is not None and arguments.threshold is None)
    if is_noisy and arguments.repeat > 1:
        raise UsageError(
            "--repeat has no say where runs differ: the tool runs as often as it takes.",
            hint="leave it out; `--confidence 0.99` makes it surer",
        )
    if is_noisy and (arguments.bad if arguments.find_fix else arguments.good) is None:
        raise UsageError(
            "A noisy check needs both ends: what is noise and what is the change shows between them.",
            hint="name the earlier end with --good (with --find-fix: --bad)",
        )
    return noise


def _sweep(arguments: RunArguments) -> int:
    if arguments.sweep and (arguments.bad if arguments.find_fix else arguments.good) is None:
        raise UsageError("--sweep needs both ends of the range.", hint="name the earlier one with --good")
    if arguments.sweep in (1, 2):
        raise UsageError(f"--sweep {arguments.sweep} measures no more than the ends.", hint="use 3 or more")
    return arguments.sweep


def _share(option: str, text: str) -> float:
    """Read ``2%`` or ``0.02``."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 10:
        raise UsageError(f"{option} {text!r} is no share.", hint="write 2% or 0.02")
    return share


def _variables(asked: Sequence[str], caller: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    for item in asked:
        name, equals, value = item.partition("=")
        if not name:
            raise UsageError(
                f"--env {item!r} names no variable.", hint="write `--env NAME` or `--env NAME=VALUE`"
            )
        if not equals and name not in caller:
            raise UsageError(
                f"--env {name}: it is not set here.", hint=f"set it, or write `--env {name}=VALUE`"
            )
        variables[name] = value if equals else caller[name]
    return variables


def _name(asked: str | None, package: str) -> str:
    if asked is None:
        return f"{package}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", asked):
        raise UsageError(
            f"--name {asked!r} cannot be a name.",
            hint="use letters, digits, dots, dashes and underscores",
        )
    return asked


def finish(answer: Answer, arguments: RunArguments, screen: Screen, error: BisectError | None) -> None:
    """Print the answer and write the files, each whatever becomes of the others."""
    document = json.dumps(as_json(answer), indent=2) + "\n"
    if error is not None:
        screen.error(error.what, error.hint)
    if str(arguments.json_file) == "-":
        screen.result(document)
    elif error is None or answer.trials:
        screen.result(result_text(answer, is_error=error is not None))
    files: list[tuple[Path, str]] = []
    if arguments.json_file is not None and str(arguments.json_file) != "-":
        files.append((arguments.json_file, document))
    if arguments.report is not None:
        files.append((arguments.report, as_markdown(answer)))
    faults = []
    for path, text in files:
        try:
            write_document(path, text, "the answer stands above; `nightly-bisect replay` writes it anew")
        except StorageFault as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
