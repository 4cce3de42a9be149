"""From the commit that a wheel records to the commit of the main branch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from nightly_bisect.errors import IndexFault
from nightly_bisect.index.profiles import Profile
from nightly_bisect.index.web import Web

API_URL = "https://api.github.com"


def main_commit(profile: Profile, commit: str, web: Web, variables: Mapping[str, str]) -> str | None:
    """Return the main-branch commit behind ``commit``; None where it cannot be had.

    A nightly is built from a commit of the nightly branch, which has no history of main's. Its
    message names the commit of main. A commit with another message is one of main itself.
    ``variables`` may hold GITHUB_API_URL and GITHUB_TOKEN.
    """
    pattern = profile.main_commit_in_message
    if pattern is None:
        return commit if profile.repository else None
    if profile.repository is None:
        return None
    message = _message(profile.repository, commit, web, variables)
    if message is None:
        return None
    match = pattern.search(message)
    return match[1] if match else commit


def _message(repository: str, commit: str, web: Web, variables: Mapping[str, str]) -> str | None:
    import requests

    api = variables.get("GITHUB_API_URL", API_URL).rstrip("/")
    path = urlsplit(repository).path.rstrip("/").removesuffix(".git")
    url = f"{api}/repos{path}/commits/{commit}"
    headers = {"Accept": "application/vnd.github+json"}
    if token := variables.get("GITHUB_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    try:
        answer: Any = web.json(url, headers)
        return str(answer["commit"]["message"])
    except (IndexFault, requests.RequestException, OSError, ValueError, KeyError, TypeError):
        # The answer is as right without it: the nightly-branch commits are shown instead.
        return None
