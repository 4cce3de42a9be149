"""Pages of every era, and what is no page: literal rows, every cut, and mutations."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly_bisect.errors import NotAnIndex
from nightly_bisect.index.page import Page, read_page
from nightly_bisect.standin.pages import Era, File, index_page

URL = "https://download.pytorch.org/whl/nightly/cpu/torch/"
JSON = "application/vnd.pypi.simple.v1+json"
HASH, OTHER_HASH = "89dc" * 16, "2c2c" * 16
NAMES = [f"torch-2.6.0.dev202501{day:02}+cpu-cp312-cp312-manylinux_2_28_x86_64.whl" for day in range(1, 4)]
FILES = [File(f"/whl/nightly/cpu/{name}", name.encode()) for name in NAMES]


def read(body: bytes | str, kind: str = "text/html") -> Page:
    return read_page(body.encode() if isinstance(body, str) else body, URL, kind)


def page_of(*links: str) -> str:
    return "<!DOCTYPE html>\n<html><body>\n" + "<br/>\n".join(links) + "</body>\n</html>"


def names(page: Page) -> list[str]:
    return [row.wheel.filename for row in page.rows]


@pytest.mark.parametrize(
    ("link", "url", "sha256", "uploaded"),
    [
        # 2020: the flat page beside the wheels, links relative to it
        ('<a href="../torch-1.8.0.dev20201108%2Bcpu-cp38-cp38-linux_x86_64.whl">torch</a>',
         "https://download.pytorch.org/whl/nightly/cpu/torch-1.8.0.dev20201108%2Bcpu-cp38-cp38-linux_x86_64.whl",
         None, None),
        # 2025-01-03: relative to the root of the host, with metadata attributes
        (f'<a href="/whl/nightly/cu126/torch-2.6.0.dev20250103%2Bcu126-cp313-cp313t-manylinux_2_28_x86_64.whl" '
         f'data-dist-info-metadata="sha256={HASH}" data-core-metadata="sha256={HASH}">'
         "torch-2.6.0.dev20250103+cu126-cp313-cp313t-manylinux_2_28_x86_64.whl</a>",
         "https://download.pytorch.org/whl/nightly/cu126/"
         "torch-2.6.0.dev20250103%2Bcu126-cp313-cp313t-manylinux_2_28_x86_64.whl", None, None),
        # 2025-01-23: with the hash of the wheel beside that of its metadata
        (f'<a href="/whl/nightly/cpu/torch-2.7.0.dev20250123%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl#sha256={OTHER_HASH}" '
         f'data-dist-info-metadata="sha256={HASH}">torch</a>',
         "https://download.pytorch.org/whl/nightly/cpu/"
         "torch-2.7.0.dev20250123%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl", OTHER_HASH, None),
        # 2026-10: on another host, with the time of upload
        ('<a href="https://download-r2.pytorch.org/whl/nightly/cpu/torch-2.15.0.dev20260829%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl" '
         f'data-core-metadata="sha256={HASH}" data-upload-time="2026-10-26T11:02:33Z">torch</a>',
         "https://download-r2.pytorch.org/whl/nightly/cpu/"
         "torch-2.15.0.dev20260829%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl",
         None, datetime(2026, 10, 26, 11, 2, 33, tzinfo=UTC)),
        # a hash in capitals is the same hash; a time without a zone is UTC; a time that is none is left out
        (f'<a href="/torch-2.7.0.dev20250123-cp312-none-macosx_11_0_arm64.whl#sha256={OTHER_HASH.upper()}" '
         'data-upload-time="2026-10-26T11:02:33">x</a>',
         "https://download.pytorch.org/torch-2.7.0.dev20250123-cp312-none-macosx_11_0_arm64.whl",
         OTHER_HASH, datetime(2026, 10, 26, 11, 2, 33, tzinfo=UTC)),
        ('<a href="/torch-2.7.0.dev20250123-py3-none-any.whl#md5=00" data-upload-time="soon">x</a>',
         "https://download.pytorch.org/torch-2.7.0.dev20250123-py3-none-any.whl", None, None),
    ],
)  # fmt: skip
def test_a_row_of_any_era_is_read(link: str, url: str, sha256: str | None, uploaded: datetime | None) -> None:
    (row,) = read(page_of(link)).rows
    assert (row.wheel.url, row.wheel.sha256, row.uploaded) == (url, sha256, uploaded)
    assert row.wheel.filename == url.rpartition("/")[2].replace("%2B", "+")


@pytest.mark.parametrize("era", Era)
def test_a_whole_page_of_any_era_is_read_with_the_moment_it_was_written(era: Era) -> None:
    page = read(index_page("torch", FILES, era, "https://download-r2.pytorch.org"))
    assert names(page) == NAMES
    assert page.unreadable == ()
    assert page.written == datetime.fromtimestamp(1796094855, UTC)
    assert all(bool(row.wheel.sha256) == (era is Era.HASHED) for row in page.rows)


def test_the_file_name_is_that_of_the_target_and_never_of_the_text() -> None:
    page = read(page_of(f'<a href="{NAMES[0].replace("+", "%2B")}">{NAMES[1]}</a>'))
    assert names(page) == [NAMES[0]]


@pytest.mark.parametrize("era", Era)
def test_a_page_cut_short_anywhere_is_an_error_or_still_whole(era: Era) -> None:
    body = index_page("torch", FILES, era, "https://download-r2.pytorch.org")
    end = body.index(b"</html")
    for cut in range(end + len(b"</html")):
        with pytest.raises(NotAnIndex):
            read(body[:cut])
    for cut in range(end + len(b"</html"), len(body)):
        assert names(read(body[:cut])) == NAMES


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        (b"", "text/html", "holds no links (text/html, 0 bytes)"),
        (b"", "", "no content type"),
        (b"<html><body><h1>Sign in to continue</h1><form></form></body></html>", "text/html", "holds no links"),
        (b"<html><body>", "text/html; charset=utf-8", "was cut short"),
        (b'{"files": []}', "application/json", "holds no links (application/json"),
        (b"\x1f\x8b\x08\x00\xff\xfe\x00", "application/gzip", "holds no links"),
        (b"\x00" * 1000, "application/octet-stream", "holds no links"),
        (b'<html><meta name="pypi:repository-version" content="2.0"><a href="x">x</a></html>', "text/html",
         "could not be understood"),
        (b'<html><meta name="pypi:repository-version" content="?"><a href="x">x</a></html>', "text/html",
         "could not be understood"),
        (b"", JSON, "is not the JSON"),
        (b"<html>", JSON, "is not the JSON"),
        (b"[]", JSON, "is not the JSON"),
        (b"{}", JSON, "is not the JSON"),
        (b"null", JSON, "is not the JSON"),
        (b"\xff\xfe{", JSON, "is not the JSON"),
        (b'{"meta": {"api-version": "1.0"}, "name": "torch", "files": [{}]}', JSON, "is not the JSON"),
        (b'{"meta": {"api-version": "9.0"}, "name": "torch", "files": []}', JSON, "is not the JSON"),
        (b'{"meta": {"api-version": "1.0"}, "name": "torch", "files": [', JSON + "; charset=utf-8", "is not the JSON"),
    ],
)  # fmt: skip
def test_what_is_no_index_page_is_an_error_that_names_the_page(body: bytes, kind: str, why: str) -> None:
    with pytest.raises(NotAnIndex) as caught:
        read(body, kind)
    assert f"The page {URL} " in caught.value.what
    assert why in caught.value.what
    assert caught.value.url == URL


@pytest.mark.parametrize(
    ("link", "why"),
    [
        ('<a href="http://[">x</a>', "not a URL"),
        ('<a href="javascript:void(0)">x</a>', "not an http link"),
        ('<a href="file:///etc/passwd">x</a>', "not an http link"),
        ('<a href="mailto:someone@example.org">x</a>', "not an http link"),
        (f'<a href="{NAMES[2]}" data-yanked="broken">x</a>', "yanked"),
        (f'<a href="{NAMES[2]}" data-yanked>x</a>', "yanked"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_the_others_stay(link: str, why: str) -> None:
    page = read(page_of(f'<a href="{NAMES[0]}">x</a>', link, f'<a href="{NAMES[1]}">x</a>'))
    assert names(page) == NAMES[:2]
    (left_out,) = page.unreadable
    assert why in left_out.why


@pytest.mark.parametrize(
    ("text", "more"),
    [("plain & <unescaped>", ""), ("x", "<a name=nowhere>no target</a>"), ("x", "<a href=''>the page itself</a>")],
)  # fmt: skip
def test_untidy_markup_does_not_hide_a_row(text: str, more: str) -> None:
    assert NAMES[0] in names(read(page_of(f'<a href="{NAMES[0]}">{text}</a>', more)))


@pytest.mark.parametrize(("second", "said"), [(HASH, 0), (OTHER_HASH, 1)])
def test_a_file_listed_twice_counts_once_and_differing_hashes_are_said(second: str, said: int) -> None:
    page = read(page_of(*(f'<a href="{NAMES[0]}#sha256={sha}">x</a>' for sha in (HASH, second))))
    assert [row.wheel.sha256 for row in page.rows] == [HASH]
    assert [u.why for u in page.unreadable] == ["listed twice with different hashes"] * said


@pytest.mark.parametrize(
    ("comment", "written"),
    [
        ("<!--TIMESTAMP 0-->", datetime(1970, 1, 1, tzinfo=UTC)),
        ("<!-- TIMESTAMP 1796094855 -->", datetime.fromtimestamp(1796094855, UTC)),
        ("<!--TIMESTAMP 99999999999999999999-->", None),
        ("<!--TIMESTAMP soon-->", None),
        ("", None),
    ],
)
def test_when_the_page_was_written_is_read_where_it_is_told(comment: str, written: datetime | None) -> None:
    assert read(page_of(f'<a href="{NAMES[0]}">x</a>') + comment).written == written


def test_a_json_page_tells_hashes_sizes_and_times_and_its_yanked_files_are_named() -> None:
    def file(name: str, **more: Any) -> dict[str, Any]:
        return {
            "filename": name,
            "url": f"https://files.example.org/{name}",
            "hashes": {"sha256": HASH},
            **more,
        }

    body = {
        "meta": {"api-version": "1.1"},
        "name": "torchx-nightly",
        "versions": [],
        "files": [
            file("torchx_nightly-2026.10.26-py3-none-any.whl", size=5, **{"upload-time": "2026-10-26T11:02:33Z"}),
            file("torchx_nightly-2026.10.25-py3-none-any.whl", yanked="broken"),
            file("torchx_nightly-2026.10.24.tar.gz"),
        ],
    }  # fmt: skip
    page = read(json.dumps(body).encode(), JSON)
    assert names(page) == ["torchx_nightly-2026.10.26-py3-none-any.whl", "torchx_nightly-2026.10.24.tar.gz"]
    wheel, uploaded = page.rows[0].wheel, page.rows[0].uploaded
    assert (wheel.sha256, wheel.size_bytes) == (HASH, 5)
    assert wheel.url == "https://files.example.org/torchx_nightly-2026.10.26-py3-none-any.whl"
    assert uploaded == datetime(2026, 10, 26, 11, 2, 33, tzinfo=UTC)
    assert [(u.text, u.why) for u in page.unreadable] == [
        ("torchx_nightly-2026.10.25-py3-none-any.whl", "yanked")
    ]


TOKENS = [
    b"<![", b"<", b">", b'"', b"'", b"&", b"&#0;", b"<!--", b"-->", b"</a>", b"<a href=", b"http://[", b"#sha256=", b"%2B",
    b"%", b"%ff", b"\xff", b"\x00", b"<base href='http://['>", b"data-yanked", b"data-upload-time='2026-13-01'",
    b"<script>", b"</html>", b"<html>", b"TIMESTAMP 9", b"\n",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, body: bytes) -> bytes:
    """Cut, overwrite or insert at a few places."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(body)))
        stop = start + draw(st.sampled_from([0, 0, 1, 2, 40]))
        body = body[:start] + draw(st.sampled_from(TOKENS)) + body[stop:]
    return body


@settings(max_examples=300, derandomize=True, deadline=None)
@given(mutated(index_page("torch", FILES, Era.MIRRORED, "https://download-r2.pytorch.org")))
def test_a_mutated_page_is_read_or_is_no_index_and_nothing_else(body: bytes) -> None:
    try:
        page = read(body)
    except NotAnIndex:
        return
    assert all(row.wheel.url.startswith(("http://", "https://")) for row in page.rows)


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["text/html", JSON, "", "\xff;"]))
def test_arbitrary_bytes_are_read_or_are_no_index_and_nothing_else(body: bytes, kind: str) -> None:
    for text in (body, b"<html><a href='x'>x</a>" + body + b"</html>"):
        try:
            read(text, kind)
        except NotAnIndex:
            continue


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<html><a href='x.whl'>y</a><![n00b]></html>", "text/html"),
        (b"[" * 100_000, "application/vnd.pypi.simple.v1+json"),
    ],
    ids=["markup that the parser refuses", "nesting without end"],
)
def test_what_breaks_the_parsers_is_no_index(body: bytes, kind: str) -> None:
    with pytest.raises(NotAnIndex):
        read(body, kind)


def test_one_file_in_two_folders_is_two_rows() -> None:
    name = "torch-2.6.0.dev20241201-cp311-cp311-linux_aarch64.whl"
    page = read(page_of(f'<a href="/cu118/{name}">x</a>', f'<a href="/cpu/{name}">x</a>'))
    assert len(page.rows) == 2


def test_a_hash_counts_wherever_a_file_is_listed_twice() -> None:
    digest = "a" * 64
    page = read(page_of('<a href="/x.whl">x</a>', f'<a href="/x.whl#sha256={digest}">x</a>'))
    assert [row.wheel.sha256 for row in page.rows] == [digest]
    assert page.unreadable == ()


def test_a_backslash_cannot_smuggle_another_host_in() -> None:
    page = read(page_of(r'<a href="https://evil.example\@download.pytorch.org/x.whl">x</a>'))
    assert page.rows == ()


@pytest.mark.parametrize("url", ["http://[", "file:///x.whl", "javascript:alert(1)"])
def test_a_json_row_that_cannot_be_used_does_not_take_the_page_with_it(url: str) -> None:
    files = [
        {"filename": "a.whl", "url": url, "hashes": {}},
        {"filename": "b.whl", "url": "/b.whl", "hashes": {"sha256": "AB" * 32}},
    ]
    body = json.dumps({"meta": {"api-version": "1.0"}, "name": "torch", "files": files}).encode()
    page = read(body, "application/vnd.pypi.simple.v1+json")
    assert [(row.wheel.filename, row.wheel.sha256) for row in page.rows] == [("b.whl", "ab" * 32)]
    assert len(page.unreadable) == 1
