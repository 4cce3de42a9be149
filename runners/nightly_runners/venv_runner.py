"""Runs a check in a fresh virtual environment that uv makes of local wheels."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from nightly_runners.contract import (
    Command,
    CompilerCache,
    Finished,
    Identity,
    ImportFailure,
    InstallerFault,
    NotPrepared,
    Order,
    Ran,
    Subject,
    Testimony,
    Uncaught,
)
from nightly_runners.inventory import (
    inventory,
    missing_requirements,
    site_packages,
    verified_files,
)
from nightly_runners.jobs import job_variables, merged, own_folder, read_job, without_caches, write_job
from nightly_runners.processes import run_bounded, signal_name, tail_lines
from nightly_runners.readings import Number
from nightly_runners.rooms import KEEP, MARKER, in_use, remove_tree
from nightly_runners.variables import check_variables, installer_variables

_GUEST = Path(__file__).parent / "guest"
NO_RESULT_WRITTEN = 74  # as in guest.py
_IDENTIFY_TIMEOUT_S = 600.0
_NETWORK_TROUBLE = re.compile(
    r"failed to fetch|error sending request|client error|dns error|connect(ion)? (error|refused|reset)"
    r"|timed out|failed to download|network|tls|certificate",
    re.IGNORECASE,
)
_DISK_TROUBLE = re.compile(r"no space left|os error 28\b|disk quota|read-only file system", re.IGNORECASE)


class VenvRunner:
    """Makes environments below ``folder``, which must hold the installer's cache as well.

    Both on one file system: uv then links files instead of copying them.
    """

    def __init__(self, folder: Path, *, keep: bool, caller: Mapping[str, str]) -> None:
        self._folder = folder
        self._keep = keep
        self._caller = caller

    def verify(self, python: str, logs: Path) -> None:
        """Make an empty environment and remove it again; raise `InstallerFault`."""
        with self._room(keep=False) as root:
            self._uv(root, logs).make(root / "venv", python)

    @contextlib.contextmanager
    def prepare(self, order: Order, logs: Path) -> Iterator[VenvEnvironment]:
        """Make a fresh environment of what was ordered; remove it afterwards unless kept."""
        with self._room(self._keep) as root:
            environment = VenvEnvironment(root, logs, self._caller)
            self._install(self._uv(root, logs), order, environment)
            yield environment

    @contextlib.contextmanager
    def _room(self, keep: bool) -> Iterator[Path]:
        parent = self._folder / "environments"
        parent.mkdir(parents=True, exist_ok=True)
        root = Path(mkdtemp(dir=parent, prefix="env-"))
        with in_use(root):
            (root / MARKER).touch()  # not before the lock: what has it and is not locked gets removed
            try:
                yield root
            finally:
                if keep:
                    (root / KEEP).touch()
                else:
                    remove_environment(root)

    def _uv(self, root: Path, logs: Path) -> _Uv:
        return _Uv(self._folder / "uv-cache", root, logs, self._caller)

    def _install(self, uv: _Uv, order: Order, environment: VenvEnvironment) -> None:
        changed = _install_once(uv, order, environment)
        if changed:
            # Somebody wrote into files that the cache shares with its environments.
            uv.forget({distribution for distribution, _ in changed})
            changed = _install_once(uv, order, environment)
        if changed:
            names = ", ".join(name for _, name in changed[:3])
            raise NotPrepared(f"installed files differ from their wheel's RECORD: {names}")
        missing = missing_requirements(site_packages(environment.path), order.excluded)
        if missing:
            raise NotPrepared(
                f"{missing[0]}, which is taken from the nightly index only: ask for it by --with"
            )
        environment.complete()


class VenvEnvironment:
    """An environment with one nightly in it."""

    def __init__(self, root: Path, logs: Path, caller: Mapping[str, str]) -> None:
        self._root = root
        self._logs = logs
        self._caller = caller
        self._import_name: str | None = None
        self._has_compiled = False
        self.path = root / "venv"
        self.installed: Mapping[str, str] = {}

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return _python(self.path)

    def complete(self) -> None:
        """Take stock of what was installed, then add the witness of imports."""
        site = site_packages(self.path)
        self.installed = inventory(site)
        shutil.copyfile(_GUEST / "witness.py", site / "_nightly_bisect_witness.py")
        (site / "_nightly_bisect_witness.pth").write_text("import _nightly_bisect_witness\n")

    def identify(self, subject: Subject, variables: Mapping[str, str]) -> Identity:
        """Import the subject in the environment's interpreter and report what it is.

        This first import also writes the bytecode, before anything of the user's is timed.
        """
        self._import_name = subject.import_name
        job = self._root / "job"
        job.mkdir()
        (job / "job.json").write_text(json.dumps(_job(subject)), encoding="utf-8")
        finished = run_bounded(
            [str(self.python), "-I", str(_GUEST / "guest.py"), str(job)],
            folder=job,
            environment=check_variables(self._caller, self.path, self._root / "scratch", variables),
            timeout_s=_IDENTIFY_TIMEOUT_S,
            logs=self._logs,
            name="identify",
        )
        if finished.status == NO_RESULT_WRITTEN:
            raise InstallerFault("disk", "what the import showed could not be written")
        try:
            return _identity(json.loads((job / "result.json").read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return Identity(python=None, failure=_death(finished))

    def run(self, command: Command) -> Ran:
        """Run the check, or a function of it, to its end or its time-out, in the user's folder."""
        if command.job is None:
            return self._run(command, {}, None)
        if command.job.function == "compile_fn" and not self._has_compiled:
            # The first compile also writes the bytecode of the compiler itself, which would count as its time.
            self._has_compiled = True
            with own_folder(self._root) as folder:
                variables = job_variables(command.job, command.variables, folder)
                first = self._run(command, variables, write_job(command.job, folder / "unmeasured"))
            if first.reading is None:
                return first
        with own_folder(self._root) as folder:
            variables = job_variables(command.job, command.variables, folder)
            first = self._run(command, variables, write_job(command.job, folder / "first"))
            if command.job.cache is CompilerCache.COLD or command.job.function != "compile_fn":
                return first
            if first.reading is None:
                return first  # what could not be primed can't be measured either
            second = self._run(command, variables, write_job(command.job, folder / "second"))
        return merged(first, second, command.job.cache)

    def _run(self, command: Command, more: Mapping[str, str], job: Path | None) -> Ran:
        witness = self._root / "witness.jsonl"
        witness.unlink(missing_ok=True)  # what an earlier run noted is not of this one
        asked = {
            **without_caches(command.variables, more),
            **more,
            "NIGHTLY_BISECT_WITNESS_FILE": str(witness),
        }
        if self._import_name is not None:
            asked["NIGHTLY_BISECT_WITNESS_PACKAGE"] = self._import_name
        variables = check_variables(self._caller, self.path, self._root / "scratch", asked)
        words = list(command.argv) if job is None else ["python", str(_GUEST / "functions.py"), str(job)]
        program = shutil.which(words[0], path=variables["PATH"]) or words[0]
        finished = run_bounded(
            [program, *words[1:]],
            folder=command.folder,
            environment=variables,
            timeout_s=command.timeout_s,
            logs=self._logs,
            name="check",
        )
        reading = None if job is None else read_job(job)
        return Ran(finished, read_testimony(witness, self.path), reading)


def read_testimony(witness: Path, environment: Path) -> Testimony:
    """Read what the witness noted; a line that a killed process left half written is passed over."""
    try:
        lines = witness.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return Testimony(False, ())
    imported: dict[str, None] = {}
    uncaught: list[Uncaught] = []
    numbers: list[Number] = []
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):
            noted = json.loads(line)
            if "imported" in noted:
                imported[str(noted["imported"])] = None
            elif "measured" in noted:
                numbers = _measured(noted["measured"])
            else:
                uncaught.append(_uncaught(noted["uncaught"]))
    inside = [origin for origin in imported if Path(origin).is_relative_to(environment)]
    elsewhere = tuple(origin for origin in imported if origin not in inside)
    return Testimony(bool(inside), elsewhere, tuple(uncaught), tuple(numbers))


def _measured(noted: dict[str, Any]) -> list[Number]:
    units = {"peak_memory": "B", "graph_breaks": "", "unique_graphs": ""}
    return [
        Number(name, unit, float(value), (float(value),))
        for name, unit in units.items()
        if isinstance(value := noted.get(name), int) and not isinstance(value, bool) and 0 <= value < 2**60
    ]


def _uncaught(noted: dict[str, Any]) -> Uncaught:
    kind, text, frame = (printable_bytes(str(noted[key])) for key in ("kind", "text", "frame"))
    return Uncaught(bool(noted["own"]), kind, text, frame)


def printable_bytes(text: str) -> str:
    """Show what is no character (names of files hold such) as escapes, so that it can be stored."""
    return text.encode("utf-8", "backslashreplace").decode()


class _Uv:
    """The installer, shut off from the caller's own configuration of package indexes."""

    def __init__(self, cache: Path, root: Path, logs: Path, caller: Mapping[str, str]) -> None:
        self._cache = cache
        self._root = root
        self._logs = logs
        self._caller = caller
        self._variables = installer_variables(caller, root)
        self._calls = itertools.count(1)

    def make(self, environment: Path, python: str) -> None:
        """Make an empty environment with the Python asked for, in place of an earlier one."""
        words = [
            "venv",
            "--clear",
            "--python",
            find_interpreter(python, self._caller),
            str(environment),
        ]
        # Long enough for uv to fetch a Python that is not here.
        if finished := self._fails(words, timeout_s=600):
            reason = _reason(finished)
            raise InstallerFault("disk" if _DISK_TROUBLE.search(reason) else "python", reason)

    def install(self, environment: Path, order: Order) -> None:
        """Install what was ordered, and only wheels: no source is ever built."""
        requirements = self._root / "requirements.txt"
        lines = [f"{name} @ {path.as_uri()}" for name, path in order.wheels.items()]
        requirements.write_text("\n".join([*lines, *order.requirements]) + "\n", encoding="utf-8")
        excluded = self._root / "excluded.txt"
        excluded.write_text("\n".join(sorted(order.excluded)) + "\n", encoding="utf-8")
        words = ["pip", "install", "--python", str(_python(environment)), "--no-build"]
        words += ["--excludes", str(excluded), "-r", str(requirements)]
        for path in order.requirement_files:
            words += ["-r", str(path)]
        if order.dependency_index:
            words += ["--default-index", order.dependency_index]
        if finished := self._fails(words, order.timeout_s):
            self._raise(_reason(finished))

    def forget(self, distributions: set[str]) -> None:
        """Drop distributions from the cache, so that they are unpacked anew."""
        self._fails(["cache", "clean", *sorted(distributions)], timeout_s=300)

    def _fails(self, words: list[str], timeout_s: float) -> Finished | None:
        """Run uv; return how it ended unless it succeeded."""
        fixed = [
            "--no-config",
            "--no-progress",
            "--color",
            "never",
            "--cache-dir",
            str(self._cache),
        ]
        if "SSL_CERT_FILE" not in self._variables:
            fixed.append("--system-certs")
        finished = run_bounded(
            [uv_binary(), *words, *fixed],
            folder=self._root,
            environment=self._variables,
            timeout_s=timeout_s,
            logs=self._logs,
            name=f"install-{next(self._calls)}",
        )
        return None if finished.status == 0 else finished

    def _raise(self, reason: str) -> None:
        if _DISK_TROUBLE.search(reason):
            raise InstallerFault("disk", reason)
        # A resolution that fails quotes names of packages, and some sound like trouble (networkx).
        if "No solution found" not in reason and _NETWORK_TROUBLE.search(reason):
            raise InstallerFault("network", reason)
        raise NotPrepared(reason)


def uv_binary() -> str:
    """Return the path of uv; raise `InstallerFault` when the installed package hasn't got it."""
    try:
        from uv import find_uv_bin

        return os.fspath(find_uv_bin())
    except (ImportError, FileNotFoundError) as error:
        raise InstallerFault("missing", f"uv is not installed beside nightly-bisect ({error})") from error


def remove_environment(root: Path) -> None:
    """Delete an environment: renamed at once, removed in the background."""
    if not (root / MARKER).exists():
        return
    doomed = root.with_name(f"removing-{root.name}")
    try:
        root.rename(doomed)
    except OSError:
        return  # the disk fails; what is not in use is swept when the next run starts
    threading.Thread(target=remove_tree, args=(doomed,)).start()


def _install_once(uv: _Uv, order: Order, environment: VenvEnvironment) -> list[tuple[str, str]]:
    """Install into an empty environment; return the files that are not as their wheel records them."""
    uv.make(environment.path, order.python)
    uv.install(environment.path, order)
    return verified_files(site_packages(environment.path))


def find_interpreter(python: str, caller: Mapping[str, str]) -> str:
    """Name the Python for uv: this very one where it fits, else a path or a version to look for."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        mine += "t"
    if python == mine:
        return str(getattr(sys, "_base_executable", sys.executable))
    # pyenv hides the Pythons that are not active behind shims that fail, and uv gives up on those.
    root = Path(caller.get("PYENV_ROOT") or Path(caller.get("HOME", "/")) / ".pyenv")
    installed = list(root.glob(f"versions/{python.rstrip('t')}.*/bin/python{python}"))
    return str(max(installed, key=_patch_number)) if installed else python


def _patch_number(path: Path) -> int:
    patch = re.match(r"\d+\.\d+\.(\d+)", path.parents[1].name)
    return int(patch[1]) if patch else -1


def _python(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _reason(finished: Finished) -> str:
    """Return the installer's own words, on one line."""
    if finished.timed_out:
        return f"the installer did not end within {finished.seconds:.0f} s"
    lines = [line.strip(" ×╰─▶│├") for line in tail_lines(finished.stderr)]
    noise = ("Using Python", "Resolved", "Using CPython", "Creating virtual")
    return " ".join(line for line in lines if line and not line.startswith(noise)) or "no reason given"


def _job(subject: Subject) -> dict[str, Any]:
    return {
        "schema": 1,
        "distribution": subject.distribution,
        "import_name": subject.import_name,
        "import": subject.by_import,
        "version_attribute": subject.version_attribute,
        "commit_attribute": subject.commit_attribute,
    }


def _identity(result: dict[str, Any]) -> Identity:
    failure = result["failure"]
    return Identity(
        python=result["python"],
        metadata_version=result["metadata_version"],
        module_version=result["module_version"],
        module_file=result["module_file"],
        commit=result["commit"],
        failure=ImportFailure(printable_bytes(failure["kind"]), printable_bytes(failure["text"]))
        if failure
        else None,
    )


def _death(finished: Finished) -> ImportFailure:
    """Say how the interpreter died while it imported the package."""
    if finished.timed_out:
        return ImportFailure("timed out", f"importing did not end within {finished.seconds:.0f} s")
    number = finished.signal
    if number is None and finished.status is not None and finished.status > 128:
        number = finished.status - 128  # as the shell that stands first in a namespace reports it
    if number is not None:
        return ImportFailure(signal_name(number) or f"signal {number}", "the interpreter died")
    return ImportFailure("exit", f"the interpreter exited with status {finished.status}", finished.status)
