"""The cache: what is used least goes first, what anybody needs stays, and nothing foreign is touched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nightly_bisect.cli.cache import (
    DEFAULT_SIZE,
    clear_cache,
    content_lines,
    parse_size,
    prune_cache,
    show_cache,
    size_text,
)
from nightly_bisect.errors import UsageError
from nightly_bisect.index.cache import (
    Cache,
    Entry,
    Holds,
    Kind,
    Room,
    clean_uv_cache,
    total,
)
from nightly_bisect.standin.wheels import make_wheel
from nightly_runners.rooms import KEEP, LOCK, MARKER, USED, in_use
from nightly_runners.venv_runner import uv_binary

MIB = 2**20


def no_clean(cache: Path, names: Sequence[str]) -> None:
    """Leave the installer's cache alone."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def cache(folder: Path) -> Cache:
    return Cache(folder, no_clean)


def write(path: Path, size_bytes: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size_bytes))
    return path


def used_at(root: Path, second: int) -> None:
    (root / USED).touch()
    os.utime(root / USED, (second, second))


def wheel(folder: Path, number: int, size_bytes: int = MIB) -> Path:
    """Return the folder of a stand-in wheel that was used at second ``number``."""
    root = folder / "wheels" / f"{number:020x}"
    write(root / f"torch-2.6.0.dev{20240101 + number}-py3-none-any.whl", size_bytes)
    write(root / "record.json")
    (root / LOCK).touch()
    used_at(root, number)
    return root


def environment(
    folder: Path, name: str, second: int = 0, *, kept: bool = True, size_bytes: int = MIB
) -> Path:
    root = folder / "environments" / name
    write(root / "venv/lib/torch.so", size_bytes)
    (root / MARKER).touch()
    (root / LOCK).touch()
    if kept:
        (root / KEEP).touch()
    used_at(root, second)
    return root


def wheels_left(folder: Path) -> list[int]:
    return sorted(int(path.parent.name, 16) for path in folder.glob("wheels/*/*.whl"))


def tree(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.name not in (LOCK, ".room")}


@contextmanager
def held_wheel(root: Path) -> Iterator[None]:
    holds = Holds()
    holds.take(root)
    try:
        yield
    finally:
        holds.keep_only(set())


@contextmanager
def process(code: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    """Start a Python that has said ``ready`` and then waits for its end."""
    script = f"import sys\nfrom pathlib import Path\n{code}"
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            yield child
        finally:
            child.kill()


HOLD_AN_ENVIRONMENT = """
from nightly_runners.rooms import in_use
root = Path(sys.argv[1])
with in_use(root):
    (root / ".nightly-bisect-environment").touch()
    print("ready", flush=True)
    sys.stdin.read()
"""
HOLD_A_WHEEL = """
from nightly_bisect.index.cache import Holds
holds = Holds()
holds.take(Path(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""
DOWNLOAD = """
import filelock
root = Path(sys.argv[1])
with filelock.FileLock(root / ".lock"):
    (root / ".part-abc").write_bytes(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""
MAKE_ROOM = """
from nightly_bisect.index.cache import Cache
print("ready", flush=True)
sys.stdin.readline()
print(len(Cache(Path(sys.argv[1])).make_room(int(sys.argv[2])).removed), flush=True)
sys.stdin.read()
"""


# --- what there is


def test_an_empty_cache_holds_nothing_and_is_not_made_by_looking(cache: Cache, folder: Path) -> None:
    assert (cache.contents(), cache.sweep()) == ([], [])
    assert not folder.exists()


def test_every_kind_is_listed_with_its_use_of_the_disk(cache: Cache, folder: Path) -> None:
    wheel(folder, 1)
    environment(folder, "env-a", 2)
    write(folder / "uv-cache/CACHEDIR.TAG")
    write(folder / "uv-cache/archive-v0/x", 2 * MIB)
    write(folder / "answers.sqlite")
    (folder / "wheels" / ("f" * 20)).mkdir()
    sizes = {entry.kind: entry.size_bytes for entry in cache.contents()}
    assert MIB <= sizes[Kind.WHEEL] < MIB + 100_000
    assert MIB <= sizes[Kind.ENVIRONMENT] < MIB + 100_000
    assert 2 * MIB <= sizes[Kind.INSTALLER] < 2 * MIB + 100_000
    used = {entry.kind: entry.last_used.timestamp() for entry in cache.contents()}
    assert (used[Kind.WHEEL], used[Kind.ENVIRONMENT]) == (1, 2)


def test_a_file_with_several_links_counts_once_for_what_stays_longest(cache: Cache, folder: Path) -> None:
    newer, older = environment(folder, "env-a", 20), environment(folder, "env-b", 10)
    write(folder / "uv-cache/CACHEDIR.TAG")
    shared = write(folder / "uv-cache/shared", 4 * MIB)
    both = write(newer / "both", 8 * MIB)
    (older / "both").hardlink_to(both)
    for root in (newer, older):
        (root / "shared").hardlink_to(shared)
    sizes = {entry.path.name: round(entry.size_bytes / MIB) for entry in cache.contents()}
    assert sizes == {"uv-cache": 4, "env-a": 9, "env-b": 1}


def test_blocks_count_and_not_the_length_of_a_file_with_holes(cache: Cache, folder: Path) -> None:
    root = wheel(folder, 1)
    with (root / "torch-1-py3-none-any.whl").open("wb") as file:
        file.truncate(100 * MIB)
    assert total(cache.contents()) < 2 * MIB


def test_what_is_not_ours_is_neither_counted_nor_removed(cache: Cache, folder: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside/torch.whl")
    (folder / "wheels").mkdir(parents=True)
    (folder / "wheels" / ("a" * 20)).symlink_to(outside.parent)
    for name in ("photos/a", "wheels/mine/x.whl", "wheels/x.whl", "environments/env-a/x",
                 "environments/removing-env-b/x", "environments/mine/x", "uv-cache/x"):  # fmt: skip
        write(folder / name)
    (folder / f"environments/mine/{MARKER}").touch()
    before = tree(folder)
    assert cache.contents() == []
    assert cache.sweep() == []
    assert Cache(folder).make_room(0).removed == ()  # with the installer's real way to clean
    assert tree(folder) == before
    assert outside.exists()


def test_a_file_of_somebody_else_in_the_folder_of_a_wheel_stays(cache: Cache, folder: Path) -> None:
    foreign = write(wheel(folder, 1) / "notes.txt")
    assert len(cache.make_room(0).removed) == 1
    assert foreign.exists()


# --- making room


def test_of_fifty_wheels_the_five_used_last_are_left(cache: Cache, folder: Path) -> None:
    for number in range(1, 51):
        wheel(folder, number)
    budget = _size_of(cache, 5)
    room = cache.make_room(budget)
    assert wheels_left(folder) == [46, 47, 48, 49, 50]
    assert room.is_enough and room.total_bytes == total(cache.contents()) <= budget
    assert [int(entry.path.name, 16) for entry in room.removed] == list(range(1, 46))


def test_of_fifty_environments_the_five_used_last_are_left(cache: Cache, folder: Path) -> None:
    for number in range(1, 51):
        environment(folder, f"env-{number:02}", number)
    room = cache.make_room(_size_of(cache, 5))
    assert sorted(path.name for path in (folder / "environments").iterdir()) == [
        f"env-{number}" for number in range(46, 51)
    ]
    assert room.is_enough


def test_locked_protected_and_held_wheels_stay_however_old_they_are(cache: Cache, folder: Path) -> None:
    import filelock

    roots = {number: wheel(folder, number) for number in range(1, 51)}
    budget = _size_of(cache, 5)
    protected = {roots[1], next(roots[2].glob("*.whl"))}
    with filelock.FileLock(roots[3] / LOCK), held_wheel(roots[4]):
        used_at(roots[4], 4)
        room = cache.make_room(budget, protected)
    assert wheels_left(folder) == [1, 2, 3, 4, 50]
    assert room.is_enough


def test_wheels_and_environments_go_in_one_order(cache: Cache, folder: Path) -> None:
    for number in (1, 3, 5):
        wheel(folder, number)
        environment(folder, f"env-{number + 1}", number + 1)
    room = cache.make_room(_size_of(cache, 2))
    assert [int(entry.path.name.removeprefix("env-"), 16) for entry in room.removed] == [1, 2, 3, 4]


def test_nothing_is_removed_within_the_budget(cache: Cache, folder: Path) -> None:
    cleaned: list[Sequence[str]] = []
    wheel(folder, 1)
    write(folder / "uv-cache/CACHEDIR.TAG")
    size = total(cache.contents())
    room = Cache(folder, lambda _, names: cleaned.append(names)).make_room(size)
    assert room == Room((), size, True)
    assert cleaned == []


def test_room_is_made_for_what_is_coming(cache: Cache, folder: Path) -> None:
    for number in range(1, 5):
        wheel(folder, number)
    size = total(cache.contents())
    room = cache.make_room(size, coming_bytes=1)
    assert wheels_left(folder) == [2, 3, 4]
    assert room.is_enough and room.total_bytes < size


def test_the_budget_is_exceeded_only_by_what_is_needed(cache: Cache, folder: Path) -> None:
    roots = [wheel(folder, number) for number in range(1, 6)]
    room = cache.make_room(MIB, set(roots[1:3]))
    assert wheels_left(folder) == [2, 3]
    assert not room.is_enough and room.total_bytes > 2 * MIB


def test_a_wheel_without_a_note_was_last_used_when_it_came(cache: Cache, folder: Path) -> None:
    old, noted = wheel(folder, 1), wheel(folder, 50)
    (old / USED).unlink()
    os.utime(old / "record.json", (100, 100))
    cache.make_room(_size_of(cache, 1))
    assert not list(noted.glob("*.whl")) and list(old.glob("*.whl"))


def test_taking_a_wheel_makes_it_the_last_used(cache: Cache, folder: Path) -> None:
    first, second = wheel(folder, 1), wheel(folder, 2)
    with held_wheel(first):
        pass
    cache.make_room(_size_of(cache, 1))
    assert list(first.glob("*.whl")) and not list(second.glob("*.whl"))


def test_links_that_stay_elsewhere_are_not_taken_for_room(cache: Cache, folder: Path) -> None:
    """The oldest is in use: what it shares with a newer one does not go with that."""
    locked, newer = environment(folder, "env-a", 1), environment(folder, "env-b", 2)
    newest = environment(folder, "env-c", 3)
    (newer / "shared").hardlink_to(write(locked / "shared", 8 * MIB))
    budget = total(cache.contents()) - 2 * MIB + 1
    with in_use(locked):
        used_at(locked, 1)
        room = cache.make_room(budget)
    assert {entry.path for entry in room.removed} == {newer, newest}
    assert room.is_enough


def test_the_installers_copies_go_first_and_its_cache_last(folder: Path) -> None:
    calls: list[tuple[Sequence[str], list[int]]] = []
    frees: dict[tuple[str, ...], Path] = {}

    def clean(path: Path, names: Sequence[str]) -> None:
        calls.append((names, wheels_left(folder)))
        frees[tuple(names)].unlink()

    for number in (1, 2):
        wheel(folder, number)
    write(folder / "uv-cache/CACHEDIR.TAG")
    frees["torch",] = write(folder / "uv-cache/unpacked", MIB)
    frees[()] = write(folder / "uv-cache/dependency", MIB)
    cache = Cache(folder, clean)
    size = total(cache.contents())
    assert cache.make_room(size - 1).removed == ()
    assert calls == [(["torch"], [1, 2])]
    frees["torch",].touch()
    assert cache.make_room(MIB // 2).is_enough
    assert calls[1:] == [(["torch"], [1, 2]), ([], [])]


def test_uv_forgets_one_distribution_or_everything(folder: Path, tmp_path: Path) -> None:
    uv_cache = folder / "uv-cache"
    common = ["--cache-dir", str(uv_cache), "--no-config", "--offline", "-q"]
    subprocess.run([uv_binary(), "venv", "--python", sys.executable, tmp_path / "venv", *common], check=True)
    for name in ("torch", "other"):
        path = tmp_path / f"{name}-1.0-py3-none-any.whl"
        path.write_bytes(make_wheel(name, "1.0", {f"{name}/__init__.py": f"name = '{name}'\n"}))
        words = ["pip", "install", "--python", str(tmp_path / "venv"), "--no-index", str(path)]
        subprocess.run([uv_binary(), *words, *common], check=True)

    def unpacked() -> list[str]:
        return sorted(path.parent.name for path in uv_cache.glob("archive-v0/*/*/__init__.py"))

    assert unpacked() == ["other", "torch"]
    clean_uv_cache(uv_cache, ["torch"])
    assert unpacked() == ["other"]
    clean_uv_cache(uv_cache, [])
    assert unpacked() == []
    assert len(list(tmp_path.glob("venv/lib/*/site-packages/*/__init__.py"))) == 2  # links stay


def test_several_processes_remove_together_what_one_would(cache: Cache, folder: Path) -> None:
    for number in range(1, 31):
        wheel(folder, number)
    budget = _size_of(cache, 5)
    with ExitStack() as stack:
        children = [stack.enter_context(process(MAKE_ROOM, folder, budget)) for _ in range(4)]
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        removed = [int(child.stdout.readline()) for child in children if child.stdout]
    assert sum(removed) == 25
    assert wheels_left(folder) == [26, 27, 28, 29, 30]


# --- held by processes, dead and alive


def test_an_environment_is_swept_when_its_process_was_killed_and_not_before(
    cache: Cache, folder: Path
) -> None:
    root = environment(folder, "env-a", kept=False)
    with process(HOLD_AN_ENVIRONMENT, root) as child:
        assert cache.sweep() == []
        assert cache.make_room(0).removed == ()
        assert (root / "venv/lib/torch.so").exists()
        child.kill()
        child.wait()
        assert cache.sweep() == [root]
    assert list((folder / "environments").iterdir()) == []


def test_a_kept_environment_is_not_swept_and_makes_room_when_needed(cache: Cache, folder: Path) -> None:
    root = environment(folder, "env-a")
    assert cache.sweep() == []
    assert [entry.path for entry in cache.make_room(0).removed] == [root]
    assert not root.exists()


def test_an_environment_may_be_removed_by_its_owner_while_it_is_in_use(folder: Path) -> None:
    root = environment(folder, "env-a")
    with in_use(root):
        root.rename(root.with_name("removing-env-a"))
    assert not root.exists()


def test_a_wheel_that_another_process_holds_stays_until_it_is_killed(cache: Cache, folder: Path) -> None:
    root = wheel(folder, 1)
    with process(HOLD_A_WHEEL, root) as child:
        assert cache.make_room(0).removed == ()
        child.kill()
        child.wait()
        assert [entry.path for entry in cache.make_room(0).removed] == [root]
    assert wheels_left(folder) == []


def test_letting_go_of_a_wheel_keeps_the_others(cache: Cache, folder: Path) -> None:
    first, second = wheel(folder, 1), wheel(folder, 2)
    holds = Holds()
    for root in (first, second, second):
        holds.take(root)
    holds.keep_only({second})
    assert [entry.path for entry in cache.make_room(0).removed] == [first]
    holds.keep_only(set())
    assert [entry.path for entry in cache.make_room(0).removed] == [second]
    assert tree(folder / "wheels") == {first, second}


def test_half_a_download_is_swept_when_its_process_was_killed_and_not_before(
    cache: Cache, folder: Path
) -> None:
    root = wheel(folder, 1)
    with process(DOWNLOAD, root) as child:
        assert cache.sweep() == []
        child.kill()
        child.wait()
        assert cache.sweep() == [root / ".part-abc"]
    assert cache.sweep() == []
    assert wheels_left(folder) == [1]


def test_the_note_of_a_dead_holder_is_swept(cache: Cache, folder: Path) -> None:
    root = wheel(folder, 1)
    dead = write(root / ".use-dead")
    with held_wheel(root):
        assert cache.sweep() == [dead]
        assert cache.make_room(0).removed == ()


def test_a_removal_that_was_interrupted_is_gone_on_with(cache: Cache, folder: Path) -> None:
    doomed = environment(folder, "removing-env-a")
    assert [entry.kind for entry in cache.contents()] == [Kind.OTHER]
    assert cache.sweep() == [doomed]
    assert not doomed.exists()


def test_what_an_environment_links_to_outside_is_not_followed(
    cache: Cache, folder: Path, tmp_path: Path
) -> None:
    outside = write(tmp_path / "outside/precious")
    root = environment(folder, "env-a", kept=False)
    (root / "link").symlink_to(outside.parent)
    (root / "venv/link").symlink_to(outside.parent)
    assert cache.sweep() == [root]
    assert outside.exists()


# --- the command


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("1000", 1000),
        ("12B", 12),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("1.5kB", 1500),
        (DEFAULT_SIZE, 40 * 2**30),
        ("40gib", 40 * 2**30),
        ("0.5MiB", 2**19),
        ("2TiB", 2**41),
        ("2TB", 2 * 10**12),
        (" 1KiB ", 1024),
    ],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_size("--to", text) == size_bytes


@pytest.mark.parametrize(
    "text",
    ["", " ", "GiB", "40G", "40 G B", "-1", "+1MB", "1e9", "nan", "inf", "1,5GB", ".5GB", "5.GB", "٤GB",
     "40GiB extra", "40XiB", "0x10", "9" * 5000, "1\n2", "40GıB"],
)  # fmt: skip
def test_what_is_no_size_is_an_error_of_usage(text: str) -> None:
    with pytest.raises(UsageError, match=r"--cache-size .* is not a size") as caught:
        parse_size("--cache-size", text)
    assert "40GiB" in caught.value.hint


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 * 2**29, "1.5 GiB"), (2**41, "2.0 TiB")],
)
def test_a_size_is_written_in_the_largest_unit(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


def test_the_command_shows_each_kind_and_the_budget(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel(folder, 1)
    assert show_cache(folder, "2GiB") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == str(folder)
    assert lines[1].split()[:2] == ["wheels", "1"]
    assert lines[-1].endswith("MiB of 2.0 GiB")
    assert len(lines) == 2 + len(Kind)


def test_the_lines_add_up() -> None:
    assert [line.split() for line in content_lines([], 2**30)][-1] == ["total", "0", "B", "of", "1.0", "GiB"]


def test_the_command_prunes_to_a_size_and_clears(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(1, 5):
        wheel(folder, number)
    environment(folder, "env-a", kept=False)
    assert prune_cache(folder, "2.5MiB") == 0
    assert wheels_left(folder) == [3, 4]
    assert "removed: wheels 2, environments 0, half-built 1; 3.0 MiB freed" in capsys.readouterr().out
    assert clear_cache(folder) == 0
    assert wheels_left(folder) == []


def test_the_command_says_what_keeps_it_from_more(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held_wheel(wheel(folder, 1)):
        prune_cache(folder, "1KiB")
    assert "more than 1.0 KiB: running bisections use the rest" in capsys.readouterr().out
    assert wheels_left(folder) == [1]


def test_without_a_cache_there_is_nothing_to_clear(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert clear_cache(folder) == 0
    assert capsys.readouterr().out == "There is no cache yet.\n"
    assert not folder.exists()


def _size_of(cache: Cache, count: int) -> int:
    """Return a budget that holds ``count`` things of a MiB, and what stays of the removed ones."""
    entries: list[Entry] = cache.contents()
    return count * max(entry.size_bytes for entry in entries) + len(entries) * 4096
