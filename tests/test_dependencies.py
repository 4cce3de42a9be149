"""Which requirements come from the nightly index, and which wheel of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import pytest
from packaging.requirements import Requirement

from nightly_bisect.errors import NotAnIndex, Unreachable, UsageError
from nightly_bisect.index.catalog import Request
from nightly_bisect.index.dependencies import NightlyIndex, NotOnIndex, plain_requirements, read_requirements
from nightly_bisect.index.profiles import RELEASES, IndexSource, load_profile
from nightly_bisect.index.targets import make_target
from nightly_bisect.index.web import Web
from nightly_bisect.model import Stamp
from nightly_bisect.standin.pages import Era, File, index_page
from nightly_bisect.standin.server import Content, LoopbackServer

WEB = Web(pause=lambda _: None)
TORCH = load_profile("torch", None)
LINUX = make_target("3.11", "linux_x86_64")
NIGHT = Stamp(date(2026, 8, 12))
TAG = "cp311-cp311-linux_x86_64"
PAGES = {
    "triton": ["triton-3.6.0+git9844da95", "triton-3.8.0+gitc01b6774", "triton-3.10.0+git0000000a"],
    "pytorch-triton": ["pytorch_triton-3.0.0+45fff310c8", "pytorch_triton-3.0.0+bcad9dabe1"],
    "torchvision": [
        "torchvision-0.30.0.dev20260811+cpu",
        "torchvision-0.30.0.dev20260812+cpu",
        "torchvision-0.30.0.dev20260812+cu128",
        "torchvision-0.29.0.dev20260812+cpu",
        "torchvision-0.30.0.dev20260813+cpu",
    ],
}


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    def page(project: str, versions: list[str]) -> bytes:
        files = [File(f"/whl/{version}-{tag}.whl", b"") for version in versions for tag in (TAG, "cp312-cp312-linux_x86_64")]  # fmt: skip
        readme = File("/whl/README.html", b"")
        return index_page(project, [*files, readme], Era.SIDECARS)

    contents = {
        f"/cpu/{project}/": Content(page(project, rows), "text/html") for project, rows in PAGES.items()
    }
    with LoopbackServer(contents) as server:
        yield server


def index(server: LoopbackServer, *, channel: str = "cpu", python: str = "3.11") -> NightlyIndex:
    target = make_target(python, "linux_x86_64")
    request = Request(TORCH, channel, target, f"{server.url}/cpu")
    return NightlyIndex(request, WEB)


@pytest.mark.parametrize(
    ("requirement", "version"),
    [
        # a pin with its local part is that build
        ("triton==3.6.0+git9844da95", "triton-3.6.0+git9844da95"),
        ("pytorch-triton==3.0.0+bcad9dabe1", "pytorch_triton-3.0.0+bcad9dabe1"),
        ("PyTorch_Triton == 3.0.0+45fff310c8", "pytorch_triton-3.0.0+45fff310c8"),
        # without it the newest that fits
        ("triton<3.7", "triton-3.6.0+git9844da95"),
        ("triton", "triton-3.10.0+git0000000a"),
        # of dated builds the one of the same day, of the same channel
        ("torchvision", "torchvision-0.30.0.dev20260812+cpu"),
        ("torchvision<0.30.0.dev0", "torchvision-0.29.0.dev20260812+cpu"),
        # unless another is named in full
        ("torchvision==0.30.0.dev20260811", "torchvision-0.30.0.dev20260811+cpu"),
    ],
)
def test_the_wheel_of_a_requirement_is_the_one_that_belongs_to_the_night(
    server: LoopbackServer, requirement: str, version: str
) -> None:
    assert index(server).find(Requirement(requirement), NIGHT).filename == f"{version}-{TAG}.whl"


@pytest.mark.parametrize("channel", ["cpu", "cu128"])
def test_on_a_page_of_several_channels_only_the_own_one_counts(server: LoopbackServer, channel: str) -> None:
    wheel = index(server, channel=channel).find(Requirement("torchvision"), NIGHT)
    assert wheel.filename == f"torchvision-0.30.0.dev20260812+{channel}-{TAG}.whl"


@pytest.mark.parametrize(
    ("hosts", "found"), [((), True), (("example.org",), True), (("pytorch.org",), False)]
)
def test_a_dependency_comes_from_the_hosts_of_the_profile_only(hosts: tuple[str, ...], found: bool) -> None:
    page = index_page(
        "triton",
        [File(f"/triton-3.6.0+git9844da95-{TAG}.whl", b"")],
        Era.MIRRORED,
        "https://files.example.org",
    )
    with LoopbackServer({"/cpu/triton/": Content(page, "text/html")}) as server:
        profile = replace(TORCH, index=IndexSource(f"{server.url}/{{channel}}/", hosts, "cpu"))
        nightly_index = NightlyIndex(Request(profile, "cpu", LINUX), WEB)
        if found:
            assert nightly_index.find(Requirement("triton"), NIGHT).url.startswith(
                "https://files.example.org/"
            )
            return
        with pytest.raises(NotOnIndex):
            nightly_index.find(Requirement("triton"), NIGHT)


def test_the_wheel_is_one_for_the_target(server: LoopbackServer) -> None:
    wheel = index(server, python="3.12").find(Requirement("triton==3.6.0+git9844da95"), NIGHT)
    assert wheel.filename == "triton-3.6.0+git9844da95-cp312-cp312-linux_x86_64.whl"


@pytest.mark.parametrize(
    ("requirement", "python", "why"),
    [
        ("triton==3.6.0+git00000000", "3.11", "triton==3.6.0+git00000000 has no wheel of 2026-08-12"),
        ("triton==3.6.0+git9844da95", "3.13", "for Python 3.13 on linux_x86_64"),
        ("torchvision==0.30.0.dev20260812+cu128", "3.11", "+cu128 has no wheel"),  # of another channel
        ("torchvision>=0.31", "3.11", "torchvision>=0.31 has no wheel"),
        ("torchaudio", "3.11", "has no page for torchaudio"),
    ],
)
def test_a_requirement_that_the_index_lacks_is_said(
    server: LoopbackServer, requirement: str, python: str, why: str
) -> None:
    with pytest.raises(NotOnIndex) as caught:
        index(server, python=python).find(Requirement(requirement), NIGHT)
    assert why in str(caught.value)


def test_no_dated_build_of_the_day_is_said(server: LoopbackServer) -> None:
    with pytest.raises(NotOnIndex, match="torchvision has no wheel of 2026-08-14"):
        index(server).find(Requirement("torchvision"), Stamp(date(2026, 8, 14)))


def test_a_page_that_is_no_index_says_nothing_about_the_requirement(server: LoopbackServer) -> None:
    server.contents["/cpu/torchaudio/"] = Content(b"<html>Sign in</html>", "text/html")
    with pytest.raises(NotAnIndex, match="cut short"):
        index(server).find(Requirement("torchaudio"), NIGHT)


def test_a_server_that_fails_is_not_an_index_that_lacks_something(server: LoopbackServer) -> None:
    server.faults["/cpu/triton/"] = lambda handler: handler.reply(503, Content(b""))
    with pytest.raises(Unreachable):
        index(server).find(Requirement("triton"), NIGHT)


def test_a_page_is_read_once(server: LoopbackServer) -> None:
    nightly_index = index(server)
    for requirement in ("triton", "triton<3.7", "torchvision", "Triton"):
        nightly_index.find(Requirement(requirement), NIGHT)
    assert [path for _, path in server.requests] == ["/cpu/triton/", "/cpu/torchvision/"]


@pytest.mark.parametrize(
    ("requirement", "must"),
    [
        ("triton==3.6.0", True),
        ("Pytorch_Triton", True),
        ("torchvision", True),
        ("torchtriton", True),
        ("anything==1.0+cpu", True),
        ("nvidia-nccl-cu12==2.27.5", False),
        ("numpy<2", False),
        ("filelock", False),
    ],
)
def test_what_exists_only_there_or_may_come_from_nowhere_else_is_served_by_the_nightly_index(
    requirement: str, must: bool
) -> None:
    assert NightlyIndex(Request(TORCH, "cpu", LINUX), WEB).must_serve(Requirement(requirement)) is must


@pytest.mark.parametrize(
    "request_", [Request(TORCH.as_release(), RELEASES, LINUX), Request(load_profile("pyg-nightly", None), None, LINUX)]
)  # fmt: skip
def test_without_an_index_of_nightlies_everything_comes_from_the_default_one(request_: Request) -> None:
    nightly_index = NightlyIndex(request_, WEB)
    assert nightly_index.only_here == frozenset()
    assert not nightly_index.must_serve(Requirement("triton==3.6.0+git9844da95"))


def test_the_guarded_names_are_the_profiles() -> None:
    guarded = replace(TORCH, index=replace(TORCH.index, only_here=frozenset({"mine"})))
    nightly_index = NightlyIndex(Request(guarded, "cpu", LINUX), WEB)
    assert nightly_index.only_here == {"mine"}
    assert nightly_index.must_serve(Requirement("Mine"))
    assert not nightly_index.must_serve(Requirement("triton"))


def test_requirements_of_the_user_are_read_in_order() -> None:
    texts = ["numpy<2", "scipy[doc]>=1.0 ; python_version < '4'", "pkg @ file:///tmp/pkg.whl"]
    assert [requirement.name for requirement in read_requirements(texts)] == ["numpy", "scipy", "pkg"]
    assert read_requirements([]) == []


@pytest.mark.parametrize("text", ["", "-r requirements.txt", "numpy 2", "numpy==", "./pkg.whl"])
def test_what_is_no_requirement_is_a_usage_error_that_quotes_it(text: str) -> None:
    with pytest.raises(UsageError, match="--with") as caught:
        read_requirements(["numpy", text])
    assert repr(text) in caught.value.what


def test_of_a_requirements_file_the_plain_lines_are_read() -> None:
    text = """\
# a comment
numpy<2  # another
-r more.txt
--index-url https://example.org/
scipy>=1.0 ; python_version < '4'

torch==2.6.0.dev20241201+cpu
./local.whl
"""
    assert [str(requirement) for requirement in plain_requirements(text)] == [
        "numpy<2",
        'scipy>=1.0; python_version < "4"',
        "torch==2.6.0.dev20241201+cpu",
    ]
