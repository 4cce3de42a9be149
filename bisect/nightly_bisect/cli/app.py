"""The typer application: what each command and option is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

import nightly_bisect
from nightly_bisect.cli.config_file import configured_defaults
from nightly_bisect.cli.request import here
from nightly_bisect.judge import Counts
from nightly_bisect.model import Verdict
from nightly_runners.contract import CompilerCache

app = typer.Typer(
    name="nightly-bisect",
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
)

_ENDS = "Range"
_WHAT = "What to bisect"
_CHECK = "The check"
_NOISE = "Numbers and noise"
_OUTPUT = "Output"
_STATE = "State and disk"

Package = Annotated[
    str,
    typer.Option("-p", "--package", metavar="NAME", help="Package to bisect.", rich_help_panel=_WHAT),
]
ProfileFile = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help="A profile of your own (docs/profiles.md).",
        rich_help_panel=_WHAT,
    ),
]
Channel = Annotated[
    str | None,
    typer.Option(
        "--channel", metavar="NAME",
        help="cpu, cu126, cu130, rocm6.4, xpu …, or `release` for stable releases.", rich_help_panel=_WHAT,
    ),
]  # fmt: skip
Python = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="X.Y",
        help="Python of the trials; default: this one.",
        rich_help_panel=_WHAT,
    ),
]
Platform = Annotated[
    str | None,
    typer.Option(
        "--platform",
        metavar="NAME",
        help="For example linux_x86_64; default: this machine.",
        rich_help_panel=_WHAT,
    ),
]
IndexUrl = Annotated[
    str | None,
    typer.Option(
        "--index-url", metavar="URL",
        help="Another index root for this channel: URL/PROJECT/ lists the wheels.", rich_help_panel=_WHAT,
    ),
]  # fmt: skip
AllBuilds = Annotated[
    bool,
    typer.Option("--all-builds", help="Every build of a day, not only its last.", rich_help_panel=_WHAT),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Where wheels and environments go.",
        rich_help_panel=_STATE,
    ),
]
CacheSize = Annotated[
    str,
    typer.Option(
        "--cache-size",
        metavar="SIZE",
        help="What the cache may take; what was used least recently is removed.",
        rich_help_panel=_STATE,
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print the answer only.", rich_help_panel=_OUTPUT)]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Print what is going on.", rich_help_panel=_OUTPUT)
]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nightly-bisect {nightly_bisect.__version__}")
        raise typer.Exit


@app.callback(
    epilog="[bold]nightly-bisect --good 2024-05-01 --bad today check.py[/] is short for "
    "[bold]nightly-bisect run …[/]. See [bold]nightly-bisect run --help[/] for its options."
)
def _application(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Find the first bad PyTorch nightly.

    Give a day on which your check passed, a later one on which it fails, and the check:

      nightly-bisect --good 2024-05-01 --bad today check.py

      nightly-bisect --good 2024-05-01 -- python -m pytest -x test_mine.py

      nightly-bisect demo        shows a whole run in seconds, without PyTorch
    """


@app.command(
    "run",
    context_settings={"allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
    epilog="WHEN is 2024-05-01, 20240501, dev20240501, today, yesterday, latest, a nightly's full "
    "version, or a release such as 2.4. "
    "Exit codes: 0 found · 2 usage · 3 only a range of suspects · 4 an end does not behave as claimed · "
    "5 index or network · 6 nothing installable · 7 storage · 8 the check cannot run · 70 our own bug · "
    "130 interrupted.",
)
def run_command(
    check: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECK.py [ARGS…] | -- COMMAND [ARGS…]",
            help="Your check: exit 0 is good, 1–124 bad, 125 skip. Words after it are its own.",
            show_default=False,
        ),
    ],
    good: Annotated[
        str | None,
        typer.Option(
            "-g",
            "--good",
            metavar="WHEN",
            help="A nightly that passes. Without it the tool walks back until one does.",
            rich_help_panel=_ENDS,
        ),
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--bad",
            metavar="WHEN",
            help="A nightly that fails. Default: the latest.",
            rich_help_panel=_ENDS,
            show_default=False,
        ),
    ] = None,
    find_fix: Annotated[
        bool,
        typer.Option(
            "--find-fix",
            help="--bad is the earlier end: find where it passes again.",
            rich_help_panel=_ENDS,
        ),
    ] = False,
    package: Package = "torch",
    profile: ProfileFile = None,
    channel: Channel = None,
    python: Python = None,
    platform: Platform = None,
    index_url: IndexUrl = None,
    all_builds: AllBuilds = False,
    with_: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="REQ",
            help="A further package that the check needs (repeatable).",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    requirements: Annotated[
        list[Path] | None,
        typer.Option(
            "-r",
            "--requirements",
            metavar="FILE",
            help="A requirements file for the check (repeatable).",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    dependency_index: Annotated[
        str | None,
        typer.Option(
            "--dependency-index",
            metavar="URL",
            help="Where dependencies come from, instead of the default package index.",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="SECONDS", min=0.1, help="For each check.", rich_help_panel=_CHECK),
    ] = 1800.0,
    install_timeout: Annotated[
        float,
        typer.Option(
            "--install-timeout",
            metavar="SECONDS",
            min=1,
            help="For each install.",
            rich_help_panel=_CHECK,
        ),
    ] = 1200.0,
    on_crash: Annotated[
        Literal["bad", "untestable"],
        typer.Option(
            "--on-crash",
            help="What a crash (SIGSEGV, SIGABRT …) counts as.",
            rich_help_panel=_CHECK,
        ),
    ] = "bad",
    on_timeout: Annotated[
        Counts,
        typer.Option(
            "--on-timeout",
            help="What a time-out counts as; auto: bad if the bad end times out and the good end doesn't.",
            rich_help_panel=_CHECK,
        ),
    ] = Counts.AUTO,
    any_failure: Annotated[
        bool,
        typer.Option(
            "--any-failure",
            help="Every failure is bad, also other ones than the bad end's.",
            rich_help_panel=_CHECK,
        ),
    ] = False,
    match: Annotated[
        str | None,
        typer.Option(
            "--match",
            metavar="REGEX",
            help="Only a failure whose output matches is bad.",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            help="Pass a variable to the check (repeatable).",
            rich_help_panel=_CHECK,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="A name for this bisection.", rich_help_panel=_STATE),
    ] = None,
    cache_dir: CacheDir = None,
    cache_size: CacheSize = "40GiB",
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Keep the environments of the trials.", rich_help_panel=_STATE),
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh", help="Test anew what an earlier bisection tested already.", rich_help_panel=_STATE
        ),
    ] = False,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            metavar="N",
            min=1,
            help="A nightly is good only if the check passes N times there.",
            rich_help_panel=_NOISE,
        ),
    ] = 1,
    flaky: Annotated[
        bool,
        typer.Option(
            "--flaky",
            help="The check fails only now and then: find where it begins to, or fails more often.",
            rich_help_panel=_NOISE,
        ),
    ] = False,
    metric: Annotated[
        str | None,
        typer.Option(
            "--metric",
            metavar="NAME",
            help="Compare this number instead of pass and fail (docs/numbers.md).",
            rich_help_panel=_NOISE,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold",
            metavar="X",
            help="Above it a run is bad; no noise is reckoned with.",
            rich_help_panel=_NOISE,
        ),
    ] = None,
    min_effect: Annotated[
        str,
        typer.Option(
            "--min-effect",
            metavar="SHARE",
            help="The smallest change that matters, 2% or 0.02.",
            rich_help_panel=_NOISE,
        ),
    ] = "0",
    lower_is_worse: Annotated[
        bool,
        typer.Option("--lower-is-worse", help="A smaller number is worse.", rich_help_panel=_NOISE),
    ] = False,
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="P",
            min=0.5,
            max=0.9999,
            help="How sure a noisy answer must be.",
            rich_help_panel=_NOISE,
        ),
    ] = 0.95,
    sweep: Annotated[
        int,
        typer.Option(
            "--sweep",
            metavar="[N]",
            min=0,
            help="Measure N nightlies (9) spread over the range, and tell every change.",
            rich_help_panel=_NOISE,
            show_default=False,
        ),
    ] = 0,
    compiler_cache: Annotated[
        CompilerCache,
        typer.Option(
            "--cache", help="compile_fn(): the state of the compiler's caches.", rich_help_panel=_NOISE
        ),
    ] = CompilerCache.COLD,
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            metavar="SECONDS",
            min=0.1,
            help="benchmark(): for one run's samples.",
            rich_help_panel=_NOISE,
        ),
    ] = 10.0,
    confirm: Annotated[
        bool,
        typer.Option(
            "--confirm/--no-confirm",
            help="Run both sides of the change once more before that is the answer.",
            rich_help_panel=_NOISE,
        ),
    ] = True,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the result as JSON (- for stdout).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.md",
            help="Write a text ready for an issue.",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan and its cost, and stop.", rich_help_panel=_OUTPUT),
    ] = False,
) -> None:
    """Find the first bad nightly (the default command).

    Both ends are tested first. Then each trial installs one nightly into a fresh environment,
    verifies what was installed, and runs the check in the folder where you stand.
    """
    from nightly_bisect.cli.run import RunArguments, run

    arguments = RunArguments(**{n: v for n, v in locals().items() if n in RunArguments.__dataclass_fields__})
    raise typer.Exit(run(arguments))


@app.command("list")
def list_command(
    package: Package = "torch",
    profile: ProfileFile = None,
    channel: Channel = None,
    python: Python = None,
    platform: Platform = None,
    index_url: IndexUrl = None,
    all_builds: AllBuilds = False,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="WHEN", help="From this day on.", rich_help_panel=_ENDS),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="WHEN", help="Up to this day.", rich_help_panel=_ENDS),
    ] = None,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            help="Also ask for days since --since that the page no longer lists.",
            rich_help_panel=_ENDS,
        ),
    ] = False,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the list as JSON (- for stdout).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    cache_dir: CacheDir = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """List the nightlies that exist, oldest first."""
    from nightly_bisect.cli.listing import ListArguments, show_list

    arguments = ListArguments(
        **{n: v for n, v in locals().items() if n in ListArguments.__dataclass_fields__}
    )
    raise typer.Exit(show_list(arguments))


@app.command("demo")
def demo_command(
    verbose: Verbose = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE.md", help="Write a text ready for an issue."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")
    ] = None,
) -> None:
    """Show a whole run in seconds: real installs of small stand-in nightlies, no PyTorch needed."""
    from nightly_bisect.cli.demo import demo

    raise typer.Exit(demo(verbose=verbose, report=report, json_file=json_file))


Name = Annotated[str, typer.Argument(metavar="NAME", help="The bisection; `status` lists them.")]


@app.command("status")
def status_command() -> None:
    """Show all bisections and where each stands."""
    from nightly_bisect.cli.history import show_status

    raise typer.Exit(show_status())


@app.command("resume")
def resume_command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Default: the last one that was interrupted.")
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Go on with a bisection; nothing is tested twice."""
    from nightly_bisect.cli.history import resume

    raise typer.Exit(resume(name, quiet=quiet, verbose=verbose))


@app.command("log")
def log_command(
    name: Name,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write it as JSON (- for stdout).")
    ] = None,
) -> None:
    """Show every observation of a bisection."""
    from nightly_bisect.cli.history import show_log

    raise typer.Exit(show_log(name, json_file))


@app.command("undo")
def undo_command(name: Name) -> None:
    """Take the last verdict of a bisection back."""
    from nightly_bisect.cli.history import undo

    raise typer.Exit(undo(name))


@app.command("mark")
def mark_command(
    name: Name,
    date: Annotated[str, typer.Argument(metavar="DATE", help="The day (or version) of the nightly.")],
    verdict: Annotated[Literal["good", "bad", "untestable"], typer.Argument(help="What you know of it.")],
) -> None:
    """Tell a bisection what you know of a nightly by other means."""
    from nightly_bisect.cli.history import mark

    raise typer.Exit(mark(name, date, Verdict(verdict)))


@app.command("replay")
def replay_command(
    name: Name,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON (- for stdout).")
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE.md", help="Write a text ready for an issue.")
    ] = None,
) -> None:
    """Compute the answer from the observations anew; nothing is installed."""
    from nightly_bisect.cli.history import replay

    raise typer.Exit(replay(name, json_file, report))


cache_app = typer.Typer(
    help="Show what the cache takes, or make it smaller.",
    invoke_without_command=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(cache_app, name="cache")


@cache_app.callback()
def cache_command(
    context: typer.Context, cache_dir: CacheDir = None, cache_size: CacheSize = "40GiB"
) -> None:
    """Show what the cache takes, or make it smaller."""
    from nightly_bisect.cli.cache import show_cache

    if context.invoked_subcommand is None:
        raise typer.Exit(show_cache(cache_dir, cache_size))


@cache_app.command("prune")
def prune_command(
    cache_dir: CacheDir = None,
    to: Annotated[str, typer.Option("--to", metavar="SIZE", help="What may be left.")] = "40GiB",
) -> None:
    """Remove what dead processes left, then what was used least recently, until the rest fits."""
    from nightly_bisect.cli.cache import prune_cache

    raise typer.Exit(prune_cache(cache_dir, to))


@cache_app.command("clear")
def clear_command(cache_dir: CacheDir = None) -> None:
    """Remove everything that no running bisection uses."""
    from nightly_bisect.cli.cache import clear_cache

    raise typer.Exit(clear_cache(cache_dir))


@app.command("doctor")
def doctor_command(
    package: Package = "torch",
    profile: ProfileFile = None,
    channel: Channel = None,
    python: Python = None,
    platform: Platform = None,
    index_url: IndexUrl = None,
    cache_dir: CacheDir = None,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="FILE",
            help="Write the findings as JSON (- for stdout).",
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
) -> None:
    """Say what works on this machine, with a hint for what is missing.

    Exits with 0 when a bisection can run here, else with the code of what is missing first: 5 the index,
    6 uv, a Python or a wheel for it, 7 room on disk.
    """
    from nightly_bisect.cli.doctor import doctor
    from nightly_bisect.cli.request import WhatArguments

    arguments = WhatArguments(
        **{n: v for n, v in locals().items() if n in WhatArguments.__dataclass_fields__}
    )
    raise typer.Exit(doctor(arguments))


def run_app(words: list[str]) -> None:
    """Run one command line; options of ``run`` may also stand in a configuration file."""
    defaults = {"run": configured_defaults(here(), _run_options())} if words[0] == "run" else {}
    app(words, prog_name="nightly-bisect", default_map=defaults)


def _run_options() -> dict[str, str]:
    """Return the parameter of each long option of ``run``: ``with`` is ``with_``."""
    group = typer.main.get_command(app)
    parameters = group.commands["run"].params  # type: ignore[attr-defined]
    return {
        option.removeprefix("--"): parameter.name
        for parameter in parameters
        for option in parameter.opts
        if option.startswith("--")
    }
