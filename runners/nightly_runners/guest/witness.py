"""Note from where the package under test is imported, in every process of a check.

Installed into the environment beside a ``.pth`` line that imports it. A check that stands in a
source checkout, or that starts another Python, would otherwise be judged on the wrong package.
Without the two variables it does nothing. Standard library only, Python 3.8 syntax.
"""

import os
import sys
from typing import Any


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
            self.note((spec.origin or "namespace") if spec else "nowhere")
        return

    def note(self, origin: str) -> None:
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, (origin + "\n").encode("utf-8", "backslashreplace"))
            finally:
                os.close(descriptor)
        except OSError:
            pass  # a full disk must not fail the user's check


def watch() -> None:
    package = os.environ.get("NIGHTLY_BISECT_WITNESS_PACKAGE")
    path = os.environ.get("NIGHTLY_BISECT_WITNESS_FILE")
    if package and path:
        sys.meta_path.insert(0, Witness(package, path))


watch()
