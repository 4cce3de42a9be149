"""Several processes over one cache: each wheel comes once, and a killed one holds nobody up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import date
from pathlib import Path

import pytest
from loopback import CHECK, FOLDER, Tool, bad_from, nights, serve
from test_own_faults import environment, wait_for

from nightly_bisect.standin.server import Handler

SCRIPT = Path(__file__).parent.parent / "benchmarks/shared_cache.py"
FIRST_BAD = "2026-08-03"


@pytest.mark.slow
def test_d10_processes_over_one_cache_download_each_wheel_once_and_all_find_it() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--processes", "4"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 right answers" in done.stdout and "0 leftovers" in done.stdout


class HalfThenNothing:
    """Answers the first request for a body by its first half, and then by nothing more until it is let go."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.ranges: list[str | None] = []
        self.is_stuck = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, handler: Handler) -> None:
        asked = handler.headers.get("Range")
        if handler.command == "GET":
            self.ranges.append(asked)
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        handler.send_response(206 if asked else 200)
        handler.send_header("ETag", '"the same"')
        handler.send_header("Content-Length", str(len(self.body) - start))
        if asked:
            handler.send_header("Content-Range", f"bytes {start}-{len(self.body) - 1}/{len(self.body)}")
        handler.end_headers()
        if handler.command == "HEAD":
            return
        if len(self.ranges) > 1:
            handler.wfile.write(self.body[start:])
            return
        handler.wfile.write(self.body[: len(self.body) // 2])
        self.is_stuck.set()
        self.may_end.wait(60)


@pytest.mark.slow
def test_d11_a_downloader_that_is_killed_holds_nobody_up_and_its_bytes_are_used(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = nights(date(2026, 8, 1), 4, bad_from(date(2026, 8, 3)))
    page, first_wheel = f"{FOLDER}/torch/", row[0].file().path
    with serve(row) as server:
        stuck = HalfThenNothing(server.contents[first_wheel].body)
        server.faults[first_wheel] = stuck

        def start(name: str) -> subprocess.Popen[bytes]:
            words = [
                "--index-url",
                server.url + FOLDER,
                "--good",
                "2026-08-01",
                "--no-confirm",
                "--name",
                name,
            ]
            with (tool.folder / f"{name}.txt").open("wb") as output:
                return subprocess.Popen(
                    [sys.executable, "-m", "nightly_bisect", *words, "--json", f"{name}.json", "check.py"],
                    cwd=tool.folder,
                    env=environment(tool),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )

        holder = start("holder")
        assert stuck.is_stuck.wait(60)
        part = next((tool.folder / "cache/nightly-bisect/wheels").glob("*/.part"))
        wait_for(lambda: part.stat().st_size == len(stuck.body) // 2)
        others = [start("one"), start("two")]
        wait_for(lambda: server.requests.count(("GET", page)) == 3)
        holder.kill()
        holder.wait()
        codes = [other.wait(90) for other in others]
        stuck.may_end.set()
        gets = [path for method, path in server.requests if method == "GET" and path.endswith(".whl")]
    assert codes == [0, 0], [(tool.folder / f"{name}.txt").read_text() for name in ("one", "two")]
    for name in ("one", "two"):
        assert json.loads((tool.folder / f"{name}.json").read_text())["first_bad"]["date"] == FIRST_BAD
    # One of them went on where the killed one had come to; the other found the whole.
    assert stuck.ranges == [None, f"bytes={len(stuck.body) // 2}-"]
    assert all(gets.count(path) == 1 for path in gets if path != first_wheel)
