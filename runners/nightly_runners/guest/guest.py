"""Report which build of a package an environment really holds.

    python -I guest.py JOBDIR

reads ``JOBDIR/job.json``::

    {"schema": 1, "distribution": "torch", "import_name": "torch", "import": true,
     "version_attribute": "__version__", "commit_attribute": "torch.version.git_version"}

and writes ``JOBDIR/result.json`` (a temporary name, then a rename)::

    {"schema": 1, "python": "3.11.7", "metadata_version": "…"|null, "module_version": "…"|null,
     "module_file": "…"|null, "commit": "…"|null, "failure": {"kind": "…", "text": "…"}|null}

No result file means that the interpreter died. Nothing is read from standard input or written to
standard output by this file; what the package prints goes wherever it likes.

Standard library only, Python 3.8 syntax.
"""

import importlib
import importlib.util
import json
import os
import platform
import sys
from typing import Any, Dict, Optional

NO_RESULT_WRITTEN = 74  # EX_IOERR of sysexits.h


def main(folder: str) -> None:
    with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
        job = json.load(file)
    result: Dict[str, Any] = {
        "schema": 1,
        "python": platform.python_version(),
        "metadata_version": metadata_version(job["distribution"]),
        "module_version": None,
        "module_file": None,
        "commit": None,
        "failure": None,
    }
    try:
        identify(job, result)
    except BaseException as error:  # an import may raise anything, SystemExit included
        text = str(error).strip().splitlines()
        result["failure"] = {"kind": type(error).__name__, "text": text[0] if text else ""}
    try:
        write_whole(os.path.join(folder, "result.json"), json.dumps(result))
    except OSError:
        sys.exit(NO_RESULT_WRITTEN)  # the disk's fault, and no word about the package


def identify(job: Dict[str, Any], result: Dict[str, Any]) -> None:
    name = job["import_name"]
    if name is None:
        return
    if not job["import"]:
        spec = importlib.util.find_spec(name)
        result["module_file"] = spec.origin if spec else None
        return
    module = importlib.import_module(name)
    result["module_file"] = getattr(module, "__file__", None)
    if job["version_attribute"]:
        result["module_version"] = text_or_none(getattr(module, job["version_attribute"], None))
    if job["commit_attribute"]:
        result["commit"] = text_or_none(dotted(job["commit_attribute"]))


def dotted(path: str) -> Any:
    """Return the value of ``package.module.attribute``, or None where there is none."""
    module_name, _, attribute = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module_name), attribute, None)
    except ImportError:
        return None


def metadata_version(distribution: str) -> Optional[str]:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def text_or_none(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def write_whole(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
