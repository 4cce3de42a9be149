"""The environment variables that the installer and the check get: short allow-lists.

Variables that redirect package managers (``PIP_*``, ``UV_*``) never pass. Certificates and proxies
do: people sit behind company proxies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_NETWORK = (
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
)  # fmt: skip
_SYSTEM = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "SYSTEMROOT", "USER", "LOGNAME")
_DEVICES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
_INSTALLER_HOME = ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_BIN_HOME", "PATH")


def installer_variables(caller: Mapping[str, str], temporary: Path) -> dict[str, str]:
    """Return what the installer gets."""
    variables = _chosen(caller, (*_NETWORK, *_SYSTEM, *_INSTALLER_HOME))
    # The installer knows SSL_CERT_FILE only; what other tools use is as good.
    for other in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if other in caller and Path(caller[other]).is_file():
            variables.setdefault("SSL_CERT_FILE", caller[other])
    return variables | {"TMPDIR": str(temporary)}


def check_variables(
    caller: Mapping[str, str], environment: Path, scratch: Path, asked: Mapping[str, str]
) -> dict[str, str]:
    """Return what a check gets: a home and temporary folder of its own, the environment's python
    first on PATH, and the variables that the user ``asked`` for.
    """
    home, temporary = scratch / "home", scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    binaries = environment / ("Scripts" if os.name == "nt" else "bin")
    path = asked.get("PATH", caller.get("PATH", os.defpath))
    return {
        **_chosen(caller, (*_NETWORK, *_SYSTEM, *_DEVICES)),
        "HOME": str(home),
        "TMPDIR": str(temporary),
        **asked,
        # Whatever is asked for, the nightly's own programs come first.
        "PATH": os.pathsep.join([str(binaries), path]),
        "VIRTUAL_ENV": str(environment),
    }


def _chosen(caller: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    return {name: caller[name] for name in names if name in caller}
