"""From the commit of a nightly to the commit of main behind it, by a stand-in of the forge's API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from nightly_bisect.index.commits import main_commit
from nightly_bisect.index.profiles import load_profile
from nightly_bisect.index.web import Web
from nightly_bisect.standin.server import Content, Handler, LoopbackServer

WEB = Web(pause=lambda _: None)
TORCH = load_profile("torch", None)
NIGHTLY, MAIN = "1" * 40, "2" * 40
PATH = f"/repos/pytorch/pytorch/commits/{NIGHTLY}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(missing_status=404) as server:
        yield server


def says(message: str) -> Content:
    return Content(json.dumps({"sha": NIGHTLY, "commit": {"message": message}}).encode(), "application/json")


def find(server: LoopbackServer, **variables: str) -> str | None:
    variables = {"GITHUB_API_URL": server.url, **variables}
    return main_commit(TORCH, NIGHTLY, WEB, variables)


@pytest.mark.parametrize(
    ("message", "commit"),
    [
        (f"2024-06-01 nightly release ({MAIN})", MAIN),
        (f"2024-06-01 nightly release ({MAIN})\n\nmore", MAIN),
        # a commit with another message is one of main itself
        ("Fix the thing (#12345)", NIGHTLY),
        ("2024-06-01 nightly release (12345)", NIGHTLY),
        ("", NIGHTLY),
    ],
)
def test_the_message_of_the_nightly_branch_names_the_commit_of_main(
    server: LoopbackServer, message: str, commit: str
) -> None:
    server.contents[PATH] = says(message)
    assert find(server) == commit


@pytest.mark.parametrize(
    "content",
    [
        None,
        Content(b"", "application/json"),
        Content(b"<html>Sign in</html>", "text/html"),
        Content(b"[]", "application/json"),
        Content(b'{"commit": null}', "application/json"),
        Content(b'{"message": "Not Found"}', "application/json"),
    ],
)
def test_without_a_sensible_answer_the_commit_is_not_known(
    server: LoopbackServer, content: Content | None
) -> None:
    if content:
        server.contents[PATH] = content
    assert find(server) is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [403, 429, 500, 302])
def test_an_api_that_refuses_is_asked_once(server: LoopbackServer, status: int) -> None:
    server.faults[PATH] = lambda handler: handler.reply(
        status, Content(b"{}"), {"Location": "file:///etc/passwd"}
    )
    assert find(server) is None
    assert len(server.requests) == 1


def test_where_nobody_listens_the_commit_is_not_known() -> None:
    assert main_commit(TORCH, NIGHTLY, WEB, {"GITHUB_API_URL": "http://127.0.0.1:9"}) is None


@pytest.mark.parametrize(("token", "header"), [({}, None), ({"GITHUB_TOKEN": "secret"}, "Bearer secret")])
def test_the_token_is_sent_only_where_there_is_one(
    server: LoopbackServer, token: dict[str, str], header: str | None
) -> None:
    got: list[str | None] = []

    def respond(handler: Handler) -> None:
        got.append(handler.headers.get("Authorization"))
        handler.reply(200, says(f"nightly release ({MAIN})"))

    server.faults[PATH] = respond
    assert find(server, **token) == MAIN
    assert got == [header]


@pytest.mark.parametrize("root", ["/api/v3", "/api/v3/"])
def test_the_root_of_the_api_may_be_another(server: LoopbackServer, root: str) -> None:
    server.contents[f"/api/v3{PATH}"] = says(f"nightly release ({MAIN})")
    assert find(server, GITHUB_API_URL=server.url + root) == MAIN


@pytest.mark.parametrize(
    ("repository", "pattern", "commit"),
    [
        ("https://github.com/pyg-team/pytorch_geometric", None, NIGHTLY),
        (None, None, None),
        (None, re.compile("(.*)"), None),
    ],
)
def test_a_package_without_the_detour_needs_no_request(
    server: LoopbackServer, repository: str | None, pattern: re.Pattern[str] | None, commit: str | None
) -> None:
    profile = replace(TORCH, repository=repository, main_commit_in_message=pattern)
    assert main_commit(profile, NIGHTLY, WEB, {"GITHUB_API_URL": server.url}) == commit
    assert server.requests == []
