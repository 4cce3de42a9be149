"""Write the parts of the documentation that the code itself knows: run it after a change of options.

`docs/commands.md` holds the help of every command, README.md the output of the demo.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMMANDS = ("", "run", "list", "demo", "status", "resume", "log", "undo", "mark", "replay", "cache", "doctor")


def run(*words: str) -> str:
    """Return what a command prints, both streams, without colour and at a fixed width."""
    environment = {**os.environ, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": "100"}
    done = subprocess.run(
        [sys.executable, "-m", "nightly_bisect", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        check=True,
    )
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip()


def commands() -> str:
    """Return docs/commands.md."""
    blocks = ["# Commands and options", "", "Written by `docs/write.py`."]
    for name in COMMANDS:
        title = f"nightly-bisect {name}".strip()
        words = [name, "--help"] if name else ["--help"]
        blocks += ["", f"## {title}", "", "```text", run(*words), "```"]
    return "\n".join(blocks) + "\n"


def demo() -> str:
    """Return the demo's output with what differs from run to run made the same."""
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", run("demo"))
    text = re.sub(r"--python 3\.\d+", "--python 3.11", text)
    return re.sub(r"(install|check) \d+\.\d s", r"\1 0.2 s", text)


def readme(text: str, shown: str) -> str:
    """Return the README with the demo's output in its place."""
    block = f"<!-- demo -->\n```text\n$ nightly-bisect demo\n{shown}\n```\n<!-- /demo -->"
    return re.sub(r"<!-- demo -->.*?<!-- /demo -->", lambda _: block, text, flags=re.DOTALL)


def main() -> None:
    """Write both."""
    (ROOT / "docs/commands.md").write_text(commands(), encoding="utf-8")
    path = ROOT / "README.md"
    path.write_text(readme(path.read_text(encoding="utf-8"), demo()), encoding="utf-8")


if __name__ == "__main__":
    main()
