"""Call a function of a check, in place of the check itself, and measure what it is for.

    python functions.py JOBDIR

in the folder and with the variables that the check would get. It reads ``JOBDIR/job.json``::

    {"schema": 1, "check": "/abs/check.py", "arguments": ["…"], "budget_s": 10.0,
     "function": "check"|"benchmark"|"compile_fn"|"measure"|"fingerprint"|"outputs",
     "outputs": "/abs/file to save outputs to"|null,
     "expected_outputs": "/abs/file that the good end saved"|null}

and writes ``JOBDIR/result.json`` (a temporary name, then a rename)::

    {"schema": 1, "metrics": [{"name": "time", "unit": "s", "value": 0.1, "samples": [0.1, 0.2]}],
     "fingerprint": "sha256 in hexadecimal"|null}

Exit status: 0 measured; 1 with an uncaught exception of the check, or ``check() returned False`` as the
last line of standard error; 125 where our own files can't be read or written, which says nothing about
the nightly. No result file with status 0 means that the check ended the process by itself.

Seconds are CPU seconds of this process and its children where a name doesn't say otherwise, except
``time`` and ``time_median``, which are seconds of the wall clock for one call.

Standard library only, Python 3.8 syntax. PyTorch's own timers are part of what is tested: not used.
"""

import ctypes
import gc
import hashlib
import importlib.machinery
import importlib.util
import itertools
import json
import math
import os
import re
import sys
import time
import zipfile
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Tuple

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

# Taken before anything of the check's can replace it.
_clock = time.perf_counter

NOT_MEASURED = 125
MOST_SAMPLES = 10_000
MOST_NUMBERS = 200
DYNAMO_KEEPS = 64  # compilations that it remembers; with more, the count would be wrong
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")

Metric = Dict[str, Any]


class OwnFault(Exception):
    """Our own files could not be read or written."""


def main(folder: str) -> None:
    try:
        measured = measure(read_job(os.path.join(folder, "job.json")))
        write_result(os.path.join(folder, "result.json"), measured)
    except OwnFault as fault:
        sys.stderr.write("nightly-bisect: {}\n".format(fault))
        sys.exit(NOT_MEASURED)


def read_job(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise OwnFault("the job can't be read: {}".format(error)) from error


def write_result(path: str, measured: Dict[str, Any]) -> None:
    try:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(measured, file, allow_nan=False)
        settle(path)
    except OSError as error:
        raise OwnFault("the result can't be written: {}".format(error)) from error


def measure(job: Dict[str, Any]) -> Dict[str, Any]:
    """Load the check, call its function, and return what becomes the result."""
    cache = empty_folder(os.environ.get("TORCHINDUCTOR_CACHE_DIR"))
    began = Spent()
    module = load(job["check"], job["arguments"])
    cpu_s, wall_s = began.until_now()
    name = job["function"]
    function = getattr(module, name, None)
    if not callable(function):
        raise TypeError("{} has no function {}()".format(os.path.basename(job["check"]), name))
    found = _MEASURES[name](function, job)
    if name == "compile_fn":
        found["fingerprint"] = generated_code(cache)
    metrics: List[Metric] = found["metrics"]
    always = [
        single("import_time", "s", cpu_s),
        single("import_wall_time", "s", wall_s),
        *memory(),
        *compiler_counts(),
    ]
    taken = {metric["name"] for metric in metrics}
    metrics += [metric for metric in always if metric["name"] not in taken]
    return {"schema": 1, "metrics": metrics, "fingerprint": found.get("fingerprint")}


def load(path: str, arguments: List[str]) -> Any:
    """Run the check's file as a module that its own processes can import again, but not as ``__main__``.

    No bytecode is written beside it: a script leaves none either.
    """
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    sys.argv = [path, *arguments]
    name = os.path.splitext(os.path.basename(path))[0]
    if name in sys.modules or not name.isidentifier():
        name = "nightly_bisect_check"
    loader = importlib.machinery.SourceFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        raise OwnFault("the check can't be read: {}".format(error)) from error
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)
    return module


# --- what each function is for


def run_check(check: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    if is_false(check()):
        sys.exit("check() returned False")
    synchronise()
    return {"metrics": []}


def is_false(value: Any) -> bool:
    """Whether it is False, or the one false element of a tensor or an array of truth values."""
    if value is False:
        return True
    return str(getattr(value, "dtype", "")).rpartition(".")[2] in ("bool", "bool_") and not bool(value)


def run_benchmark(benchmark: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    samples = timed(called(benchmark, "benchmark"), job["budget_s"])
    return {
        "metrics": [
            metric("time", "s", min(samples), samples),
            metric("time_median", "s", median(samples), samples),
        ]
    }


def run_compile(compile_fn: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    """Measure the first call without what every later call costs as well.

    Calling ``compile_fn`` itself, which imports the compiler, is ``setup_time``.
    """
    deadline = _clock() + job["budget_s"]
    began = Spent()
    call = called(compile_fn, "compile_fn")
    synchronise()
    setup_cpu, setup_wall = began.until_now()
    with collector_off():
        first_cpu, first_wall = spent_in(call)
        later = [spent_in(call)]
        while len(later) < 5 and _clock() < deadline:
            later.append(spent_in(call))
    steady_cpu, steady_wall = [cpu for cpu, _ in later], [wall for _, wall in later]
    metrics = [
        single("compile_time", "s", first_cpu - median(steady_cpu)),
        single("compile_wall_time", "s", first_wall - median(steady_wall)),
        metric("steady_time", "s", median(steady_cpu), steady_cpu),
        metric("steady_wall_time", "s", median(steady_wall), steady_wall),
        single("setup_time", "s", setup_cpu),
        single("setup_wall_time", "s", setup_wall),
    ]
    return {"metrics": metrics}


def run_measure(function: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    found = function()
    if not isinstance(found, dict):
        found = {"measure": found}
    if not 1 <= len(found) <= MOST_NUMBERS:
        raise ValueError("measure() gave {} numbers: 1 to {} are allowed".format(len(found), MOST_NUMBERS))
    return {"metrics": [single(checked_name(name), "", number(value, name)) for name, value in found.items()]}


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("measure() has the name {!r}: letters, digits, _ . - only".format(name))
    return name


def number(value: Any, name: str) -> float:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise TypeError("measure() gave {} for {}, not a number".format(described(value), name))
    converted = float(value)
    if not math.isfinite(converted):
        raise ValueError("measure() gave {} for {}".format(converted, name))
    return converted


def run_fingerprint(function: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    found = function()
    if isinstance(found, str):
        found = found.encode("utf-8", "surrogatepass")
    if not isinstance(found, (bytes, bytearray, memoryview)):
        raise TypeError("fingerprint() returned {}, not str or bytes".format(described(found)))
    return {"metrics": [], "fingerprint": hashlib.sha256(found).hexdigest()}


def run_outputs(function: Callable[[], Any], job: Dict[str, Any]) -> Dict[str, Any]:
    leaves = dict(flattened(function(), "outputs()"))
    if job.get("outputs"):
        save(job["outputs"], leaves)
    if job.get("expected_outputs"):
        compare(leaves, saved(job["expected_outputs"]))
    return {"metrics": []}


_MEASURES = {
    "check": run_check,
    "benchmark": run_benchmark,
    "compile_fn": run_compile,
    "measure": run_measure,
    "fingerprint": run_fingerprint,
    "outputs": run_outputs,
}


def called(function: Callable[[], Any], name: str) -> Callable[[], Any]:
    found = function()
    if not callable(found):
        raise TypeError("{}() returned {}, not something to call".format(name, described(found)))
    return found  # type: ignore[no-any-return]


def described(value: Any) -> str:
    return "an object of type {}".format(type(value).__name__)


# --- time


def timed(call: Callable[[], Any], budget_s: float) -> List[float]:
    """Time blocks of calls until the minimum is steady or the budget ends; return seconds per call.

    A block lasts 5 ms at least, or a thousand ticks of a coarse clock.
    """
    deadline = _clock() + budget_s
    tick = time.get_clock_info("perf_counter").resolution
    with collector_off():
        one_call_s = warmed_up(call, _clock() + budget_s / 3)
        block_s = max(5e-3, 1000 * tick)
        calls = 1
        # Doubled, not computed: a first estimate of a call that has a cost per block is too high.
        while calls * one_call_s < block_s and calls < 1 << 30:
            calls *= 2
            one_call_s = block(call, calls) / calls
        samples = [block(call, calls) / calls]
        while _clock() < deadline and len(samples) < MOST_SAMPLES and not steady(samples):
            samples.append(block(call, calls) / calls)
    return samples


def warmed_up(call: Callable[[], Any], deadline: float) -> float:
    """Call until three calls in a row agree within a fifth; return the seconds of the last one."""
    last = [block(call, 1)]
    while _clock() < deadline:
        last = [*last[-2:], block(call, 1)]
        if len(last) == 3 and max(last) <= 1.2 * min(last):
            break
    return last[-1]


def steady(samples: List[float]) -> bool:
    """Whether the minimum was met five times within half a per cent, after twenty samples."""
    return len(samples) >= 20 and sorted(samples)[4] <= 1.005 * min(samples)


def block(call: Callable[[], Any], calls: int) -> float:
    """Return the seconds that ``calls`` calls take, until the device is done with them."""
    synchronise()
    began = _clock()
    for _ in itertools.repeat(None, calls):
        call()
    synchronise()
    return _clock() - began


class Spent:
    """What was used since it was made: CPU seconds of this process and its ended children, and wall time."""

    def __init__(self) -> None:
        self.cpu_s, self.wall_s = cpu_seconds(), _clock()

    def until_now(self) -> Tuple[float, float]:
        return cpu_seconds() - self.cpu_s, _clock() - self.wall_s


def spent_in(call: Callable[[], Any]) -> Tuple[float, float]:
    began = Spent()
    call()
    synchronise()
    return began.until_now()


def cpu_seconds() -> float:
    if resource is None:
        return sum(os.times()[:4])
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class collector_off:  # noqa: N801 (used like a function)
    """Collect garbage once, then not while a block of ``with`` lasts."""

    def __enter__(self) -> None:
        self.was_on = gc.isenabled()
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self.was_on:
            gc.enable()


def median(samples: List[float]) -> float:
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


# --- what torch knows, read without importing anything: builds differ in what they have


def loaded(dotted: str) -> Any:
    """Return an attribute of a module that the check has imported, or None."""
    module_name, _, attribute = dotted.partition(":")
    value = sys.modules.get(module_name)
    for part in attribute.split(".") if attribute else ():
        value = getattr(value, part, None)
    return value


def synchronise() -> None:
    """Wait for the devices that are in use. What they failed at is raised here: it is the check's."""
    for backend in devices_in_use():
        backend.synchronize()


def devices_in_use() -> List[Any]:
    found = []
    for name in ("cuda", "xpu"):
        backend = loaded("torch:" + name)
        initialised = getattr(backend, "is_initialized", None)
        if initialised is not None and initialised():
            found.append(backend)
    metal = loaded("torch:mps")
    allocated = getattr(metal, "current_allocated_memory", None)
    available = loaded("torch:backends.mps.is_available")
    if allocated is not None and available is not None and available() and allocated() > 0:
        found.append(metal)
    return found


def memory() -> List[Metric]:
    peak_bytes = peak_memory_bytes()
    found = [] if peak_bytes is None else [single("peak_memory", "B", float(peak_bytes))]
    for backend in devices_in_use():
        peak = getattr(backend, "max_memory_allocated", None)
        if peak is not None:
            found.append(
                single("peak_device_memory", "B", float(sum(map(peak, range(backend.device_count())))))
            )
            break
    return found


def peak_memory_bytes() -> Optional[int]:
    """Return the most memory that this process had resident.

    Linux hands ru_maxrss down to what a process starts, so a small check would show the memory of what
    started it; VmHWM belongs to this program alone.
    """
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    if resource is None:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def compiler_counts() -> List[Metric]:
    """Return Dynamo's counts, as far as this build keeps them."""
    counters = loaded("torch._dynamo.utils:counters")
    found = []
    try:
        if counters is not None:
            found.append(single("graph_breaks", "", float(sum(counters["graph_break"].values()))))
            found.append(single("unique_graphs", "", float(counters["stats"]["unique_graphs"])))
        recompiles = recompile_count(loaded("torch._dynamo.utils:get_compilation_metrics"))
        if recompiles is not None:
            found.append(single("recompiles", "", float(recompiles)))
    except Exception:
        # Private names that move from build to build: what can't be read is left out.
        return found
    return found


def recompile_count(get_metrics: Any) -> Optional[int]:
    """Count the compilations of a frame after its first, from names like ``0/1`` (frame 0, second time)."""
    entries = list(get_metrics()) if get_metrics is not None else []
    if get_metrics is None or len(entries) >= DYNAMO_KEEPS:
        return None
    names = set()
    for place, entry in enumerate(entries):
        name = getattr(entry, "compile_id", None)
        if name is None:
            # Before 2.6 an entry tells its frame only, and there is one entry for each compilation.
            name = "{}/{}".format(entry.frame_key, place)
        names.add(str(name))
    return len(names) - len({name.rpartition("/")[0] for name in names})


# --- the code that Inductor generated


def empty_folder(path: Optional[str]) -> Optional[str]:
    """Return the path if there is nothing there yet: code that lies there would be another run's."""
    try:
        return None if path is None or os.listdir(path) else path
    except FileNotFoundError:
        return path
    except OSError:
        return None


def generated_code(folder: Optional[str]) -> Optional[str]:
    """Return one hash of all that Inductor wrote into its cache folder, or None where that isn't known."""
    if not folder:
        return None
    hashes = []
    for parent, _, files in os.walk(folder):
        for name in files:
            if not name.endswith(".py"):
                continue
            try:
                with open(os.path.join(parent, name), encoding="utf-8", errors="replace") as file:
                    code = file.read()
            except OSError:
                return None  # a hash of some of it would look like other code
            hashes.append(hashlib.sha256(normalised(code).encode("utf-8")).hexdigest())
    return hashlib.sha256("\n".join(sorted(hashes)).encode()).hexdigest() if hashes else None


# The end of a file, by which Inductor's developers run it alone; the head's short names; comments.
_LEFT_OUT = (
    re.compile(
        r"(^def get_args\(\):\n([ \t].*\n|\n)*)?^def benchmark_compiled_module\((.|\n)*", re.MULTILINE
    ),
    re.compile(r"^(from\s+\S+\s+)?import\b.*\n?|^\w+ = torch\.[\w.]+\n", re.MULTILINE),
    re.compile(r"^\s*(#(?=\s)|//).*\n?|[ \t]+#[ ].*$", re.MULTILINE),
    re.compile(r"[ \t]+$|\n(?=\s*\n)", re.MULTILINE),
)
_PATH = re.compile(r"(?<![\w.])(/[\w.+@-]+){2,}")
_HASH = re.compile(r"\bc[a-z2-7]{50,}\b|\b[0-9a-f]{32,}\b")
_NUMBERED = re.compile(
    r"\b(arg(?=\d+_)|buf|primals_|tangents_|getitem_|tmp|(?:cpp|triton)_\w*_)(\d+)(?=(_\d+)?\b)"
)


def normalised(code: str) -> str:
    """Take out what differs between equal code: comments, paths, hashes, numbers in made-up names."""
    for pattern in _LEFT_OUT:
        code = pattern.sub("", code)
    code = _HASH.sub("HASH", _PATH.sub("PATH", code))
    numbers: Dict[str, Dict[str, int]] = {}

    def renumbered(match: Any) -> str:
        family = numbers.setdefault(match[1], {})
        return "{}{}".format(match[1], family.setdefault(match[2], len(family)))

    return _NUMBERED.sub(renumbered, code)


# --- outputs: one file of our own form, since torch.save and torch.load change between builds

Leaf = Tuple[Dict[str, Any], bytes]

# The tolerances of torch.testing.assert_close, written out: its defaults belong to what is tested.
_TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
    "complex32": (1e-3, 1e-5),
    "complex64": (1.3e-6, 1e-5),
    "complex128": (1e-7, 1e-7),
}


def flattened(value: Any, path: str) -> Iterator[Tuple[str, Leaf]]:
    """Yield what is in nested dicts, lists and tuples, each with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flattened(inner, "{}[{!r}]".format(path, key))
    elif isinstance(value, (list, tuple)):
        for place, inner in enumerate(value):
            yield from flattened(inner, "{}[{}]".format(path, place))
    else:
        yield path, leaf(value, path)


def leaf(value: Any, path: str) -> Leaf:
    if value is None or isinstance(value, (bool, str)):
        return {"kind": "plain", "value": value}, b""
    if type(value) in (int, float, complex):
        return {"kind": type(value).__name__, "value": repr(value)}, b""
    if isinstance(value, bytes):
        return {"kind": "bytes"}, value
    tensor, array = loaded("torch:Tensor"), loaded("numpy:ndarray")
    if tensor is not None and isinstance(value, tensor):
        return tensor_leaf(value)
    generic = loaded("numpy:generic")
    if array is not None and isinstance(value, (array, generic)) and value.dtype.kind in "biufc":
        header = {"kind": "array", "dtype": str(value.dtype.newbyteorder("=")), "shape": list(value.shape)}
        return header, value.astype(value.dtype.newbyteorder("=")).tobytes()
    raise TypeError("{} is {}: it can't be compared".format(path, described(value)))


def tensor_leaf(tensor: Any) -> Leaf:
    tensor = tensor.detach()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if str(tensor.layout) != "torch.strided":
        tensor = tensor.to_dense()
    tensor = tensor.cpu().resolve_conj().resolve_neg().contiguous()
    header = {
        "kind": "tensor",
        "dtype": str(tensor.dtype).rpartition(".")[2],
        "shape": list(tensor.shape),
    }
    size = tensor.numel() * tensor.element_size()
    # By address: numpy, which torch would need for this, isn't in every environment.
    return header, ctypes.string_at(tensor.data_ptr(), size) if size else b""


def save(path: str, leaves: Dict[str, Leaf]) -> None:
    names = {name: header for name, (header, _) in leaves.items()}
    try:
        with zipfile.ZipFile(path + ".part", "w", allowZip64=True) as file:
            file.writestr("outputs.json", json.dumps(names))
            for place, (_, content) in enumerate(leaves.values()):
                file.writestr(str(place), content)
        settle(path)
    except OSError as error:
        raise OwnFault("the outputs can't be saved: {}".format(error)) from error


def saved(path: str) -> Dict[str, Leaf]:
    try:
        with zipfile.ZipFile(path) as file:
            headers = json.loads(file.read("outputs.json").decode("utf-8"))
            return {
                name: (header, file.read(str(place))) for place, (name, header) in enumerate(headers.items())
            }
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise OwnFault("the good end's outputs can't be read: {}".format(error)) from error


def compare(found: Dict[str, Leaf], expected: Dict[str, Leaf]) -> None:
    """Raise an `AssertionError` of one line about the first entry that isn't as the good end's."""
    for path in expected:
        if path not in found:
            differs(path, "is missing")
    for path in found:
        if path not in expected:
            differs(path, "is new")
    for path, (header, content) in expected.items():
        other, other_content = found[path]
        for key in ("kind", "dtype", "shape"):
            if other.get(key) != header.get(key):
                differs(path, "has {} {}, expected {}".format(key, other.get(key), header.get(key)))
        if header["kind"] == "tensor":
            compare_tensors(path, header, other_content, content)
        elif header["kind"] == "array":
            compare_arrays(path, header, other_content, content)
        elif header["kind"] in ("float", "complex"):
            compare_numbers(path, complex(other["value"]), complex(header["value"]))
        elif (other, other_content) != (header, content):
            differs(path, "is {}, expected {}".format(other.get("value", "other bytes"), header.get("value")))


def compare_numbers(path: str, found: complex, expected: complex) -> None:
    for one, other in ((found.real, expected.real), (found.imag, expected.imag)):
        both_nan = math.isnan(one) and math.isnan(other)
        if not both_nan and not math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-7):
            differs(path, "is {}, expected {}".format(one, other))


def compare_tensors(path: str, header: Dict[str, Any], found: bytes, expected: bytes) -> None:
    if found == expected:
        return
    torch = sys.modules["torch"]
    dtype = getattr(torch, header["dtype"])
    one, other = (
        torch.frombuffer(bytearray(content), dtype=dtype).reshape(header["shape"])
        for content in (found, expected)
    )
    rtol, atol = _TOLERANCES.get(header["dtype"], (0.0, 0.0))
    how = None
    try:
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        how = " ".join(str(error).split())
    if how is not None:
        differs(path, how)


def compare_arrays(path: str, header: Dict[str, Any], found: bytes, expected: bytes) -> None:
    if found == expected:
        return
    numpy = sys.modules["numpy"]
    one, other = (numpy.frombuffer(content, header["dtype"]) for content in (found, expected))
    rtol, atol = _TOLERANCES.get(header["dtype"], (0.0, 0.0))
    wide = complex if one.dtype.kind == "c" else float
    if rtol:
        near = numpy.isclose(one.astype(wide), other.astype(wide), rtol=rtol, atol=atol, equal_nan=True)
    else:
        near = one == other
    if not near.all():
        furthest = numpy.nanmax(numpy.abs(one.astype(wide) - other.astype(wide)))
        differs(
            path,
            "has {} of {} elements that are not close, greatest absolute difference {}".format(
                int((~near).sum()), near.size, furthest
            ),
        )


def differs(path: str, how: str) -> NoReturn:
    raise AssertionError("{} differs from the good end's: {}".format(path, how))


# --- files


def single(name: str, unit: str, value: float) -> Metric:
    return metric(name, unit, value, [value])


def metric(name: str, unit: str, value: float, samples: List[float]) -> Metric:
    return {"name": name, "unit": unit, "value": value, "samples": samples}


def settle(path: str) -> None:
    """Bring what was written as ``path``.part to the disk, then give it its name."""
    with open(path + ".part", "rb+") as file:
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


if __name__ == "__main__":
    main(sys.argv[1])
