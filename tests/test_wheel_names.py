"""Real file names of every era, and which channel a listed wheel is of."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightly_bisect.index.wheel_names import NotAWheel, belongs_to_channel, channel_folder, parse_wheel
from nightly_bisect.model import Stamp, Wheel

ROOT = "https://download.pytorch.org/whl/nightly"


def day(text: str, serial: int = 0) -> Stamp:
    return Stamp(date.fromisoformat(text), serial)


@pytest.mark.parametrize(
    ("filename", "project", "version", "stamp", "tags"),
    [
        ("torch-2.1.0.dev20230711+cpu-cp39-cp39-linux_x86_64.whl", "torch", "2.1.0.dev20230711+cpu",
         day("2023-07-11"), {"cp39-cp39-linux_x86_64"}),
        ("torch-1.13.0.dev20220709+rocm5.0-cp37-cp37m-linux_x86_64.whl", "torch", "1.13.0.dev20220709+rocm5.0",
         day("2022-07-09"), {"cp37-cp37m-linux_x86_64"}),
        ("torch-2.6.0.dev20241223+rocm6.2.4-cp312-cp312-manylinux_2_28_x86_64.whl", "torch",
         "2.6.0.dev20241223+rocm6.2.4", day("2024-12-23"), {"cp312-cp312-manylinux_2_28_x86_64"}),
        ("torch-1.9.0.dev20210212-cp38-cp38-linux_aarch64.whl", "torch", "1.9.0.dev20210212",
         day("2021-02-12"), {"cp38-cp38-linux_aarch64"}),
        ("torch-2.2.0.dev20231010-cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64.whl", "torch",
         "2.2.0.dev20231010", day("2023-10-10"),
         {"cp311-cp311-manylinux_2_17_aarch64", "cp311-cp311-manylinux2014_aarch64"}),
        ("torch-2.12.0.dev20260317+cpu-cp311-cp311-manylinux_2_28_aarch64.whl", "torch", "2.12.0.dev20260317+cpu",
         day("2026-03-17"), {"cp311-cp311-manylinux_2_28_aarch64"}),
        ("torch-1.14.0.dev20221104-cp37-none-macosx_10_9_x86_64.whl", "torch", "1.14.0.dev20221104",
         day("2022-11-04"), {"cp37-none-macosx_10_9_x86_64"}),
        ("torch-2.4.0.dev20240321-cp311-none-macosx_11_0_arm64.whl", "torch", "2.4.0.dev20240321",
         day("2024-03-21"), {"cp311-none-macosx_11_0_arm64"}),
        ("torch-2.15.0.dev20260829-cp313-cp313-macosx_14_0_arm64.whl", "torch", "2.15.0.dev20260829",
         day("2026-08-29"), {"cp313-cp313-macosx_14_0_arm64"}),
        ("torch-2.6.0.dev20250102+cu126-cp313-cp313-win_amd64.whl", "torch", "2.6.0.dev20250102+cu126",
         day("2025-01-02"), {"cp313-cp313-win_amd64"}),
        ("torch-2.6.0.dev20250103+cu126-cp313-cp313t-manylinux_2_28_x86_64.whl", "torch", "2.6.0.dev20250103+cu126",
         day("2025-01-03"), {"cp313-cp313t-manylinux_2_28_x86_64"}),
        ("torch-2.1.0.dev20230715+cpu.cxx11.abi-cp39-cp39-linux_x86_64.whl", "torch",
         "2.1.0.dev20230715+cpu.cxx11.abi", day("2023-07-15"), {"cp39-cp39-linux_x86_64"}),
        ("torch-2.1.0.dev20230401+cu117.with.pypi.cudnn-cp39-cp39-linux_x86_64.whl", "torch",
         "2.1.0.dev20230401+cu117.with.pypi.cudnn", day("2023-04-01"), {"cp39-cp39-linux_x86_64"}),
        ("pytorch_triton-3.2.0+git35c6c7c6-cp310-cp310-linux_x86_64.whl", "pytorch-triton", "3.2.0+git35c6c7c6",
         None, {"cp310-cp310-linux_x86_64"}),
        ("torch-2.11.0+cu128-cp310-cp310-manylinux_2_28_x86_64.whl", "torch", "2.11.0+cu128", None,
         {"cp310-cp310-manylinux_2_28_x86_64"}),
        ("pyg_nightly-2.9.0.dev20261027-py3-none-any.whl", "pyg-nightly", "2.9.0.dev20261027",
         day("2026-10-27"), {"py3-none-any"}),
        ("torchx_nightly-2026.10.26-py3-none-any.whl", "torchx-nightly", "2026.10.26",
         day("2026-10-26"), {"py3-none-any"}),
        ("tensordict_nightly-2024.5.1-cp311-cp311-manylinux1_x86_64.whl", "tensordict-nightly", "2024.5.1",
         day("2024-05-01"), {"cp311-cp311-manylinux1_x86_64"}),
        ("keras_nightly-3.16.0.dev2026102704-py3-none-any.whl", "keras-nightly", "3.16.0.dev2026102704",
         day("2026-10-27", 4), {"py3-none-any"}),
        ("tb_nightly-2.21.0a20251023-py3-none-any.whl", "tb-nightly", "2.21.0a20251023",
         day("2025-10-23"), {"py3-none-any"}),
        ("Torch-2.6.0.dev20241121+CU124-cp311-cp311-linux_x86_64.whl", "torch", "2.6.0.dev20241121+cu124",
         day("2024-11-21"), {"cp311-cp311-linux_x86_64"}),
    ],
)  # fmt: skip
def test_a_real_name_is_taken_apart(
    filename: str, project: str, version: str, stamp: Stamp | None, tags: set[str]
) -> None:
    name = parse_wheel(filename)
    assert (name.project, str(name.version), name.stamp) == (project, version, stamp)
    assert {str(tag) for tag in name.tags} == tags


@pytest.mark.parametrize(
    "filename",
    [
        "", ".whl", "torch.whl", "torch-2.6.0.dev20241121.tar.gz", "torch-2.6.0.dev20241121-py3-none-any.whl.metadata",
        "torch-2.6.0.dev20241121+cpu-cp311-linux_x86_64.whl", "torch-nightly-cp311-cp311-linux_x86_64.whl",
        "torch-2.6.0.dev20241121+-cp311-cp311-linux_x86_64.whl", "torch-2.6.0.dev20241121-py3-none-any.WHL",
    ],
)  # fmt: skip
def test_what_is_no_wheels_name_is_said(filename: str) -> None:
    with pytest.raises(NotAWheel, match="not a wheel"):
        parse_wheel(filename)


def test_a_day_that_does_not_exist_is_no_date() -> None:
    assert parse_wheel("torch-2.6.0.dev20250231+cpu-cp311-cp311-linux_x86_64.whl").stamp is None


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.text("-.+!_%0129adev", max_size=25), st.sampled_from(["{}.whl", "torch-{}-py3-none-any.whl", "{}"]))
def test_any_name_is_taken_apart_or_is_no_wheels(middle: str, form: str) -> None:
    try:
        name = parse_wheel(form.format(middle))
    except NotAWheel:
        return
    assert name.project and name.tags


@pytest.mark.parametrize(
    ("path", "channel", "belongs"),
    [
        ("cpu/torch-2.6.0.dev20241121%2Bcpu-cp311-cp311-linux_x86_64.whl", "cpu", True),
        ("cu124/torch-2.6.0.dev20241121%2Bcu124-cp311-cp311-linux_x86_64.whl", "cu124", True),
        ("cu124/torch-2.6.0.dev20241121%2Bcu124-cp311-cp311-linux_x86_64.whl", "cpu", False),
        ("xpu/torch-2.6.0.dev20241121%2Bxpu-cp311-cp311-linux_x86_64.whl", "cpu", False),
        ("rocm6.2.4/torch-2.6.0.dev20241223%2Brocm6.2.4-cp312-cp312-linux_x86_64.whl", "rocm6.2.4", True),
        ("rocm6.2.4/torch-2.6.0.dev20241223%2Brocm6.2.4-cp312-cp312-linux_x86_64.whl", "rocm6.2", False),
        # macOS and old aarch64 have no local part: the folder says it
        ("cpu/torch-2.4.0.dev20240321-cp311-none-macosx_11_0_arm64.whl", "cpu", True),
        ("cpu/torch-1.9.0.dev20210212-cp38-cp38-linux_aarch64.whl", "cpu", True),
        ("cpu/torch-2.4.0.dev20240321-cp311-none-macosx_11_0_arm64.whl", "cu124", False),
        # old wheels at the root are listed on every channel's page
        ("torch-1.2.0.dev20190701-cp36-cp36m-linux_x86_64.whl", "cu124", False),
        ("torch-1.2.0.dev20190701%2Bcpu-cp36-cp36m-linux_x86_64.whl", "cu124", False),
        # the local part decides, wherever the file lies
        ("torch-2.6.0.dev20241121%2Bcu124-cp311-cp311-linux_x86_64.whl", "cu124", True),
        ("cu124/torch-2.6.0.dev20241121%2Bcpu-cp311-cp311-linux_x86_64.whl", "cu124", False),
        # channels whose wheels are labelled otherwise
        ("cpu-cxx11-abi/torch-2.1.0.dev20230715%2Bcpu.cxx11.abi-cp39-cp39-linux_x86_64.whl", "cpu-cxx11-abi", True),
        ("cpu-cxx11-abi/torch-2.1.0.dev20230715%2Bcpu.cxx11.abi-cp39-cp39-linux_x86_64.whl", "cpu", False),
        ("cu117_pypi_cudnn/torch-2.1.0.dev20230401%2Bcu117.with.pypi.cudnn-cp39-cp39-linux_x86_64.whl",
         "cu117_pypi_cudnn", True),
        ("cu117_pypi_cudnn/torch-2.1.0.dev20230401%2Bcu117.with.pypi.cudnn-cp39-cp39-linux_x86_64.whl",
         "cu117", False),
    ],
)  # fmt: skip
def test_a_listed_wheel_belongs_to_its_own_channel_only(path: str, channel: str, belongs: bool) -> None:
    filename = path.rpartition("/")[2].replace("%2B", "+")
    wheel = Wheel(filename, f"{ROOT}/{path}")
    assert belongs_to_channel(wheel, parse_wheel(filename), channel, None) is belongs


@pytest.mark.parametrize("root", ["https://mirror.example.org/my/torch/", "https://mirror.example.org/"])
def test_an_index_without_folders_for_channels_is_the_home_of_what_has_no_label(root: str) -> None:
    filename = "torch-2.6.0.dev20241121-cp311-none-macosx_11_0_arm64.whl"
    wheel, name = Wheel(filename, root + filename), parse_wheel(filename)
    assert belongs_to_channel(wheel, name, "cpu", root)
    assert not belongs_to_channel(wheel, name, "cpu", root + "elsewhere/")
    assert not belongs_to_channel(wheel, name, "cu124", None)


def test_the_folder_of_a_file_is_its_last() -> None:
    assert channel_folder(f"{ROOT}/rocm6.2.4/torch-2.6.0%2Brocm6.2.4-py3-none-any.whl") == "rocm6.2.4"
    assert channel_folder("https://example.org/x.whl") == ""
