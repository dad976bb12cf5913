"""The normal form: every rewrite keeps the value, equal polynomials are equal objects."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.dimension_trees import Tree, divisors, environments, polynomials, trees
from tilewright.base import symbolic
from tilewright.base.errors import InternalError, UserError
from tilewright.base.symbolic import (
    Dim,
    Expr,
    Operation,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    symbol,
)

n = symbol("n", 0)
m = symbol("m", 0)
i = symbol("i", 0, 7)
j = symbol("j", 0, 3)
free = symbol("free", None, None)


@given(trees, environments())
def test_every_expression_has_the_value_of_its_python_twin(
    tree: Tree, env: Mapping[str, int]
) -> None:
    assert symbolic.evaluate(tree.dim(), env) == tree.number(env)


@given(trees, environments())
def test_bounds_contain_every_value(tree: Tree, env: Mapping[str, int]) -> None:
    low, high = symbolic.bounds(tree.dim())
    value = tree.number(env)
    assert low is None or low <= value
    assert high is None or value <= high


@given(polynomials, polynomials, polynomials)
def test_the_laws_of_a_ring_hold_as_equality(a: Tree, b: Tree, c: Tree) -> None:
    x, y, z = a.dim(), b.dim(), c.dim()
    assert x + y == y + x
    assert (x + y) + z == x + (y + z)
    assert x * y == y * x
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert x - x == 0
    assert x + 0 == x
    assert x * 1 == x
    assert x * 0 == 0


@given(polynomials, polynomials)
def test_equal_expressions_have_equal_hashes_and_texts(a: Tree, b: Tree) -> None:
    left, right = (a.dim() + b.dim()) * 3, b.dim() * 3 + a.dim() * 3
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@given(trees, divisors)
def test_quotient_and_remainder_add_up_again(tree: Tree, divisor: Tree) -> None:
    x, d = tree.dim(), divisor.dim()
    if isinstance(d, int):
        assert floordiv(x, d) * d + mod(x, d) == x


@given(trees, st.integers(1, 40), environments())
def test_floor_division_and_remainder_by_numbers_of_either_sign(
    tree: Tree, divisor: int, env: Mapping[str, int]
) -> None:
    for d in (divisor, -divisor):
        number = tree.number(env)
        assert symbolic.evaluate(floordiv(tree.dim(), d), env) == number // d
        assert symbolic.evaluate(mod(tree.dim(), d), env) == number % d


@given(trees, trees)
def test_min_and_max_are_commutative_and_idempotent(a: Tree, b: Tree) -> None:
    x, y = a.dim(), b.dim()
    assert minimum(x, y) == minimum(y, x)
    assert maximum(x, y) == maximum(y, x)
    assert minimum(x, x) == x
    assert maximum(x, x) == x


@given(trees)
def test_expressions_survive_pickling(tree: Tree) -> None:
    dim = tree.dim()
    again = pickle.loads(pickle.dumps(dim))
    assert again == dim
    assert symbolic.bounds(again) == symbolic.bounds(dim)


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (floordiv(8 * n + i, 8), n),
        (mod(8 * n + i, 8), i),
        (floordiv(8 * n + 8, 8), n + 1),
        (mod(16 * n + 3, 8), 3),
        (floordiv(floordiv(n, 4), 8), floordiv(n, 32)),
        (floordiv(floordiv(n, 7) + 24 * i, 5), floordiv(168 * i + n, 35)),
        (floordiv(floordiv(n, 7) + 3, 5), floordiv(n + 21, 35)),
        (floordiv(i, 8), 0),
        (mod(i, 8), i),
        (floordiv(32 * n + 4 * i + j, 32), n),
        (mod(32 * n + 4 * i + j, 32), 4 * i + j),
        (floordiv(32 * n + 4 * i + j, 4), 8 * n + i),
        (mod(64 * n + 4 * i + j, 64), mod(16 * n + i, 16) * 4 + j),
        (4 * floordiv(n, 4) + mod(n, 4), n),
        (m * floordiv(n, 4) * 4 + m * mod(n, 4), m * n),
        (floordiv(n * m, n), m),
        (mod(n * m, n), 0),
        (floordiv(n, n), 1),
        (floordiv(896 * n + 896, 64 * n + 64), 14),
        (floordiv(i * n + i, n + 1), i),
        (mod(n * n - 1, n + 1), 0),
        (floordiv((n + m) * (n - m), n + m), n - m),
        (ceildiv(8 * n, 8), n),
        (ceildiv(8 * n + 1, 8), n + 1),
        (minimum(i, 7), i),
        (maximum(i, 0), i),
        (minimum(n, n + 3), n),
        (maximum(n, n + 3), n + 3),
        (floordiv(n, 1), n),
        (mod(n, 1), 0),
        (floordiv(n, -1), -n),
        (floordiv(i, n + 8), 0),
        (mod(i, n + 8), i),
        (0 // symbol("d", 1), 0),
    ],
)
def test_what_the_normal_form_decides(dim: Dim, expected: Dim) -> None:
    assert dim == expected


@pytest.mark.parametrize(
    "dim", [floordiv(n, 4), mod(n, 4), minimum(n, m), maximum(n, 4), floordiv(n, m + 1)]
)
def test_what_it_cannot_decide_stays_one_operation(dim: Dim) -> None:
    assert isinstance(dim, Expr)
    ((monomial, factor),) = dim.terms
    assert isinstance(monomial[0], Operation)
    assert (factor, dim.constant) == (1, 0)


def test_a_constant_result_is_a_plain_integer() -> None:
    assert type(n - n) is int
    assert type((n + 3) * 2 - 2 * n) is int
    assert type(mod(4 * n + 1, 2)) is int


def test_the_reflected_operators_agree_with_the_functions() -> None:
    d = symbol("d", 1)
    assert 7 - d == -d + 7
    assert 7 // d == floordiv(7, d)
    assert 7 % d == mod(7, d)
    assert d // 2 == floordiv(d, 2)
    assert d % 2 == mod(d, 2)


@pytest.mark.parametrize("function", [floordiv, mod])
def test_dividing_by_zero_is_an_error_of_the_user(function: object) -> None:
    with pytest.raises(UserError, match=r"dimension '\(n \+ 1\)' by zero"):
        function(n + 1, 0)  # type: ignore[operator]


def test_nobody_can_branch_on_a_symbolic_dimension() -> None:
    with pytest.raises(InternalError, match="truth value of symbolic dimension 'n'"):
        bool(n)


def test_nothing_is_known_of_divisors_that_may_be_zero() -> None:
    assert symbolic.bounds(floordiv(free, n)) == (None, None)
    assert symbolic.bounds(mod(free, n)) == (None, None)
    assert symbolic.bounds(mod(free, n + 1)) == (0, None)


def test_a_remainder_and_its_multiple_are_put_together_whatever_the_divisor_is():
    i, w, h = symbol("i", 0), symbol("w", 1), symbol("h", 1)
    for divisor in (w, w + 4, h * w + w, 2 * w):
        assert floordiv(i, divisor) * divisor + mod(i, divisor) == i
        assert h * (floordiv(i, divisor) * divisor + mod(i, divisor)) + 3 == h * i + 3
    assert floordiv(i, w + 4) * w + mod(i, w + 4) != i
