"""Functions written out as arithmetic, run by the evaluator; `test_math` holds machine code to the last place."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions as builders
from tilewright.compiler.kernel import primitives
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.expressions import cast
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Call,
    Expression,
    For,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
    Unary,
)
from tilewright.compiler.kernel.rewrite import as_index, expressions
from tilewright.compiler.kernel.text import expression_text, kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.math.expand import expand_math
from tilewright.compiler.lowering.math.pieces import Means
from tilewright.compiler.lowering.vectorize import vectorize

E = builders.Expressions
UNARY = (
    "exp", "exp_nonpositive", "log", "tanh", "sigmoid", "erf", "normal_cdf", "sin", "cos", "rsqrt",
)  # fmt: skip
FLOATS = (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
TARGETS = ("x86_64-v2", "x86_64-v4", "aarch64")
COUNT = 37


def kernel_of(op: str, dtype: DType, operands: int, lanes: int = 1) -> Kernel:
    buffers = [Buffer(f"x{n}", dtype, (COUNT * lanes,)) for n in range(operands)]
    out = Buffer("out", dtype, (COUNT * lanes,))
    place = symbol("i") * lanes + symbol("v") if lanes > 1 else symbol("i")
    values = [Load(b, (place,)) for b in buffers]
    value: Expression = (
        Unary(op, values[0], dtype)
        if operands == 1
        else Binary(op, values[0], values[1], dtype)
    )
    store = Store(out, (place,), value)
    inner = For(Symbol("v"), lanes, (store,), LoopKind.VECTOR) if lanes > 1 else store
    parameters = [Parameter(b, AccessMode.READ) for b in buffers]
    kernel = Kernel(
        op,
        (*parameters, Parameter(out, AccessMode.WRITE)),
        (),
        (),
        (For(Symbol("i"), COUNT, (inner,)),),
    )
    return vectorize(kernel) if lanes > 1 else kernel


def samples(dtype: DType, count: int, seed: int = 0) -> np.ndarray:
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        math.inf,
        -math.inf,
        math.nan,
        3e-5,
        88.0,
        -2.0,
        3.0,
    ]
    rng = np.random.default_rng(seed)
    values = np.concatenate([special, rng.normal(0, 3, count - len(special))])
    return rng.permutation(values).astype(dtype.numpy)


def run(kernel: Kernel, *inputs: np.ndarray) -> np.ndarray:
    out = np.zeros_like(inputs[0])
    evaluate(kernel, [*inputs, out])
    return out


def agree(got: np.ndarray, want: np.ndarray, dtype: DType) -> None:
    limit = (
        {16: 2e-3, 32: 1e-6, 64: 1e-15}[dtype.bits] if dtype is not dtypes.bf16 else 1e-2
    )
    wide = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(*wide, rtol=limit, atol=limit * 1e-3)


@pytest.mark.sampled(3)
@pytest.mark.thinned(10)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_a_function_is_what_it_was(op: str, dtype: DType, target: str):
    for lanes in (1, 16):
        kernel = kernel_of(op, dtype, 1, lanes)
        expanded = expand_math(kernel, Means.of(Target.parse(target)))
        verify(expanded)
        assert not any(
            isinstance(e, Unary) and e.op in UNARY for e in expressions(expanded.body)
        )
        x = samples(dtype, COUNT * lanes)
        x = -np.abs(x) if op == "exp_nonpositive" else x
        got, want = run(expanded, x), run(kernel, x)
        if op == "normal_cdf":  # exact absolutely, in f32 and what is computed in it
            np.testing.assert_allclose(got, want, rtol=1e-2, atol=3e-7)
        else:
            agree(got, want, dtype)


@pytest.mark.parametrize("op", ["exp", "exp_nonpositive"])
@pytest.mark.parametrize(
    ("dtype", "lanes", "target", "whole"),
    [
        (dtypes.f32, 16, "x86_64-v4", True),
        (dtypes.f64, 8, "x86_64-v4", True),
        (dtypes.f32, 8, "x86_64-v4", False),
        (dtypes.f64, 16, "x86_64-v4", False),
        (dtypes.f32, 16, "x86_64-v3", False),
        (dtypes.f32, 16, "aarch64", False),
    ],
)
def test_whole_vectors_are_scaled_in_one_instruction_where_there_is_one(
    op: str, dtype: DType, lanes: int, target: str, whole: bool
):
    expanded = expand_math(kernel_of(op, dtype, 1, lanes), Means.of(Target.parse(target)))
    found = [e for e in expressions(expanded.body) if isinstance(e, Binary)]
    assert any(e.op == "scale" for e in found) == whole


def bounded_power(dtype: DType, least: float | None) -> Kernel:
    """e**x, or that of the larger of x and a number, of x <= 0."""
    x, out = (Buffer(name, dtype, (COUNT * 16,)) for name in ("x", "out"))
    at = symbol("i") * 16 + symbol("v")
    value: Expression = Load(x, (at,))
    value = value if least is None else E.max(value, least)
    store = Store(out, (at,), E.exp_nonpositive(value))
    lanes = For(Symbol("v"), 16, (store,), LoopKind.VECTOR)
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    return vectorize(
        Kernel("power", parameters, (), (), (For(Symbol("i"), COUNT, (lanes,)),))
    )


@pytest.mark.parametrize("target", ["x86_64-v2", "x86_64-v3", "x86_64-v4", "aarch64"])
@pytest.mark.parametrize(("dtype", "least"), [(dtypes.f32, -87.3), (dtypes.f64, -708.3)])
def test_a_power_that_is_never_denormal_is_neither_bounded_nor_lifted(
    dtype: DType, least: float, target: str
):
    means = Means.of(Target.parse(target))
    x = np.linspace(least, 0, COUNT * 16, dtype=dtype.numpy)
    x[0], x[1] = least, math.nan

    def computed(bound: float | None) -> tuple[np.ndarray, int]:
        kernel = expand_math(bounded_power(dtype, bound), means)
        binary = [e.op for e in expressions(kernel.body) if isinstance(e, Binary)]
        return run(kernel, x), sum(op in ("max", "mul") for op in binary)

    usual, steps = computed(None)
    normal, fewer = computed(least)
    np.testing.assert_array_equal(normal, usual)
    # One bound stands in the place of the other; the product that lowers what was lifted is gone.
    assert fewer == steps - (not any_scaled(means, dtype))
    assert computed(2 * least)[1] > steps, "what may be denormal is bounded and lifted, too"


def any_scaled(means: Means, dtype: DType) -> bool:
    """Whether the vectors of these tests are scaled in one instruction."""
    return 16 * dtype.bits == means.scaled_bits


@pytest.mark.sampled(3)
@pytest.mark.thinned(7)
@pytest.mark.parametrize("target", ["x86_64-v3", "x86_64-v4", "aarch64"])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("op", UNARY)
def test_a_number_alone_has_the_bits_it_has_in_a_vector(op: str, dtype: DType, target: str):
    """A rest of a vector is computed with fewer lanes, and a row must not depend on the batch that it is in."""
    means = Means.of(Target.parse(target))
    x = np.linspace(-110, 100, COUNT * 16, dtype=dtype.numpy)
    x = np.random.default_rng(0).permutation(x)
    x = -np.abs(x) if op == "exp_nonpositive" else x
    whole, half, alone = (
        run(expand_math(kernel_of(op, dtype, 1, lanes), means), x[: COUNT * lanes])
        for lanes in (16, 8, 1)
    )
    np.testing.assert_array_equal(half, whole[: len(half)])
    np.testing.assert_array_equal(alone, whole[: len(alone)])
    others = run(expand_math(kernel_of(op, dtype, 1, 16), means.without_scaling()), x)
    np.testing.assert_array_equal(others, whole)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("op", ["pow", "mod", "floormod"])
def test_a_function_of_two_is_what_it_was(op: str, dtype: DType, target: str):
    kernel = kernel_of(op, dtype, 2)
    expanded = expand_math(kernel, Means.of(Target.parse(target)))
    verify(expanded)
    x, y = samples(dtype, COUNT), samples(dtype, COUNT, seed=1)
    agree(run(expanded, x, y), run(kernel, x, y), dtype)


@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.u16, dtypes.i32, dtypes.u64], ids=str)
def test_powers_of_integers_are_calls(dtype: DType):
    kernel = kernel_of("pow", dtype, 2)
    expanded = expand_math(kernel, Means.of(Target.parse("x86_64-v3")))
    verify(expanded)
    assert any(isinstance(e, Call) for e in expressions(expanded.body))
    x = (np.arange(COUNT) - 5).astype(dtype.numpy)
    y = (np.arange(COUNT) % 7).astype(dtype.numpy)
    np.testing.assert_array_equal(run(expanded, x, y), run(kernel, x, y))


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("op", ["sin", "cos"])
def test_huge_angles_take_the_exact_way(op: str, dtype: DType):
    kernel = kernel_of(op, dtype, 1)
    expanded = expand_math(kernel, Means.of(Target.parse("x86_64-v3")))
    exponents = np.random.default_rng(0).uniform(8, 37, COUNT)
    x = (10.0**exponents).astype(dtype.numpy)
    agree(run(expanded, x), run(kernel, x), dtype)


def test_the_parts_of_an_angle_make_it_up():
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 10, 200) * 10.0 ** rng.uniform(0, 300, 200)
    parts = [
        primitives.compute(f, (x,))
        for f in (
            primitives.angle_quadrant(),
            primitives.angle_rest(),
            primitives.angle_error(),
        )
    ]
    quadrant, rest, error = parts
    assert set(np.unique(quadrant)) == {0, 1, 2, 3}
    assert np.all(np.abs(rest) <= math.pi / 4)
    assert np.all(np.abs(error) <= np.spacing(np.abs(rest)))
    turned = np.sin(rest + quadrant * (math.pi / 2))
    np.testing.assert_allclose(turned, np.sin(x), atol=1e-15)


def test_the_text_grows_with_the_operations_not_with_their_uses():
    """A power has thousands of paths to its operand; each operation is written once."""
    expanded = expand_math(
        kernel_of("pow", dtypes.f64, 2), Means.of(Target.parse("x86_64-v3"))
    )
    count = len(list(expressions(expanded.body)))
    assert count < 1000
    text = kernel_text(expanded)
    assert len(text) < 40 * count
    assert "(t1 := " in text
    assert " t1" in text.replace("(t1 := ", "")


def test_short_text_names_nothing():
    x = Load(Buffer("x", dtypes.f32, (4,)), (0,))
    twice = Binary("add", x, x, dtypes.f32)
    assert (
        expression_text(Binary("mul", twice, twice, dtypes.f32))
        == "((x[0] + x[0]) * (x[0] + x[0]))"
    )


def test_a_function_inside_an_index_is_written_out_too():
    x, y = Buffer("x", dtypes.f32, (COUNT,)), Buffer("y", dtypes.f32, (COUNT,))
    i = symbol("i")
    place = as_index(cast(Unary("exp", Load(x, (i,)), dtypes.f32), dtypes.i64))
    kernel = Kernel(
        "k",
        (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.WRITE)),
        (),
        (),
        (For(Symbol("i"), COUNT, (Store(y, (i,), Load(x, (place,))),)),),
    )
    expanded = expand_math(kernel, Means.of(Target.parse("x86_64-v3")))
    values = np.random.default_rng(0).uniform(0, 3, COUNT).astype(np.float32)
    got, want = np.zeros_like(values), np.zeros_like(values)
    evaluate(kernel, [values, want])
    evaluate(expanded, [values, got])
    np.testing.assert_array_equal(got, want)
    assert not any(
        isinstance(e, Unary) and e.op == "exp" for e in expressions(expanded.body)
    )
