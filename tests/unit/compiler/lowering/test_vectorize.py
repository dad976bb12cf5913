"""VECTOR loops become lanes; results stay those of the serial loop."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    Const,
    Fma,
    For,
    Horizontal,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Splat,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import as_index, expressions, loads, loops, stores
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.simplify import simplify
from tilewright.compiler.lowering.vectorize import vectorize

f32, i32, i64 = dtypes.f32, dtypes.i32, dtypes.i64
X, OUT = Buffer("x", f32, (256,)), Buffer("out", f32, (256,))
AT = Buffer("at", i32, (16,))
i, v, k = symbol("i"), symbol("v"), symbol("k")


def lanes(extent, *body, reduction=False):
    return For(Symbol("v"), extent, tuple(body), LoopKind.VECTOR, reduction)


def serial(name, extent, *body, reduction=False):
    return For(Symbol(name), extent, tuple(body), reduction=reduction)


def with_lanes(*body) -> Kernel:
    parameters = [Parameter(b, AccessMode.READ) for b in (X, AT)]
    kernel = Kernel(
        "k", (*parameters, Parameter(OUT, AccessMode.READ_WRITE)), (), (), tuple(body)
    )
    result = vectorize(simplify(flatten(kernel)))
    assert not [s for s in loops(result.body) if s.kind is LoopKind.VECTOR]
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, 256).astype(np.float32)
    at = rng.permutation(16).astype(np.int32)
    want = rng.integers(1, 4, 256).astype(np.float32)
    got = want.copy()
    evaluate(kernel, [x, at, want])
    evaluate(result, [x, at, got])
    np.testing.assert_array_equal(got, want)
    return result


def test_neighbours_become_one_vector_access():
    result = with_lanes(
        serial("i", 4, lanes(16, Store(OUT, (i * 16 + v,), Load(X, (i * 16 + v,)))))
    )
    (store,), (load,) = stores(result.body), loads(result.body)
    assert (load.lanes, load.stride) == (16, 1)
    assert (store.value.lanes, store.stride) == (16, 1)
    assert load.indices == store.indices == (symbol("i") * 16,)


@pytest.mark.parametrize("stride", [-2, -1, 2, 3])
def test_constant_coefficients_become_strides(stride):
    offset = 100
    result = with_lanes(
        lanes(8, Store(OUT, (v * stride + offset,), Load(X, (offset - v * stride,))))
    )
    assert stores(result.body)[0].stride == stride
    assert loads(result.body)[0].stride == -stride


def test_uniform_values_are_computed_once_and_splat():
    value = Binary(
        "mul", Load(X, (v,)), Binary("add", Load(X, (9,)), Const(1.0, f32), f32), f32
    )
    result = with_lanes(lanes(8, Store(OUT, (v,), value)))
    product = stores(result.body)[0].value
    assert isinstance(product.right, Splat)
    assert product.right.operand.lanes == 1


def test_uniform_stores_of_uniform_values_stay_scalar():
    result = with_lanes(lanes(8, Store(OUT, (3,), Load(X, (7,)))))
    assert stores(result.body)[0].value.lanes == 1


def test_conditions_on_the_lane_become_masks():
    guarded = If(
        Compare("lt", Index(i * 16 + v), Index(40)),
        (Store(OUT, (i * 16 + v,), Load(X, (i * 16 + v,))),),
    )
    result = with_lanes(serial("i", 3, lanes(16, guarded)))
    assert not [s for s in walk(result.body) if isinstance(s, If)]
    (store,) = stores(result.body)
    assert store.mask is not None
    assert store.mask.lanes == 16
    assert loads(store.value)[0].mask is store.mask


def test_conditions_that_all_lanes_share_stay_conditions():
    guarded = If(
        Compare("lt", Index(i), Index(2)), (Store(OUT, (i * 16 + v,), Load(X, (v,))),)
    )
    result = with_lanes(serial("i", 3, lanes(16, guarded)))
    assert [s for s in walk(result.body) if isinstance(s, If)]
    assert stores(result.body)[0].mask is None


def test_a_condition_holds_for_all_it_guards_also_where_that_changes_what_it_reads():
    larger = e.compare("gt", Load(X, (v,)), Load(OUT, (v,)))
    first = Store(OUT, (v,), Load(X, (v,)))
    second = Store(OUT, (v + 16,), Load(X, (v + 16,)))
    with_lanes(lanes(16, If(larger, (first, second))))
    alone = with_lanes(lanes(16, If(larger, (first,))))
    assert stores(alone.body)[0].value.lanes == 16


def test_nested_conditions_combine_their_masks():
    inner = If(
        Compare("gt", Load(X, (v,)), Const(0.0, f32)), (Store(OUT, (v,), Load(X, (v,))),)
    )
    result = with_lanes(lanes(16, If(Compare("lt", Index(v), Index(11)), (inner,))))
    (store,) = stores(result.body)
    assert isinstance(store.mask, Binary)
    assert store.mask.op == "and"


def test_uniform_loads_under_a_mask_are_masked_too():
    inner = (Store(OUT, (v,), Load(X, (250,))),)
    result = with_lanes(lanes(16, If(Compare("lt", Index(v), Index(11)), inner)))
    (load,) = loads(stores(result.body)[0].value)
    assert (load.lanes, load.stride) == (16, 0)
    assert load.mask is not None


def test_loops_inside_stay_loops_of_vectors():
    add = Binary("add", Load(OUT, (v,)), Load(X, (k * 16 + v,)), f32)
    result = with_lanes(lanes(16, serial("k", 9, Store(OUT, (v,), add), reduction=True)))
    (loop,) = loops(result.body)
    assert loop.extent == 9
    assert loop.reduction
    assert stores(result.body)[0].value.lanes == 16


@pytest.mark.parametrize("op", ["add", "mul", "min", "max"])
def test_reductions_combine_lanes_before_the_total(op):
    value = Binary(op, Load(OUT, (3,)), Load(X, (v + 40,)), f32)
    result = with_lanes(lanes(8, Store(OUT, (3,), value), reduction=True))
    (store,) = stores(result.body)
    horizontal = store.value.right
    assert isinstance(horizontal, Horizontal)
    assert horizontal.op == op
    assert horizontal.operand.lanes == 8


def test_fused_reductions_combine_products():
    value = Fma(Load(X, (v,)), Load(X, (v + 16,)), Load(OUT, (3,)), f32)
    result = with_lanes(lanes(8, Store(OUT, (3,), value), reduction=True))
    assert any(isinstance(part, Horizontal) for part in expressions(result.body))


def test_masked_reductions_use_the_neutral_element():
    value = Binary("max", Load(OUT, (3,)), Load(X, (v + 40,)), f32)
    guarded = If(Compare("lt", Index(v), Index(5)), (Store(OUT, (3,), value),))
    with_lanes(lanes(8, guarded, reduction=True))


def test_float_sums_of_loops_that_are_no_reductions_keep_their_order():
    value = Binary("add", Load(OUT, (3,)), Load(X, (v,)), f32)
    result = with_lanes(lanes(8, Store(OUT, (3,), value)))
    (loop,) = loops(result.body)
    assert loop.kind is LoopKind.UNROLL


def test_lane_dependent_quotients_give_every_lane_its_index():
    at = symbolic.floordiv(v, 3) * 20 + symbolic.mod(v, 3)
    result = with_lanes(lanes(16, Store(OUT, (v,), Load(X, (at,)))))
    (load, *_) = loads(stores(result.body)[0].value)
    assert (load.lanes, load.stride) == (16, 0)


def test_indices_from_memory_are_loaded_as_a_vector():
    result = with_lanes(
        lanes(16, Store(OUT, (v,), Load(X, (as_index(Load(AT, (v,))) * 3,))))
    )
    widths = {load.buffer.name: load.lanes for load in loads(result.body)}
    assert widths == {"x": 16, "at": 16}


def test_rows_picked_by_memory_are_still_contiguous_along_the_lanes():
    row = as_index(Load(AT, (i,))) * 16
    moved = Store(OUT, (i * 16 + v,), Load(X, (row + v,)))
    result = with_lanes(serial("i", 4, lanes(16, moved)))
    load = next(found for found in loads(result.body) if found.buffer is X)
    assert (load.lanes, load.stride) == (16, 1)
    scattered = Store(OUT, (row + v,), Load(X, (i * 16 + v,)))
    (store,) = stores(with_lanes(serial("i", 4, lanes(16, scattered))).body)
    assert (store.value.lanes, store.stride) == (16, 1)


def test_rows_picked_by_memory_under_a_mask_are_not_loaded_where_no_lane_is():
    row = as_index(Load(AT, (i,))) * 16
    moved = Store(OUT, (i * 16 + v,), Load(X, (row + v,)))
    # From the sixteenth row on, where `at` ends, no lane is active.
    inside = e.compare("lt", e.from_index(v + i * 4), e.from_index(60))
    with_lanes(serial("i", 20, lanes(4, If(inside, (moved,)))))
    with pytest.raises(InternalError, match="index 16 of 16"):
        with_lanes(serial("i", 20, lanes(4, moved)))


def test_scattered_stores_have_an_index_per_lane():
    result = with_lanes(lanes(16, Store(OUT, (as_index(Load(AT, (v,))),), Load(X, (v,)))))
    (store,) = stores(result.body)
    assert store.stride == 0
    assert store.value.lanes == 16


def test_index_values_ascend_over_the_lanes():
    value = e.cast(Index(i * 8 + v * 2), f32)
    result = with_lanes(serial("i", 2, lanes(4, Store(OUT, (i * 4 + v,), value))))
    (index,) = [p for p in expressions(result.body) if isinstance(p, Index)]
    assert (index.lanes, index.stride) == (4, 2)


def test_a_loop_whose_trip_count_depends_on_the_lane_is_expanded():
    inner = serial(
        "k", v + 1, Store(OUT, (v,), Binary("add", Load(OUT, (v,)), Load(X, (k,)), f32))
    )
    result = with_lanes(lanes(4, inner))
    assert loops(result.body)[0].kind is LoopKind.UNROLL


def test_lanes_inside_lanes_expand_the_outer_loop():
    inner = For(
        Symbol("w"),
        8,
        (Store(OUT, (v * 8 + symbol("w"),), Load(X, (symbol("w"),))),),
        LoopKind.VECTOR,
    )
    result = with_lanes(lanes(4, inner))
    (loop,) = loops(result.body)
    assert (loop.kind, loop.extent) == (LoopKind.UNROLL, 4)
    assert stores(result.body)[0].value.lanes == 8


def test_a_wide_loop_that_cannot_be_lanes_becomes_serial():
    inner = serial("k", v + 1, Store(OUT, (v,), Load(X, (k,))))
    result = with_lanes(lanes(100, inner))
    assert loops(result.body)[0].kind is LoopKind.SERIAL


def word_at(place):
    """Two elements of `at` side by side, as one number."""
    return e.cast(e.bitcast(Load(AT, (place,), 2), i64), f32)


def test_words_side_by_side_are_read_as_one_vector():
    result = with_lanes(lanes(8, Store(OUT, (v,), word_at(v * 2))))
    (load,) = loads(result.body)
    assert (load.lanes, load.stride) == (16, 1)


def test_a_word_that_all_lanes_read_is_read_once():
    result = with_lanes(lanes(8, Store(OUT, (v,), word_at(6))))
    (load,) = loads(result.body)
    assert load.lanes == 2


def test_words_apart_or_under_a_condition_are_left_to_a_loop():
    apart = with_lanes(lanes(3, Store(OUT, (v,), word_at(v * 3))))
    condition = Compare("lt", Load(X, (v,)), Const(0.0, f32))
    guarded = with_lanes(lanes(4, If(condition, (Store(OUT, (v,), word_at(v * 2)),))))
    for result in (apart, guarded):
        assert [s.kind for s in loops(result.body)] == [LoopKind.UNROLL]


def test_numbers_that_32_bits_hold_become_floats_from_32_bits():
    small, large, negative = symbol("small", 0, 9), symbol("large", 0), symbol("low", -3, 3)
    for dim, dtype in ((small + v, i32), (negative - v, i32), (large + v, i64)):
        lane = symbol("v", 0, 7)
        number = Index(symbolic.substitute(dim, {"v": lane}), i64)
        body = Store(OUT, (lane,), e.cast(number, f32))
        result = vectorize(Kernel("k", (), (), (), (lanes(8, body),)))
        (found,) = [x for x in expressions(result.body) if isinstance(x, Index)]
        assert (found.dtype, found.lanes, abs(found.stride)) == (dtype, 8, 1)
