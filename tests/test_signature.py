from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nightly_bisect.model import Signature
from nightly_bisect.signature import Failure, normalise, read_failure, tail_of

PLAIN = """\
Traceback (most recent call last):
  File "/home/me/check.py", line 12, in <module>
    out = model(x)
          ^^^^^^^^
  File "/tmp/env-81/lib/python3.12/site-packages/torch/nn/modules/module.py", line 1751, in _call_impl
    return forward_call(*args, **kwargs)
RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16
"""
BACKEND = """\
W0602 10:11:12.131415 4711 torch/_inductor/utils.py:1250] Not enough SMs to use max_autotune_gemm mode
Traceback (most recent call last):
  File "/home/me/check.py", line 7, in <module>
    f(torch.ones(3))
  File "/tmp/e/lib/python3.12/site-packages/torch/_dynamo/eval_frame.py", line 433, in _fn
    return fn(*args, **kwargs)
torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:
CppCompileError: C++ compile error

Command:
g++ /tmp/torchinductor_me/zc/czcq3.cpp -shared -fPIC

Set TORCH_LOGS="+dynamo" and TORCHDYNAMO_VERBOSE=1 for more information


You can suppress this exception and fall back to eager by setting:
    import torch._dynamo
    torch._dynamo.config.suppress_errors = True
"""
CHAINED = """\
Traceback (most recent call last):
  File "check.py", line 2, in <module>
    {}["a"]
    ~~^^^^^
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "check.py", line 4, in <module>
    raise RuntimeError("no kernel for cuda:0\\nsecond line")
RuntimeError: no kernel for cuda:0
second line
"""
CAUSED = """\
Traceback (most recent call last):
  File "check.py", line 2, in <module>
    import torchvision
ModuleNotFoundError: No module named 'torchvision'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "check.py", line 4, in <module>
    raise SystemError("needs it") from error
SystemError: needs it
"""
BARE_ASSERT = """\
Traceback (most recent call last):
  File "check.py", line 3, in <module>
    assert torch.equal(a, b)
           ^^^^^^^^^^^^^^^^^
AssertionError
"""
CLOSE = """\
Traceback (most recent call last):
  File "check.py", line 3, in <module>
    torch.testing.assert_close(a, b)
AssertionError: Tensor-likes are not close!

Mismatched elements: 3 / 10 (30.0%)
Greatest absolute difference: 0.25 at index (3,) (up to 1e-05 allowed)
"""
SYNTAX = """\
  File "/home/me/check.py", line 1
    def f(:
          ^
SyntaxError: invalid syntax
"""
PYTEST = """\
============================= test session starts ==============================
collected 2 items

test_a.py .F                                                             [100%]

=================================== FAILURES ===================================
____________________________________ test_y ____________________________________

    def test_y():
>       f()

test_a.py:4:
_ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _
>   def f(): raise torch.OutOfMemoryError("Tried to allocate 2.00 GiB")
E   torch.OutOfMemoryError: Tried to allocate 2.00 GiB

test_a.py:2: OutOfMemoryError
=========================== short test summary info ============================
FAILED test_a.py::test_y - torch.OutOfMemoryError: Tried to allocate 2.00 GiB
========================= 1 failed, 1 passed in 0.12s ==========================
"""
IN_A_LOG = """\
[rank0]: Traceback (most recent call last):
[rank0]: ValueError: not ours
Traceback (most recent call last):
  File "check.py", line 1, in <module>
torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/ProcessGroupNCCL.cpp:3356
E0602 12:00:00.000000 1 torch/elastic.py:80] the last line
"""


@pytest.mark.parametrize(
    ("stderr", "kind", "text"),
    [
        (PLAIN, "RuntimeError", "mat1 and mat2 must have the same dtype, but got Float and BFloat16"),
        (BACKEND, "BackendCompilerFailed", "backend='inductor' raised: CppCompileError: C++ compile error"),
        (CHAINED, "RuntimeError", "no kernel for cuda:#"),
        (CAUSED, "SystemError", "needs it"),
        (BARE_ASSERT, "AssertionError", ""),
        (CLOSE, "AssertionError", "Tensor-likes are not close!"),
        (SYNTAX, "", "SyntaxError: invalid syntax"),
        (PYTEST, "OutOfMemoryError", "Tried to allocate # GiB at test_a.py::test_y"),
        (IN_A_LOG, "DistBackendError", "NCCL error in: <path>:#"),
        ("one\nworse: 3.2 s\n\n  \n", "", "worse: # s"),
        ("", "", ""),
        ("\n\n", "", ""),
    ],
)
def test_a_failure_is_known_by_its_exception_and_its_telling_line(stderr: str, kind: str, text: str) -> None:
    assert read_failure([], stderr.splitlines()).signature == Signature(kind, text)


@pytest.mark.parametrize("printed", [PLAIN, BACKEND, CHAINED, BARE_ASSERT, SYNTAX, PYTEST, "no\n"])
def test_the_stream_and_the_line_ends_make_no_difference(printed: str) -> None:
    expected = read_failure([], printed.splitlines())
    assert read_failure(printed.splitlines(), []) == expected
    assert read_failure([], printed.replace("\n", "\r\n").splitlines()) == expected


def test_an_exception_anywhere_says_more_than_a_last_line() -> None:
    assert read_failure(PLAIN.splitlines(), ["core dumped"]).kind == "RuntimeError"


def test_errors_that_were_printed_say_more_than_output() -> None:
    assert read_failure(["done 3 of 4"], ["no such option"]) == Failure("", "no such option")
    assert read_failure(PYTEST.splitlines(), CLOSE.splitlines()).kind == "AssertionError"


def test_a_word_and_a_colon_are_no_exception_without_a_traceback() -> None:
    assert read_failure([], ["Error: it broke", "usage: check [-h]"]) == Failure("", "usage: check [-h]")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("<Foo object at 0x7f3a9c0d1e20>", "<Foo object at #>"),
        ("CUDA error 700 on cuda:3", "CUDA error # on cuda:#"),
        ("expected 1,234.5 got -2e-05 (12.5%)", "expected # got # (#)"),
        ("took 1.25s", "took #s"),
        ("at /tmp/tmpab12/x.py:30", "at <path>:#"),
        (r"at C:\Users\me\x.py", "at <path>"),
        ("open './data/../x_1.bin'", "open '<path>'"),
        ("https://example.org/a/1?b=2", "http<path>?b=#"),
        ("got nan, wanted inf", "got #, wanted #"),
        ("tensor([1., 2., 3.])", "tensor([#])"),
        ("tensor([ 1.5000e+00, -2.0000e-03,         nan])", "tensor([ #])"),
        ("size [2, 3] != [4]", "size [#] != [#]"),
        ("2024-06-02 10:11:12,131 failed", "#:#:# failed"),
        ("  at the margin \r\n", "at the margin"),
        # What tells failures apart stays: words with digits in them are names.
        ("Float32 and int8 in conv2d of sm_90", "Float32 and int8 in conv2d of sm_90"),
        ("operator torchvision::nms does not exist", "operator torchvision::nms does not exist"),
        ("'NoneType' object has no attribute 'x'", "'NoneType' object has no attribute 'x'"),
    ],
)
def test_what_differs_from_run_to_run_is_taken_out(line: str, text: str) -> None:
    assert normalise(line) == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("tensor([1., 2.])", "tensor([0.3333, 7., 8., 9.])"),
        ("max diff nan", "max diff 0.25"),
        ("max diff inf", "max diff 1e-3"),
        ("at 0x7f00dead", "at 0x55aa"),
        ("/tmp/a/x.so: undefined symbol: f", "/home/b/env-3/x.so: undefined symbol: f"),
        ("pid 12 got signal 11", "pid 4711 got signal 11"),
        ("Mismatched elements: 1 / 10 (10.0%)", "Mismatched elements: 12 / 1000 (1.2%)"),
    ],
)
def test_two_runs_of_one_failure_have_one_signature(one: str, other: str) -> None:
    assert Failure("E", one).signature == Failure("E", other).signature


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PLAIN, CLOSE),
        (PLAIN, PLAIN.replace("RuntimeError", "TypeError")),
        (PLAIN, PLAIN.replace("Float and", "Half and")),
        (BACKEND, BACKEND.replace("CppCompileError: C++ compile error", "LoweringException: no meta")),
        (BARE_ASSERT, CLOSE),
        (PYTEST, PYTEST.replace("OutOfMemoryError: Tried", "AcceleratorError: Tried")),
        ("undefined symbol: f", "undefined symbol: g"),
        ("", "no output"),
    ],
)
def test_different_failures_have_different_signatures(one: str, other: str) -> None:
    first, second = (read_failure([], text.splitlines()).signature for text in (one, other))
    assert first != second


def test_a_moved_exception_is_the_same_one() -> None:
    moved = BACKEND.replace("torch._dynamo.exc.", "torch._dynamo.errors.")
    assert read_failure([], moved.splitlines()) == read_failure([], BACKEND.splitlines())


def test_a_script_survived_the_tracebacks_that_it_printed() -> None:
    printed = [*PLAIN.splitlines(), "wrong sum"]
    assert read_failure([], printed).kind == "RuntimeError"
    assert read_failure([], printed, is_script=True) == Failure("", "wrong sum")
    assert read_failure(PYTEST.splitlines(), [], is_script=True).kind == "OutOfMemoryError"


def test_the_line_of_the_check_tells_bare_assertions_apart() -> None:
    first, second = (Failure("AssertionError", "", f"    assert {name}\n") for name in "ab")
    assert first.signature != second.signature
    assert first.signature == Signature("AssertionError", " at assert a")
    assert str(first) == "AssertionError at `assert a`"
    assert str(Failure("ValueError", "no 3", "f(3)")) == "ValueError: no 3"


@pytest.mark.parametrize(
    ("failure", "exhausted"),
    [
        (Failure("MemoryError", ""), True),
        (Failure("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (Failure("RuntimeError", "DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (Failure("OSError", "[Errno 28] No space left on device"), True),
        (Failure("RuntimeError", "no kernel"), False),
        (Failure("", "it said: out of memory"), False),
    ],
)
def test_memory_and_disk_are_matters_of_the_machine(failure: Failure, exhausted: bool) -> None:
    assert failure.is_exhaustion is exhausted


def test_the_tail_is_what_both_streams_said_last() -> None:
    stdout, stderr = [*map("line {}".format, range(40)), "", "took 3.5 s"], ["at /tmp/x", "  "]
    assert tail_of(["a 1", " ", "b"], ["c"]) == ("a #", "b", "c")
    assert tail_of(stdout, stderr) == ("line #",) * 18 + ("took # s", "at <path>")


def test_a_long_line_is_cut() -> None:
    assert normalise("x" * 1000) == "x" * 300
    assert Failure("E", "", "x" * 1000).signature.text == " at " + "x" * 300


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure("ValueError", "no 3"), "ValueError: no 3"),
        (Failure("AssertionError", ""), "AssertionError"),
        (Failure("", "killed"), "killed"),
        (Failure("", ""), ""),
    ],
)
def test_a_failure_reads_as_it_was_printed(failure: Failure, text: str) -> None:
    assert str(failure) == text
    assert str(failure.signature) == text.replace("3", "#")


PIECES = ["0x7f", "1.5", "-2e-05", " nan", " inf", "/tmp/x", "C:\\y", "a", "_", ", ", ".", "%", " ", "[", "#"]


@settings(max_examples=300, derandomize=True)
@example("1_000,5. 0x1g //")
@given(st.one_of(st.text(max_size=80), st.lists(st.sampled_from(PIECES), max_size=12).map("".join)))
def test_normalising_again_changes_nothing(line: str) -> None:
    once = normalise(line)
    assert normalise(once) == once


@settings(max_examples=200, derandomize=True)
@given(*[st.lists(st.one_of(st.text(max_size=60), st.sampled_from(PLAIN.splitlines())), max_size=8)] * 2)
def test_whatever_was_printed_has_a_signature(stdout: list[str], stderr: list[str]) -> None:
    failure = read_failure(stdout, stderr)
    assert len(failure.signature.text) <= 300
    assert "\n" not in failure.kind


def test_a_long_line_is_read_in_no_time() -> None:
    import time

    started = time.process_time()
    normalise("x" * 2_000_000)
    # Quadratic work took hours here: any bound of minutes tells the two apart.
    assert time.process_time() - started < 60


PYTEST_BARE = """\
    def test_y():
>       assert f() == 2
E       assert 1 == 2

test_a.py:4: AssertionError
=========================== short test summary info ============================
FAILED test_a.py::test_y - assert 1 == 2
========================= 1 failed, 1 passed in {} ==========================
"""


def test_a_bare_assert_under_pytest_is_known_by_its_test_whatever_it_took() -> None:
    one, two = (
        read_failure(PYTEST_BARE.format(took).splitlines(), []) for took in ("9.98s", "12.31s (0:00:12)")
    )
    other = read_failure(PYTEST_BARE.format("9.98s").replace("test_y", "test_z").splitlines(), [])
    assert one.signature == two.signature
    assert one.signature != other.signature
    assert one.kind == "AssertionError"


GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "check.py", line 2, in <module>
  |     raise ExceptionGroup("two", [ValueError("x"), TypeError("y")])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: x
    +---------------- 2 ----------------
    | TypeError: y
    +------------------------------------
"""


def test_an_exception_group_is_known_by_its_message() -> None:
    one, other = (read_failure([], text.splitlines()) for text in (GROUP, GROUP.replace("two (", "three (")))
    assert one.kind == "ExceptionGroup"
    assert one.signature != other.signature


IGNORED = """\
Exception ignored in: <function f at 0x7f>
Traceback (most recent call last):
  File "x.py", line 1, in f
AttributeError: gone
"""


def test_what_is_ignored_at_shutdown_ended_nothing() -> None:
    assert read_failure([], (BARE_ASSERT + IGNORED).splitlines()).kind == "AssertionError"
