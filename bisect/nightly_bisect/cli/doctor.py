"""`nightly-bisect doctor`: what works on this machine.

Probes ask the machine (`Machine` holds what a test answers itself); pure functions make a `Finding`
of each answer.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import platform
import re
import shutil
import socket
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

from packaging.version import Version

from nightly_bisect.cli.files import write_document
from nightly_bisect.cli.request import WhatArguments, make_request, state_folder
from nightly_bisect.cli.screen import Screen
from nightly_bisect.errors import IndexFault, NothingInstallable, StorageFault
from nightly_bisect.index.catalog import Catalog, Request, load_catalog, no_wheel
from nightly_bisect.index.memory import Memory
from nightly_bisect.index.web import Web
from nightly_bisect.report.plain import printable
from nightly_runners import processes
from nightly_runners.containment import Containment
from nightly_runners.contract import CannotStart, InstallerFault
from nightly_runners.variables import installer_variables
from nightly_runners.venv_runner import uv_binary

CACHE_NEEDS_BYTES = 2_000_000_000
"""What a trial of the smallest channel takes, with room to unpack."""

STATE_NEEDS_BYTES = 100_000_000

_NEEDED = {
    "index": IndexFault.exit_code,
    "wheels": NothingInstallable.exit_code,
    "uv": NothingInstallable.exit_code,
    "python": NothingInstallable.exit_code,
    "cache": StorageFault.exit_code,
    "state": StorageFault.exit_code,
}
# The CUDA major of a driver, by NVIDIA's table of minor version compatibility: within a major, every
# minor runs, apart from features that need a newer driver.
_CUDA_MAJOR_SINCE_DRIVER = ((580, 13), (525, 12), (450, 11), (440, 10))
_LIST_PYTHONS = [
    "python",
    "list",
    "--only-installed",
    "--offline",
    "--no-config",
    "--no-cache",
    "--output-format",
    "json",
]
_PROGRAM_TIMEOUT_S = 60.0
_PING_TIMEOUT_S = 5.0
_LONGEST_PAUSE_S = 1.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. ``ok`` is False where no bisection can run for it, None where one can."""

    name: str
    ok: bool | None
    text: str
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What is asked of this machine. ``run`` returns a program's stdout, None when it fails."""

    variables: Mapping[str, str]
    run: Callable[[Sequence[str]], str | None]
    uv: Callable[[], str] = uv_binary
    works: Callable[[Containment], bool] = processes.works
    free_bytes: Callable[[Path], int] = lambda path: shutil.disk_usage(path).free
    root: Path = Path("/")

    def has(self, program: str) -> bool:
        """Return whether a program is on the PATH."""
        return shutil.which(program, path=self.variables.get("PATH", os.defpath)) is not None


def doctor(arguments: WhatArguments) -> int:
    """Print what works here; return 0 when a bisection can run, else the code of what is missing first."""
    request = make_request(arguments)
    silent = str(arguments.json_file) == "-"
    screen = Screen(arguments.level)
    findings = []
    with this_machine(os.environ) as machine:
        for finding in examine(request, arguments.cache, state_folder(), machine):
            findings.append(finding)
            if not silent:
                screen.result("".join(f"{line}\n" for line in finding_lines(finding)))
    if silent:
        screen.result(as_json(findings))
        return exit_code(findings)
    screen.result(f"\n{summary(findings)}\n")
    if arguments.json_file is not None:
        write_document(arguments.json_file, as_json(findings))
    return exit_code(findings)


@contextlib.contextmanager
def this_machine(caller: Mapping[str, str]) -> Iterator[Machine]:
    """Give the real machine; what its programs print goes to a temporary folder."""
    try:
        scratch = tempfile.TemporaryDirectory(prefix="nightly-bisect-doctor-", ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageFault(
            f"No temporary folder can be made: {error.strerror}.", hint="free some space, or set TMPDIR"
        ) from error
    with scratch as folder:
        yield Machine(caller, _runner(Path(folder), installer_variables(caller, Path(folder))))


def _runner(scratch: Path, variables: Mapping[str, str]) -> Callable[[Sequence[str]], str | None]:
    calls = itertools.count(1)

    def run(words: Sequence[str]) -> str | None:
        try:
            finished = processes.run_bounded(
                words,
                folder=scratch,
                environment=variables,
                timeout_s=_PROGRAM_TIMEOUT_S,
                logs=scratch,
                name=f"probe-{next(calls)}",
            )
            text = finished.stdout.read_text(encoding="utf-8", errors="replace")
        except (CannotStart, InstallerFault, OSError):
            return None
        return text if finished.status == 0 else None

    return run


def examine(request: Request, cache: Path, state: Path, machine: Machine) -> Iterator[Finding]:
    """Look at everything, in the order in which a bisection needs it; what it needs not comes last."""
    yield from index_findings(request, cache)
    uv = find_uv(machine)
    yield uv_finding(uv)
    yield python_finding(find_pythons(machine, uv))
    yield space_finding("cache", look_at_space(cache, machine), CACHE_NEEDS_BYTES, "--cache-dir")
    yield space_finding("state", look_at_space(state, machine), STATE_NEEDS_BYTES, "XDG_STATE_HOME")
    yield links_finding(cache, on_one_file_system(cache))
    yield from gpu_findings(find_gpus(machine), request.profile.index.channels)
    yield engine_finding(find_engine(machine), has_program=machine.has("docker"))
    yield containment_finding(try_containment(machine))


def exit_code(findings: Iterable[Finding]) -> int:
    """Return the code of the first thing that is missing, 0 when nothing is."""
    return next((_NEEDED[finding.name] for finding in findings if finding.ok is False), 0)


def finding_lines(finding: Finding) -> list[str]:
    """Return a finding's line, and its hint below it."""
    mark = {True: "ok", False: "MISSING", None: "-"}[finding.ok]
    lines = [f"{mark:<8} {finding.name:<12} {_on_one_line(finding.text)}"]
    if finding.hint is not None:
        lines.append(f"{'':<21} hint: {_on_one_line(finding.hint)}")
    return lines


def _on_one_line(text: str) -> str:
    return printable(" ".join(text.split()))


def summary(findings: Iterable[Finding]) -> str:
    """Say in one line whether a bisection can run here."""
    missing = [finding.name for finding in findings if finding.ok is False]
    return f"No bisection can run here: {', '.join(missing)}." if missing else "A bisection can run here."


def as_json(findings: Sequence[Finding]) -> str:
    """Return the findings as a JSON document."""
    code = exit_code(findings)
    document = {
        "schema": 1,
        "ready": code == 0,
        "exit_code": code,
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(document, indent=2) + "\n"


# --- index


def index_findings(request: Request, cache: Path) -> list[Finding]:
    """Read the index page, with the usual retries but without their long pauses."""
    web = Web(pause=lambda seconds: time.sleep(min(seconds, _LONGEST_PAUSE_S)))
    try:
        catalog = load_catalog(request, web, None, Memory(cache), datetime.now(UTC))
    except IndexFault as error:
        return [Finding("index", False, error.what, error.hint)]
    return [Finding("index", True, catalog.page.url), wheels_finding(catalog)]


def wheels_finding(catalog: Catalog) -> Finding:
    """Say how many of the listed nightlies can be installed here."""
    fitting = [nightly for nightly in catalog.nightlies if nightly.wheel]
    if not fitting:
        error = no_wheel(catalog.request, catalog.nightlies)
        return Finding("wheels", False, error.what, error.hint)
    what = "releases" if catalog.request.releases else "nightlies"
    return Finding(
        "wheels",
        True,
        f"{len(fitting)} {what} listed for {catalog.request.target}, the newest of {fitting[-1].stamp}",
    )


# --- uv and Pythons


@dataclass(frozen=True, slots=True)
class Uv:
    """The installer. ``version`` is None when it does not run; ``path`` None when it isn't there."""

    path: str | None
    version: str | None


def find_uv(machine: Machine) -> Uv:
    """Look for uv and ask for its version."""
    try:
        path = machine.uv()
    except InstallerFault:
        return Uv(None, None)
    answer = machine.run([path, "--version"])
    found = re.match(r"uv (\S+)", answer or "")
    return Uv(path, found[1] if found else None)


def uv_finding(uv: Uv) -> Finding:
    """Say whether there is an installer."""
    if uv.path is None:
        return Finding(
            "uv", False, "not installed beside nightly-bisect", f"`{sys.executable} -m pip install uv`"
        )
    if uv.version is None:
        return Finding(
            "uv",
            False,
            f"{uv.path} does not run",
            f"`{sys.executable} -m pip install --force-reinstall uv`",
        )
    return Finding("uv", True, f"{uv.version}, {uv.path}")


@dataclass(frozen=True, slots=True)
class Pythons:
    """Versions of the Pythons that trials can use, each named once."""

    this: str | None
    of_pyenv: tuple[str, ...] = ()
    of_uv: tuple[str, ...] = ()


def find_pythons(machine: Machine, uv: Uv) -> Pythons:
    """Look for this Python, pyenv's and those that uv finds."""
    this = _this_python() if Path(getattr(sys, "_base_executable", sys.executable)).exists() else None
    of_pyenv = _pyenv_versions(machine.variables) - {this}
    listing = None
    if uv.path is not None and uv.version is not None:
        listing = machine.run([uv.path, *_LIST_PYTHONS])
    of_uv = uv_versions(listing or "") - of_pyenv - {this}
    return Pythons(this, _in_order(of_pyenv), _in_order(of_uv))


def _this_python() -> str:
    return platform.python_version() + ("t" if sysconfig.get_config_var("Py_GIL_DISABLED") else "")


def _pyenv_versions(variables: Mapping[str, str]) -> set[str]:
    root = Path(variables.get("PYENV_ROOT") or Path(variables.get("HOME", "/")) / ".pyenv")
    folders = [path.parents[1].name for path in root.glob("versions/*/bin/python")]
    return {name for name in folders if re.fullmatch(r"3\.\d+\.\d+t?", name)}


def uv_versions(listing: str) -> set[str]:
    """Read what `uv python list --output-format json` prints: CPythons, a ``t`` for free-threaded ones."""
    try:
        return {
            row["version"] + ("t" if row.get("variant") == "freethreaded" else "")
            for row in json.loads(listing)
            if row["implementation"] == "cpython"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return set()


def _in_order(versions: set[str]) -> tuple[str, ...]:
    def order(text: str) -> tuple[list[int], str]:
        return [int(digits) for digits in re.findall(r"\d+", text)], text

    return tuple(sorted(versions, key=order))


def python_finding(pythons: Pythons) -> Finding:
    """Name the Pythons."""
    parts = [f"{pythons.this} (this one)"] if pythons.this else []
    if pythons.of_pyenv:
        parts.append(f"of pyenv: {', '.join(pythons.of_pyenv)}")
    if pythons.of_uv:
        parts.append(f"found by uv: {', '.join(pythons.of_uv)}")
    if not parts:
        return Finding("python", False, "none found", "`uv python install 3.12`, then `--python 3.12`")
    return Finding("python", True, "; ".join(parts))


# --- disk


@dataclass(frozen=True, slots=True)
class Space:
    """A folder, or what is there of its path, and the room in it. ``problem`` says why it is no use."""

    folder: Path
    free_bytes: int = 0
    problem: str | None = None


def look_at_space(folder: Path, machine: Machine) -> Space:
    """Look at a folder that may not be there yet."""
    there = _nearest(folder)
    if not there.is_dir():
        return Space(folder, problem=f"{there} is not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        return Space(folder, problem=f"{there} cannot be written to")
    try:
        return Space(folder, machine.free_bytes(there))
    except OSError as error:
        return Space(folder, problem=f"{there}: {error.strerror}")


def space_finding(name: str, space: Space, needed_bytes: int, knob: str) -> Finding:
    """Say whether a folder has room; ``knob`` is what names another folder."""
    if space.problem is not None:
        return Finding(name, False, f"{space.folder}: {space.problem}", f"name another folder by {knob}")
    text = f"{space.folder}: {_gigabytes(space.free_bytes)} free"
    if space.free_bytes <= needed_bytes:
        hint = f"free some space, or name a folder on another disk by {knob}"
        return Finding(name, False, f"{text}, more than {_gigabytes(needed_bytes)} are needed", hint)
    return Finding(name, True, text)


def on_one_file_system(cache: Path) -> bool:
    """Return whether uv's cache and the environments can share files."""
    return len({_nearest(cache / name).stat().st_dev for name in ("uv-cache", "environments")}) == 1


def links_finding(cache: Path, on_one: bool) -> Finding:
    """Say whether environments are linked or copied."""
    if on_one:
        return Finding("links", True, "uv's cache and the environments are on one file system")
    return Finding(
        "links",
        None,
        "uv's cache and the environments are on two file systems: every trial copies what it installs",
        f"have uv-cache and environments below {cache} on one disk",
    )


def _nearest(path: Path) -> Path:
    """Return the path, or the nearest of its parents that is there."""
    for candidate in (path, *path.parents):
        with contextlib.suppress(OSError):
            candidate.stat()
            return candidate
    return Path(path.anchor)


def _gigabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB"


# --- GPUs


class Vendor(Enum):
    """Who made a GPU."""

    NVIDIA = "NVIDIA"
    AMD = "AMD"
    INTEL = "Intel"


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPUs of one vendor. ``obstacle`` says why they may not be usable; ``hint`` what to do."""

    vendor: Vendor
    driver: str | None
    names: tuple[str, ...] = ()
    obstacle: str | None = None
    hint: str | None = None


def find_gpus(machine: Machine) -> list[Gpu]:
    """Look for GPUs with a driver."""
    found = (_nvidia(machine), _amd(machine), _intel(machine))
    return [gpu for gpu in found if gpu is not None]


def gpu_findings(gpus: Sequence[Gpu], channels: Sequence[str]) -> list[Finding]:
    """Say which channels the GPUs can run, of those that the profile knows."""
    if not gpus:
        hint = "for another channel, its driver must be loaded: nvidia, amdgpu, or Intel's i915 or xe"
        return [Finding("gpu", None, "none with a driver: only the channel cpu runs here", hint)]
    return [_gpu_finding(gpu, channels) for gpu in gpus]


def _gpu_finding(gpu: Gpu, channels: Sequence[str]) -> Finding:
    counts = {name: gpu.names.count(name) for name in gpu.names}
    what = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counts.items())
    text = f"{what or gpu.vendor.value + ' GPU'}, driver {gpu.driver or 'of unknown version'}: "
    runs = runnable_channels(gpu, channels)
    if gpu.obstacle is not None:
        return Finding("gpu", None, text + gpu.obstacle, gpu.hint)
    if runs is None:
        hint = "a newer driver runs more channels; otherwise use --channel cpu"
        return Finding("gpu", None, f"{text}no channel is known for it", hint)
    return Finding("gpu", True, f"{text}{runs} (approximately: the GPU's age matters as well)")


def runnable_channels(gpu: Gpu, channels: Sequence[str]) -> str | None:
    """Name the channels that a driver can run; None when there are none."""
    match gpu.vendor:
        case Vendor.NVIDIA:
            newest = newest_cuda_channel(gpu.driver, channels)
            return f"CUDA channels up to {newest}" if newest else None
        case Vendor.AMD:
            rocm = [name for name in channels if re.fullmatch(r"rocm\d+(\.\d+)*", name)]
            newest = max(rocm, key=lambda name: Version(name.removeprefix("rocm")), default=None)
            return f"ROCm channels up to {newest}" if newest else None
        case Vendor.INTEL:
            return "channel xpu" if "xpu" in channels else None
        case _:
            assert_never(gpu.vendor)


def newest_cuda_channel(driver: str | None, channels: Sequence[str]) -> str | None:
    """Return the newest channel of the newest CUDA major that a driver runs; None when there is none."""
    number = re.match(r"\d+", driver or "")
    if number is None:
        return None
    newest = next((cuda for since, cuda in _CUDA_MAJOR_SINCE_DRIVER if int(number[0]) >= since), 0)
    matches = [match for name in channels if (match := re.fullmatch(r"cu(\d+)(\d)", name))]
    runs = [match for match in matches if int(match[1]) <= newest]
    best = max(runs, key=lambda match: (int(match[1]), int(match[2])), default=None)
    return best[0] if best else None


def _nvidia(machine: Machine) -> Gpu | None:
    """Ask nvidia-smi, which also proves that driver and libraries fit; else read what the kernel says."""
    answer = machine.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
    rows = [line.rpartition(", ") for line in (answer or "").splitlines() if ", " in line]
    if rows:
        return Gpu(Vendor.NVIDIA, rows[0][2].strip(), tuple(name.strip() for name, _, _ in rows))
    said = _read(machine.root / "proc/driver/nvidia/version")
    if said is None:
        return None
    driver = re.search(r"Kernel Module\b.*?\s(\d+\.\d+(?:\.\d+)?)\s", said)
    obstacle, hint = None, None
    if machine.has("nvidia-smi"):
        obstacle = "nvidia-smi fails, so CUDA programs will too"
        hint = "run nvidia-smi: after an update of the driver, a restart is needed"
    names = _nvidia_models(machine.root)
    return Gpu(Vendor.NVIDIA, driver[1] if driver else None, names, obstacle, hint)


def _nvidia_models(root: Path) -> tuple[str, ...]:
    texts = [_read(path) or "" for path in sorted(root.glob("proc/driver/nvidia/gpus/*/information"))]
    models = [re.search(r"^Model:\s*(.+?)\s*$", text, re.MULTILINE) for text in texts]
    return tuple(model[1] for model in models if model)


def _amd(machine: Machine) -> Gpu | None:
    version = _read(machine.root / "sys/module/amdgpu/version")
    if version is None:
        answer = machine.run(["rocm-smi", "--showdriverversion"])
        said = re.search(r"Driver version[:,]\s*(\S+)", answer or "")
        if said is None and not (machine.root / "sys/module/amdgpu").is_dir():
            return None
        version = said[1] if said else None
    driver = version.strip() if version else "amdgpu of the kernel"
    if not (machine.root / "dev/kfd").exists():
        hint = "ROCm computes through /dev/kfd: a container must be given that device"
        return Gpu(Vendor.AMD, driver, obstacle="there is no /dev/kfd", hint=hint)
    return Gpu(Vendor.AMD, driver)


def _intel(machine: Machine) -> Gpu | None:
    """Find a GPU of Intel's; only xpu-smi tells one that computes from one that only shows a desktop."""
    answer = machine.run(["xpu-smi", "discovery"])
    names = tuple(re.findall(r"Device Name:\s*(.+?)\s*(?:\||$)", answer or "", re.MULTILINE))
    cards = sorted(machine.root.glob("sys/class/drm/card[0-9]*/device"))
    mine = [card for card in cards if (_read(card / "vendor") or "").strip() == "0x8086"]
    drivers = [card.joinpath("driver").resolve().name for card in mine if (card / "driver").exists()]
    if names:
        return Gpu(Vendor.INTEL, drivers[0] if drivers else None, names)
    if not mine:
        return None
    obstacle = "the channel xpu runs if it is an Arc, a Core Ultra's or a Data Center GPU"
    hint = "install xpu-smi and Intel's compute runtime to know"
    return Gpu(Vendor.INTEL, drivers[0] if drivers else None, obstacle=obstacle, hint=hint)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


# --- container engine


class Ping(Enum):
    """What came of asking a container engine whether it is there."""

    ANSWERED = "answers"
    NO_SOCKET = "there is nothing"
    FORBIDDEN = "its socket may not be opened by this user"
    SILENT = "nothing answers"
    NOT_TRIED = "not tried: only unix:// and tcp:// without TLS are"


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine. ``is_default`` when programs find it without being told."""

    address: str
    ping: Ping
    is_default: bool


def find_engine(machine: Machine) -> Engine:
    """Ask the engine that the environment names, else those at the usual places; the best answer counts."""
    if address := machine.variables.get("DOCKER_HOST"):
        return Engine(address, ping_engine(address, machine.variables), True)
    places = [machine.root / "var/run/docker.sock", machine.root / "run/podman/podman.sock"]
    if own := machine.variables.get("XDG_RUNTIME_DIR"):
        places += [Path(own) / "docker.sock", Path(own) / "podman/podman.sock"]
    engines = [
        Engine(f"unix://{place}", ping_engine(f"unix://{place}", machine.variables), place == places[0])
        for place in places
    ]
    answering = [engine for engine in engines if engine.ping is Ping.ANSWERED]
    return (answering or engines)[0]


def engine_finding(engine: Engine, *, has_program: bool) -> Finding:
    """Say whether `--runner docker` can work, and what is missing if not."""
    text = f"{engine.address}: {engine.ping.value}"
    match engine.ping:
        case Ping.ANSWERED if engine.is_default:
            return Finding("container", True, text)
        case Ping.ANSWERED:
            hint = f"for --runner docker, set DOCKER_HOST={engine.address}"
        case Ping.FORBIDDEN:
            hint = "for --runner docker, become a member of its group: `sudo usermod -aG docker $USER`, then log in again"
        case Ping.NOT_TRIED:
            hint = "`docker version` says whether it answers"
        case Ping.NO_SOCKET | Ping.SILENT:
            hint = (
                "for --runner docker, start its daemon (`sudo systemctl start docker`), or set DOCKER_HOST"
                if has_program
                else "for --runner docker, install Docker or Podman; --runner venv needs neither"
            )
        case _:
            assert_never(engine.ping)
    return Finding("container", None, text, hint)


def ping_engine(address: str, variables: Mapping[str, str]) -> Ping:
    """Ask an engine's ``/_ping``."""
    connection = _connection(address, with_tls=bool(variables.get("DOCKER_TLS_VERIFY")))
    if connection is None:
        return Ping.NOT_TRIED
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/_ping")
            return Ping.ANSWERED if connection.getresponse().status == 200 else Ping.SILENT
        except (FileNotFoundError, NotADirectoryError):
            return Ping.NO_SOCKET
        except PermissionError:
            return Ping.FORBIDDEN
        except (OSError, http.client.HTTPException):
            return Ping.SILENT


def _connection(address: str, *, with_tls: bool) -> http.client.HTTPConnection | None:
    try:
        parts = urlsplit(address)
        if parts.scheme == "unix" and hasattr(socket, "AF_UNIX"):
            return _UnixConnection(parts.path)
        if parts.scheme in ("tcp", "http") and parts.hostname and not with_tls:
            return http.client.HTTPConnection(parts.hostname, parts.port or 2375, timeout=_PING_TIMEOUT_S)
    except ValueError:  # no URL at all
        pass
    return None


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a socket in the file system."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PING_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


# --- containment


class Way(Enum):
    """What came of trying a way of containment."""

    WORKS = "works"
    FORBIDDEN = "is installed but not allowed here"
    NOT_INSTALLED = "is not installed"


_PROGRAMS = {
    Containment.BUBBLEWRAP: ("bubblewrap", ("bwrap",)),
    Containment.NAMESPACE: ("setpriv with unshare", ("setpriv", "unshare")),
}


def try_containment(machine: Machine) -> dict[Containment, Way]:
    """Try the ways that need something of the machine, as a trial would use them."""
    ways = {}
    for how, (_, programs) in _PROGRAMS.items():
        if not all(machine.has(program) for program in programs):
            ways[how] = Way.NOT_INSTALLED
        else:
            ways[how] = Way.WORKS if machine.works(how) else Way.FORBIDDEN
    return ways


def containment_finding(ways: Mapping[Containment, Way]) -> Finding:
    """Say what keeps the processes of a check together."""
    tried = "; ".join(f"{_PROGRAMS[how][0]} {way.value}" for how, way in ways.items())
    if Way.WORKS in ways.values():
        return Finding("containment", True, f"{tried}: no process of a check outlives it")
    hint = "install bubblewrap"
    if Way.FORBIDDEN in ways.values():
        hint = (
            "user namespaces are not allowed here: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`, "
            "or in a container its seccomp profile"
        )
    text = "a reaper only: what a check leaves is ended, unless nightly-bisect itself is killed"
    return Finding("containment", None, f"{text} ({tried})", hint)
