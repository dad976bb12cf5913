from __future__ import annotations

import math

import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import bool_, f16, f32, f64, i8, i32, i64, u8
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    Bitcast,
    Buffer,
    Compare,
    Const,
    Function,
    Horizontal,
    Load,
    Splat,
)
from tilewright.compiler.kernel.text import expression_text

X = Load(Buffer("x", f32, (4,)), (0,))
K = Load(Buffer("k", i32, (4,)), (0,))


def test_numbers_take_the_dtype_and_lanes_of_the_other_side():
    wide = e.splat(X, 4)
    assert isinstance(wide, Splat)
    total = e.binary("add", 1, wide)
    assert total.dtype is f32
    assert total.lanes == 4


def test_constants_are_rounded_or_wrapped_to_their_type():
    assert e.const(0.1, f16).value == pytest.approx(0.0999755859375)
    assert e.const(300, u8).value == 44
    assert e.const(200, i8).value == -56
    assert e.const(2, bool_).value is True
    with pytest.raises(InternalError, match="not a value of i32"):
        e.const(0.5, i32)


def test_constants_fold_with_the_semantics_of_the_ir():
    assert e.binary("div", e.const(-7, i32), e.const(2, i32)).value == -3
    assert e.binary("floormod", e.const(-7, i32), e.const(3, i32)).value == 2
    assert e.binary("add", e.const(127, i8), e.const(1, i8)).value == -128
    assert e.cast(e.const(3e9, f32), i32).value == 2**31 - 1
    assert e.cast(e.const(math.nan, f64), i32).value == 0
    assert math.isnan(e.binary("max", e.const(math.nan, f32), e.const(1, f32)).value)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("fold", "value"),
    [
        (lambda: e.cast(e.const(1e300, f64), f32), math.inf),
        (lambda: e.cast(e.const(1e30, f32), f16), math.inf),
        (lambda: e.cast(e.const(math.nan, f32), i32), 0),
        (lambda: e.binary("mul", e.const(1e300, f64), e.const(1e300, f64)), math.inf),
        (lambda: e.unary("exp", e.const(1e9, f32)), math.inf),
        (lambda: e.compare("lt", e.const(math.nan, f32), e.const(1.0, f32)), False),
    ],
)
def test_constants_fold_without_a_warning_whatever_they_come_to(fold, value):
    folded = fold()
    assert isinstance(folded, Const)
    assert folded.value == value


def test_the_bits_of_a_value_read_as_another_type_of_its_width():
    assert e.bitcast(e.const(1.0, f32), i32).value == 0x3F800000
    assert e.bitcast(e.const(-(2**31), i32), f32).value == 0.0
    assert e.bitcast(X, f32) is X
    bits = e.bitcast(X, i32)
    assert isinstance(bits, Bitcast)
    assert expression_text(bits) == "bits<i32>(x[0])"


def test_an_integer_division_by_a_constant_zero_is_not_folded():
    assert not isinstance(e.binary("div", e.const(1, i32), e.const(0, i32)), Const)


def test_only_exact_identities_are_simplified():
    assert e.binary("mul", X, 1) is X
    assert e.binary("sub", X, 0) is X
    assert e.binary("add", X, 0) is not X  # -0 + 0 is +0
    assert e.binary("mul", X, 0) is not X  # NaN * 0 is NaN
    assert e.binary("add", K, 0) is K
    assert e.binary("mul", K, 0).value == 0
    assert e.cast(X, f32) is X


def test_comparisons_of_indices_are_decided_by_their_bounds():
    i = symbolic.symbol("i", 0, 7)
    assert e.compare("lt", e.from_index(i), e.from_index(8)).value is True
    assert e.compare("ge", e.from_index(i), e.from_index(8)).value is False
    assert e.compare("ne", e.from_index(i), e.from_index(i)).value is False
    assert e.compare("eq", e.from_index(i), e.from_index(-1)).value is False
    assert isinstance(e.compare("lt", e.from_index(i), e.from_index(5)), Compare)


def test_select_with_a_constant_condition_takes_one_side():
    assert e.select(e.const(True, bool_), X, 0) is X
    assert e.select(e.const(False, bool_), X, 3).value == 3


def test_is_nan_of_an_integer_is_false():
    assert e.unary("is_nan", K).value is False


@pytest.mark.parametrize(
    "call",
    [
        lambda: e.binary("and", X, X),
        lambda: e.binary("plus", X, X),
        lambda: e.unary("sqroot", X),
        lambda: e.compare("=>", X, X),
        lambda: e.binary("add", X, K),
        lambda: e.binary("add", 1, 2),
        lambda: e.select(X, X, X),
        lambda: e.splat(e.splat(X, 4), 8),
        lambda: e.as_index(X),
    ],
)
def test_ill_typed_expressions_are_refused(call):
    with pytest.raises(InternalError):
        call()


def test_an_index_converts_back_and_forth():
    i = symbolic.symbol("i", 0, 7)
    assert e.as_index(e.from_index(i * 2 + 1)) == i * 2 + 1
    assert e.as_index(e.const(5, i64)) == 5
    loaded = e.as_index(K)
    assert e.from_index(loaded, i32) is K
    assert e.as_index(Load(K.buffer, (0,))) == loaded


def test_one_lane_is_combined_already():
    assert e.horizontal("add", X) is X
    total = e.horizontal("add", e.splat(X, 4))
    assert isinstance(total, Horizontal)
    assert total.lanes == 1


def test_functions_of_one_name_and_type_are_one_whatever_their_bodies():
    plain = Function("f", (f32,), f32)
    assert plain == Function("f", (f32,), f32, e.const(1.0, f32))
    assert plain != Function("g", (f32,), f32)


def test_a_disjunction_of_what_is_computed_stays():
    x, y = (Load(Buffer(name, bool_, (4,)), (0,)) for name in "xy")
    assert expression_text(e.binary("or", x, y)) == "(x[0] | y[0])"
    assert expression_text(e.binary("or", x, e.const(True, bool_))) == "bool(True)"
    assert e.binary("or", x, e.const(False, bool_)) is x
