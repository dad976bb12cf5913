"""The C of kernels: what is written, and that compilers and the evaluator agree about it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fakes.c_kernel import CKernel, needs_cc
from fakes.dot_kernels import applied, operands
from fakes.lowered import lower
from fakes.native_kernel import needs_x86, targets_apart
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.backends.backend import show
from tilewright.compiler.backends.registry import find_backend
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    Compare,
    Expression,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
)
from tilewright.compiler.printers.c_text.function import emit_kernel, file_text
from tilewright.compiler.printers.c_text.types import identifier, literal

E = expressions.Expressions
COUNT = 61
V3 = Target.level("v3")


def pointwise(name: str, source: DType, target: DType, lanes: int, value: object) -> Kernel:
    """`out[i] = value(x[i])` in vectors with a masked tail."""
    x, out = Buffer("x", source, (COUNT,)), Buffer("out", target, (COUNT,))
    i, v = symbol("i"), symbol("v")
    place = i * lanes + v
    made = value(Load(x, (place,)))  # pyright: ignore[reportCallIssue]
    assert isinstance(made, Expression)
    inside = If(Compare("lt", Index(place), Index(COUNT)), (Store(out, (place,), made),))
    vector = For(Symbol("v"), lanes, (inside,), LoopKind.VECTOR)
    body = (For(Symbol("i"), -(-COUNT // lanes), (vector,)),)
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    return Kernel(name, parameters, (), (), body)


CASES = {
    "halves are rounded once": (dtypes.f64, dtypes.f16, lambda x: E.cast(x, dtypes.f16)),
    "brain floats come back": (dtypes.bf16, dtypes.f32, lambda x: E.cast(x, dtypes.f32)),
    "integers saturate": (dtypes.f32, dtypes.i64, lambda x: E.cast(x, dtypes.i64)),
    "small integers saturate": (dtypes.f64, dtypes.u8, lambda x: E.cast(x, dtypes.u8)),
    "integers wrap": (dtypes.i32, dtypes.i32, lambda x: E.mul(E.add(x, 2147483647), x)),
    "division never traps": (dtypes.i8, dtypes.i8, lambda x: E.div(x, E.shr(x, 3))),
    "remainders have their sign": (dtypes.i16, dtypes.i16, lambda x: E.floormod(x, -7)),
    "nan stays": (dtypes.f32, dtypes.f32, lambda x: E.max(E.min(x, 2.0), -1.0)),
    "masks choose": (dtypes.f64, dtypes.f64, lambda x: E.select(E.lt(x, 0.0), E.neg(x), x)),
    "exponentials": (dtypes.f32, dtypes.f32, E.exp),
    "huge angles": (dtypes.f64, dtypes.f64, lambda x: E.sin(E.mul(x, 1e30))),
    "powers of integers": (dtypes.i32, dtypes.i32, lambda x: E.binary("pow", x, E.const(3, x.dtype, x.lanes))),
}  # fmt: skip


def samples(dtype: DType) -> np.ndarray:
    rng = np.random.default_rng(0)
    if dtype.is_float:
        values = rng.normal(0, 3, COUNT)
        values[:8] = [
            0.0,
            -0.0,
            math.inf,
            -math.inf,
            math.nan,
            1e30,
            65504.0,
            5.9604645e-08,
        ]
        with np.errstate(over="ignore"):
            return rng.permutation(values).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, COUNT, dtype.numpy, endpoint=True)


@pytest.mark.thinned(4)
@needs_cc
@needs_x86
@pytest.mark.parametrize("lanes", [1, 8, 7])
@pytest.mark.parametrize("name", CASES)
def test_c_computes_what_the_evaluator_does(name: str, lanes: int):
    source, target, value = CASES[name]
    kernel = pointwise("k", source, target, lanes, value)
    x = samples(source)
    got, want = (np.zeros(COUNT, target.numpy) for _ in range(2))
    evaluate(lower(kernel, V3), [x, want])
    CKernel(kernel, V3)([x, got])
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_a_short_kernel_reads_like_its_loops():
    kernel = pointwise("next", dtypes.f32, dtypes.f32, 1, lambda x: E.add(x, 1.0))
    text = emit_kernel(lower(kernel, V3), V3).text
    assert "// next" in text
    assert "for (int64_t i = 0; i < 61; ++i) {" in text
    assert "out[i] = x[i] + 1.0f;" in text


def test_equal_kernels_are_one_function_and_share_their_helpers():
    kernels = [pointwise(n, dtypes.f32, dtypes.f32, 8, E.exp) for n in ("a", "b")]
    written = [emit_kernel(lower(kernel, V3), V3) for kernel in kernels]
    assert written[0].symbol == written[1].symbol
    text = file_text(written, V3)
    assert text.count(f"int {written[0].symbol}(") == 1
    assert text.count("tw_f32x8 tw_load_f32x8_first(") == 1


def test_stages_can_be_shown():
    kernel = pointwise("twice", dtypes.f32, dtypes.f32, 8, lambda x: E.add(x, x))
    assert "8 lanes" in show(find_backend("c"), kernel, V3, "vectorize")
    assert "#include <stdint.h>" in show(find_backend("c"), kernel, V3, "c")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, dtypes.f32, "1.0f"),
        (0.1, dtypes.f32, "0.1f"),
        (-0.0, dtypes.f64, "(-0.0)"),
        (math.inf, dtypes.f32, "__builtin_inff()"),
        (math.nan, dtypes.f64, '__builtin_nan("")'),
        (-(1 << 63), dtypes.i64, "INT64_MIN"),
        (-(1 << 31), dtypes.i32, "INT32_MIN"),
        (-3, dtypes.i8, "(-3)"),
        ((1 << 64) - 1, dtypes.u64, "UINT64_C(18446744073709551615)"),
        (1.0, dtypes.f16, "0x3c00"),
        (True, dtypes.bool_, "1"),
    ],
)  # fmt: skip
def test_numbers_are_exact(value: float, dtype: DType, text: str):
    assert literal(value, dtype) == text


def test_names_are_identifiers_of_their_own():
    taken: set[str] = set()
    names = ("x", "x", "int", "9lives", "a/b c", "tw_load", "größe", "")
    found = [identifier(name, taken) for name in names]
    assert found == ["x", "x_2", "v_int", "v_9lives", "a_b_c", "v_tw_load", "gr__e", "v_"]


@needs_cc
@needs_x86
@pytest.mark.parametrize("lanes", [1, 4])
def test_elements_side_by_side_are_words_in_lanes_and_back(lanes):
    x = Buffer("x", dtypes.u8, (4 * lanes,))
    words = Buffer("words", dtypes.i32, (lanes,))
    back = Buffer("back", dtypes.u8, (4 * lanes,))
    word = E.bitcast(Load(x, (0,), 4 * lanes), dtypes.i32)
    body = (Store(words, (0,), word), Store(back, (0,), E.bitcast(word, dtypes.u8)))
    parameters = (
        Parameter(x, AccessMode.READ),
        Parameter(words, AccessMode.WRITE),
        Parameter(back, AccessMode.WRITE),
    )
    kernel = Kernel("words", parameters, (), (), body)
    arrays = [np.arange(3, 3 + 4 * lanes, dtype=np.uint8), np.zeros(lanes, np.int32)]
    arrays.append(np.zeros(4 * lanes, np.uint8))
    CKernel(kernel, V3)(arrays)
    np.testing.assert_array_equal(arrays[1], arrays[0].view(np.int32))
    np.testing.assert_array_equal(arrays[2], arrays[0])


@pytest.mark.sampled(4)
@needs_cc
@needs_x86
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("row", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_instructions_in_c_agree_with_their_meaning(row, lanes):
    kernel, arrays = applied(row, 32, lanes), operands(row, 32)
    expected = [array.copy() for array in arrays]
    evaluate(kernel, expected)
    for target in targets_apart():
        found = [array.copy() for array in arrays]
        CKernel(kernel, target)(found)
        np.testing.assert_array_equal(found[0], expected[0])


@needs_cc
@needs_x86
def test_variables_of_the_printer_meet_no_name_of_the_kernel():
    x, out = Buffer("t1", dtypes.f32, (COUNT,)), Buffer("t3", dtypes.f32, (COUNT,))
    t2 = symbol("t2")
    value = E.sub(Load(x, (t2,)), 1.0)
    body = (For(Symbol("t2"), COUNT, (Store(out, (t2,), E.mul(value, value)),)),)
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    kernel = Kernel("k", parameters, (), (), body)
    given = samples(dtypes.f32)
    got, want = np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32)
    evaluate(kernel, [given, want])
    CKernel(kernel, V3)([given, got])
    np.testing.assert_array_equal(got, want)


@needs_cc
@needs_x86
@pytest.mark.parametrize(
    "text", ["one\nreturn 0;", "ends with \\", "ends with ??/", "two\rlines", "blank \\ "]
)
def test_the_name_of_a_kernel_never_reaches_the_code_after_it(text: str):
    out = Buffer("out", dtypes.f32, (1,))
    body = (Store(out, (0,), E.const(1.0, dtypes.f32, 1)),)
    kernel = Kernel(text, (Parameter(out, AccessMode.WRITE),), (), (), body)
    got = np.zeros(1, np.float32)
    CKernel(kernel, V3)([got])
    assert got[0] == 1.0


def test_an_index_stands_without_parentheses():
    x, out = Buffer("x", dtypes.f32, (64,)), Buffer("out", dtypes.f32, (64,))
    place = (symbol("i") * 8 + symbol("j"),)
    inner = For(Symbol("j"), 8, (Store(out, place, Load(x, place)),))
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    kernel = Kernel("k", parameters, (), (), (For(Symbol("i"), 8, (inner,)),))
    text = file_text([emit_kernel(lower(kernel, V3), V3)], V3)
    assert "out[i * 8 + j] = x[i * 8 + j];" in text
