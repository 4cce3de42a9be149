"""Read seeded mutations of true-form index pages, and pages that were cut at every offset.

    python benchmarks/mutated_pages.py --pages 10000 --seed 1

Each page is read as a run reads it (`load_catalog`), without a network. Counted: pages that were read or
refused, and, to be 0, errors of any other kind than those of `nightly_bisect.errors`, and cuts after which
fewer nightlies were listed without an error. Exits with 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from packaging.requirements import Requirement
from pydantic import TypeAdapter

from nightly_bisect.errors import BisectError
from nightly_bisect.index.catalog import Request, load_catalog
from nightly_bisect.index.dependencies import NightlyIndex, NotOnIndex
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.profiles import RELEASES, load_profile
from nightly_bisect.index.targets import make_target
from nightly_bisect.index.web import Document, Web
from nightly_bisect.model import Nightly, Stamp
from nightly_bisect.standin.pages import Era, File, index_page

FIRST, NIGHTS = date(2026, 11, 20), 10
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ROOT = "https://download.pytorch.org/whl/nightly/cpu"
HTML, JSON = "text/html", "application/vnd.pypi.simple.v1+json"

Change = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Form:
    """A form that index pages have: its name, a whole page, its content type, and which channel is asked of it."""

    name: str
    body: bytes
    content_type: str
    channel: str = "cpu"


def true_forms() -> list[Form]:
    """Return a whole page of every form, each with so many nightlies (or releases) of two wheels each."""
    mirror = "https://download-r2.pytorch.org"
    dated = wheels(f"2.16.0.dev{FIRST + timedelta(days=day):%Y%m%d}" for day in range(NIGHTS))
    releases = wheels(f"2.{minor}.0" for minor in range(NIGHTS))
    return [
        *(Form(era.name, index_page("torch", dated, era, mirror), HTML) for era in Era),
        Form("JSON", json_page(dated), JSON),
        Form("RELEASES", json_page(releases), JSON, RELEASES),
    ]


def wheels(versions: Iterable[str]) -> list[File]:
    """Return two wheels of each version, one of which fits the target."""
    tags = ("cp311-cp311-manylinux_2_28_x86_64", "cp39-cp39-win_amd64")
    names = [f"torch-{version}+cpu-{tag}.whl" for version in versions for tag in tags]
    return [File(f"/whl/nightly/cpu/{name}", name.encode()) for name in names]


def json_page(files: Iterable[File]) -> bytes:
    """Return the page that lists ``files`` as JSON."""
    rows = [
        {
            "filename": file.name,
            "url": "https://download.pytorch.org" + file.path.replace("+", "%2B"),
            "hashes": {"sha256": "0" * 64},
            "size": 10,
            "upload-time": "2026-11-20T11:02:33Z",
            "yanked": False,
        }
        for file in files
    ]
    page = {"meta": {"api-version": "1.1"}, "name": "torch", "versions": [], "files": rows}
    return json.dumps(page).encode()


class Reader:
    """Reads pages as a run does; ``folder`` is for what a catalog remembers."""

    def __init__(self, folder: Path) -> None:
        self._memory = Memory(folder)

    def nightlies(self, body: bytes, content_type: str, channel: str = "cpu") -> int:
        """Return how many nightlies a page lists that can be installed; raise `BisectError`.

        What is read must also be fit to be stored, and to be searched for a dependency.
        """
        target = make_target("3.11", "linux_x86_64")
        request = Request(load_profile("torch", None), channel, target, ROOT)
        web = _OnePage(body, content_type)
        catalog = load_catalog(request, web, None, self._memory, NOW)
        catalog.notes()
        STORED.dump_json(catalog.nightlies)
        with contextlib.suppress(NotOnIndex):
            NightlyIndex(request, web).find(Requirement("torch"), Stamp(FIRST))
        return sum(nightly.wheel is not None for nightly in catalog.nightlies)


STORED = TypeAdapter(tuple[Nightly, ...])


class _OnePage(Web):
    """Has one page, at every address."""

    def __init__(self, body: bytes, content_type: str) -> None:
        super().__init__()
        self._document = Document(f"{ROOT}/torch/", body, content_type)

    def page(self, url: str) -> Document:
        """Return the page."""
        return self._document


def cuts(form: Form) -> Iterator[bytes]:
    """Return a page cut at every offset."""
    return (form.body[:count] for count in range(len(form.body)))


def mutated(rng: random.Random, body: bytes) -> bytes:
    """Return a page changed in one to four ways."""
    for _ in range(rng.randint(1, 4)):
        body = rng.choice(CHANGES)(rng, body)
    return body


def _place(rng: random.Random, body: bytes, longest: int = 400) -> tuple[int, int]:
    start = rng.randrange(len(body) + 1)
    return start, min(len(body), start + rng.randint(1, longest))


def _insert(rng: random.Random, body: bytes, what: bytes) -> bytes:
    at = rng.randrange(len(body) + 1)
    return body[:at] + what + body[at:]


def _flip(rng: random.Random, body: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 20) if body else 0):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut_out(rng: random.Random, body: bytes) -> bytes:
    start, stop = _place(rng, body)
    return body[:start] + body[stop:]


def _cut_off(rng: random.Random, body: bytes) -> bytes:
    return body[: rng.randrange(len(body) + 1)]


def _double(rng: random.Random, body: bytes) -> bytes:
    start, stop = _place(rng, body)
    return body[:stop] + body[start:]


def _break_tags(rng: random.Random, body: bytes) -> bytes:
    mark = rng.choice([b"<", b">", b'"', b"</a>", b"href=", b"</html>", b"#", b"{", b"}", b"[", b":", b","])
    by = rng.choice([b"", b"<", b"<<", b"'", b"<!--", b"<![", b"<?", b"<script>", b"<base href='http://['>"])
    count = rng.choice([1, 3, -1])
    return body.replace(mark, by, count)


def _entities(rng: random.Random, body: bytes) -> bytes:
    names = [
        b"&#0;",
        b"&#x110000;",
        b"&#xD800;",
        b"&amp",
        b"&lt;",
        b"&#%d;" % 10**30,
        b"&nosuch;",
        b"\\ud800",
        b"\\u0000",
    ]
    for _ in range(rng.randint(1, 5)):
        body = _insert(rng, body, rng.choice(names))
    return body


def _recode(rng: random.Random, body: bytes) -> bytes:
    text = body.decode("utf-8", "replace")
    return text.encode(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7", "cp037", "latin-1"]), "replace")


def _garbage(rng: random.Random, body: bytes) -> bytes:
    start, stop = _place(rng, body)
    packed = gzip.compress(body[start:stop], 1)
    return packed if rng.random() < 0.1 else body[:start] + packed + body[stop:]


def _huge(rng: random.Random, body: bytes) -> bytes:
    """Insert an attribute, a number, a name or a nest without end."""
    many = rng.choice([100, 5000, 50_000])
    things = [b' data-x="' + b"x" * many + b'"', b"9" * many, b"<div>" * (many // 10), b"[" * many, b"%2B" * many,
              b" data-upload-time='" + b"9" * many + b"'", b"<!--TIMESTAMP " + b"9" * many + b"-->"]  # fmt: skip
    return _insert(rng, body, rng.choice(things))


ODD_ROWS = [
    '<a href="javascript:alert(1)">x</a>', '<a href="http://[::1/x.whl">x</a>', "<a>nothing</a>", '<a href="">x</a>',
    '<a href="/whl/nightly/cpu/torch-2.16.0.dev20250231%2Bcpu-cp311-cp311-linux_x86_64.whl">x</a>',
    '<a href="/whl/nightly/cpu/torch-2.16.0.dev99999999%2Bcpu-cp311-cp311-linux_x86_64.whl">x</a>',
    '<a href="/torch-2.16.0.dev20261125%2Bcpu-cp311-cp311-any-any-any.whl">x</a>', '<a href="/%00.whl">x</a>',
    '<a href="/torch-2.16.0.dev20261125%2Bcpu-1x-cp311-cp311-linux_x86_64.whl">x</a>', '<a href="//[.whl">x</a>',
    '<a href="/torch-99999999999999999999!1.dev20261125-cp311-cp311-linux_x86_64.whl" data-yanked>x</a>',
    '<a href="/x.whl" data-upload-time="2026-13-45">x</a>', '<a href="/x.whl#sha256=zz" data-upload-time>x</a>',
    '<a href="/torch-²-cp311-cp311-linux_x86_64.whl">x</a>', '<a href="http://h:99999/torch-1-py3-none-any.whl">x</a>',
    '<a href="http://\ufffd/torch-2.16.0.dev20261125-py3-none-any.whl">x</a>', '<meta name="pypi:repository-version" content="9.9">',
    '<a href="/torch-2.16.0.dev20261125%2Bcpu-cp311-cp311-linux_x86_64.whl" data-requires-python="&gt;=3">x</a>',
]  # fmt: skip


def _odd_rows(rng: random.Random, body: bytes) -> bytes:
    for _ in range(rng.randint(1, 4)):
        body = _insert(rng, body, rng.choice(ODD_ROWS).encode())
    return body


def _odd_values(rng: random.Random, body: bytes) -> bytes:
    """Put values of other kinds into a JSON page; leave what is none as it is."""
    try:
        page = json.loads(body)
        files = page["files"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return _odd_rows(rng, body)
    if not isinstance(files, list):
        return body
    odd = [
        None,
        [],
        {},
        0,
        -1,
        10**400,
        1.5,
        True,
        "",
        "x" * 10_000,
        "\ud800",
        {"sha256": None},
        ["x"],
        "2026-99-99",
        "0001-01-01T00:00:00+23:59",
        "http://[",
    ]
    for _ in range(rng.randint(1, 5)):
        place = rng.choice([page, *files])
        if isinstance(place, dict) and place:
            key = rng.choice(list(place))
            if rng.random() < 0.2:
                del place[key]
            else:
                place[key] = rng.choice(odd)
    return json.dumps(page).encode()


CHANGES: list[Change] = [
    _flip, _cut_out, _cut_off, _double, _break_tags, _entities, _recode, _garbage, _huge, _odd_rows, _odd_values,
]  # fmt: skip


@dataclass
class Figures:
    """What became of the pages; ``faults`` and ``silent`` must stay empty."""

    ended: Counter[str]
    faults: list[str]
    silent: list[str]


def read_mutations(reader: Reader, pages: int, seed: int) -> Figures:
    """Read so many mutated pages, of each form in turn."""
    forms, rng = true_forms(), random.Random(seed)
    figures = Figures(Counter(), [], [])
    for number in range(pages):
        form = forms[number % len(forms)]
        body = mutated(rng, form.body)
        kind = (
            form.content_type
            if rng.random() < 0.9
            else rng.choice([HTML, JSON, "", "\xff;", "application/json"])
        )
        try:
            read = reader.nightlies(body, kind, form.channel)
            figures.ended["read, all nightlies" if read >= NIGHTS else "read, fewer nightlies"] += 1
        except BisectError as error:
            figures.ended[type(error).__name__] += 1
        except Exception:
            figures.faults.append(
                f"page {number} ({form.name}): {traceback.format_exc().splitlines()[-1][:200]}"
            )
    return figures


def read_cuts(reader: Reader, form: Form, every: int = 1) -> Figures:
    """Read a page cut at every offset (or every so many)."""
    figures = Figures(Counter(), [], [])
    for body in list(cuts(form))[::every]:
        try:
            read = reader.nightlies(body, form.content_type, form.channel)
            figures.ended["read"] += 1
            if read != NIGHTS:
                figures.silent.append(f"{form.name} cut after {len(body)} bytes lists {read} of {NIGHTS}")
        except BisectError as error:
            figures.ended[type(error).__name__] += 1
        except Exception:
            figures.faults.append(
                f"{form.name} cut after {len(body)}: {traceback.format_exc().splitlines()[-1][:200]}"
            )
    return figures


def main() -> int:
    """Read them all; print the figures; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="mutated-pages-") as name:
        reader = Reader(Path(name))
        started = time.monotonic()
        figures = read_mutations(reader, arguments.pages, arguments.seed)
        wrong += figures.faults
        how = ", ".join(f"{count} {end}" for end, count in figures.ended.most_common())
        print(
            f"{arguments.pages} mutated pages (seed {arguments.seed}) in {time.monotonic() - started:.0f} s: "
            f"{how}; {len(figures.faults)} tracebacks"
        )
        for form in true_forms():
            assert reader.nightlies(form.body, form.content_type, form.channel) == NIGHTS
            started = time.monotonic()
            figures = read_cuts(reader, form)
            wrong += [*figures.faults, *figures.silent]
            caught = sum(count for end, count in figures.ended.items() if end != "read")
            print(
                f"{form.name}: cut at each of {len(form.body)} offsets in {time.monotonic() - started:.0f} s: {caught} "
                f"refused, {figures.ended['read']} still whole, {len(figures.silent)} with fewer nightlies, "
                f"{len(figures.faults)} tracebacks"
            )
    for text in wrong[:20]:
        print(f"  {text}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
