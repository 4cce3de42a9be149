"""What makes the compiler's caches cold: private folders, and nothing that is kept elsewhere.

Inductor's, AOTAutograd's and the FX graph cache lie in TORCHINDUCTOR_CACHE_DIR, Triton's in
TRITON_CACHE_DIR. The precompiled C++ headers (2.8 and later) ignore both and lie below TMPDIR.
TORCHINDUCTOR_FORCE_DISABLE_CACHES is no way to be cold: it leaves some caches on, and which ones
changed from build to build, so that a bisection would find that change.
"""

from __future__ import annotations

import re
from pathlib import Path

_FOLDERS = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "CUDA_CACHE_PATH": "cuda",
    "TMPDIR": "tmp",
}

# Remote caches; the job's name, by which profiles of earlier runs are found (PGO); what changes which
# caches are used, or whether anything is compiled.
_ABSENT = re.compile(
    r"TORCHINDUCTOR_\w*REMOTE_CACHE"
    r"|TORCH_COMPILE_JOB_ID|\w*STICKY_PGO\w*"
    r"|TORCH_DYNAMO_AUTOMATIC_DYNAMIC_(LOCAL|REMOTE)_PGO"
    r"|TORCH\w*_FORCE_DISABLE_CACHES|TORCH_COMPILE_DISABLE|TORCHDYNAMO_DISABLE"
    r"|CUDA_CACHE_DISABLE|TRITON_ALWAYS_COMPILE"
)


def cold_variables(folder: Path) -> dict[str, str]:
    """Make private, empty cache folders below ``folder``; return the variables that name them.

    One compile thread: the pool's workers would escape the accounting of CPU seconds. Names for which
    `absent_when_cold` holds must not be set beside these. Raise `FileExistsError` when ``folder`` was
    used before.
    """
    folder.mkdir(parents=True)
    variables = {}
    for name, place in _FOLDERS.items():
        (folder / place).mkdir()
        variables[name] = str(folder / place)
    return variables | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}


def absent_when_cold(name: str) -> bool:
    """Tell whether a variable would bring in a cache from elsewhere, or change what is compiled."""
    return _ABSENT.fullmatch(name) is not None
