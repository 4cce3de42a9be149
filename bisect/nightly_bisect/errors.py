"""Everything that ends a run early, with its exit code.

::

    BisectError
    ├── UsageError                2   the question itself is wrong
    ├── IndexFault                5   the index or the network
    │   ├── Unreachable               no answer after all tries
    │   ├── Refused                   an answer that says no (TLS, bad redirect)
    │   │   └── Denied                    4xx: not for us, or not there (PyTorch's server says 403 for both)
    │   ├── NoSuchPage                404: no such channel or package
    │   └── NotAnIndex                an answer that is not an index page
    ├── NothingInstallable        6   no wheel for this machine, or no installer
    ├── StorageFault              7   disk, cache or lock
    └── CheckCannotRun            8   the check is missing or not runnable

Ends that do not behave (4) and an inconclusive search (3) are answers, not errors: see
`nightly_bisect.report.answer`. Whatever is not in this tree is our own bug (70).
"""

from __future__ import annotations


class BisectError(Exception):
    """Say what failed, on what, and what to do next.

    ``what`` is one sentence; ``hint`` names the flag or command to use.
    """

    exit_code = 70

    def __init__(self, what: str, *, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.what}\n\nhint: {self.hint}"


class UsageError(BisectError):
    """The command line asks for something that cannot be."""

    exit_code = 2


class IndexFault(BisectError):
    """The index or the network failed on ``url``."""

    exit_code = 5

    def __init__(self, what: str, *, url: str, hint: str) -> None:
        super().__init__(what, hint=hint)
        self.url = url


class Unreachable(IndexFault):
    """Nothing usable came from ``url`` after all tries."""


class Refused(IndexFault):
    """The server, or our own rules about TLS and redirects, refused ``url``."""


class Denied(Refused):
    """The server answered with a status of 400 to 499."""


class NoSuchPage(IndexFault):
    """The index has no page at ``url``."""


class NotAnIndex(IndexFault):
    """The page at ``url`` is not an index page, or holds nothing of the package."""


class NothingInstallable(BisectError):
    """No wheel, Python or installer on this machine can make a trial."""

    exit_code = 6


class StorageFault(BisectError):
    """The disk, the cache or a lock failed."""

    exit_code = 7


class CheckCannotRun(BisectError):
    """The check is missing, unreadable, or cannot be executed anywhere."""

    exit_code = 8
