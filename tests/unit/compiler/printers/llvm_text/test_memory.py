"""Loads, stores and register buffers in every access pattern, against the kernel evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86, targets_here
from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    Const,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Prefetch,
    Select,
    Space,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.printers.llvm_text.function import emit_kernel

pytestmark = needs_x86

f32, i32 = dtypes.f32, dtypes.i32
i, j, v = symbol("i"), symbol("j"), symbol("v")


def loop(name: str, extent: Dim, *body: Statement, kind=LoopKind.SERIAL, reduction=False):
    return For(Symbol(name), extent, tuple(body), kind, reduction)


def lanes(extent: int, *body: Statement, name: str = "v"):
    return loop(name, extent, *body, kind=LoopKind.VECTOR)


def kernel_of(buffers, body, locals_=(), dims=()):
    *inputs, output = buffers
    parameters = [Parameter(b, AccessMode.READ) for b in inputs]
    return Kernel(
        "k", (*parameters, Parameter(output, AccessMode.READ_WRITE)), tuple(dims), tuple(locals_),
        tuple(body),
    )  # fmt: skip


def numbers(count: int, dtype=f32) -> np.ndarray:
    return np.random.default_rng(count).integers(-99, 99, count).astype(dtype.numpy)


@pytest.mark.sampled(3)
@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.i8, f32], ids=str)
@pytest.mark.parametrize("stride", [-3, -1, 0, 1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("count", [1, 4, 12, 16])
def test_a_strided_vector_load_stays_inside_the_buffer(stride, count, dtype):
    span = abs(stride) * (count - 1) + 1
    x, out = Buffer("x", dtype, (span,)), Buffer("out", dtype, (count,))
    start = span - 1 if stride < 0 else 0
    body = lanes(count, Store(out, (v,), Load(x, (v * stride + start,))))
    assert_same(kernel_of((x, out), (body,)), [numbers(span, dtype), numbers(count, dtype)])


@pytest.mark.parametrize("stride", [-3, -1, 1, 2, 5])
@pytest.mark.parametrize("count", [3, 16])
def test_a_strided_vector_store_leaves_the_gaps_alone(stride, count):
    span = abs(stride) * (count - 1) + 1
    x, out = Buffer("x", f32, (count,)), Buffer("out", f32, (span,))
    start = span - 1 if stride < 0 else 0
    body = lanes(count, Store(out, (v * stride + start,), Load(x, (v,))))
    assert_same(kernel_of((x, out), (body,)), [numbers(count), numbers(span)])


@pytest.mark.thinned(7)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    "dtype", [dtypes.bool_, dtypes.i8, dtypes.bf16, f32, dtypes.i64], ids=str
)
@pytest.mark.parametrize("stride", [-1, 0, 1, 2, 3])
def test_a_masked_tail_touches_no_memory_beyond_the_end(stride, dtype, target):
    count, step = 21, max(1, abs(stride))
    x, out = Buffer("x", dtype, (count * step,)), Buffer("out", dtype, (count,))
    place = i * 8 + v
    at = place * stride if stride >= 0 else count - 1 - place
    store = Store(out, (place,), Load(x, (at,)))
    guarded = If(Compare("lt", Index(place), Index(count)), (store,))
    arrays = [numbers(count * step, dtype), numbers(count, dtype)]
    kernel = kernel_of((x, out), (loop("i", 3, lanes(8, guarded)),))
    assert_same(kernel, arrays, target=target)


def window_over_the_ends(stride, dtype):
    """Lane v reads element v * stride - 1 of a row where there is one; rows are read to the end."""
    size = 15 * stride - 1
    x, out = Buffer("x", dtype, (3 * size,)), Buffer("out", dtype, (48,))
    at = v * stride - 1
    inside = Binary(
        "and",
        Compare("ge", Index(at), Index(0)),
        Compare("lt", Index(at), Index(size)),
        dtypes.bool_,
    )
    value = Load(x, (i * size + at,), mask=inside)
    store = Store(out, (i * 16 + v,), Select(inside, value, Const(7, dtype), dtype))
    kernel = kernel_of((x, out), (loop("i", 3, lanes(16, store)),))
    return kernel, [numbers(3 * size, dtype), numbers(48, dtype)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [dtypes.i8, f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("stride", [2, 3, 5, 8])
def test_a_strided_load_under_a_mask_reads_what_the_mask_allows(stride, dtype, target):
    kernel, arrays = window_over_the_ends(stride, dtype)
    assert_same(kernel, arrays, target=target)


@pytest.mark.parametrize(
    ("level", "dtype", "gathers"),
    [
        ("v2", f32, True),
        ("v3", f32, False),
        ("v3", dtypes.i8, True),
        ("v4", dtypes.i8, False),
    ],
    ids=str,
)
def test_where_some_of_a_vector_is_read_at_once_a_strided_load_is_no_gather(
    level, dtype, gathers
):
    kernel, _ = window_over_the_ends(2, dtype)
    target = Target.level(level)
    text = emit_kernel(lower(kernel, target), target).text
    assert ("masked.gather" in text) == gathers


def strided_store_under_a_mask(stride, dtype):
    """Of rows of vectors, what lies before the end; what is between and behind stays."""
    count = 37
    x, out = Buffer("x", dtype, (48,)), Buffer("out", dtype, (stride * (count - 1) + 1,))
    place = i * 16 + v
    store = Store(out, (place * stride,), Load(x, (place,)))
    guarded = If(Compare("lt", Index(place), Index(count)), (store,))
    kernel = kernel_of((x, out), (loop("i", 3, lanes(16, guarded)),))
    return kernel, [numbers(48, dtype), numbers(stride * (count - 1) + 1, dtype)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", [dtypes.i8, f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("stride", [2, 3, 4, 5])
def test_a_strided_store_under_a_mask_leaves_gaps_and_the_end_alone(stride, dtype, target):
    kernel, arrays = strided_store_under_a_mask(stride, dtype)
    assert_same(kernel, arrays, target=target)


@pytest.mark.sampled(3)
@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        (f32, dtypes.bf16), (f32, dtypes.f16), (f32, dtypes.u8), (i32, dtypes.i16),
        (i32, dtypes.i8), (dtypes.i16, dtypes.u8), (dtypes.i64, i32), (dtypes.f64, f32),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("condition", [("lt", 1), ("eq", 3), ("ge", 7), ("lt", 2)], ids=str)
def test_one_lane_of_shortened_numbers_is_stored_as_short_as_it_is(
    condition, wide, narrow, target
):
    """LLVM may write the number as wide as it was before it was shortened, over what lies behind it."""
    width = min(16, 64 // wide.itemsize)
    x, out = Buffer("x", wide, (width,)), Buffer("out", narrow, (width + 8,))
    op, bound = condition
    value = e.cast(Load(x, (v,)), narrow)
    store = If(Compare(op, Index(v), Index(bound)), (Store(out, (v,), value),))
    arrays = [numbers(width, wide), numbers(width + 8, narrow)]
    assert_same(kernel_of((x, out), (lanes(width, store),)), arrays, target=target)


def test_where_vectors_have_masks_a_strided_store_is_no_scatter():
    kernel, _ = strided_store_under_a_mask(2, f32)
    for level, scatters in (("v3", True), ("v4", False)):
        target = Target.level(level)
        text = emit_kernel(lower(kernel, target), target).text
        assert ("masked.scatter" in text) == scatters, level


def test_a_mask_from_data_selects_lanes():
    x, out = Buffer("x", f32, (48,)), Buffer("out", f32, (48,))
    value = Load(x, (i * 16 + v,))
    condition = Compare("gt", value, Const(0.0, f32))
    store = Store(out, (i * 16 + v,), Binary("mul", value, value, f32))
    kernel = kernel_of((x, out), (loop("i", 3, lanes(16, If(condition, (store,)))),))
    assert_same(kernel, [numbers(48), numbers(48)])


@pytest.mark.parametrize("count", [1, 5, 16])
def test_gathered_indices_may_come_from_memory(count):
    x, at = Buffer("x", f32, (50,)), Buffer("at", i32, (count,))
    out = Buffer("out", f32, (count,))
    index = as_index(Load(at, (v,)))
    positions = np.random.default_rng(1).integers(0, 50, count).astype(np.int32)
    kernel = kernel_of((x, at, out), (lanes(count, Store(out, (v,), Load(x, (index,)))),))
    assert_same(kernel, [numbers(50), positions, numbers(count)])


def test_a_masked_gather_reads_only_where_the_mask_is_set():
    x, at, out = Buffer("x", f32, (7,)), Buffer("at", i32, (16,)), Buffer("out", f32, (16,))
    position = Load(at, (v,))
    inside = Compare("lt", position, Const(7, i32))
    value = Load(x, (as_index(position),), mask=inside)
    positions = np.arange(16, dtype=np.int32) * 100_000
    positions[::3] = 5
    kernel = kernel_of((x, at, out), (lanes(16, Store(out, (v,), value)),))
    assert_same(kernel, [numbers(7), positions, numbers(16)])


def test_scattered_stores_reach_their_places():
    x, at, out = (
        Buffer("x", f32, (16,)),
        Buffer("at", i32, (16,)),
        Buffer("out", f32, (40,)),
    )
    index = as_index(Load(at, (v,)))
    positions = np.random.default_rng(2).permutation(40)[:16].astype(np.int32)
    kernel = kernel_of((x, at, out), (lanes(16, Store(out, (index,), Load(x, (v,)))),))
    assert_same(kernel, [numbers(16), positions, numbers(40)])


@pytest.mark.parametrize("divisor", [2, 3, 4, 7])
def test_indices_with_quotients_and_remainders_of_the_lane(divisor):
    x, out = Buffer("x", f32, (64,)), Buffer("out", f32, (48,))
    place = i * 16 + v
    index = symbolic.floordiv(place, divisor) + symbolic.mod(place, divisor)
    kernel = kernel_of(
        (x, out), (loop("i", 3, lanes(16, Store(out, (place,), Load(x, (index,))))),)
    )
    assert_same(kernel, [numbers(64), numbers(48)])


def test_a_symbolic_row_stride_gathers_columns():
    n = symbol("n", 1)
    x, out = Buffer("x", f32, (8, n)), Buffer("out", f32, (n, 8))
    body = loop("i", n, lanes(8, Store(out, (i, v), Load(x, (v, i)))))
    for size in (1, 3, 17):
        kernel = kernel_of((x, out), (body,), dims=(Symbol("n", 1),))
        arrays = [numbers(8 * size).reshape(8, size), np.zeros((size, 8), np.float32)]
        assert_same(kernel, arrays, {"n": size})


@pytest.mark.parametrize("size", [1, 5])
def test_rows_an_open_distance_apart_share_what_loops_move(size: int) -> None:
    n = symbol("n", 1)
    hidden = 'call ptr asm ""'
    no_step = symbolic.minimum(j, n - 1)
    for extent, at, count in ((n, i, 2), (n, no_step, 2), (size, i, 0)):
        x, out = Buffer("x", f32, (4, extent, 3)), Buffer("out", f32, (4, extent, 3))
        rows = [Store(out, (row, at, j), Load(x, (3 - row, at, j))) for row in range(4)]
        dims = (Symbol("n", 1),) if extent is n else ()
        kernel = kernel_of((x, out), (loop("i", extent, loop("j", 3, *rows)),), dims=dims)
        array = numbers(12 * size).reshape(4, size, 3)
        assert_same(kernel, [array, np.zeros_like(array)], {"n": size} if dims else None)
        text = emit_kernel(lower(kernel, targets_here()[0]), targets_here()[0]).text
        assert text.count(hidden) == count  # one for each buffer


def test_a_scalar_masked_load_reads_zero_and_touches_nothing():
    x, out = Buffer("x", f32, (5,)), Buffer("out", f32, (9,))
    inside = Compare("lt", Index(i), Index(5))
    body = loop(
        "i",
        9,
        Store(out, (i,), Load(x, (i * 100,), mask=Compare("lt", Index(i), Index(1)))),
    )
    assert_same(kernel_of((x, out), (body,)), [numbers(5), numbers(9)])
    body = loop("i", 9, Store(out, (i,), Load(x, (i,), mask=inside)))
    assert_same(kernel_of((x, out), (body,)), [numbers(5), numbers(9)])


def test_constant_tables_live_in_the_kernel():
    table = Buffer("t", f32, (6,), Space.CONSTANT, (1.5, -2.0, 0.0, 7.0, float("inf"), 3.0))
    out = Buffer("out", f32, (12,))
    body = loop("i", 12, Store(out, (i,), Load(table, (symbolic.mod(i, 6),))))
    assert_same(kernel_of((out,), (body,), (table,)), [numbers(12)])


def test_workgroup_memory_has_room_for_every_buffer():
    x, out = Buffer("x", f32, (4, 33)), Buffer("out", f32, (4, 33))
    a = Buffer("a", dtypes.i8, (7,), Space.WORKGROUP)
    b = Buffer("b", f32, (33,), Space.WORKGROUP)
    g = symbol("g")
    body = (
        loop("i", 7, Store(a, (i,), Const(3, dtypes.i8))),
        loop("j", 33, Store(b, (j,), Load(x, (g, 32 - j)))),
        loop(
            "k", 33,
            Store(out, (g, symbol("k")), Binary("mul", Load(b, (symbol("k"),)),
                  e.cast(Load(a, (symbolic.mod(symbol("k"), 7),)), f32), f32)),
        ),
    )  # fmt: skip
    grid = For(Symbol("g"), 4, body, LoopKind.GRID_X)
    kernel = kernel_of((x, out), (grid,), (a, b))
    assert_same(kernel, [numbers(132).reshape(4, 33), numbers(132).reshape(4, 33)])


# --- registers -----------------------------------------------------------------------------


def test_registers_survive_loops_and_conditionals():
    x, out = Buffer("x", f32, (10,)), Buffer("out", f32, (2,))
    total = Buffer("r", f32, (2,), Space.REGISTER)
    value = Load(x, (i,))
    body = (
        Store(total, (0,), Const(0.0, f32)),
        Store(total, (1,), Const(0.0, f32)),
        loop(
            "i", 10,
            Store(total, (0,), Binary("add", Load(total, (0,)), value, f32)),
            If(Compare("gt", value, Const(0.0, f32)),
               (Store(total, (1,), Binary("max", Load(total, (1,)), value, f32)),)),
        ),
        Store(out, (0,), Load(total, (0,))),
        Store(out, (1,), Load(total, (1,))),
    )  # fmt: skip
    assert_same(kernel_of((x, out), body, (total,)), [numbers(10), numbers(2)])


@pytest.mark.parametrize("size", [0, 1, 6])
def test_registers_keep_their_value_when_a_loop_does_not_run(size):
    n = symbol("n", 0)
    x, out = Buffer("x", f32, (n,)), Buffer("out", f32, (1,))
    total = Buffer("r", f32, (1,), Space.REGISTER)
    body = (
        Store(total, (0,), Const(5.0, f32)),
        loop("i", n, loop("j", i, Store(total, (0,), Binary("add", Load(total, (0,)), Load(x, (j,)), f32)))),
        Store(out, (0,), Load(total, (0,))),
    )  # fmt: skip
    kernel = kernel_of((x, out), body, (total,), (Symbol("n", 0),))
    assert_same(kernel, [numbers(size), numbers(1)], {"n": size})


def test_vectors_written_whole_are_read_in_parts():
    x, out = Buffer("x", f32, (8,)), Buffer("out", f32, (8,))
    r = Buffer("r", f32, (8,), Space.REGISTER)
    body = (
        lanes(8, Store(r, (v,), Load(x, (v,)))),
        loop("i", 8, Store(out, (i,), Load(r, (7 - i,))), kind=LoopKind.UNROLL),
    )
    assert_same(kernel_of((x, out), body, (r,)), [numbers(8), numbers(8)])


def test_rows_written_are_read_as_columns():
    x, out = Buffer("x", f32, (4, 4)), Buffer("out", f32, (4, 4))
    r = Buffer("r", f32, (4, 4), Space.REGISTER)
    unroll = LoopKind.UNROLL
    body = (
        loop("i", 4, lanes(4, Store(r, (i, v), Load(x, (i, v)))), kind=unroll),
        loop("j", 4, lanes(4, Store(out, (j, v), Load(r, (v, j)))), kind=unroll),
    )
    arrays = [numbers(16).reshape(4, 4), numbers(16).reshape(4, 4)]
    assert_same(kernel_of((x, out), body, (r,)), arrays)


def test_part_of_a_register_vector_is_replaced_under_a_mask():
    x, out = Buffer("x", f32, (8,)), Buffer("out", f32, (8,))
    r = Buffer("r", f32, (8,), Space.REGISTER)
    w = symbol("w")
    some = Compare("lt", Index(w), Index(2))
    body = (
        lanes(8, Store(r, (v,), Const(1.0, f32))),
        lanes(4, If(some, (Store(r, (w * 2,), Load(x, (w,))),)), name="w"),
        lanes(8, Store(out, (symbol("u"),), Load(r, (symbol("u"),))), name="u"),
    )
    assert_same(kernel_of((x, out), body, (r,)), [numbers(8), numbers(8)])


def test_registers_with_moving_indices_fall_back_to_the_stack():
    x, out = Buffer("x", f32, (40,)), Buffer("out", f32, (40,))
    r = Buffer("r", f32, (40,), Space.REGISTER)
    body = (
        loop("i", 40, Store(r, (i,), Load(x, (i,)))),
        loop("j", 40, Store(out, (j,), Load(r, (39 - j,)))),
    )
    kernel = kernel_of((x, out), body, (r,))
    assert_same(kernel, [numbers(40), numbers(40)])
    text = emit_kernel(lower(kernel, targets_here()[0]), targets_here()[0]).text
    assert "alloca" in text


def test_register_accumulators_of_an_unrolled_tile_need_no_memory():
    x, out = Buffer("x", f32, (16, 12)), Buffer("out", f32, (12,))
    r = Buffer("r", f32, (3, 4), Space.REGISTER)
    unroll = LoopKind.UNROLL
    add = Binary("add", Load(r, (j, v)), Load(x, (i, j * 4 + v)), f32)
    body = (
        loop("j", 3, lanes(4, Store(r, (j, v), Const(0.0, f32))), kind=unroll),
        loop(
            "i",
            16,
            loop("j", 3, lanes(4, Store(r, (j, v), add)), kind=unroll),
            reduction=True,
        ),
        loop("j", 3, lanes(4, Store(out, (j * 4 + v,), Load(r, (j, v)))), kind=unroll),
    )
    kernel = kernel_of((x, out), body, (r,))
    assert_same(kernel, [numbers(192).reshape(16, 12), numbers(12)])
    text = emit_kernel(lower(kernel, targets_here()[0]), targets_here()[0]).text
    assert "alloca" not in text
    assert text.count("phi <4 x float>") == 3


def test_a_bool_register_starts_false():
    out = Buffer("out", dtypes.bool_, (2,))
    flag = Buffer("r", dtypes.bool_, (1,), Space.REGISTER)
    body = (
        Store(flag, (0,), Const(True, dtypes.bool_)),
        loop("i", 3, Store(flag, (0,), Select(Load(flag, (0,)), Const(False, dtypes.bool_), Const(True, dtypes.bool_), dtypes.bool_))),
        Store(out, (0,), Load(flag, (0,))),
        Store(out, (1,), Const(True, dtypes.bool_)),
    )  # fmt: skip
    assert_same(kernel_of((out,), body, (flag,)), [np.zeros(2, bool)])


# --- what may not be reused ------------------------------------------------------------------


def test_a_load_after_a_store_sees_the_new_value():
    out = Buffer("out", f32, (4,))
    one = Const(1.0, f32)
    body = (
        Store(out, (0,), Binary("add", Load(out, (0,)), one, f32)),
        Store(out, (1,), Load(out, (0,))),
        loop(
            "i", 3,
            Store(out, (2,), Binary("add", Load(out, (0,)), Load(out, (2,)), f32)),
            Store(out, (0,), Binary("mul", Load(out, (0,)), Load(out, (2,)), f32)),
        ),
        Store(out, (3,), Load(out, (0,))),
    )  # fmt: skip
    assert_same(kernel_of((out,), body), [numbers(4)])


def test_in_place_use_of_one_memory_under_two_names_is_allowed():
    """The planner may give a pointwise result the memory of its operand."""
    from fakes.native_kernel import NativeKernel

    x, out = Buffer("x", f32, (32,)), Buffer("out", f32, (32,))
    unrolled = loop(
        "j", 2,
        lanes(16, Store(out, (j * 16 + v,), Binary("add", Load(x, (j * 16 + v,)), Const(1.0, f32), f32))),
        kind=LoopKind.UNROLL,
    )  # fmt: skip
    array = numbers(32)
    want = array + 1
    NativeKernel(kernel_of((x, out), (unrolled,)))([array, array])
    np.testing.assert_array_equal(array, want)


# --- hints -------------------------------------------------------------------------------------


def test_hints_follow_their_loops_and_may_leave_the_buffer():
    x, y = Buffer("x", f32, (4, 16)), Buffer("y", f32, (4, 16))
    copy = lanes(16, Prefetch(x, (i + 4000, v), 3), Store(y, (i, v), Load(x, (i, v))))
    kernel = kernel_of((x, y), (loop("i", 4, copy),))
    text = emit_kernel(lower(kernel, targets_here()[0]), targets_here()[0]).text
    assert text.count("call void @llvm.prefetch.p0(") == 1
    assert "i32 0, i32 1, i32 1)" in text  # a read, into the third level, of data
    assert_same(kernel, [numbers(64), numbers(64)])


def test_written_out_hints_differ_and_those_of_scattered_lanes_go():
    x, y = Buffer("x", f32, (64,)), Buffer("y", f32, (64,))
    at = Buffer("at", i32, (16,))
    four = loop("i", 4, Prefetch(x, (i * 16,)), kind=LoopKind.UNROLL)
    scattered = Prefetch(x, (as_index(Load(at, (v,))),))
    body = (four, lanes(16, scattered, Store(y, (v,), Load(x, (v,)))))
    kernel = kernel_of((x, at, y), body)
    text = emit_kernel(lower(kernel, targets_here()[0]), targets_here()[0]).text
    assert text.count("call void @llvm.prefetch.p0(") == 4
    index = np.arange(16, dtype=np.int32)
    assert_same(kernel, [numbers(64), index, numbers(64)])


@pytest.mark.parametrize("space", list(Space)[:3], ids=lambda s: s.value)
@pytest.mark.parametrize("stores", [False, True])
def test_an_index_in_memory_is_read_again_once_that_memory_changed(stores, space):
    x, out = Buffer("x", f32, (8,)), Buffer("out", f32, (8,))
    at = Buffer("at", dtypes.i64, (1,), space)
    first, second = (Const(n, dtypes.i64) for n in (2, 5))
    place = as_index(Load(at, (0,)))
    if stores:
        uses = [Store(out, (place,), Load(x, (n,))) for n in (0, 1)]
    else:
        uses = [Store(out, (n,), Load(x, (place,))) for n in (0, 1)]
    body = (Store(at, (0,), first), uses[0], Store(at, (0,), second), uses[1])
    if space is Space.DEVICE:
        kernel = Kernel(
            "k",
            (
                Parameter(x, AccessMode.READ),
                Parameter(at, AccessMode.READ_WRITE),
                Parameter(out, AccessMode.READ_WRITE),
            ),
            (), (), body,
        )  # fmt: skip
        arrays = [numbers(8), np.zeros(1, np.int64), numbers(8)]
    else:
        kernel, arrays = kernel_of((x, out), body, (at,)), [numbers(8), numbers(8)]
    assert_same(kernel, arrays)


@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.i8, dtypes.f16, f32], ids=str)
@pytest.mark.parametrize("times", [2, 4, 16])
def test_lanes_that_share_a_neighbour_get_its_value(times, dtype):
    x, out = Buffer("x", dtype, (9 + 32 // times,)), Buffer("out", dtype, (32,))
    body = lanes(32, Store(out, (v,), Load(x, (symbolic.floordiv(v, times) + 9,))))
    arrays = [numbers(9 + 32 // times, dtype), numbers(32, dtype)]
    kernel = kernel_of((x, out), (body,))
    assert_same(kernel, arrays)
    target = Target.level("v3")
    text = emit_kernel(lower(kernel, target), target).text
    assert text.count("= load <") == 1, "one vector that holds all neighbours"
    assert "gather" not in text


@pytest.mark.sampled(3)
@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=str)
@pytest.mark.parametrize("dtype", [dtypes.i8, dtypes.f16, f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("each", [2, 4, 8])
@pytest.mark.parametrize("count", [8, 16])
def test_channels_of_groups_are_picked_out_of_one_vector_that_ends_where_they_do(
    count: int, each: int, dtype, target: Target
) -> None:
    size = (count // each - 1) * each + 1
    x, out = Buffer("x", dtype, (3 + size,)), Buffer("out", dtype, (count,))
    place = symbolic.floordiv(v, each) * each + 3
    kernel = kernel_of((x, out), (lanes(count, Store(out, (v,), Load(x, (place,)))),))
    assert_same(kernel, [numbers(3 + size, dtype), numbers(count, dtype)], target=target)
    text = emit_kernel(lower(kernel, target), target).text
    assert "gather" not in text


def _shared(lane: Dim, pattern: str) -> Dim:
    quotient, rest = symbolic.floordiv(lane, 3), symbolic.mod(lane, 5)
    return {"thirds": quotient, "rest": rest, "apart": 2 * rest, "both": quotient + rest}[
        pattern
    ]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=str)
@pytest.mark.parametrize("dtype", [dtypes.i8, f32], ids=str)
@pytest.mark.parametrize("pattern", ["thirds", "rest", "apart", "both"])
@pytest.mark.parametrize("count", [1, 7])
def test_places_known_now_are_read_as_one_vector_up_to_the_mask(
    pattern: str, count: int, dtype, target
) -> None:
    # The buffer ends at the last element that a lane with its mask set asks for.
    lane = Index(0, dtypes.i64, 16, 1)
    asked = [symbolic.evaluate(_shared(n, pattern), {}) for n in range(count)]
    x, out = Buffer("x", dtype, (max(asked) + 1,)), Buffer("out", dtype, (16,))
    mask = Compare("lt", lane, e.splat(Const(count, dtypes.i64), 16), 16)
    value = Load(x, (_shared(as_index(lane), pattern),), 16, 0, mask)
    arrays = [numbers(max(asked) + 1, dtype), numbers(16, dtype)]
    assert_same(kernel_of((x, out), (Store(out, (0,), value),)), arrays, target=target)


@pytest.mark.parametrize("width", [1, 4])
def test_an_element_that_only_some_lanes_have(width: int) -> None:
    r = Buffer("r", f32, (width,), Space.REGISTER)
    x, out = Buffer("x", f32, (16,)), Buffer("out", f32, (16,))
    inside = Compare("lt", Index(v), Index(11))
    store = Store(out, (v,), Binary("add", Load(x, (v,)), Load(r, (0,), mask=inside), f32))
    fill = [Store(r, (n,), Load(x, (3 + n,))) for n in range(width)]
    kernel = kernel_of((x, out), (*fill, lanes(16, store)), (r,))
    assert_same(kernel, [numbers(16), np.zeros(16, np.float32)])
