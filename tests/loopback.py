"""Support: a loopback index of stand-in nightlies in the real index's form, and a real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, LoopbackServer
from nightly_bisect.standin.wheels import make_wheel, standin_torch, wheel_filename

FOLDER = "/whl/nightly/cpu"
TAG = f"cp{sys.version_info.major}{sys.version_info.minor}"
NATIVE_TAG = f"{TAG}-{TAG}-linux_x86_64"
MANYLINUX_TAG = f"{TAG}-{TAG}-manylinux_2_28_x86_64"

GOOD = "value = 1"
BAD = "value = 2"
CHECK = "import torch\nassert torch.value == 1, f'value is {torch.value}'\n"


@dataclass(frozen=True)
class Night:
    """One stand-in nightly: what its `torch` does, and how its wheel is named and listed."""

    day: date
    body: str = GOOD
    base: str = "2.6.0"
    local: str = "+cpu"
    tag: str = NATIVE_TAG
    listed: bool = True
    requires: tuple[str, ...] = ()
    built_version: str | None = None
    metadata_version: str | None = None

    @property
    def version(self) -> str:
        return f"{self.base}.dev{self.day:%Y%m%d}{self.local}"

    def file(self, folder: str = FOLDER) -> File:
        files = standin_torch(self.day, self.built_version or self.version, self.body)
        wheel = make_wheel(
            "torch",
            self.version,
            files,
            requires=self.requires,
            metadata_version=self.metadata_version,
            tag=self.tag,
        )
        return File(f"{folder}/{wheel_filename('torch', self.version, self.tag)}", wheel)


def days(first: date, count: int) -> list[date]:
    return [first + timedelta(days=number) for number in range(count)]


def nights(first: date, count: int, body: Callable[[date], str], **more: Any) -> list[Night]:
    """Return consecutive nightlies whose body depends on their day."""
    return [Night(day, body(day), **more) for day in days(first, count)]


def bad_from(first_bad: date) -> Callable[[date], str]:
    return lambda day: BAD if day >= first_bad else GOOD


def serve(
    all_nights: Iterable[Night],
    *,
    era: Era = Era.SIDECARS,
    mirror_url: str = "",
    missing_status: int = 403,
    folder: str = FOLDER,
) -> LoopbackServer:
    """Return a server (to be entered) with the page of torch and every wheel."""
    files = [(night, night.file(folder)) for night in all_nights]
    contents = {file.path: Content(file.content) for _, file in files}
    page = index_page("torch", [file for night, file in files if night.listed], era, mirror_url)
    contents[f"{folder}/torch/"] = Content(page, "text/html")
    return LoopbackServer(contents, missing_status=missing_status)


@dataclass
class Tool:
    """The real command, in a folder and with a cache of its own."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, variables: Mapping[str, str] | None = None, timeout_s: float = 120) -> Ran:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder / "home"),
            "PYENV_ROOT": os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv")),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
            # Nothing but loopback is asked unless a test says so; refused at once.
            "GITHUB_API_URL": "http://127.0.0.1:9",
            "NIGHTLY_BISECT_RETRY_DELAY_S": "0",
            "COLUMNS": "200",
            **{k: v for k, v in os.environ.items() if "CERT" in k or k.endswith("CA_BUNDLE")},
            **self.variables,
            **(variables or {}),
        }
        done = subprocess.run(
            [sys.executable, "-m", "nightly_bisect", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def bisect(
        self,
        server: LoopbackServer,
        *words: str,
        folder: str = FOLDER,
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 120,
    ) -> Ran:
        """Run a bisection over a loopback index; its JSON is read back."""
        result = self.folder / "result.json"
        result.unlink(missing_ok=True)
        options = ("--index-url", server.url + folder, "--json", "result.json")
        ran = self.run(*options, *words, variables=variables, timeout_s=timeout_s)
        if result.exists():
            ran.result = json.loads(result.read_text())
        return ran

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path


@dataclass
class Ran:
    code: int
    stdout: str
    stderr: str
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> dict[str, str]:
        return {trial["date"]: trial["verdict"] for trial in self.result["trials"]}

    @property
    def outcomes(self) -> dict[str, str]:
        return {trial["date"]: trial["outcome"] for trial in self.result["trials"]}


def interruptible(*words: str) -> list[str]:
    """Return the real command with the usual signals, whatever the tests themselves were started with.

    A shell in the background, or nohup, makes its children ignore some.
    """
    code = (
        "import runpy, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "for number in (signal.SIGTERM, signal.SIGHUP): signal.signal(number, signal.SIG_DFL)\n"
        "sys.argv[0] = 'nightly_bisect'\n"
        "runpy.run_module('nightly_bisect', run_name='__main__', alter_sys=True)\n"
    )
    return [sys.executable, "-c", code, *words]
