"""The file that calls a check's function in the environment under test, in real processes of its own."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from reversion import download_torch

from nightly_runners.cold import cold_variables
from nightly_runners.guest import functions
from nightly_runners.readings import Number, Reading, read_result
from nightly_runners.venv_runner import find_interpreter, uv_binary

FUNCTIONS = Path(functions.__file__)
WITNESS = FUNCTIONS.with_name("witness.py")


@dataclass(frozen=True)
class Ran:
    status: int
    stdout: str
    stderr: str
    reading: Reading | None

    @property
    def numbers(self) -> dict[str, Number]:
        assert self.reading is not None, self.stderr
        return {number.name: number for number in self.reading.numbers}

    @property
    def last_line(self) -> str:
        return self.stderr.splitlines()[-1]


class Desk:
    """Runs checks in one folder; ``stand_in`` packages lie beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.check = folder / "check.py"
        self.job = folder / "job"
        self.job.mkdir()

    def stand_in(self, **modules: str) -> None:
        for name, text in modules.items():
            path = self.folder / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))

    def run(
        self,
        function: str,
        text: str,
        *,
        arguments: list[str] | None = None,
        budget_s: float = 0.05,
        outputs: Path | None = None,
        expected: Path | None = None,
        variables: Mapping[str, str] | None = None,
        python: str = sys.executable,
    ) -> Ran:
        self.check.write_text(textwrap.dedent(text))
        (self.job / "result.json").unlink(missing_ok=True)
        order: dict[str, Any] = {
            "schema": 1,
            "check": str(self.check),
            "arguments": arguments or [],
            "function": function,
            "budget_s": budget_s,
            "outputs": str(outputs) if outputs else None,
            "expected_outputs": str(expected) if expected else None,
        }
        (self.job / "job.json").write_text(json.dumps(order))
        return self.call(python, variables or {})

    def call(self, python: str = sys.executable, variables: Mapping[str, str] | None = None) -> Ran:
        ended = subprocess.run(
            [python, str(FUNCTIONS), str(self.job)],
            cwd=self.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), **(variables or {})},
            capture_output=True,
            text=True,
        )
        result = self.job / "result.json"
        reading = read_result(result) if result.exists() else None
        return Ran(ended.returncode, ended.stdout, ended.stderr, reading)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


# --- loading


def test_the_check_sees_what_it_would_see_as_a_script(desk: Desk) -> None:
    desk.stand_in(beside="HERE = 'beside'")
    text = """
        import sys, os, beside
        def check():
            print(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), beside.HERE, sep="|")
    """
    ran = desk.run("check", text, arguments=["--fast", "2"])
    path, folder = str(desk.check), str(desk.folder)
    assert ran.stdout == f"check|{path}|{[path, '--fast', '2']}|{folder}|{folder}|beside\n"
    assert ran.status == 0


def test_no_bytecode_is_left_beside_the_check(desk: Desk) -> None:
    assert desk.run("check", "def check(): pass").status == 0
    assert sorted(path.name for path in desk.folder.iterdir()) == ["check.py", "job"]


def test_what_stands_below_main_does_not_run(desk: Desk) -> None:
    ran = desk.run("check", "def check(): pass\nif __name__ == '__main__': raise SystemExit(3)")
    assert ran.status == 0


def test_processes_that_the_check_starts_can_import_it_again(desk: Desk) -> None:
    text = """
        import multiprocessing
        def double(x):
            return 2 * x
        def measure():
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                return pool.apply(double, (21,))
    """
    assert desk.run("measure", text).numbers["measure"].value == 42


def test_our_own_future_imports_and_names_do_not_leak_into_the_check(desk: Desk) -> None:
    text = "def check():\n    assert 'json' not in globals() and 'functions' not in __import__('sys').modules"
    assert desk.run("check", text).status == 0


def test_it_runs_on_other_pythons(desk: Desk, other_python: str) -> None:
    python = find_interpreter(other_python, os.environ)
    ran = desk.run("benchmark", "def benchmark(): return lambda: None", python=python)
    assert ran.numbers["time"].value > 0


# --- check()


def test_a_check_that_returns_is_good(desk: Desk) -> None:
    for returned in ("None", "True", "0", "''"):
        ran = desk.run("check", f"def check(): return {returned}")
        assert (ran.status, ran.stderr) == (0, ""), returned
        assert ran.reading is not None and ran.reading.fingerprint is None


def test_a_check_that_returns_false_is_bad(desk: Desk) -> None:
    ran = desk.run("check", "def check(): return False")
    assert (ran.status, ran.last_line, ran.reading) == (1, "check() returned False", None)


def test_a_false_element_of_an_array_is_false_and_a_zero_is_not(desk: Desk) -> None:
    false = "import numpy\ndef check(): return (numpy.zeros(2) == 1).all()"
    assert desk.run("check", false).last_line == "check() returned False"
    zero = "import numpy\ndef check(): return numpy.float64(0)"
    assert desk.run("check", zero).status == 0


def test_an_exception_is_left_to_the_witness(desk: Desk) -> None:
    text = "def check():\n    x = 1\n    assert x == 2, 'not two'"
    seen = desk.folder / "witness.jsonl"
    site = desk.folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_bytes(WITNESS.read_bytes())
    variables = {"NIGHTLY_BISECT_WITNESS_FILE": str(seen), "PYTHONPATH": str(site)}
    ran = desk.run("check", text, variables=variables)
    assert (ran.status, ran.last_line, ran.reading) == (1, "AssertionError: not two", None)
    assert json.loads(seen.read_text().splitlines()[0])["uncaught"] == {
        "own": True,
        "kind": "AssertionError",
        "text": "not two",
        "frame": "assert x == 2, 'not two'",
    }


def test_the_exit_status_of_a_check_that_exits_is_its_own(desk: Desk) -> None:
    ran = desk.run("check", "import sys\ndef check(): sys.exit(125)")
    assert (ran.status, ran.reading) == (125, None)


def test_a_check_that_leaves_early_with_success_has_no_result(desk: Desk) -> None:
    ran = desk.run("check", "import os\ndef check(): os._exit(0)")
    assert (ran.status, ran.reading) == (0, None)


def test_a_check_without_the_function_says_so(desk: Desk) -> None:
    ran = desk.run("benchmark", "def check(): pass")
    assert (ran.status, ran.last_line) == (1, "TypeError: check.py has no function benchmark()")


# --- benchmark()


def test_a_benchmark_gives_the_minimum_the_median_and_raw_samples(desk: Desk) -> None:
    ran = desk.run("benchmark", "def benchmark(): return lambda: sum(range(100))", budget_s=0.3)
    time = ran.numbers["time"]
    assert time.unit == "s"
    assert len(time.samples) > 1
    assert time.value == min(time.samples) > 0
    assert ran.numbers["time_median"].samples == time.samples
    assert time.value <= ran.numbers["time_median"].value <= max(time.samples)


def test_a_call_slower_than_the_budget_is_still_timed_once(desk: Desk) -> None:
    text = """
        import time
        calls = []
        def benchmark():
            return lambda: (calls.append(1), time.sleep(0.1))
        import atexit
        atexit.register(lambda: print(len(calls)))
    """
    ran = desk.run("benchmark", text, budget_s=0.01)
    assert len(ran.numbers["time"].samples) == 1
    assert ran.stdout == "2\n"  # warm-up and sample


def test_a_fast_call_is_timed_in_blocks(desk: Desk) -> None:
    text = """
        import atexit
        calls = []
        def benchmark():
            return lambda: calls.append(1)
        atexit.register(lambda: print(len(calls)))
    """
    ran = desk.run("benchmark", text)
    assert int(ran.stdout) > 100 * len(ran.numbers["time"].samples)


def test_the_collector_is_off_while_timing_and_on_again_afterwards(desk: Desk) -> None:
    text = """
        import atexit, gc
        seen = set()
        def benchmark():
            return lambda: seen.add(gc.isenabled())
        atexit.register(lambda: print(seen, gc.isenabled()))
    """
    assert desk.run("benchmark", text).stdout == "{False} True\n"


def test_the_clock_is_ours_whatever_the_check_does_to_its_own(desk: Desk) -> None:
    text = """
        import time
        time.perf_counter = lambda: 0.0
        def benchmark():
            return lambda: None
    """
    assert desk.run("benchmark", text).numbers["time"].value > 0


def test_what_is_not_callable_is_refused(desk: Desk) -> None:
    ran = desk.run("benchmark", "def benchmark(): return 3")
    assert ran.last_line == "TypeError: benchmark() returned an object of type int, not something to call"


def test_the_minimum_is_steady_when_it_was_met_five_times() -> None:
    assert not functions.steady([1.0] * 19)
    assert functions.steady([1.0] * 5 + [9.0] * 15)
    assert functions.steady([1.0, 1.001, 1.002, 1.003, 1.004] + [9.0] * 15)
    assert not functions.steady([1.0] * 4 + [1.01] * 16)


DEVICE_TORCH = """
    events = []
    class Device:
        peak = {{0: 100, 1: 28}}
        def is_initialized(self): return bool(events)
        def synchronize(self): events.append("synchronize")
        def device_count(self): return 2
        def max_memory_allocated(self, place): return self.peak[place]
    {backend} = Device()
    def work(): events.append("work")
"""


@pytest.mark.parametrize("backend", ["cuda", "xpu"])
def test_every_block_ends_when_the_device_is_done(desk: Desk, backend: str) -> None:
    desk.stand_in(torch=textwrap.dedent(DEVICE_TORCH).format(backend=backend))
    text = """
        import torch, time, atexit
        def benchmark():
            return lambda: (torch.work(), time.sleep(0.01))
        atexit.register(lambda: print(" ".join(torch.events)))
    """
    ran = desk.run("benchmark", text)
    events = ran.stdout.split()
    assert events[:3] == ["work", "synchronize", "synchronize"]  # in use from the first call on
    assert "work work" not in ran.stdout
    assert events[-1] == "synchronize"
    assert ran.numbers["peak_device_memory"].value == 128


def test_metal_is_waited_for_where_it_holds_memory(desk: Desk) -> None:
    torch = """
        class backends:
            class mps:
                def is_available(): return True
        class mps:
            held = waits = 0
            def current_allocated_memory(): return mps.held
            def synchronize(): mps.waits += 1
    """
    desk.stand_in(torch=torch)
    text = """
        import torch
        def measure():
            return 1
        def check():
            torch.mps.held = HELD
        import atexit
        atexit.register(lambda: print(torch.mps.waits))
    """
    assert desk.run("check", text.replace("HELD", "0")).stdout == "0\n"
    assert desk.run("check", text.replace("HELD", "1")).stdout == "1\n"


def test_an_error_that_the_device_tells_late_is_the_checks(desk: Desk) -> None:
    torch = """
        class cuda:
            def is_initialized(): return True
            def synchronize(): raise RuntimeError("CUDA error: an illegal memory access was encountered")
    """
    desk.stand_in(torch=torch)
    ran = desk.run("check", "import torch\ndef check(): pass")
    assert (ran.status, ran.reading) == (1, None)
    assert "illegal memory access" in ran.last_line


# --- compile_fn()

COMPILING = """
    import time, os
    def burn(seconds):
        end = time.process_time() + seconds
        while time.process_time() < end: pass
    burn(0.05)
    def compile_fn():
        burn(0.8)
        done = []
        def call():
            if not done:
                done.append(1)
                burn(0.2)
                child = os.fork()
                if not child:
                    burn(0.2)
                    os._exit(0)
                os.waitpid(child, 0)
            burn(0.02)
        return call
"""


def test_compile_time_is_the_first_call_without_later_ones_and_its_children_count(desk: Desk) -> None:
    numbers = desk.run("compile_fn", COMPILING, budget_s=10).numbers
    # Burnt by the CPU's own count: however busy the machine is, it can't be less, and little more.
    assert 0.39 < numbers["compile_time"].value < 0.7
    assert 0.019 < numbers["steady_time"].value < numbers["compile_time"].value
    assert numbers["setup_time"].value > 0.79
    assert 0.049 < numbers["import_time"].value < 0.7
    assert len(numbers["steady_time"].samples) == len(numbers["steady_wall_time"].samples) == 5
    assert {"compile_wall_time", "setup_wall_time", "import_wall_time"} <= numbers.keys()


def test_the_budget_bounds_the_later_calls(desk: Desk) -> None:
    ran = desk.run("compile_fn", COMPILING, budget_s=0.01)
    assert len(ran.numbers["steady_time"].samples) == 1


def test_generated_code_is_one_fingerprint_for_equal_code_in_another_folder(desk: Desk) -> None:
    text = """
        import os, sys
        def compile_fn():
            def call():
                folder = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "ab")
                os.makedirs(folder, exist_ok=True)
                with open(os.path.join(folder, "c%s.py" % sys.argv[1]), "w") as file:
                    file.write("# Topologically sorted: %s\\nbuf%s = call(%s)\\n" % (folder, sys.argv[1], sys.argv[2]))
            return call
    """

    def fingerprint(place: str, *arguments: str) -> str | None:
        variables = cold_variables(desk.folder / place)
        ran = desk.run("compile_fn", text, arguments=list(arguments), variables=variables)
        assert ran.reading is not None, ran.stderr
        return ran.reading.fingerprint

    first = fingerprint("one", "3", "2.0")
    assert first is not None
    assert fingerprint("two", "4", "2.0") == first
    assert fingerprint("three", "3", "2.5") != first


def test_code_of_earlier_runs_in_the_same_cache_gives_no_fingerprint(desk: Desk) -> None:
    variables = cold_variables(desk.folder / "cold")
    (Path(variables["TORCHINDUCTOR_CACHE_DIR"]) / "earlier.py").write_text("x = 1")
    reading = desk.run("compile_fn", "def compile_fn(): return lambda: None", variables=variables).reading
    assert reading is not None and reading.fingerprint is None


def test_there_is_no_fingerprint_where_no_code_was_generated(desk: Desk) -> None:
    text = "def compile_fn(): return lambda: None"
    for variables in ({}, cold_variables(desk.folder / "cold")):
        reading = desk.run("compile_fn", text, variables=variables).reading
        assert reading is not None and reading.fingerprint is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("x = 1  # from /tmp/a/b.py", "x = 1"),
        ("# AOT ID: ['0_forward']\nx = 1", "# AOT ID: ['1_forward']\nx = 1"),
        ("import torch\nfrom ctypes import c_void_p\nx = 1", "import math\nx = 1"),
        ("buf3 = f(buf1, arg2_1)", "buf7 = f(buf5, arg0_1)"),
        ("cpp_fused_add_0 = f('''\n// note\nfloat tmp4;''')", "cpp_fused_add_2 = f('''\nfloat tmp1;''')"),
        ("f('/tmp/torchinductor_me/x/y.h')", "f('/tmp/pytest/z/q.h')"),
        (f"f('c{'a2' * 25}')", f"f('c{'b7' * 25}')"),
        ("aten = torch.ops.aten\nx = 1", "extern = torch.ops.extern\nx = 1"),
        ("x = 1\n\n\ny = 2", "x = 1\ny = 2"),
        (
            "x = 1\ndef get_args():\n    return 1\n\ndef benchmark_compiled_module(args):\n    pass\n",
            "x = 1\n",
        ),
    ],
)
def test_code_that_differs_in_names_only_is_equal(one: str, other: str) -> None:
    assert functions.normalised(one).strip() == functions.normalised(other).strip()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("buf3 = f(buf1, buf2)", "buf3 = f(buf2, buf2)"),
        ("f(buf0, buf1, buf0)", "f(buf0, buf1, buf1)"),
        ("x1 = x0 // 8", "x1 = x0 // 4"),
        ("#pragma omp parallel num_threads(2)", "#pragma omp parallel num_threads(4)"),
        ("dtype = torch.float32, 1", "dtype = torch.float16, 1"),
        ("def get_args():\n    pass\nkernel_1()", "def get_args():\n    pass\nkernel_2()"),
        ("cpp_fused_add_0(a)", "cpp_fused_mul_0(a)"),
    ],
)
def test_code_that_computes_otherwise_differs(one: str, other: str) -> None:
    assert functions.normalised(one) != functions.normalised(other)


DYNAMO = """
    import collections
    counters = collections.defaultdict(collections.Counter)
    counters["graph_break"].update({"call to print": 2, "generic": 1})
    counters["stats"]["unique_graphs"] = 4
    class Entry:
        def __init__(self, **known): self.__dict__.update(known)
"""


@pytest.mark.parametrize(
    ("entries", "recompiles"),
    [
        ("[]", 0.0),
        ("[Entry(compile_id=i) for i in ('0/0', '0/1', '1/0', '0/1')]", 1.0),  # backward repeats its forward
        ("[Entry(compile_id=i) for i in ('!0/0/0', '!1/0/0', '!1/0/1')]", 1.0),
        ("[Entry(frame_key=k) for k in ('1', '2', '1', '1')]", 2.0),
        ("[Entry(compile_id='%d/0' % i) for i in range(64)]", None),  # older ones were forgotten
        ("[Entry()]", None),
    ],
)
def test_dynamos_counts_are_read_where_the_build_has_them(
    desk: Desk, entries: str, recompiles: float | None
) -> None:
    utils = textwrap.dedent(DYNAMO) + f"def get_compilation_metrics(): return {entries}\n"
    desk.stand_in(torch____init__="", torch___dynamo____init__="", torch___dynamo__utils=utils)
    numbers = desk.run("check", "import torch._dynamo.utils\ndef check(): pass").numbers
    assert numbers["graph_breaks"].value == 3
    assert numbers["unique_graphs"].value == 4
    assert (numbers["recompiles"].value if "recompiles" in numbers else None) == recompiles


def test_a_build_without_these_counts_or_with_broken_ones_gives_none(desk: Desk) -> None:
    for utils in ("", "counters = 3", "def get_compilation_metrics(): raise ValueError"):
        desk.stand_in(torch____init__="", torch___dynamo____init__="", torch___dynamo__utils=utils)
        ran = desk.run("check", "import torch._dynamo.utils\ndef check(): pass")
        assert ran.numbers.keys() == {"import_time", "import_wall_time", "peak_memory"}


# --- measure() and fingerprint()


def test_numbers_are_taken_under_their_names(desk: Desk) -> None:
    text = "import numpy\ndef measure(): return {'loss': 0.5, 'steps': 3, 'norm': numpy.float32(2)}"
    numbers = desk.run("measure", text).numbers
    assert [numbers[name].value for name in ("loss", "steps", "norm")] == [0.5, 3, 2]
    assert desk.run("measure", "def measure(): return 7").numbers["measure"].samples == (7,)


def test_a_name_of_ours_that_the_check_gives_is_the_checks(desk: Desk) -> None:
    assert desk.run("measure", "def measure(): return {'peak_memory': 1}").numbers["peak_memory"].value == 1


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("float('nan')", "ValueError: measure() gave nan for measure"),
        ("{'loss': float('inf')}", "ValueError: measure() gave inf for loss"),
        ("True", "TypeError: measure() gave an object of type bool for measure, not a number"),
        ("'3'", "TypeError: measure() gave an object of type str for measure, not a number"),
        ("{'a b': 1}", "ValueError: measure() has the name 'a b': letters, digits, _ . - only"),
        ("{}", "ValueError: measure() gave 0 numbers: 1 to 200 are allowed"),
    ],
)
def test_what_is_no_finite_number_fails(desk: Desk, returned: str, message: str) -> None:
    ran = desk.run("measure", f"def measure(): return {returned}")
    assert (ran.status, ran.last_line, ran.reading) == (1, message, None)


def test_a_fingerprint_is_the_hash_of_its_text_or_bytes(desk: Desk) -> None:
    for returned in ("'größe'", "'größe'.encode()", "bytearray('größe'.encode())"):
        reading = desk.run("fingerprint", f"def fingerprint(): return {returned}").reading
        assert reading is not None
        assert reading.fingerprint == hashlib.sha256("größe".encode()).hexdigest()
    assert "TypeError" in desk.run("fingerprint", "def fingerprint(): return 3").last_line


# --- outputs()

OUTPUTS = """
    import numpy
    def outputs():
        return {VALUE}
"""


def outputs(desk: Desk, good: str, other: str) -> Ran:
    file = desk.folder / "good.outputs"
    first = desk.run("outputs", OUTPUTS.replace("{VALUE}", good), outputs=file)
    assert first.status == 0, first.stderr
    return desk.run("outputs", OUTPUTS.replace("{VALUE}", other), expected=file)


@pytest.mark.parametrize(
    ("good", "other"),
    [
        ("{'a': [1, 2.0, 'x', None, True, b'y'], 'b': (1 + 2j,)}",) * 2,
        ("[0.1 + 0.2, float('nan')]", "[0.3, float('nan')]"),
        ("numpy.arange(6.0).reshape(2, 3)", "numpy.arange(6.0).reshape(2, 3) + 1e-8"),
        ("numpy.array([60000, float('nan')], 'f2')", "numpy.array([60032, float('nan')], 'f2')"),
        ("numpy.zeros((0, 3))", "numpy.zeros((0, 3))"),
        ("numpy.array([1, 2], '>i4')", "numpy.array([1, 2], '<i4')"),
        ("numpy.float32(1)", "numpy.float32(1)"),
    ],
)
def test_outputs_as_those_of_the_good_end_are_good(desk: Desk, good: str, other: str) -> None:
    ran = outputs(desk, good, other)
    assert (ran.status, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("good", "other", "message"),
    [
        ("{'a': 1}", "{'a': 2}", "outputs()['a'] differs from the good end's: is 2, expected 1"),
        ("[1.0]", "[1.01]", "outputs()[0] differs from the good end's: is 1.01, expected 1.0"),
        ("[1]", "[1, 2]", "outputs()[1] differs from the good end's: is new"),
        ("[1, 2]", "[1]", "outputs()[1] differs from the good end's: is missing"),
        ("1", "1.0", "outputs() differs from the good end's: has kind float, expected int"),
        ("1.0", "float('nan')", "outputs() differs from the good end's: is nan, expected 1.0"),
        ("b'x'", "b'y'", "outputs() differs from the good end's: is other bytes"),
        (
            "numpy.zeros(3)",
            "numpy.array([0, 0.25, 0])",
            "outputs() differs from the good end's: has 1 of 3 elements that are not close,"
            " greatest absolute difference 0.25",
        ),
        (
            "numpy.zeros(3)",
            "numpy.array([0, 0, float('nan')])",
            "outputs() differs from the good end's: has 1 of 3 elements that are not close",
        ),
        (
            "numpy.zeros(3)",
            "numpy.zeros((3, 1))",
            "outputs() differs from the good end's: has shape [3, 1], expected [3]",
        ),
        (
            "numpy.zeros(3)",
            "numpy.zeros(3, 'f4')",
            "outputs() differs from the good end's: has dtype float32, expected float64",
        ),
        (
            "numpy.array([2**60])",
            "numpy.array([2**60 + 1])",
            "outputs() differs from the good end's: has 1 of 1 elements that are not close",
        ),
    ],
)
def test_outputs_that_differ_are_bad_and_it_is_said_where(
    desk: Desk, good: str, other: str, message: str
) -> None:
    ran = outputs(desk, good, other)
    assert (ran.status, ran.reading) == (1, None)
    assert ran.last_line.startswith(f"AssertionError: {message}")


def test_what_cannot_be_compared_is_said(desk: Desk) -> None:
    ran = desk.run("outputs", "def outputs(): return {'x': [object()]}")
    expected = "TypeError: outputs()['x'][0] is an object of type object: it can't be compared"
    assert (ran.status, ran.last_line) == (1, expected)


# --- our own files


def test_a_lost_file_of_ours_is_never_the_nightlys_fault(desk: Desk) -> None:
    text = "def outputs(): return 1"
    missing = desk.run("outputs", text, expected=desk.folder / "missing")
    assert missing.status == functions.NOT_MEASURED
    assert missing.last_line.startswith("nightly-bisect: the good end's outputs can't be read")
    broken = desk.folder / "broken"
    broken.write_bytes(b"PK\x03\x04 no zip")
    assert desk.run("outputs", text, expected=broken).status == functions.NOT_MEASURED
    nowhere = desk.run("outputs", text, outputs=desk.folder / "no" / "file")
    assert nowhere.status == functions.NOT_MEASURED


def test_a_job_or_check_that_cannot_be_read_is_never_bad(desk: Desk) -> None:
    (desk.job / "job.json").write_text("{")
    assert desk.call().status == functions.NOT_MEASURED
    ran = desk.run("check", "def check(): pass")
    assert ran.status == 0
    desk.check.unlink()
    assert desk.call().last_line.startswith("nightly-bisect: the check can't be read")


def test_a_result_that_cannot_be_written_is_never_good_or_bad(desk: Desk) -> None:
    (desk.job / "result.json.part").mkdir()
    ran = desk.run("check", "def check(): pass")
    assert (ran.status, ran.reading) == (functions.NOT_MEASURED, None)
    assert "the result can't be written" in ran.last_line


def test_the_peak_of_memory_is_the_checks_own(desk: Desk) -> None:
    ballast = bytearray(200 << 20)  # a process started from here must not be charged with it
    small = desk.run("check", "def check(): pass").numbers["peak_memory"].value
    large = desk.run("check", "def check(): bytearray(b'x') * (64 << 20)").numbers["peak_memory"].value
    assert small < len(ballast) / 2
    assert 60 << 20 < large - small < 80 << 20


# --- true torch

TRUE_OUTPUTS = """
    import sys, torch
    def outputs():
        x = torch.arange(6.0).reshape(2, 3)
        return {
            "moved": x + float(sys.argv[1]),
            "kinds": [x.bfloat16(), x.half(), x.long(), x > 2, torch.tensor(float("nan")), torch.empty(0, 3)],
            "views": (x.t(), torch.complex(x, -x).conj(), x.to_sparse(), torch.nn.Parameter(x)),
        }
"""
TRUE_COMPILE = """
    import torch
    def compile_fn():
        compiled = torch.compile(lambda x: torch.nn.functional.softmax(x * 2, 0).sum())
        x = torch.randn(100)
        return lambda: compiled(x)
"""


@pytest.mark.slow
def test_true_torch_is_measured_and_compared(desk: Desk, tmp_path: Path) -> None:
    place = tmp_path / "venv"
    venv.create(place)
    python = str(place / "bin/python")
    wheel = download_torch(tmp_path / "true")
    subprocess.run([uv_binary(), "pip", "install", "-q", "--python", python, str(wheel)], check=True)

    good = tmp_path / "good.outputs"
    assert desk.run("outputs", TRUE_OUTPUTS, arguments=["0"], outputs=good, python=python).status == 0
    near = desk.run("outputs", TRUE_OUTPUTS, arguments=["1e-6"], expected=good, python=python)
    assert near.status == 0, near.stderr
    far = desk.run("outputs", TRUE_OUTPUTS, arguments=["1e-3"], expected=good, python=python)
    assert far.status == 1
    assert "outputs()['moved'] differs" in far.last_line and "Greatest absolute difference" in far.last_line

    fingerprints = set()
    for number in range(2):
        variables = cold_variables(tmp_path / f"cold{number}")
        ran = desk.run("compile_fn", TRUE_COMPILE, python=python, variables=variables, budget_s=5)
        assert ran.reading is not None, ran.stderr
        fingerprints.add(ran.reading.fingerprint)
        assert ran.numbers["compile_time"].value > 10 * ran.numbers["steady_time"].value
        assert ran.numbers["graph_breaks"].value == ran.numbers["recompiles"].value == 0
        assert ran.numbers["unique_graphs"].value == 1
    assert len(fingerprints) == 1 and None not in fingerprints
