"""What bounds decide is decided; values never change."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Select,
    Splat,
    Store,
    walk,
)
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.simplify import fold, simplify

f32, i64, bool_ = dtypes.f32, dtypes.i64, dtypes.bool_
OUT = Buffer("out", f32, (16,))
i = symbol("i", 0, 7)


def kernel_of(*body):
    return Kernel("k", (Parameter(OUT, AccessMode.READ_WRITE),), (), (), tuple(body))


def simplified(*body):
    kernel = kernel_of(*body)
    result = simplify(flatten(kernel))
    before, after = np.arange(16, dtype=np.float32), np.arange(16, dtype=np.float32)
    evaluate(kernel, [before])
    evaluate(result, [after])
    np.testing.assert_array_equal(before, after)
    return result.body


def store(at=i, value=1.0):
    return Store(OUT, (at,), Const(value, f32))


def test_a_condition_that_always_holds_leaves_its_body():
    body = simplified(
        For(Symbol("i"), 8, (If(Compare("lt", Index(i), Index(8)), (store(),)),))
    )
    assert [type(s) for s in walk(body)] == [For, Store]


def test_a_condition_that_never_holds_takes_its_loop_along():
    body = simplified(
        For(Symbol("i"), 8, (If(Compare("ge", Index(i), Index(8)), (store(),)),))
    )
    assert body == ()


def test_an_open_condition_stays():
    body = simplified(
        For(Symbol("i"), 8, (If(Compare("lt", Index(i), Index(5)), (store(),)),))
    )
    assert [type(s) for s in walk(body)] == [For, If, Store]


def test_a_loop_of_one_step_is_its_body():
    (only,) = simplified(For(Symbol("i"), 1, (store(),)))
    assert isinstance(only, Store)
    assert only.indices == (0,)


def test_an_empty_loop_goes():
    assert simplified(For(Symbol("i"), 0, (store(),))) == ()


def test_grid_loops_of_one_step_stay():
    body = simplified(For(Symbol("i"), 1, (store(),), LoopKind.GRID_X))
    assert isinstance(body[0], For)


def test_conditions_inside_single_step_loops_are_decided_too():
    condition = Compare("gt", Index(i), Index(0))
    assert simplified(For(Symbol("i"), 1, (If(condition, (store(),)),))) == ()


@pytest.mark.parametrize(
    ("limit", "known"),
    [(16, True), (8, True), (7, None), (1, None), (0, False), (-3, False)],
)
def test_masks_are_decided_for_all_lanes_at_once(limit, known):
    mask = Compare("lt", Index(0, i64, 8, 1), Const(limit, i64, 8), 8)
    result = fold(mask)
    if known is None:
        assert result is mask
    else:
        assert isinstance(result, Const)
        assert result.value is known
        assert result.lanes == 8


def test_a_load_with_a_true_mask_loses_it_and_with_a_false_one_is_zero():
    load = Load(OUT, (i,), 4, mask=Const(True, bool_, 4))
    plain = fold(load)
    assert isinstance(plain, Load)
    assert plain.mask is None
    zero = fold(Load(OUT, (i,), 4, mask=Const(False, bool_, 4)))
    assert isinstance(zero, Const)
    assert (zero.value, zero.lanes) == (0.0, 4)


def test_a_store_with_a_false_mask_goes():
    kernel = kernel_of(Store(OUT, (0,), Const(1.0, f32, 4), mask=Const(False, bool_, 4)))
    assert simplify(kernel).body == ()


def test_selections_casts_and_splats_of_constants_are_computed():
    chosen = fold(Select(Const(True, bool_), Const(1.0, f32), Const(2.0, f32), f32))
    assert isinstance(chosen, Const)
    assert chosen.value == 1.0
    cast = fold(Cast(Const(2.75, f32), i64))
    assert isinstance(cast, Const)
    assert cast.value == 2
    wide = fold(Splat(Const(3.0, f32), 8, f32))
    assert isinstance(wide, Const)
    assert wide.lanes == 8


def test_float_sums_with_zero_are_kept_for_the_sign_of_zero():
    value = Binary("add", Load(OUT, (i,)), Const(0.0, f32), f32)
    assert fold(value) is value


def test_an_index_without_variables_is_a_constant():
    value = fold(Index(3, i64, 4, 0))
    assert isinstance(value, Const)
    assert (value.value, value.lanes) == (3, 4)
    ascending = Index(3, i64, 4, 1)
    assert fold(ascending) is ascending


def test_comparisons_of_data_stay():
    value = e.compare("lt", Load(OUT, (i,)), Const(0.0, f32))
    assert fold(value) is value


def test_a_neutral_number_on_either_side_is_left_out():
    x = Load(OUT, (i,))
    one = Const(1.0, f32)
    for value in (Binary("mul", x, one, f32), Binary("mul", one, x, f32)):
        (outer,) = simplified(For(Symbol("i"), 8, (Store(OUT, (i + 8,), value),)))
        (statement,) = outer.body
        assert isinstance(statement.value, Load)
