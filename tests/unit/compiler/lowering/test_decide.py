"""Conditions that the loops and conditions around them decide."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, Symbol, maximum, minimum, symbol
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Cast,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Statement,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import as_index, loads
from tilewright.compiler.lowering.decide import decide
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.vectorize import vectorize

f32 = dtypes.f32
n = symbol("n", 1)
i, j, k = symbol("i"), symbol("j"), symbol("k")
OUT = Buffer("out", f32, (n,))


def loop(name: str, extent: Dim, *body: Statement) -> For:
    return For(Symbol(name), extent, body)


def where(condition: Expression, *body: Statement) -> If:
    return If(condition, body)


def compare(op: str, left: Dim, right: Dim) -> Compare:
    return Compare(op, Index(left), Index(right))


def count(at: Dim) -> Store:
    """`out[at] += 1`: running twice shows."""
    return Store(OUT, (at,), Binary("add", Load(OUT, (at,)), Const(1.0, f32), f32))


def conditions_left(*body: Statement) -> int:
    kernel = Kernel(
        "k", (Parameter(OUT, AccessMode.READ_WRITE),), (Symbol("n", 1),), (), body
    )
    result = decide(flatten(kernel))
    for size in (1, 2, 3, 4, 7, 8, 16, 33):
        want, got = np.zeros(size, np.float32), np.zeros(size, np.float32)
        evaluate(kernel, [want], {"n": size})
        evaluate(result, [got], {"n": size})
        np.testing.assert_array_equal(got, want)
    return sum(isinstance(s, If) for s in walk(result.body))


def test_the_last_iteration_decides_for_all():
    body = where(compare("lt", i * 4 + j, n), count(i * 4 + j))
    assert conditions_left(loop("i", n // 4, loop("j", 4, body))) == 0


def test_the_first_iteration_decides_what_falls():
    body = where(compare("ge", n - 1 - i, 0), count(i))
    assert conditions_left(loop("i", n, body)) == 0


def test_a_condition_that_never_holds_takes_its_body_along():
    body = where(compare("ge", i * 4 + j, n), count(0))
    assert conditions_left(loop("i", n // 4, loop("j", 4, body))) == 0


def test_what_is_surely_more_is_decided_and_what_may_be_equal_is_not():
    assert conditions_left(loop("i", n, where(compare("gt", n, i), count(i)))) == 0
    assert conditions_left(loop("i", n, where(compare("gt", i, n - 1), count(i)))) == 0
    assert conditions_left(loop("i", n, where(compare("gt", n - 1, i), count(i)))) == 1


def test_a_tail_that_may_be_partial_keeps_its_condition():
    body = where(compare("lt", i * 4 + j, n), count(i * 4 + j))
    assert conditions_left(loop("i", (n + 3) // 4, loop("j", 4, body))) == 1


def test_what_an_enclosing_condition_says_need_not_be_asked_again():
    inner = loop("j", 4, where(compare("lt", i * 4 + j, n), count(i * 4 + j)))
    outer = where(compare("le", i * 4 + 4, n), inner)
    assert conditions_left(loop("i", (n + 3) // 4, outer)) == 1


def test_the_least_of_two_numbers_is_no_more_than_each_and_no_less_than_both():
    at = minimum(4 * i, n - 4) + j
    for asked, left in (
        (compare("lt", at, n), 1),
        (compare("ge", at, 0), 1),
        (compare("ge", at, 1), 2),
        (compare("ge", j - at, -1), 2),
        (compare("ge", maximum(4 - at, 0), 0), 1),
    ):
        run = loop("i", (n + 3) // 4, loop("j", 4, where(asked, count(j))))
        assert conditions_left(where(compare("ge", n, 4), run)) == left


def test_a_sum_of_many_extremes_is_left_open_before_all_their_sides_are_tried():
    total: Dim = 0
    for number in range(40):
        total = total + minimum(n, 100 + number)
    body = where(compare("lt", total, 4000), count(i))
    assert conditions_left(loop("i", n, body)) == 1


def test_parts_of_a_conjunction_are_decided_alone():
    both = Binary("and", compare("lt", i, n), compare("lt", i * 2, n), dtypes.bool_)
    assert conditions_left(loop("i", n, where(both, count(i)))) == 1


def test_facts_end_with_their_condition():
    first = where(compare("lt", i * 2, n), count(i))
    second = where(compare("lt", i * 2, n), count(i))
    assert conditions_left(loop("i", n, first, second)) == 2


def test_extents_of_inner_loops_may_depend_on_outer_ones():
    body = where(compare("le", j, i), count(j))
    assert conditions_left(loop("i", n, loop("j", i + 1, body))) == 0


def test_equalities_and_data_are_left_alone():
    body = where(compare("eq", i, 0), count(i))
    assert conditions_left(loop("i", n, body)) == 1
    data = Compare("gt", Load(OUT, (i,)), Const(-1.0, f32))
    assert conditions_left(loop("i", n, where(data, count(i)))) == 1


def test_what_a_condition_found_in_memory_does_not_outlive_a_store_there():
    at = Load(OUT, (0,))
    place = as_index(Cast(at, dtypes.i64))
    below = Compare("lt", Index(place), Const(3, dtypes.i64))
    added = Binary("add", at, Const(3.0, f32), f32)
    change = Store(OUT, (0,), added)
    again = where(below, change)
    assert conditions_left(where(below, change, again)) == 2


X = Buffer("x", f32, (n,))


def masks_left(around: Expression, step: int, shift: int) -> int:
    """How many loads ask for their place where four lanes read `step` apart in a picture of open size, and `around` holds."""
    place = i * 4 * step + j * step + shift
    inside = Binary("and", compare("ge", place, 0), compare("lt", place, n), dtypes.bool_)
    store = Store(OUT, (i * 4 + j,), Load(X, (place,), mask=inside))
    lanes = For(Symbol("j"), 4, (store,), LoopKind.VECTOR)
    body = loop("i", n // 4, where(around, lanes))
    parameters = (Parameter(X, AccessMode.READ), Parameter(OUT, AccessMode.READ_WRITE))
    kernel = Kernel("k", parameters, (Symbol("n", 1),), (), (body,))
    result = decide(vectorize(flatten(kernel)), masks=True)
    for size in (1, 4, 7, 8, 16, 33):
        x = np.arange(1, size + 1, dtype=np.float32)
        want, got = np.zeros(size, np.float32), np.zeros(size, np.float32)
        evaluate(kernel, [x, want], {"n": size})
        evaluate(result, [x, got], {"n": size})
        np.testing.assert_array_equal(got, want)
    return sum(load.mask is not None for load in loads(result.body))


@pytest.mark.parametrize(
    ("shift", "limit", "left"), [(0, 0, 0), (1, 1, 0), (2, 1, 1), (-1, 0, 1), (1, 0, 1)]
)
def test_lanes_that_lie_inside_as_a_condition_says_test_no_place(
    shift: int, limit: int, left: int
) -> None:
    assert masks_left(compare("le", i * 4 + 4 + limit, n), 1, shift) == left


@pytest.mark.parametrize(("last", "left"), [(7, 0), (6, 1)])
def test_the_last_of_lanes_apart_decides_for_all(last: int, left: int) -> None:
    assert masks_left(compare("lt", i * 8 + last - 1, n), 2, 0) == left


def test_what_loads_test_stays_where_nothing_decides_it() -> None:
    assert masks_left(compare("ge", i * 8, n), 2, 0) == 1
    assert masks_left(compare("ge", n, 0), 1, 0) == 0, "the loop ends in front of the rest"
    assert masks_left(compare("ge", n, 0), 1, 1) == 1
