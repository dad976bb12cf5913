"""Conditions that the loops and conditions around them decide."""

from __future__ import annotations

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, Symbol, symbol
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
    Parameter,
    Statement,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.lowering.decide import decide
from tilewright.compiler.lowering.flatten import flatten

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
