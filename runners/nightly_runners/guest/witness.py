"""Note what a check does with the package under test, in every Python process of it.

Installed into the environment beside a ``.pth`` line that imports it. It appends one JSON object a
line to the file that NIGHTLY_BISECT_WITNESS_FILE names:

    {"imported": "/path/to/torch/__init__.py"}          from where NIGHTLY_BISECT_WITNESS_PACKAGE came
    {"uncaught": {"own": true, "kind": "AssertionError", "text": "…", "frame": "assert x == 1"}}
    {"measured": {"peak_memory": 123456789, "graph_breaks": 0, "unique_graphs": 1}}

The first unmasks a check that stands in a source checkout; the second tells the exception that ended
a program from those that it printed and survived; the third is what the first program had used when it
ended. Without the variables it does nothing.
Standard library only, Python 3.8 syntax.
"""

import os
import sys
from typing import Any

OWNER = "NIGHTLY_BISECT_WITNESS_OWNER"


class Witness:
    """A finder that finds nothing: it only looks on, once."""

    def __init__(self, package: str, path: str) -> None:
        self.package = package
        self.path = path

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname == self.package:
            sys.meta_path.remove(self)
            from importlib.machinery import PathFinder

            spec = PathFinder.find_spec(fullname)
            if spec:
                note(self.path, {"imported": spec.origin or str(list(spec.submodule_search_locations or []))})


def watch_exceptions(path: str) -> None:
    """Look on at exceptions that end this program; they are reported as ever."""
    usual = sys.excepthook

    def hook(kind: Any, error: Any, trace: Any) -> None:
        try:
            lines = str(error).strip().splitlines()
            seen = {
                "own": os.environ.get(OWNER) == str(os.getpid()),
                "kind": kind.__name__,
                "text": lines[0] if lines else "",
            }
            if seen["text"].endswith(":") and len(lines) > 1:
                seen["text"] += " " + lines[1].strip()
            seen["frame"] = own_frame(trace)
            note(path, {"uncaught": seen})
        except Exception:
            pass  # a witness must not change what it looks at
        usual(kind, error, trace)

    sys.excepthook = hook


def measure_at_exit(path: str) -> None:
    """Note what this program has used, when it ends."""
    import atexit

    def measured() -> None:
        try:
            found = {}
            with open("/proc/self/status", encoding="ascii", errors="replace") as status:
                for line in status:
                    if line.startswith("VmHWM:"):
                        found["peak_memory"] = int(line.split()[1]) * 1024
        except Exception:
            pass  # not Linux
        try:
            # Only what was imported anyway; private names that move from build to build.
            counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
            if counters is not None:
                found["graph_breaks"] = sum(counters["graph_break"].values())
                found["unique_graphs"] = counters["stats"]["unique_graphs"]
        except Exception:
            pass
        note(path, {"measured": found})

    # Registered before anything of the check's, so that it runs after all of it.
    atexit.register(measured)


def own_frame(trace: Any) -> str:
    """Return the source line of the deepest frame that belongs to the check itself."""
    import traceback

    library = os.path.dirname(os.__file__)
    own = [
        frame.line or ""
        for frame in traceback.extract_tb(trace)
        if "site-packages" not in frame.filename and not frame.filename.startswith((library, "<frozen"))
    ]
    return own[-1] if own else ""


def note(path: str, what: Any) -> None:
    import json

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (json.dumps(what) + "\n").encode("ascii"))
        finally:
            os.close(descriptor)
    except OSError:
        pass  # a full disk must not fail the user's check


def watch() -> None:
    package = os.environ.get("NIGHTLY_BISECT_WITNESS_PACKAGE")
    path = os.environ.get("NIGHTLY_BISECT_WITNESS_FILE")
    if path:
        # The first Python of the check; those that it starts inherit its number.
        os.environ.setdefault(OWNER, str(os.getpid()))
        watch_exceptions(path)
        if os.environ[OWNER] == str(os.getpid()):
            measure_at_exit(path)
        if package:
            sys.meta_path.insert(0, Witness(package, path))


watch()
