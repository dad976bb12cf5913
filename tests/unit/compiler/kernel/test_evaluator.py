from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import bf16, bool_, f32, i4, i8, i32, i64, u4
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Expr, Symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel import numerics, primitives
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.independence import is_independent
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    Fma,
    For,
    Horizontal,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Store,
)
from tilewright.compiler.kernel.verifier import verify

N = symbolic.symbol("N", 1)


def var(name: str, extent: int | None = None) -> tuple[Symbol, Expr]:
    found = Symbol(name, 0, None if extent is None else extent - 1)
    return found, Expr.of_atom(found)


def single(x: Buffer, y: Buffer, *body, locals_=(), dims=()) -> Kernel:
    kernel = Kernel(
        "k",
        (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.READ_WRITE)),
        tuple(dims),
        tuple(locals_),
        tuple(body),
    )
    verify(kernel)
    return kernel


def test_a_naive_matrix_product_with_a_dynamic_dimension():
    b = KernelBuilder("mm")
    x, w = b.parameter("x", f32, (N, 5)), b.parameter("w", f32, (5, 7))
    y = b.result("y", f32, (N, 7))
    with b.nest((N, 7)) as (m, n):
        b.store(y, (m, n), 0)
        with b.reduce((5,)) as (k,):
            b.accumulate("add", y, (m, n), b.mul(b.load(x, (m, k)), b.load(w, (k, n))))
    rng = np.random.default_rng(0)
    left = rng.standard_normal((3, 5)).astype(np.float32)
    right = rng.standard_normal((5, 7)).astype(np.float32)
    out = np.zeros((3, 7), np.float32)
    evaluate(b.build(), [left, right, out], {"N": 3})
    np.testing.assert_allclose(out, left @ right, rtol=1e-5)


def test_a_loop_that_carries_a_value_runs_in_order():
    y = Buffer("y", i64, (6,))
    s, i = var("i", 5)
    body = For(s, 5, (Store(y, (i + 1,), e.binary("add", Load(y, (i,)), 1)),))
    assert not is_independent(body)
    out = np.zeros(6, np.int64)
    evaluate(single(Buffer("x", f32, ()), y, body), [np.float32(0), out])
    assert out.tolist() == [0, 1, 2, 3, 4, 5]


def test_tiles_of_a_flat_index_are_independent():
    y = Buffer("y", i64, (12,))
    (s, i), (t, j) = var("i", 3), var("j", 4)
    inner = For(t, 4, (Store(y, (i * 4 + j,), Index(i * 4 + j)),))
    assert is_independent(For(s, 3, (inner,)))
    overlapping = For(
        t, 5, (Store(y, (i * 4 + Expr.of_atom(Symbol("j", 0, 4)),), Index(j)),)
    )
    assert not is_independent(For(s, 2, (overlapping,)))


@pytest.mark.parametrize(
    ("beside", "apart"), [(3, True), (5, False), (0, False), (1, True)]
)
def test_lanes_that_run_backwards_are_before_the_first_one(beside: int, apart: bool):
    """Lanes at 4 i + 4 down to 4 i + 1, and one element beside them."""
    x, y = Buffer("x", f32, (16,)), Buffer("y", f32, (16,))
    s, i = var("i", 2)
    body = For(
        s, 2,
        (Store(y, (i * 4 + 4,), Load(x, (i * 4,), 4), -1), Store(y, (i * 4 + beside,), Load(x, (i,)))),
    )  # fmt: skip
    assert is_independent(body) is apart
    data, out, expected = np.arange(1, 17, dtype=np.float32), *np.zeros((2, 16), np.float32)
    for step in range(2):
        expected[4 * step + 1 : 4 * step + 5] = data[4 * step : 4 * step + 4][::-1]
        expected[4 * step + beside] = data[step]
    evaluate(single(x, y, body), [data, out])
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("step", "apart"), [(1, True), (2, False), (3, False), (-1, True), (-2, False)]
)
def test_inner_loops_reach_as_far_as_their_steps(step: int, apart: bool):
    """Elements 4 i + 8 and each `step` from there on, three of them."""
    y = Buffer("y", f32, (24,))
    (s, i), (t, j) = var("i", 3), var("j", 3)
    body = For(s, 3, (For(t, 3, (Store(y, (i * 4 + j * step + 8,), e.const(1.0, f32)),)),))
    assert is_independent(body) is apart


def test_a_store_through_a_loaded_index_is_not_independent():
    x, y = Buffer("x", i64, (4,)), Buffer("y", i64, (4,))
    s, i = var("i", 4)
    at = e.as_index(Load(x, (i,)))
    scatter = For(s, 4, (Store(y, (at,), Index(i)),))
    assert not is_independent(scatter)
    out = np.zeros(4, np.int64)
    evaluate(single(x, y, scatter), [np.asarray([2, 2, 0, 2]), out])
    assert out.tolist() == [2, 0, 3, 0]


@pytest.mark.parametrize("mask_to", [8, 5])
def test_vector_loads_and_stores_with_stride_and_mask(mask_to: int):
    x, y = Buffer("x", f32, (16,)), Buffer("y", f32, (mask_to,))
    lanes = Index(0, i64, 8, 1)
    mask = e.compare("lt", lanes, mask_to) if mask_to < 8 else None
    value = Load(x, (1,), 8, 2 if mask_to < 8 else 1, mask)
    kernel = single(x, y, Store(y, (0,), e.binary("mul", value, 2), mask=mask))
    data, out = np.arange(16, dtype=np.float32), np.zeros(mask_to, np.float32)
    evaluate(kernel, [data, out])
    step = 2 if mask_to < 8 else 1
    assert out.tolist() == (2 * data[1 : 1 + step * mask_to : step]).tolist()


def test_lanes_work_inside_parallel_loops():
    x, y = Buffer("x", f32, (3, 8)), Buffer("y", f32, (3,))
    s, i = var("i", 3)
    total = Horizontal("add", Load(x, (i, 0), 8), f32)
    data = np.arange(24, dtype=np.float32).reshape(3, 8)
    out = np.zeros(3, np.float32)
    evaluate(single(x, y, For(s, 3, (Store(y, (i,), total),))), [data, out])
    assert out.tolist() == data.sum(1).tolist()


def test_flattened_indices_address_the_whole_buffer():
    x, y = Buffer("x", f32, (3, 4)), Buffer("y", f32, (4, 3))
    (s, i), (t, j) = var("i", 3), var("j", 4)
    nest = For(s, 3, (For(t, 4, (Store(y, (j * 3 + i,), Load(x, (i * 4 + j,))),)),))
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    out = np.zeros((4, 3), np.float32)
    evaluate(single(x, y, nest), [data, out])
    assert (out == data.T).all()


@pytest.mark.parametrize("space", [Space.REGISTER, Space.WORKGROUP])
def test_local_buffers_are_private_to_each_workgroup_and_start_poisoned(space: Space):
    x, y = Buffer("x", f32, (6,)), Buffer("y", f32, (6,))
    t = Buffer("t", f32, (1,), space)
    s, i = var("i", 6)
    good = For(
        s,
        6,
        (Store(t, (0,), Load(x, (i,))), Store(y, (i,), Load(t, (0,)))),
        LoopKind.GRID_X,
    )
    data, out = np.arange(6, dtype=np.float32), np.zeros(6, np.float32)
    evaluate(single(x, y, good, locals_=[t]), [data, out])
    assert (out == data).all()
    carried = For(s, 6, (Store(y, (i,), Load(t, (0,))),), LoopKind.GRID_X)
    evaluate(single(x, y, carried, locals_=[t]), [data, out])
    assert np.isnan(out).all()


def test_workgroups_that_depend_on_their_order_give_another_result_than_in_order():
    x, y = Buffer("x", f32, (1,)), Buffer("y", i64, (1,))
    s, i = var("i", 4)
    racing = For(s, 4, (Store(y, (0,), Index(i)),), LoopKind.GRID_X)
    out = np.zeros(1, np.int64)
    evaluate(single(x, y, racing), [np.zeros(1, np.float32), out])
    assert out[0] == 0  # the last in order would have left 3


def test_guards_apply_to_stores_and_keep_loads_inside():
    x, y = Buffer("x", f32, (5,)), Buffer("y", f32, (8,))
    s, i = var("i", 8)
    inside = e.compare("lt", Index(i), 5)
    nest = For(s, 8, (If(inside, (Store(y, (i,), Load(x, (i,))),)),))
    data, out = np.arange(5, dtype=np.float32), np.full(8, -1, np.float32)
    evaluate(single(x, y, nest), [data, out])
    assert out.tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


def test_extents_may_depend_on_outer_loops():
    x, y = Buffer("x", f32, (5,)), Buffer("y", f32, (5,))
    (s, i), (t, j) = var("i", 5), var("j")
    inner = For(
        t, i + 1, (Store(y, (i,), e.binary("add", Load(y, (i,)), Load(x, (j,)))),),
        reduction=True,
    )  # fmt: skip
    data, out = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    evaluate(single(x, y, For(s, 5, (inner,))), [data, out])
    assert out.tolist() == np.cumsum(data).tolist()


@pytest.mark.parametrize("index", [-1, 4])
def test_an_access_out_of_bounds_is_an_error(index: int):
    x, y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,))
    s, i = var("i", 4)
    shifted = i - 1 if index < 0 else i + 1
    with pytest.raises(InternalError, match=f"load from x.* at index {index} of 4"):
        evaluate(
            single(x, y, For(s, 4, (Store(y, (i,), Load(x, (shifted,))),))),
            [np.zeros(4, np.float32), np.zeros(4, np.float32)],
        )


def test_size_zero_buffers_and_loops_do_nothing():
    x, y = Buffer("x", f32, (N, 3)), Buffer("y", f32, (N, 3))
    (s, i), (t, j) = var("i"), var("j", 3)
    nest = For(s, N, (For(t, 3, (Store(y, (i, j), Load(x, (i, j))),)),))
    kernel = single(x, y, nest, dims=symbolic.symbols(N))
    arrays = [np.zeros((0, 3), np.float32), np.full((2, 3), 7, np.float32)]
    evaluate(kernel, [arrays[0], arrays[1][:0]], {"N": 0})
    assert (arrays[1] == 7).all()


def test_wrong_arrays_and_missing_dims_are_errors():
    x, y = Buffer("x", f32, (N,)), Buffer("y", f32, (N,))
    s, i = var("i")
    kernel = single(
        x, y, For(s, N, (Store(y, (i,), Load(x, (i,))),)), dims=symbolic.symbols(N)
    )
    good = np.zeros(3, np.float32)
    with pytest.raises(InternalError, match="needs values for"):
        evaluate(kernel, [good, good])
    with pytest.raises(InternalError, match="takes 2 arrays"):
        evaluate(kernel, [good], {"N": 3})
    with pytest.raises(InternalError, match="expected"):
        evaluate(kernel, [good.astype(np.float64), good], {"N": 3})
    with pytest.raises(InternalError, match="expected"):
        evaluate(kernel, [good, good], {"N": 4})


def test_strided_outputs_are_written_back():
    x, y = Buffer("x", f32, (4,)), Buffer("y", f32, (4,))
    s, i = var("i", 4)
    wide = np.zeros(8, np.float32)
    evaluate(
        single(x, y, For(s, 4, (Store(y, (i,), Load(x, (i,))),))),
        [np.arange(4, dtype=np.float32), wide[::2]],
    )
    assert wide.tolist() == [0, 0, 1, 0, 2, 0, 3, 0]


# --- numerics --------------------------------------------------------------------------------


def test_integer_division_truncates_and_remainders_follow_their_rule():
    x, y = np.int32([7, -7, 7, -7]), np.int32([2, 2, -2, -2])
    assert numerics.binary("div", x, y, i32).tolist() == [3, -3, -3, 3]
    assert numerics.binary("mod", x, y, i32).tolist() == [1, -1, 1, -1]
    assert numerics.binary("floormod", x, y, i32).tolist() == [1, 1, -1, -1]


def test_integers_wrap():
    assert numerics.binary("add", np.int8([127]), np.int8([1]), i8).tolist() == [-128]
    assert numerics.binary("mul", np.int8([100]), np.int8([3]), i8).tolist() == [44]
    assert numerics.unary("neg", np.int8([-128]), i8).tolist() == [-128]


def test_max_and_min_propagate_nan_and_comparisons_are_ordered():
    x, y = np.float32([np.nan, 1]), np.float32([1, np.nan])
    assert np.isnan(numerics.binary("max", x, y, f32)).all()
    assert np.isnan(numerics.binary("min", x, y, f32)).all()
    assert numerics.compare("ne", x, x).tolist() == [True, False]
    assert numerics.compare("le", x, y).tolist() == [False, False]


def test_casts_saturate_truncate_and_turn_nan_into_zero():
    x = np.float32([np.nan, np.inf, -np.inf, 2.9, -2.9, 300])
    assert numerics.cast(x, i8).tolist() == [0, 127, -128, 2, -2, 127]
    assert numerics.cast(np.float64([2.0**63, -(2.0**63)]), i64).tolist() == [
        2**63 - 1,
        -(2**63),
    ]
    assert numerics.cast(np.float32([0, np.nan, 0.5]), bool_).tolist() == [
        False,
        True,
        True,
    ]
    assert numerics.cast(np.int32([300]), i8).tolist() == [44]
    for dtype, wrapped, saturated in (
        (u4, [15, 1, 0], [0, 15, 2]),
        (i4, [-1, 1, 0], [-8, 7, 2]),
    ):
        integers = numerics.cast(np.int32([-1, 17, 16]), dtype)
        assert integers.astype(np.int8).tolist() == wrapped
        floats = numerics.cast(np.float32([-99, 99, 2.9]), dtype)
        assert floats.astype(np.int8).tolist() == saturated
    assert numerics.cast(np.float32([1.00390625]), bf16).dtype == ml_dtypes.bfloat16


def test_fma_rounds_once():
    a = np.float32(1 + 2**-12)
    fused = Fma(e.const(a, f32), e.const(a, f32), e.const(-1, f32), f32)
    y = Buffer("y", f32, (1,))
    out = np.zeros(1, np.float32)
    evaluate(
        single(Buffer("x", f32, (1,)), y, Store(y, (0,), fused)),
        [np.zeros(1, np.float32), out],
    )
    assert out[0] == np.float32(np.float64(a) * np.float64(a) - 1)
    assert out[0] != a * a - np.float32(1)


@pytest.mark.parametrize(
    ("op", "dtype", "expected"),
    [("add", i8, 0), ("mul", f32, 1), ("max", f32, -np.inf), ("min", i8, 127), ("max", i8, -128),
     ("and", i8, -1), ("max", bool_, False), ("min", bool_, True)],
)  # fmt: skip
def test_identities_are_neutral(op, dtype, expected):
    assert numerics.identity(op, dtype) == expected


def test_powers_of_integers_are_exact_or_0_or_1():
    x = np.int32([0, 1, -1, 2, -3, -1, 1, 2, 0])
    y = np.int32([0, 0, 0, 0, 3, -3, -2, -1, 5])
    found = primitives.compute(primitives.integer_power(i32), (x, y))
    assert found.tolist() == [1, 1, 1, 1, -27, -1, 1, 0, 0]


def test_small_types_are_read_as_what_they_hold():
    eighths = np.array([1.5, -0.25], ml_dtypes.float8_e4m3fn)
    assert numerics.cast(eighths, f32).tolist() == [1.5, -0.25]
    assert numerics.cast(eighths, i8).tolist() == [1, 0]
    nibbles = np.array([-8, 7], ml_dtypes.int4)
    assert numerics.cast(nibbles, i32).tolist() == [-8, 7]
    assert numerics.cast(nibbles, f32).tolist() == [-8, 7]
