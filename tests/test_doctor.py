"""What `doctor` finds: real programs, files, sockets and an index on loopback, and what it says of each."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import FOLDER, Tool, nights, serve

from nightly_bisect.cli.doctor import (
    CACHE_NEEDS_BYTES,
    Engine,
    Finding,
    Gpu,
    Machine,
    Ping,
    Pythons,
    Space,
    Uv,
    Vendor,
    Way,
    as_json,
    containment_finding,
    doctor,
    engine_finding,
    examine,
    exit_code,
    find_engine,
    find_gpus,
    find_pythons,
    find_uv,
    finding_lines,
    gpu_findings,
    links_finding,
    look_at_space,
    newest_cuda_channel,
    on_one_file_system,
    ping_engine,
    python_finding,
    space_finding,
    summary,
    this_machine,
    try_containment,
    uv_finding,
    uv_versions,
)
from nightly_bisect.cli.request import WhatArguments, make_request
from nightly_bisect.errors import StorageFault, UsageError
from nightly_bisect.index.profiles import load_profile
from nightly_bisect.standin.server import Content, LoopbackServer
from nightly_runners.containment import Containment
from nightly_runners.contract import InstallerFault
from nightly_runners.processes import works

DAY = date(2025, 11, 1)
PAGE = f"{FOLDER}/torch/"
CHANNELS = load_profile("torch", None).index.channels


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what is looked at away from the user's own folders, and wait for nothing: no retries, no shims."""
    programs = [folder for folder in os.environ["PATH"].split(os.pathsep) if not folder.endswith("shims")]
    monkeypatch.setenv("PATH", os.pathsep.join(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NIGHTLY_BISECT_RETRY_DELAY_S", "0")


def bare(root: Path, **more: object) -> Machine:
    """Return a machine with no program, no device and no variable."""
    return replace(Machine({"PATH": str(root / "bin")}, lambda words: None, root=root), **more)  # type: ignore[arg-type]


def a_program(folder: Path, name: str, text: str, status: int = 0) -> None:
    """Write a program that prints a text."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {status}\n")
    path.chmod(0o755)


@pytest.fixture
def with_programs(tmp_path: Path) -> Iterator[Machine]:
    """Give this machine with programs of the test's own first on its PATH, and its own /proc and /sys."""
    path = os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"])
    with this_machine({**os.environ, "PATH": path}) as machine:
        yield replace(machine, root=tmp_path)


def a_file(root: Path, name: str, text: str = "") -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def names(findings: list[Finding], ok: bool | None) -> list[str]:
    return [finding.name for finding in findings if finding.ok is ok]


# --- the whole


def test_a_machine_on_which_a_bisection_can_run_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    with serve(nights(DAY, 3, lambda day: "")) as server:
        code = doctor(WhatArguments(index_url=server.url + FOLDER))
    out = capsys.readouterr().out
    assert code == 0
    assert "ok       index " in out
    assert "3 nightlies listed for Python" in out
    assert "the newest of 2025-11-03" in out
    assert out.endswith("\nA bisection can run here.\n")


def test_an_index_that_cannot_be_reached_exits_with_5_and_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor(WhatArguments(index_url="http://127.0.0.1:9/whl")) == 5
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("MISSING  index        Nothing usable came from http://127.0.0.1:9/whl/torch/")
    assert lines[1].strip().startswith("hint: ")
    assert lines[-1] == "No bisection can run here: index."


@pytest.mark.parametrize(
    "page",
    [Content(b"<html><form>log in</form></html>", "text/html"), Content(b"<html><a href=", "text/html")],
    ids=["a login page", "a page cut short"],
)
def test_what_is_no_index_is_a_missing_index(page: Content, capsys: pytest.CaptureFixture[str]) -> None:
    with LoopbackServer({PAGE: page}) as server:
        assert doctor(WhatArguments(index_url=server.url + FOLDER)) == 5
    assert "MISSING  index" in capsys.readouterr().out


def test_an_index_without_a_wheel_for_this_python_exits_with_6_and_names_one_that_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serve(nights(DAY, 2, lambda day: "", tag="cp39-cp39-linux_x86_64")) as server:
        assert doctor(WhatArguments(index_url=server.url + FOLDER, platform="linux_x86_64")) == 6
    out = capsys.readouterr().out
    assert "ok       index" in out
    assert "MISSING  wheels" in out
    assert "hint: use `--python 3.9`" in out


def test_json_goes_to_a_file_beside_the_lines_or_alone_to_stdout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "findings.json"
    with serve(nights(DAY, 1, lambda day: "")) as server:
        assert doctor(WhatArguments(index_url=server.url + FOLDER, json_file=file)) == 0
        assert capsys.readouterr().out.startswith("ok       index")
        assert doctor(WhatArguments(index_url=server.url + FOLDER, json_file=Path("-"))) == 0
    for text in (file.read_text(), capsys.readouterr().out):
        document = json.loads(text)
        assert (document["schema"], document["ready"], document["exit_code"]) == (1, True, 0)
        assert document["findings"][0] == {
            "name": "index",
            "ok": True,
            "text": f"{server.url}{PAGE}",
            "hint": None,
        }


def test_a_json_file_that_cannot_be_written_is_a_storage_fault(tmp_path: Path) -> None:
    with serve(nights(DAY, 1, lambda day: "")) as server, pytest.raises(StorageFault):
        doctor(WhatArguments(index_url=server.url + FOLDER, json_file=tmp_path))


def test_a_channel_that_means_nothing_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        doctor(WhatArguments(package="keras-nightly", channel="cu128"))


def test_nothing_of_the_probes_is_left_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with this_machine(os.environ) as machine:
        machine.run(["true"])
        assert list(scratch.iterdir())
    assert not list(scratch.iterdir())


def test_no_temporary_folder_is_a_storage_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(StorageFault), this_machine(os.environ):
        pass


def test_the_code_is_that_of_the_first_thing_that_is_missing(tmp_path: Path) -> None:
    def no_uv() -> str:
        raise InstallerFault("missing", "no uv")

    machine = bare(tmp_path, uv=no_uv, free_bytes=lambda path: 1)
    with serve(nights(DAY, 1, lambda day: "")) as server:
        request = make_request(WhatArguments(index_url=server.url + FOLDER))
        findings = list(examine(request, tmp_path / "c", tmp_path / "s", machine))
    assert names(findings, False) == ["uv", "cache", "state"]
    assert exit_code(findings) == 6
    assert exit_code(finding for finding in findings if finding.name != "uv") == 7
    assert summary(findings) == "No bisection can run here: uv, cache, state."
    assert json.loads(as_json(findings))["ready"] is False


def test_what_only_makes_things_better_does_not_count_as_missing(tmp_path: Path) -> None:
    with_uv = {"uv": lambda: "/uv", "run": lambda words: "uv 0.13.9\n" if words[0] == "/uv" else None}
    with serve(nights(DAY, 1, lambda day: "")) as server:
        request = make_request(WhatArguments(index_url=server.url + FOLDER))
        findings = list(examine(request, tmp_path / "c", tmp_path / "s", bare(tmp_path, **with_uv)))
    assert names(findings, None) == ["gpu", "container", "containment"]
    assert all(finding.hint for finding in findings if finding.ok is not True)
    assert exit_code(findings) == 0


def test_a_finding_is_one_line_and_its_hint_another_whatever_is_in_them() -> None:
    lines = finding_lines(Finding("gpu", None, "a\x1b[31m\nb", "c\nd"))
    assert lines == [
        "-        gpu          a\\x1b[31m b",
        "                      hint: c d",
    ]


# --- uv and Pythons


def test_the_uv_of_this_environment_runs_and_tells_its_version() -> None:
    with this_machine(os.environ) as machine:
        uv = find_uv(machine)
    assert uv.path is not None
    done = subprocess.run([uv.path, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[1] == uv.version
    assert uv_finding(uv).ok


def test_a_uv_that_does_not_run_is_missing(with_programs: Machine, tmp_path: Path) -> None:
    a_program(tmp_path, "uv", "Illegal instruction", status=132)
    uv = find_uv(replace(with_programs, uv=lambda: str(tmp_path / "bin/uv")))
    assert uv == Uv(str(tmp_path / "bin/uv"), None)
    finding = uv_finding(uv)
    assert (finding.ok, finding.hint) == (
        False,
        f"`{sys.executable} -m pip install --force-reinstall uv`",
    )


def test_this_python_and_pyenvs_are_found_and_each_version_is_named_once(
    with_programs: Machine, tmp_path: Path
) -> None:
    for version in ("3.9.18", "3.13.0t", "2.7.18", "3.10.13", "pypy3.10-7.3.19"):
        a_file(tmp_path, f"versions/{version}/bin/python")
    (tmp_path / "versions/3.12.1/bin").mkdir(parents=True)
    rows = [
        {"version": "3.10.13", "implementation": "cpython", "variant": "default"},
        {"version": "3.14.0", "implementation": "cpython", "variant": "freethreaded"},
        {"version": "3.14.0", "implementation": "cpython", "variant": "default"},
        {"version": "3.11.9", "implementation": "pypy", "variant": "default"},
    ]
    a_program(tmp_path, "uv", json.dumps(rows))
    variables = {**with_programs.variables, "PYENV_ROOT": str(tmp_path)}
    pythons = find_pythons(
        replace(with_programs, variables=variables), Uv(str(tmp_path / "bin/uv"), "0.13.9")
    )
    assert pythons.this is not None
    assert pythons.this.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert pythons.of_pyenv == ("3.9.18", "3.10.13", "3.13.0t")
    assert pythons.of_uv == ("3.14.0", "3.14.0t")


def test_every_python_that_uv_of_this_machine_finds_is_named() -> None:
    with this_machine(os.environ) as machine:
        uv = find_uv(machine)
        pythons = find_pythons(machine, uv)
    assert uv.path is not None
    words = [uv.path, "python", "list", "--only-installed", "--offline", "--no-config", "--output-format"]
    done = subprocess.run([*words, "json"], capture_output=True, text=True, check=True)
    text = python_finding(pythons).text
    assert all(version in text for version in uv_versions(done.stdout))


@pytest.mark.parametrize("listing", ["", "no JSON", "{}", "[1]", '[{"version": "3.1"}]', "null"])
def test_a_listing_of_another_form_names_no_python(listing: str) -> None:
    assert uv_versions(listing) == set()


def test_pythons_are_said_by_where_they_come_from() -> None:
    finding = python_finding(Pythons("3.11.7", ("3.9.18", "3.10.13"), ("3.12.5",)))
    assert finding.text == "3.11.7 (this one); of pyenv: 3.9.18, 3.10.13; found by uv: 3.12.5"
    assert python_finding(Pythons(None)).ok is False


# --- disk


def test_room_is_that_of_the_nearest_folder_that_is_there(tmp_path: Path) -> None:
    asked: list[Path] = []

    def free_bytes(path: Path) -> int:
        asked.append(path)
        return 3_000_000_000

    space = look_at_space(tmp_path / "a/b/c", bare(tmp_path, free_bytes=free_bytes))
    assert asked == [tmp_path]
    assert space == Space(tmp_path / "a/b/c", 3_000_000_000)


def test_the_free_room_of_this_machine_is_told(tmp_path: Path) -> None:
    with this_machine(os.environ) as machine:
        space = look_at_space(tmp_path, machine)
    assert space.problem is None
    assert 0 < space.free_bytes <= shutil.disk_usage(tmp_path).total


def test_a_file_in_place_of_a_folder_is_no_place(tmp_path: Path) -> None:
    a_file(tmp_path, "cache")
    space = look_at_space(tmp_path / "cache/x", bare(tmp_path))
    assert space.problem == f"{tmp_path}/cache is not a folder"
    finding = space_finding("cache", space, CACHE_NEEDS_BYTES, "--cache-dir")
    assert (finding.ok, finding.hint) == (False, "name another folder by --cache-dir")


@pytest.mark.skipif(not works(Containment.BUBBLEWRAP), reason="root writes anywhere else")
def test_a_read_only_folder_is_no_place(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from nightly_bisect.cli.doctor import Machine, look_at_space; "
        "print(look_at_space(Path(sys.argv[1]), Machine({}, lambda words: None)).problem)"
    )
    words = ["bwrap", "--ro-bind", "/", "/", sys.executable, "-c", code, str(tmp_path / "x")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"{tmp_path} cannot be written to\n"


def test_a_disk_that_does_not_answer_is_no_place(tmp_path: Path) -> None:
    def stale(path: Path) -> int:
        raise OSError(116, "Stale file handle")

    assert (
        look_at_space(tmp_path, bare(tmp_path, free_bytes=stale)).problem == f"{tmp_path}: Stale file handle"
    )


@pytest.mark.parametrize(
    ("free_bytes", "ok"), [(CACHE_NEEDS_BYTES, False), (CACHE_NEEDS_BYTES + 1, True)], ids=["2 GB", "more"]
)
def test_more_than_2_gb_must_be_free(free_bytes: int, ok: bool) -> None:
    assert space_finding("cache", Space(Path("/c"), free_bytes), CACHE_NEEDS_BYTES, "--cache-dir").ok is ok


def test_a_cache_on_two_file_systems_copies(tmp_path: Path) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system here")
    assert on_one_file_system(tmp_path / "cache")
    (tmp_path / "uv-cache").symlink_to(other)
    assert not on_one_file_system(tmp_path)
    finding = links_finding(tmp_path, on_one_file_system(tmp_path))
    assert (finding.ok, finding.hint is not None) == (None, True)


# --- GPUs

PROPRIETARY = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024\n"
    "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
)
OPEN = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs-builder@U22)  "
    "Sun Jul 27 06:54:38 UTC 2025\nGCC version:  gcc version 11.4.0\n"
)


def test_nvidia_smi_names_gpus_and_driver(with_programs: Machine, tmp_path: Path) -> None:
    a_program(tmp_path, "nvidia-smi", "NVIDIA H200, 570.124.06\nNVIDIA H200, 570.124.06")
    gpus = find_gpus(with_programs)
    assert gpus == [Gpu(Vendor.NVIDIA, "570.124.06", ("NVIDIA H200", "NVIDIA H200"))]
    assert gpu_findings(gpus, CHANNELS) == [
        Finding(
            "gpu",
            True,
            "2 × NVIDIA H200, driver 570.124.06: CUDA channels up to cu129 "
            "(approximately: the GPU's age matters as well)",
        )
    ]


@pytest.mark.parametrize(("text", "driver"), [(PROPRIETARY, "535.183.01"), (OPEN, "580.65.06")])
def test_without_nvidia_smi_the_kernel_names_gpus_and_driver(tmp_path: Path, text: str, driver: str) -> None:
    a_file(tmp_path, "proc/driver/nvidia/version", text)
    gpu = "proc/driver/nvidia/gpus/0000:01:00.0/information"
    a_file(tmp_path, gpu, "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ:   \t\t 130\n")
    assert find_gpus(bare(tmp_path)) == [Gpu(Vendor.NVIDIA, driver, ("NVIDIA GeForce RTX 4090",))]


def test_an_nvidia_smi_that_fails_beside_a_loaded_driver_is_told(
    with_programs: Machine, tmp_path: Path
) -> None:
    a_file(tmp_path, "proc/driver/nvidia/version", OPEN)
    a_program(tmp_path, "nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", status=18)
    (finding,) = gpu_findings(find_gpus(with_programs), CHANNELS)
    assert finding.ok is None
    assert finding.text == "NVIDIA GPU, driver 580.65.06: nvidia-smi fails, so CUDA programs will too"
    assert finding.hint == "run nvidia-smi: after an update of the driver, a restart is needed"


def test_an_nvidia_smi_without_a_driver_is_no_gpu(with_programs: Machine, tmp_path: Path) -> None:
    a_program(tmp_path, "nvidia-smi", "couldn't communicate with the NVIDIA driver", status=9)
    assert find_gpus(with_programs) == []


@pytest.mark.parametrize(
    ("driver", "channel"),
    [
        ("580.65.06", "cu134"),
        ("610.10", "cu134"),
        ("575.51.03", "cu129"),
        ("525.60.13", "cu129"),
        ("470.57.02", "cu118"),
        ("450.36.06", "cu118"),
        ("440.33", "cu102"),
        ("418.39", None),
        ("", None),
        (None, None),
    ],
)
def test_the_newest_cuda_channel_of_a_driver(driver: str | None, channel: str | None) -> None:
    assert newest_cuda_channel(driver, CHANNELS) == channel


def test_where_the_newest_major_has_no_channel_an_older_one_runs() -> None:
    assert newest_cuda_channel("580.65", ("cpu", "cu118", "cu126", "rocm6.4")) == "cu126"
    assert newest_cuda_channel("580.65", ("cpu", "cu140")) is None


@given(st.integers(300, 700), st.integers(300, 700))
def test_a_newer_driver_never_runs_less(one: int, other: int) -> None:
    old, new = (newest_cuda_channel(f"{major}.1", CHANNELS) for major in sorted((one, other)))
    assert int((old or "cu0")[2:]) <= int((new or "cu0")[2:])


def test_a_driver_that_is_too_old_has_a_hint() -> None:
    (finding,) = gpu_findings([Gpu(Vendor.NVIDIA, "390.157")], CHANNELS)
    assert (finding.ok, finding.hint is not None) == (None, True)


def test_amdgpu_of_rocm_tells_its_version_and_runs_up_to_the_newest_channel(tmp_path: Path) -> None:
    a_file(tmp_path, "sys/module/amdgpu/version", "6.8.5\n")
    a_file(tmp_path, "dev/kfd")
    gpus = find_gpus(bare(tmp_path))
    assert gpus == [Gpu(Vendor.AMD, "6.8.5")]
    (finding,) = gpu_findings(gpus, ("cpu", "rocm6.4", "rocm7.14", "rocm7.2"))
    assert finding.ok
    assert finding.text.startswith("AMD GPU, driver 6.8.5: ROCm channels up to rocm7.14")


def test_amdgpu_of_the_kernel_has_no_version_file(tmp_path: Path) -> None:
    (tmp_path / "sys/module/amdgpu").mkdir(parents=True)
    a_file(tmp_path, "dev/kfd")
    assert find_gpus(bare(tmp_path)) == [Gpu(Vendor.AMD, "amdgpu of the kernel")]


def test_without_kfd_rocm_computes_nothing(tmp_path: Path) -> None:
    a_file(tmp_path, "sys/module/amdgpu/version", "6.8.5\n")
    (finding,) = gpu_findings(find_gpus(bare(tmp_path)), CHANNELS)
    assert (finding.ok, finding.text) == (None, "AMD GPU, driver 6.8.5: there is no /dev/kfd")


def test_rocm_smi_tells_a_driver_that_files_do_not(with_programs: Machine, tmp_path: Path) -> None:
    a_program(tmp_path, "rocm-smi", "====== Version of System Component ======\nDriver version: 6.10.5")
    a_file(tmp_path, "dev/kfd")
    assert find_gpus(with_programs) == [Gpu(Vendor.AMD, "6.10.5")]


def an_intel_card(root: Path, driver: str = "xe") -> None:
    (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
    a_file(root, "sys/class/drm/card0/device/vendor", "0x8086\n")
    (root / "sys/class/drm/card0/device/driver").symlink_to(root / "sys/bus/pci/drivers" / driver)


def test_an_intel_card_may_run_xpu(tmp_path: Path) -> None:
    an_intel_card(tmp_path)
    (finding,) = gpu_findings(find_gpus(bare(tmp_path)), CHANNELS)
    assert finding.ok is None
    assert finding.text.startswith("Intel GPU, driver xe: the channel xpu runs if it is an Arc")
    assert finding.hint is not None


def test_a_card_of_another_vendor_is_not_intels(tmp_path: Path) -> None:
    a_file(tmp_path, "sys/class/drm/card0/device/vendor", "0x1a03\n")
    assert find_gpus(bare(tmp_path)) == []


def test_what_xpu_smi_names_runs_xpu(with_programs: Machine, tmp_path: Path) -> None:
    an_intel_card(tmp_path)
    row = "| 0         | Device Name: Intel(R) Data Center GPU Max 1550                       |"
    a_program(tmp_path, "xpu-smi", f"+-----+\n{row}\n|           | Vendor Name: Intel(R) Corporation   |")
    gpus = find_gpus(with_programs)
    assert gpus == [Gpu(Vendor.INTEL, "xe", ("Intel(R) Data Center GPU Max 1550",))]
    (finding,) = gpu_findings(gpus, CHANNELS)
    assert finding.ok
    assert "channel xpu" in finding.text


def test_gpus_of_two_vendors_are_two_findings(tmp_path: Path) -> None:
    an_intel_card(tmp_path, "i915")
    a_file(tmp_path, "proc/driver/nvidia/version", OPEN)
    assert len(gpu_findings(find_gpus(bare(tmp_path)), CHANNELS)) == 2


def test_a_package_without_channels_names_none() -> None:
    for gpu in (Gpu(Vendor.NVIDIA, "580.1"), Gpu(Vendor.AMD, "6.8"), Gpu(Vendor.INTEL, "xe", ("Arc",))):
        (finding,) = gpu_findings([gpu], ())
        assert (finding.ok, finding.hint is not None) == (None, True)


def test_without_a_gpu_the_channel_cpu_runs(tmp_path: Path) -> None:
    (finding,) = gpu_findings(find_gpus(bare(tmp_path)), CHANNELS)
    assert (finding.ok, finding.text) == (None, "none with a driver: only the channel cpu runs here")


# --- container engine


class _Engine(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/_ping" else 404)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Give a folder whose name leaves room for that of a socket (108 bytes in all)."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield Path(folder)


def an_engine(socket_path: Path) -> socketserver.UnixStreamServer:
    socket_path.parent.mkdir(parents=True, exist_ok=True)
    server = socketserver.UnixStreamServer(str(socket_path), _Engine)
    threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True).start()
    return server


def test_an_engine_that_answers_is_found(short_folder: Path) -> None:
    server = an_engine(short_folder / "var/run/docker.sock")
    engine = find_engine(bare(short_folder))
    server.shutdown()
    server.server_close()
    assert engine == Engine(f"unix://{short_folder}/var/run/docker.sock", Ping.ANSWERED, True)
    assert engine_finding(engine, has_program=True).ok


def test_an_engine_at_another_place_has_the_variable_to_set_as_hint(short_folder: Path) -> None:
    server = an_engine(short_folder / "podman/podman.sock")
    variables = {"PATH": "", "XDG_RUNTIME_DIR": str(short_folder)}
    engine = find_engine(bare(short_folder, variables=variables))
    server.shutdown()
    server.server_close()
    finding = engine_finding(engine, has_program=False)
    assert finding.ok is None
    assert finding.hint == f"for --runner docker, set DOCKER_HOST=unix://{short_folder}/podman/podman.sock"


def test_the_engine_that_the_environment_names_is_the_only_one_asked(short_folder: Path) -> None:
    server = an_engine(short_folder / "var/run/docker.sock")
    variables = {"PATH": "", "DOCKER_HOST": f"unix://{short_folder}/other.sock"}
    engine = find_engine(bare(short_folder, variables=variables))
    server.shutdown()
    server.server_close()
    assert engine == Engine(f"unix://{short_folder}/other.sock", Ping.NO_SOCKET, True)


def test_an_engine_over_tcp_is_asked() -> None:
    with LoopbackServer({"/_ping": Content(b"OK")}) as server:
        address = server.url.replace("http://", "tcp://")
        assert ping_engine(address, {}) is Ping.ANSWERED
        assert ping_engine(address, {"DOCKER_TLS_VERIFY": "1"}) is Ping.NOT_TRIED
    with LoopbackServer() as server:
        assert ping_engine(server.url.replace("http://", "tcp://"), {}) is Ping.SILENT
    assert ping_engine(address, {}) is Ping.SILENT


def test_a_socket_that_nobody_listens_on_is_silent(short_folder: Path) -> None:
    server = an_engine(short_folder / "docker.sock")
    server.shutdown()
    server.server_close()
    assert ping_engine(f"unix://{short_folder}/docker.sock", {}) is Ping.SILENT


@pytest.mark.parametrize(
    "address", ["ssh://host", "npipe:////./pipe/docker", "tcp://", "tcp://h:x", "x", "//["]
)
def test_what_is_not_tried_is_said_so(address: str) -> None:
    assert ping_engine(address, {}) is Ping.NOT_TRIED


@pytest.mark.parametrize(
    ("ping", "has_program", "hint"),
    [
        (Ping.NO_SOCKET, False, "install Docker or Podman"),
        (Ping.NO_SOCKET, True, "start its daemon"),
        (Ping.SILENT, True, "start its daemon"),
        (Ping.FORBIDDEN, True, "usermod -aG docker"),
        (Ping.NOT_TRIED, True, "docker version"),
    ],
)
def test_the_hint_of_an_engine_says_what_is_missing(ping: Ping, has_program: bool, hint: str) -> None:
    finding = engine_finding(Engine("unix:///x", ping, True), has_program=has_program)
    assert finding.ok is None
    assert hint in (finding.hint or "")


def test_docker_itself_finds_the_same_as_we_do() -> None:
    if shutil.which("docker") is None:
        pytest.skip("no docker program here")
    host = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    done = subprocess.run(["docker", "--host", host, "version"], capture_output=True, check=False, timeout=60)
    with this_machine(os.environ) as machine:
        engine = find_engine(machine)
    assert (engine.ping is Ping.ANSWERED and engine.is_default) == (done.returncode == 0)


# --- containment


@pytest.mark.parametrize("how", [Containment.BUBBLEWRAP, Containment.NAMESPACE])
def test_a_way_of_containment_is_what_trying_it_says(how: Containment) -> None:
    with this_machine(os.environ) as machine:
        assert (try_containment(machine)[how] is Way.WORKS) == works(how)


def test_a_program_that_is_not_there_is_not_tried(tmp_path: Path) -> None:
    def never(how: Containment) -> bool:
        raise AssertionError(how)

    assert set(try_containment(bare(tmp_path, works=never)).values()) == {Way.NOT_INSTALLED}


def test_a_program_that_fails_is_not_allowed(tmp_path: Path) -> None:
    a_program(tmp_path, "bwrap", "No permissions to create new namespace", status=1)
    ways = try_containment(bare(tmp_path, works=lambda how: False))
    assert ways == {Containment.BUBBLEWRAP: Way.FORBIDDEN, Containment.NAMESPACE: Way.NOT_INSTALLED}


@pytest.mark.parametrize(
    ("bubblewrap", "namespace", "ok", "hint"),
    [
        (Way.WORKS, Way.WORKS, True, None),
        (Way.WORKS, Way.NOT_INSTALLED, True, None),
        (Way.NOT_INSTALLED, Way.WORKS, True, None),
        (Way.NOT_INSTALLED, Way.NOT_INSTALLED, None, "install bubblewrap"),
        (Way.FORBIDDEN, Way.FORBIDDEN, None, "user namespaces are not allowed"),
        (Way.NOT_INSTALLED, Way.FORBIDDEN, None, "user namespaces are not allowed"),
    ],
)
def test_the_best_containment_is_told(
    bubblewrap: Way, namespace: Way, ok: bool | None, hint: str | None
) -> None:
    ways: Mapping[Containment, Way] = {
        Containment.BUBBLEWRAP: bubblewrap,
        Containment.NAMESPACE: namespace,
    }
    finding = containment_finding(ways)
    assert finding.ok is ok
    assert (finding.hint or "").startswith(hint or "")
    assert f"bubblewrap {bubblewrap.value}" in finding.text
    assert finding.text.startswith("a reaper only") is (ok is None)


def test_doctor_is_a_command(tool: Tool) -> None:
    with serve(nights(date(2026, 11, 1), 1, lambda day: "")) as server:
        ran = tool.run("doctor", "--index-url", server.url + FOLDER)
    assert (ran.code, ran.stdout.splitlines()[-1]) == (0, "A bisection can run here."), ran.stdout
