"""`nightly-bisect demo`: the whole thing over stand-in nightlies, in seconds.

Everything but the nightlies is real: the index page in the real one's form, the days that it no
longer lists, downloads, virtual environments, installs, the check, the search.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path

from nightly_bisect.cli.run import RunArguments, make_options, run_session
from nightly_bisect.cli.screen import Screen
from nightly_bisect.index.profiles import load_profile
from nightly_bisect.index.targets import make_target
from nightly_bisect.index.unlisted import Place, base_versions
from nightly_bisect.standin.pages import Era, File, index_page, kept_versions
from nightly_bisect.standin.server import Content, LoopbackServer
from nightly_bisect.standin.wheels import (
    main_commit,
    make_wheel,
    nightly_commit,
    standin_torch,
    wheel_filename,
)

FIRST_DAY, NIGHTS = date(2024, 4, 1), 100
FIRST_BAD = date(2024, 6, 3)
_MISSING = (date(2024, 4, 21), date(2024, 5, 19))
_FOLDER = "/whl/nightly/cpu"
_REPOSITORY = "https://example.invalid/stand-in/torch"
_NOW = datetime.combine(FIRST_DAY + timedelta(days=NIGHTS), time(), UTC)

CHECK = """\
import torch

total = torch.total([0.1] * 10)
assert abs(total - 1.0) < 1e-6, f"the sum of ten times 0.1 is {total}"
"""


def demo(*, verbose: bool, report: Path | None, json_file: Path | None) -> int:
    """Run the demo; return the exit code of its bisection."""
    screen = Screen()
    os.environ["NO_PROXY"] = "127.0.0.1"  # its index is on this machine, whatever lies before others
    screen.say(
        f"A demo over {NIGHTS - len(_MISSING)} small stand-in nightlies, not PyTorch's: their `torch` only adds "
        f"numbers, and does it wrong from {FIRST_BAD} on.\n"
    )
    report, json_file = report and report.absolute(), json_file and json_file.absolute()
    with tempfile.TemporaryDirectory(prefix="nightly-bisect-demo-") as name, _index() as server:
        folder = Path(name)
        (folder / "check.py").write_text(CHECK)
        with contextlib.chdir(folder):
            arguments = RunArguments(
                check=["check.py"],
                good=str(FIRST_DAY),
                bad="today",
                channel="cpu",
                index_url=f"{server.url}{_FOLDER}/",
                cache_dir=folder / "cache",
                report=report,
                json_file=json_file,
                verbose=verbose,
            )
            options = make_options(arguments, folder)
            # The stand-ins' commits are made up: our own server is asked about them, not GitHub.
            profile = replace(options.request.profile, repository=_REPOSITORY)
            options = replace(
                options,
                request=replace(options.request, profile=profile),
                state=folder / "state",
                arguments={},
            )
            caller = {**os.environ, "GITHUB_API_URL": server.url}
            caller.pop("GITHUB_TOKEN", None)
            code = run_session(options, arguments, _NOW, caller)
    screen.say("\nThe same over true nightlies: nightly-bisect --good 2024-05-01 --bad today check.py")
    return code


@contextlib.contextmanager
def _index() -> Iterator[LoopbackServer]:
    """Serve the stand-ins: the page lists the newest 60, the others answer under their URL."""
    files = dict(_nightlies())
    listed = [files[version] for version in kept_versions(files)]
    contents = {file.path: Content(file.content) for file in files.values()}
    page = index_page("torch", listed, Era.SIDECARS)
    contents[f"{_FOLDER}/torch/"] = Content(page, "text/html")
    for day in _nights():
        message = {"commit": {"message": f"{day} nightly release ({main_commit(day)})"}}
        path = f"/repos/stand-in/torch/commits/{nightly_commit(day)}"
        contents[path] = Content(json.dumps(message).encode(), "application/json")
    with LoopbackServer(contents) as server:
        yield server


def _nights() -> list[date]:
    days = (FIRST_DAY + timedelta(days=number) for number in range(NIGHTS))
    return [day for day in days if day not in _MISSING]


def _nightlies() -> Iterator[tuple[str, File]]:
    target = make_target()
    unlisted = load_profile("torch", None).unlisted
    assert unlisted is not None
    place = Place("torch", "cpu", target, unlisted, None, ())
    form = place.form()
    for day in _nights():
        base = base_versions(place, day)[-1]
        local = (form.locals[0] if form else "+{channel}").format(channel="cpu")
        version = f"{base}.dev{day:%Y%m%d}{local}"
        platform = next((t for t, period in form.tags if day in period), "any") if form else "any"
        abi = form.abis[0].format(abi=target.abi) if form else "none"
        tag = f"{target.interpreter}-{abi}-{platform}"
        kind = "float" if day < FIRST_BAD else "round"
        body = f"def total(numbers):\n    return sum({kind}(number) for number in numbers)"
        wheel = make_wheel("torch", version, standin_torch(day, version, body), tag=tag)
        yield version, File(f"{_FOLDER}/{wheel_filename('torch', version, tag)}", wheel)
