"""How a process is kept so that nothing of it can outlive it, nor us. Pure: command lines only.

A process namespace ends with its first process, whatever was daemonised inside, and that one ends
with us, even by SIGKILL. Where the machine allows none, `processes` sweeps what it can find.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum


class Containment(StrEnum):
    """The ways, the best first."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACE = "namespace"
    REAPER = "reaper"


HOLDERS = {Containment.BUBBLEWRAP: 3, Containment.NAMESPACE: 2, Containment.REAPER: 0}
"""How many processes, one the parent of the next, stand before the contained one."""

# The first process of a namespace ignores signals that it has no handler for, so a crash would go
# unseen there: a shell stands first and reports how the second one ended, as 128+n for a signal.
_FIRST = ("sh", "-c", '"$@"; exit $?', "sh")
_BUBBLEWRAP = (
    "bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc",
    "--unshare-pid", "--die-with-parent", "--",
)  # fmt: skip
_NAMESPACE = ("setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--pid", "--mount-proc", "--kill-child")
_AS_USER = ("--user", "--map-current-user")


def contained(argv: Sequence[str], how: Containment, *, is_root: bool) -> list[str]:
    """Return the command line that runs ``argv`` contained."""
    match how:
        case Containment.BUBBLEWRAP:
            return [*_BUBBLEWRAP, *_FIRST, *argv]
        case Containment.NAMESPACE:
            # Only root may make a process namespace without a user namespace around it.
            return [*_NAMESPACE, *(() if is_root else _AS_USER), "--", *_FIRST, *argv]
        case Containment.REAPER:
            return list(argv)
