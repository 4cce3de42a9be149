"""The command line. `main` is the entry point; commands live in modules of their own."""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from nightly_bisect.errors import BisectError

GLOBAL_FLAGS = ("-h", "--help", "--version", "--install-completion", "--show-completion")
COMMANDS = (
    "run",
    "list",
    "demo",
    "status",
    "resume",
    "log",
    "undo",
    "mark",
    "replay",
    "cache",
    "doctor",
)
_OUR_BUG = 70
_INTERRUPTED = 130
_SWEEP = "9"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; the one place that turns errors into exits."""
    words = with_default_command(list(sys.argv[1:] if arguments is None else arguments))
    _end_politely_on_signals()
    try:
        # Typer, rich and pydantic take a moment to import: not before a word was read.
        from nightly_bisect.cli.app import run_app

        run_app(words)
        code = 0
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else 1
    except BisectError as error:
        from nightly_bisect.cli.screen import Screen

        Screen().error(error.what, _with_near_command(error.hint, words))
        code = error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        code = _INTERRUPTED
    except Exception:
        _say(_bug(traceback.format_exc()))
        code = _OUR_BUG
    _leave_streams_alone()
    sys.exit(code)


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr)  # noqa: T201


def _bug(trace: str) -> str:
    """Write a traceback into a file; return the words that go with it."""
    path = Path(tempfile.gettempdir()) / f"nightly-bisect-bug-{os.getpid()}.txt"
    try:
        path.write_text(trace, encoding="utf-8")
    except OSError as error:
        # Nowhere else to put it, and without it nobody can mend anything.
        where = f"its traceback could not be written to {path} ({error.strerror}):\n\n{trace}"
        return f"error: a bug in nightly-bisect itself; {where}"
    return (
        f"error: a bug in nightly-bisect itself; its traceback is in {path}\n\n"
        "hint: please report it with that file"
    )


def _end_politely_on_signals() -> None:
    """Let a closed terminal and a cancelled job end a run as Ctrl-C does.

    A signal that was to be ignored (nohup) stays so.
    """
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _leave_streams_alone() -> None:
    """Keep the interpreter from complaining about a reader that has gone, or a full disk behind it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def with_default_command(words: list[str]) -> list[str]:
    """Put ``run`` before words that name no command, and keep the user's ``--`` visible.

    Typer swallows the first ``--``; doubled, it leaves one for ``run`` to see, which tells a
    command (``-- pytest -k x``) from a check file.
    """
    if not words:
        return ["--help"]
    if words[0] not in (*COMMANDS, *GLOBAL_FLAGS):
        words = ["run", *words]
    if words[0] == "run":
        words = _with_sweep_count(words)
    if words[0] == "run" and "--" in words:
        at = words.index("--")
        words = [*words[:at], "--", *words[at:]]
    return words


def _with_sweep_count(words: list[str]) -> list[str]:
    """Give ``--sweep`` its usual number where none follows: typer knows no option that may go without."""
    for i, word in enumerate(words):
        if word == "--":
            break
        if word == "--sweep" and not (i + 1 < len(words) and words[i + 1].isdecimal()):
            return [*words[: i + 1], _SWEEP, *words[i + 1 :]]
    return words


def _with_near_command(hint: str, words: Sequence[str]) -> str:
    """Point at a command that the first word may have meant."""
    word = words[1] if len(words) > 1 and words[0] == "run" else ""
    near = difflib.get_close_matches(word, COMMANDS, n=1, cutoff=0.7)
    return f"did you mean the command `{near[0]}`? Otherwise: {hint}" if near else hint
