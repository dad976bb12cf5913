"""Questions about expressions: proofs are never wrong, substitution commutes with evaluation."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.dimension_trees import SYMBOLS, Tree, environments, polynomials, trees
from tilewright.base import symbolic
from tilewright.base.errors import InputError, UserError
from tilewright.base.symbolic import Dim, Opaque, bounds, maximum, minimum, opaque, symbol

n = symbol("n", 1)
m = symbol("m", 0, 7)


@given(trees, trees, environments())
def test_a_proof_of_less_or_equal_holds_for_every_value(
    a: Tree, b: Tree, env: Mapping[str, int]
) -> None:
    if symbolic.proves_less(a.dim(), b.dim()):
        assert a.number(env) < b.number(env)
    if symbolic.proves_equal(a.dim(), b.dim()):
        assert a.number(env) == b.number(env)


@given(trees, st.integers(1, 16), environments())
def test_a_proof_of_divisibility_holds_for_every_value(
    tree: Tree, divisor: int, env: Mapping[str, int]
) -> None:
    if symbolic.is_multiple(tree.dim(), divisor):
        assert tree.number(env) % divisor == 0


def test_proofs_use_the_bounds_of_symbols() -> None:
    assert symbolic.proves_less(m, 8)
    assert not symbolic.proves_less(m, 7)
    assert symbolic.proves_less(0, n)
    assert symbolic.proves_equal(2 * n + n, 3 * n)
    assert not symbolic.proves_equal(n, m)
    assert symbolic.is_multiple(6 * n + 12 * m, 6)
    assert not symbolic.is_multiple(6 * n + 2, 6)


def test_quotients_of_one_number_are_compared() -> None:
    half = symbolic.floordiv(n, 2)
    whole = symbolic.floordiv(half, 32) * 32
    assert symbolic.bounds(half - whole) == (0, 31)
    assert symbolic.minimum(half, whole) == whole
    assert symbolic.bounds(3 * whole - 3 * half) == (-93, 0)
    # Quotients of other numbers, or by numbers that are no part of each other, say nothing.
    assert (
        symbolic.bounds(symbolic.floordiv(m, 2) - 32 * symbolic.floordiv(n, 64))[0] is None
    )
    assert symbolic.bounds(symbolic.floordiv(n, 3) - 2 * symbolic.floordiv(n, 8))[0] != 0


@given(trees, trees, environments())
def test_substituting_then_evaluating_is_evaluating_twice(
    tree: Tree, inner: Tree, env: Mapping[str, int]
) -> None:
    replaced = symbolic.substitute(tree.dim(), {"i": inner.dim()})
    value = inner.number(env)
    # Simplification may have used the bounds of `i`, so the replacement must respect them.
    if 0 <= value <= 31:
        assert symbolic.evaluate(replaced, env) == tree.number({**env, "i": value})


@given(trees, environments())
def test_substituting_numbers_for_all_symbols_gives_a_number(
    tree: Tree, env: Mapping[str, int]
) -> None:
    assert symbolic.substitute(tree.dim(), env) == tree.number(env)


@given(trees)
def test_the_symbols_of_an_expression_are_those_it_was_built_from(tree: Tree) -> None:
    names = {s.name for s in symbolic.symbols(tree.dim())}
    assert names <= set(SYMBOLS)
    assert symbolic.evaluate(tree.dim(), dict.fromkeys(names, 1)) is not None


def rebuilt(value: Dim) -> Dim:
    """`value` from its atoms up, every operation applied once more."""
    if isinstance(value, int):
        return value
    result: Dim = value.constant
    for monomial, factor in value.terms:
        term: Dim = factor
        for atom in monomial:
            term = term * atom.rebuild(rebuilt)
        result = result + term
    return result


@given(trees)
def test_an_expression_is_what_its_parts_make_so_nothing_replaced_is_the_same(
    tree: Tree,
) -> None:
    value = tree.dim()
    assert rebuilt(value) == value
    assert str(rebuilt(value)) == str(value)
    assert symbolic.substitute(value, {"elsewhere": 3}) is value
    assert symbolic.linear(value, "elsewhere") == (0, value)


@given(trees)
def test_atoms_are_listed_with_those_of_their_parts(tree: Tree) -> None:
    def expected(value: Dim) -> list[str]:
        terms = [] if isinstance(value, int) else value.terms
        found: list[str] = []
        for atom in (a for monomial, _ in terms for a in monomial):
            found += [atom.key, *(k for part in atom.parts() for k in expected(part))]
        return found

    value = tree.dim()
    for _ in range(2):
        assert [a.key for a in symbolic.atoms(value)] == expected(value)
        assert symbolic.opaques(value) == ()


def test_answers_belong_to_the_object_not_to_its_value() -> None:
    def quotient(upper: int) -> Dim:
        return symbol("x", 0, upper) // 8 + symbol("y", 0, 1)

    small, large = quotient(100), quotient(1000)
    for _ in range(2):
        assert small == large
        assert bounds(small) == (0, 13)
        assert bounds(large) == (0, 126)
        assert {s.name: s.upper for s in symbolic.symbols(large)} == {"x": 1000, "y": 1}


@given(polynomials)
def test_a_linear_form_adds_up_to_the_expression(tree: Tree) -> None:
    form = symbolic.linear(tree.dim(), "i")
    if form is not None:
        factor, rest = form
        assert "i" not in {s.name for s in symbolic.symbols(rest)}
        assert factor * symbol("i", 0, 31) + rest == tree.dim()


def test_what_is_linear_in_a_symbol_and_what_is_not() -> None:
    assert symbolic.linear(3 * n + 2 * m + 1, "n") == (3, 2 * m + 1)
    assert symbolic.linear(n * m, "n") == (m, 0)
    assert symbolic.linear(5, "n") == (0, 5)
    assert symbolic.linear(m, "n") == (0, m)
    assert symbolic.linear(n * n, "n") is None
    assert symbolic.linear(n // 2, "n") is None
    assert symbolic.linear(minimum(n, 3) * m, "m") == (minimum(n, 3), 0)


def test_evaluating_names_every_symbol_that_has_no_value() -> None:
    with pytest.raises(UserError, match=r"needs a value for \['a', 'b'\]"):
        symbolic.evaluate(symbol("b") * symbol("a") + symbol("c"), {"c": 3})


def test_sizes_that_divide_by_zero_are_named_with_their_numbers() -> None:
    size = symbolic.floordiv(n, symbol("a"))
    with pytest.raises(InputError, match=r"divides by zero: .* for a = 0, n = 3"):
        symbolic.evaluate(size, {"n": 3, "a": 0, "c": 1})


def test_opaque_values_are_compared_by_key_and_replaced_by_payload() -> None:
    row = opaque(("load", "table", 3), "table[3]")
    assert row == opaque("other payload", "table[3]")
    assert row != opaque(("load", "table", 3), "table[4]")
    assert symbolic.bounds(row) == (None, None)

    def visit(atom: Opaque) -> symbolic.Dim:
        assert atom.payload == ("load", "table", 3)
        return 5

    assert symbolic.map_opaque((row * 2 + n) // 3, visit) == (10 + n) // 3
    assert symbolic.map_opaque(n, visit) == n
    assert symbolic.map_opaque(7, visit) == 7
    assert [a.key for a in symbolic.atoms((row + 1) // 2)] == [
        "((table[3] + 1) // 2)",
        "table[3]",
    ]
    assert symbolic.opaques((row + 1) // 2) == (row.terms[0][0][0],)
    assert symbolic.opaques(7) == ()


def test_a_rounded_down_multiple_is_known_to_be_near_its_origin() -> None:
    n = symbol("n", 1)
    whole = 4 * (n // 4)
    assert bounds(n - whole) == (0, 3)
    assert bounds(whole - n) == (-3, 0)
    assert minimum(whole, n) == whole
    assert maximum(4 * ((n + 3) // 4), n) == 4 * ((n + 3) // 4)
    assert (minimum(whole, n) + 3) // 4 == n // 4


def test_atoms_are_replaced_and_the_parts_of_others_are_looked_at() -> None:
    def visit(atom: symbolic.Atom) -> symbolic.Dim | None:
        return 5 if symbolic.Expr.of_atom(atom) == n else None

    assert symbolic.map_atoms(minimum(n, 2 * m) + n * m, visit) == minimum(5, 2 * m) + 5 * m
    assert symbolic.map_atoms(m + 1, visit) == m + 1
    assert symbolic.map_atoms(7, visit) == 7
