"""The text form: what is printed reads back, nothing else does, and nothing takes long."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.dimension_trees import Tree, environments, trees
from tilewright.base import symbolic
from tilewright.base.errors import UserError
from tilewright.base.symbolic import (
    Dim,
    Expr,
    floordiv,
    is_deep,
    maximum,
    minimum,
    mod,
    parse,
    symbol,
)

n, m = symbol("n"), symbol("m")


@given(trees, environments())
def test_what_str_prints_reads_back_as_the_same_value(
    tree: Tree, env: Mapping[str, int]
) -> None:
    sizes = {name: max(value, 0) for name, value in env.items()}
    again = parse(str(tree.dim()))
    assert symbolic.evaluate(again, sizes) == tree.number(sizes)
    assert parse(str(again)) == again


def test_names_read_from_text_are_sizes() -> None:
    assert symbolic.bounds(parse("n + 1")) == (1, None)
    assert parse("max(n, 0)") == n


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3", 3),
        ("-3", -3),
        (" n ", n),
        ("-n", -n),
        ("2*n + 3*m - 4", 2 * n + 3 * m - 4),
        ("(n + 1)*(m + 2)", (n + 1) * (m + 2)),
        ("n // 4 % 2", mod(floordiv(n, 4), 2)),
        ("-n // 4", floordiv(-n, 4)),
        ("(n // (2*m))", floordiv(n, 2 * m)),
        ("(n % (n*m + 1))", mod(n, n * m + 1)),
        ("min(n, 4) + max(n, m)", minimum(n, 4) + maximum(n, m)),
        ("min", symbol("min")),
        ("batch.size_1$'", symbol("batch.size_1$'")),
        ("--n", n),
    ],
)
def test_the_grammar(text: str, expected: Dim) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "dim",
    [
        floordiv(n, 2 * m),
        mod(n, -m),
        floordiv(floordiv(n, m), m),
        floordiv(-n, 3),
        mod(-2 * n, 3),
        mod(n, floordiv(m, 3)),
        floordiv(n, floordiv(m, 3) * 2),
        -(n // 3) - 7,
    ],
)
def test_signs_and_products_keep_their_parentheses(dim: Dim) -> None:
    assert parse(str(dim)) == dim


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "n +",
        "(n",
        "n)",
        "n n",
        "2 3",
        "n ++",
        "min(n",
        "min(n,)",
        "max(n m)",
        "é",
        "n²",
        "²",
        "a/b",
        "1e3 5",
        "*n",
    ],
)
def test_other_texts_are_refused_with_the_column(text: str) -> None:
    with pytest.raises(UserError, match="is not a dimension \\(at column"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(" * 2000 + "n" + ")" * 2000, "nested too deeply"),
        ("-" * 3000 + "n", "nested too deeply"),
        ("*".join(["(a + b + c + d + e)"] * 60), "too large"),
        ("*".join(["n"] * 1000), "too large"),
        ("9" * 4000, "number too large"),
    ],
    ids=["parentheses", "signs", "sums", "power", "digits"],
)
def test_expressions_that_would_take_forever_are_refused(text: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        parse(text)
    assert len(str(caught.value)) < 200


@given(st.text(alphabet="nm19 ()+-*/%,mina", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        dim = parse(text)
    except UserError:
        return
    assert isinstance(dim, int | Expr)


@pytest.mark.parametrize(
    ("times", "deep"), [(0, False), (40, False), (50, True), (3000, True)]
)
def test_sizes_that_go_too_deep_are_told_from_others(times: int, deep: bool) -> None:
    n = symbol("n")
    value: Dim = n
    for _ in range(times):
        value = (3 * value + n) // 2
    assert is_deep(value) is deep
    if not deep:
        assert parse(str(value)) == value


def test_a_size_of_many_parts_side_by_side_is_not_deep() -> None:
    assert not is_deep(sum((symbol(f"n{i}") // 2 for i in range(200)), 0))
