"""Profiles: those that come with the tool, and what is said of one that is wrong."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from pathlib import Path

import pytest

from nightly_bisect.errors import UsageError
from nightly_bisect.index.profiles import Period, Profile, builtin_profiles, load_profile, read_profile

WINDOW = '[unlisted]\nurl = "https://example.org/"\n[[unlisted.base_versions]]\n'
FILES = '[unlisted]\nurl = "https://example.org/"\n[[unlisted.files]]\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "profile.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("path", builtin_profiles().values(), ids=lambda path: path.stem)
def test_every_profile_that_comes_with_the_tool_can_be_read(path: Path) -> None:
    profile = read_profile(path)
    assert profile.package == path.stem
    assert profile.import_name
    assert load_profile(path.stem, None) == profile


def test_what_is_known_of_torch_is_what_the_index_attests() -> None:
    torch = load_profile("torch", None)
    assert torch.index.url == "https://download.pytorch.org/whl/nightly/{channel}/"
    assert torch.index.default_channel == "cpu"
    assert {"triton", "torchtriton", "pytorch-triton-rocm", "torchvision"} <= torch.index.only_here
    assert torch.identity.by_import
    assert torch.main_commit_in_message is not None and torch.unlisted is not None
    match = torch.main_commit_in_message.search(f"2024-06-01 nightly release ({'a' * 40})")
    assert match and match[1] == "a" * 40


def test_the_windows_of_base_versions_follow_each_other_without_overlap() -> None:
    torch = load_profile("torch", None)
    assert torch.unlisted is not None
    windows = [period for _, period in torch.unlisted.base_versions]
    for before, after in pairwise(windows):
        assert before.last is not None and after.last is not None and before.last < after.last
        assert after.first is None or before.last < after.first


@pytest.mark.parametrize(
    ("name", "channel", "package"),
    [
        ("Torch", None, "torch"),
        ("pyg_nightly", None, "pyg-nightly"),
        ("torch", "release", "torch"),
        ("NumPy", "release", "numpy"),
    ],
)
def test_a_package_is_known_by_any_spelling_and_for_releases_any_will_do(
    name: str, channel: str | None, package: str
) -> None:
    assert load_profile(name, channel).package == package


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("torc", "did you mean torch"),
        ("pyg-night", "did you mean pyg-nightly"),
        ("numpy", "--channel release"),
    ],
)
def test_an_unknown_package_is_a_usage_error_that_says_what_can_be_done(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        load_profile(name, None)
    assert hint in caught.value.hint
    assert "--profile" in caught.value.hint


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "`package` is missing"),
        ("package = 1", "`package` must be a str"),
        ("package = 'x'\nimport_nam = 'x'", "unknown key `import_nam`"),
        ("package = 'x'\nindex = 1", "`index` must be a"),
        ("package = 'x'\n[index]\nurl = 1", "`index.url` must be a str"),
        ("package = 'x'\n[index]\nhosts = 'a.org'", "`index.hosts` must be a list"),
        ("package = 'x'\n[index]\nhosts = [1]", "`index.hosts` must be a list of strings"),
        ("package = 'x'\n[index]\nchannel = 'cpu'", "unknown key `index.channel`"),
        ("package = 'x'\n[identity]\nimport = 'yes'", "`identity.import` must be a bool"),
        ("package = 'x'\n[identity]\nversion = 'x'", "unknown key `identity.version`"),
        ("package = 'x'\n[commits]\nmain_commit_in_message = '('", "is not a regular expression"),
        ("package = 'x'\n[commits]\nmain = ''", "unknown key `commits.main`"),
        ("package = 'x'\n[unlisted]\nfiles = []", "`unlisted.url` is missing"),
        ("package = 'x'\n[unlisted]\nurl = 'u'\nfiles = [1]", "`unlisted.files` must be a list of tables"),
        ("package = 'x'\n[unlisted]\nurl = 'u'\nnewer = { since = 'May' }", "`unlisted.newer.since` must be a day"),
        ("package = 'x'\n[unlisted]\nurl = 'u'\nnewer = { from = 'x' }", "unknown key `unlisted.newer.from`"),
        ("package = 'x'\n" + WINDOW + "first = 2024-05-01", "`unlisted.base_versions.version` is missing"),
        ("package = 'x'\n" + WINDOW + "version = '2.0'\nfirst = 20240501", "`unlisted.base_versions.first` must be a day"),
        ("package = 'x'\n" + WINDOW + "version = '2.0'\nlast = 2024-05-01T10:00:00", "must be a day, YYYY-MM-DD"),
        ("package = 'x'\n" + FILES + "locals = []", "`unlisted.files.platform` is missing"),
        ("package = 'x'\n" + FILES + "platform = 'p'\nlocal = []", "unknown key `unlisted.files.local`"),
        ("package = 'x'\n" + FILES + "platform = 'p'\ntags = [{}]", "`unlisted.files.tags.tag` is missing"),
        ("package = ", "is not TOML"),
        ("package = 'x'\npackage = 'y'", "is not TOML"),
    ],
)  # fmt: skip
def test_a_wrong_profile_is_a_usage_error_that_names_the_file_and_the_key(
    tmp_path: Path, text: str, why: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_profile(path)
    assert str(path) in caught.value.what
    assert why in caught.value.what


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("missing.toml", None, "No such file"),
        ("", None, "Is a directory"),
        ("bytes.toml", b"\xff\xfe", "is not TOML"),
    ],
)
def test_a_profile_that_cannot_be_read_is_a_usage_error(
    tmp_path: Path, name: str, content: bytes | None, why: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=why):
        read_profile(path)


def test_the_least_profile_is_a_name(tmp_path: Path) -> None:
    assert read_profile(write(tmp_path, "package = 'My_Package'")) == Profile("my-package", None)


def test_days_may_be_written_as_dates_or_as_text(tmp_path: Path) -> None:
    text = "package = 'x'\n" + WINDOW + "version = '2.0'\nfirst = 2024-05-01\nlast = '2024-06-01'\n"
    profile = read_profile(write(tmp_path, text))
    assert profile.unlisted is not None
    assert profile.unlisted.base_versions == (("2.0", Period(date(2024, 5, 1), date(2024, 6, 1))),)


@pytest.mark.parametrize(
    ("period", "inside"),
    [
        (Period(), (True, True, True, True)),
        (Period(first=date(2024, 5, 2)), (False, True, True, True)),
        (Period(last=date(2024, 5, 3)), (True, True, True, False)),
        (Period(date(2024, 5, 2), date(2024, 5, 3)), (False, True, True, False)),
        (Period(date(2024, 5, 3), date(2024, 5, 2)), (False, False, False, False)),
    ],
)
def test_a_period_holds_its_own_ends_and_is_open_where_it_names_none(
    period: Period, inside: tuple[bool, ...]
) -> None:
    assert tuple(date(2024, 5, day) in period for day in (1, 2, 3, 4)) == inside


def test_releases_of_a_package_come_from_the_default_index_without_the_detour_to_main() -> None:
    torch = load_profile("torch", None).as_release()
    assert torch.index.url is None
    assert torch.index.only_here == frozenset()
    assert torch.unlisted is None
    assert torch.main_commit_in_message is None
    assert (torch.import_name, torch.identity.by_import) == ("torch", True)
