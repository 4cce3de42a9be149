"""Functions that a Python check may define instead of being judged by its exit status."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from nightly_bisect.errors import UsageError

# Each with the metric that decides unless another is asked for. A ``measure`` that returns a dict names
# its numbers itself.
_DEFAULT_METRICS = {
    "check": None,
    "benchmark": "time",
    "compile_fn": "compile_time",
    "measure": "measure",
    "fingerprint": "fingerprint",
    "outputs": "outputs",
}
_FOREIGN = {"numpy", "torch", "triton"}


def defined_function(text: str) -> str | None:
    """Return which of the functions a check's source defines at its top level, or None.

    A function that needs arguments is the check's own affair, and so is a module of that name
    (``import torch.utils.benchmark as benchmark``). Raise `UsageError` for more than one, and for
    ``async def``. A source that doesn't parse has none: Python says what is wrong when it runs.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    names = sorted({name for statement in tree.body for name in _defined(statement)} & set(_DEFAULT_METRICS))
    if len(names) > 1:
        raise UsageError(
            f"the check defines {', '.join(f'{name}()' for name in names)}: only one of them can be called",
            hint="rename the others, or give each a file of its own",
        )
    return names[0] if names else None


def default_metric(function: str) -> str | None:
    """Return the metric by which a check with this function is judged; None for ``check``."""
    return _DEFAULT_METRICS[function]


def _defined(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.FunctionDef(name=name, args=arguments) if not _required(arguments):
            yield name
        case ast.AsyncFunctionDef(name=name, args=arguments) if name in _DEFAULT_METRICS:
            if not _required(arguments):
                raise UsageError(
                    f"the check defines {name}() by async def, which nobody would await",
                    hint=f"write def {name}(): and call asyncio.run(…) in it",
                )
        case ast.ImportFrom(module=module, names=names):
            # Theirs of these names are modules or take arguments: torch.utils.benchmark, numpy.testing.measure.
            if (module or "").partition(".")[0] not in _FOREIGN or statement.level:
                yield from (alias.asname or alias.name for alias in names)


def _required(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    return positional > len(arguments.defaults) or None in arguments.kw_defaults
