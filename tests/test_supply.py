"""Where packages come from: the nightly index for what only it has, the default one for the rest."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from datetime import date

import pytest
from loopback import BAD, CHECK, FOLDER, GOOD, Night, Tool, bad_from, nights, serve

from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, LoopbackServer
from nightly_bisect.standin.wheels import make_wheel, standin_torch, wheel_filename

ENDS = ("--good", "2026-08-01", "--bad", "2026-08-05")
STEP_DAY = date(2026, 8, 3)
TAG = "py3-none-any"


def host(server: LoopbackServer, root: str, project: str, wheels: Mapping[str, bytes]) -> None:
    """Put a project with its files on a server."""
    files = [File(f"{root}/{name}", content) for name, content in wheels.items()]
    server.contents |= {file.path: Content(file.content) for file in files}
    server.contents[f"{root}/{project}/"] = Content(index_page(project, files, Era.HASHED), "text/html")


def wheel(project: str, version: str, body: str = "", requires: tuple[str, ...] = ()) -> dict[str, bytes]:
    files = {f"{project.replace('-', '_')}/__init__.py": body}
    content = make_wheel(project, version, files, requires=requires)
    return {wheel_filename(project, version, TAG): content}


def test_what_only_the_nightly_index_has_is_taken_from_there(tool: Tool) -> None:
    tool.write("check.py", "import triton, torch\nassert triton.kind == 'true'\n" + CHECK)
    requires = ("triton==3.6.0+git9844da95; platform_system == 'Linux'", "helper>=1")
    row = nights(date(2026, 8, 1), 5, bad_from(STEP_DAY), requires=requires)
    with serve(row) as server, LoopbackServer(missing_status=404) as default:
        true = wheel("triton", "3.6.0+git9844da95", "kind = 'true'") | wheel("triton", "3.7.0+gitffffffff")
        host(server, FOLDER, "triton", true)
        host(default, "/simple", "helper", wheel("helper", "1.2"))
        for project in ("torch", "triton", "torchvision"):
            host(default, "/simple", project, wheel(project, "99.0", "kind = 'evil'"))
        ran = tool.bisect(server, *ENDS, "--dependency-index", f"{default.url}/simple/", "check.py")
        asked = {path for _, path in default.requests}
    assert ran.code == 0, ran.stderr
    assert ran.result["first_bad"]["date"] == "2026-08-03"
    installed = ran.result["trials"][0]["installed"]
    assert installed["triton"] == "3.6.0+git9844da95"
    assert installed["helper"] == "1.2"
    assert not [path for path in asked if "tri" in path or "torch" in path]


def test_a_pin_that_moved_is_named_with_the_answer(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [
        Night(
            n.day,
            n.body,
            requires=(f"triton=={'3.7.0+gitbbbbbbbb' if n.day >= STEP_DAY else '3.6.0+gitaaaaaaaa'}",),
        )
        for n in nights(date(2026, 8, 1), 5, bad_from(STEP_DAY))
    ]
    with serve(row) as server:
        host(
            server,
            FOLDER,
            "triton",
            wheel("triton", "3.6.0+gitaaaaaaaa") | wheel("triton", "3.7.0+gitbbbbbbbb"),
        )
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.result["dependency_changes"] == [
        {"name": "triton", "before": "3.6.0+gitaaaaaaaa", "after": "3.7.0+gitbbbbbbbb"}
    ], ran.stderr
    assert "triton 3.6.0+gitaaaaaaaa → 3.7.0+gitbbbbbbbb" in ran.stdout


def test_a_missing_pin_makes_the_nightly_untestable_and_says_which(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = [
        Night(n.day, n.body, requires=("pytorch-triton==9.9+gitdead",) if n.day == STEP_DAY else ())
        for n in nights(date(2026, 8, 1), 5, bad_from(STEP_DAY))
    ]
    with serve(row) as server:
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert "pytorch-triton" in ran.result["suspects"][0]["reason"]


def test_names_of_the_nightly_index_are_not_taken_from_elsewhere_by_a_detour(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    with serve(nights(date(2026, 8, 1), 5, bad_from(STEP_DAY))) as server, LoopbackServer() as default:
        host(default, "/simple", "models", wheel("models", "1.0", requires=("torchvision",)))
        host(default, "/simple", "torchvision", wheel("torchvision", "99.0"))
        ran = tool.bisect(
            server, *ENDS, "--with", "models", "--dependency-index", f"{default.url}/simple/", "check.py"
        )
        asked = [path for _, path in default.requests if "torchvision" in path]
    assert ran.code == 6
    assert "models needs torchvision, which is taken from the nightly index only" in ran.stdout
    assert asked == []


def test_a_companion_of_the_same_night_comes_from_the_nightly_index(tool: Tool) -> None:
    tool.write("check.py", "import torchvision\n" + CHECK)
    row = nights(date(2026, 8, 1), 5, bad_from(STEP_DAY))
    with serve(row) as server:
        versions = [f"0.21.0.dev{n.day:%Y%m%d}+cpu" for n in row]
        wheels = [
            wheel("torchvision", v, requires=(f"torch=={n.version}",))
            for v, n in zip(versions, row, strict=True)
        ]
        host(server, FOLDER, "torchvision", {k: v for w in wheels for k, v in w.items()})
        ran = tool.bisect(server, *ENDS, "--with", "torchvision", "check.py")
    assert ran.code == 0, ran.stderr
    for trial in ran.result["trials"]:
        assert trial["installed"]["torchvision"][-12:-4] == trial["date"].replace("-", "")


@pytest.mark.parametrize("where", ["dependency", "nightly"])
def test_no_source_is_ever_built(tool: Tool, where: str) -> None:
    marker = tool.folder / "built"
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in {
            "setup.py": f"open({str(marker)!r}, 'w')\nfrom setuptools import setup; setup()",
            "PKG-INFO": "Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n",
        }.items():
            info = tarfile.TarInfo(f"helper-1.0/{name}")
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    sdist = {"helper-1.0.tar.gz": buffer.getvalue()}
    tool.write("check.py", CHECK)
    requires = ("helper",) if where == "dependency" else ("helper==1.0+cpu",)
    with serve(
        [Night(date(2026, 8, d), GOOD if d < 3 else BAD, requires=requires) for d in (1, 2, 3)]
    ) as server:
        host(server, "/simple" if where == "dependency" else FOLDER, "helper", sdist)
        ran = tool.bisect(
            server, "--good", "2026-08-01", "--dependency-index", f"{server.url}/simple/", "check.py"
        )
    assert ran.code == 6, ran.stderr
    assert set(ran.outcomes.values()) == {"not installed"}
    assert not marker.exists()


def test_a_hostile_wheel_is_refused_before_anything_of_it_is_unpacked(tool: Tool) -> None:
    tool.write("check.py", CHECK)
    row = nights(date(2026, 8, 1), 5, bad_from(STEP_DAY))
    with serve(row) as server:
        path = row[2].file().path
        escaped = {
            **standin_torch(STEP_DAY, row[2].version, BAD),
            "torch/../../../escaped.py": "",
            "evil.pth": "import os",
        }
        server.contents[path] = Content(make_wheel("torch", row[2].version, escaped, tag=row[2].tag))
        ran = tool.bisect(server, *ENDS, "check.py")
    assert ran.code == 3, ran.stderr
    assert ran.outcomes["2026-08-03"] == "not installed"
    assert "refused" in ran.result["suspects"][0]["reason"]
    assert not list(tool.folder.rglob("escaped.py"))
