"""`nightly-bisect run`, the default command."""

from __future__ import annotations

import json
import os
import re
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from nightly_bisect.bisection.check import Check, command_check, script_check
from nightly_bisect.bisection.ends import Ends
from nightly_bisect.bisection.options import Options
from nightly_bisect.bisection.session import Session, same_machine
from nightly_bisect.cli.request import WhatArguments, make_request
from nightly_bisect.cli.screen import Screen, result_text
from nightly_bisect.errors import BisectError, StorageFault, UsageError
from nightly_bisect.index.dependencies import read_requirements
from nightly_bisect.judge import Counts, Rules
from nightly_bisect.model import Find
from nightly_bisect.report.answer import Answer
from nightly_bisect.report.markdown import as_markdown
from nightly_bisect.report.result import as_json


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
    report: Path | None = None
    dry_run: bool = False


def run(arguments: RunArguments) -> int:
    """Run a bisection; return the exit code."""
    return run_session(make_options(arguments), arguments, datetime.now(UTC), os.environ)


def run_session(options: Options, arguments: RunArguments, now: datetime, caller: Mapping[str, str]) -> int:
    """Plan, run, and write the results; what was tested is written also when an error ends it."""
    screen = Screen(arguments.level)
    session = Session(options, listener=screen.show, now=now, caller=caller)
    error: BisectError | None = None
    try:
        with screen.live():
            plan = session.plan()
            screen.plan(plan)
            if arguments.dry_run:
                return 0
            answer = session.run()
    except BisectError as caught:
        error = caught
        answer = session.ended_early(caught)
    except KeyboardInterrupt:
        answer = session.ended_early(None)
    _finish(answer, arguments, screen, error)
    return answer.exit_code


def make_options(arguments: RunArguments) -> Options:
    """Verify everything that can be verified before the network is touched."""
    check = _check(arguments.check)
    request = make_request(arguments)
    if not same_machine(request):
        raise UsageError(
            f"Wheels for {request.target.family} do not run on this machine.",
            hint="--platform of another system is for `nightly-bisect list`",
        )
    if arguments.report is not None and arguments.report.suffix != ".md":
        raise UsageError(
            f"--report {arguments.report} does not end in .md.",
            hint="the report is written as Markdown",
        )
    for path in arguments.requirements or []:
        if not path.is_file():
            raise UsageError(f"-r {path}: there is no such file.", hint="give a requirements file")
    return Options(
        ends=Ends(Find.FIX if arguments.find_fix else Find.REGRESSION, arguments.good, arguments.bad),
        request=request,
        check=check,
        name=_name(arguments.name, request.profile.package),
        cache=arguments.cache,
        state=Path(platformdirs.user_state_dir("nightly-bisect")),
        rules=_rules(arguments),
        requirements=tuple(read_requirements(arguments.with_ or [])),
        requirement_files=tuple(path.absolute() for path in arguments.requirements or []),
        variables=_variables(arguments.env or [], os.environ),
        timeout_s=arguments.timeout,
        install_timeout_s=arguments.install_timeout,
        keep=arguments.keep,
        dependency_index=arguments.dependency_index,
        profile_path=arguments.profile,
    )


def _check(words: Sequence[str]) -> Check:
    folder = Path.cwd()
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


def _rules(arguments: RunArguments) -> Rules:
    try:
        match = re.compile(arguments.match) if arguments.match is not None else None
    except re.error as error:
        raise UsageError(
            f"--match {arguments.match!r} is not a regular expression: {error}.",
            hint="put a backslash before characters such as ( [ * + ?",
        ) from error
    return Rules(Counts(arguments.on_crash), arguments.on_timeout, arguments.any_failure, match)


def _variables(asked: Sequence[str], caller: Mapping[str, str]) -> dict[str, str]:
    variables = {}
    for item in asked:
        name, equals, value = item.partition("=")
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


def _finish(answer: Answer, arguments: RunArguments, screen: Screen, error: BisectError | None) -> None:
    """Print the answer, then write the files: a full disk must not keep it from the screen."""
    to_stdout = arguments.json_file is not None and str(arguments.json_file) == "-"
    if error is not None:
        screen.error(error.what, error.hint)
    if to_stdout:
        sys.stdout.write(json.dumps(as_json(answer), indent=2) + "\n")
    elif error is None or answer.trials:
        sys.stdout.write(result_text(answer))
    sys.stdout.flush()
    if arguments.json_file is not None and not to_stdout:
        _write(arguments.json_file, json.dumps(as_json(answer), indent=2) + "\n")
    if arguments.report is not None:
        _write(arguments.report, as_markdown(answer))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageFault(
            f"{path} cannot be written: {error.strerror}.",
            hint="the answer stands above; choose another file",
        ) from error
