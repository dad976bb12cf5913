"""Random integer expressions: a tree that gives both a symbolic dimension and a Python integer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim

# name -> inclusive bounds; None is an open end.
SYMBOLS: Mapping[str, tuple[int | None, int | None]] = {
    "N": (1, None),
    "M": (0, 7),
    "k": (1, 5),
    "i": (0, 31),
    "x": (None, None),
    "y": (-9, 4),
}
POSITIVE = ("N", "k")


@dataclass(frozen=True)
class Tree:
    """One expression; `divisors` are always positive."""

    text: str
    dim: Callable[[], Dim]
    number: Callable[[Mapping[str, int]], int]

    def __repr__(self) -> str:
        return self.text


def environments() -> st.SearchStrategy[dict[str, int]]:
    """A value within its bounds for every symbol."""
    return st.fixed_dictionaries(
        {
            name: st.integers(-40 if low is None else low, 60 if high is None else high)
            for name, (low, high) in SYMBOLS.items()
        }
    )


def leaf_symbol(name: str) -> Tree:
    return Tree(name, lambda: symbolic.symbol(name, *SYMBOLS[name]), lambda env: env[name])


def leaf_number(value: int) -> Tree:
    return Tree(str(value), lambda: value, lambda env: value)


def _binary(
    word: str,
    of_dims: Callable[[Dim, Dim], Dim],
    of_numbers: Callable[[int, int], int],
) -> Callable[[Tree, Tree], Tree]:
    def build(a: Tree, b: Tree) -> Tree:
        return Tree(
            f"{word}({a}, {b})",
            lambda: of_dims(a.dim(), b.dim()),
            lambda env: of_numbers(a.number(env), b.number(env)),
        )

    return build


add = _binary("add", lambda a, b: a + b, lambda a, b: a + b)
sub = _binary("sub", lambda a, b: a - b, lambda a, b: a - b)
mul = _binary("mul", lambda a, b: a * b, lambda a, b: a * b)
floordiv = _binary("floordiv", symbolic.floordiv, lambda a, b: a // b)
mod = _binary("mod", symbolic.mod, lambda a, b: a % b)
ceildiv = _binary("ceildiv", symbolic.ceildiv, lambda a, b: -(-a // b))
minimum = _binary("min", symbolic.minimum, min)
maximum = _binary("max", symbolic.maximum, max)

leaves = st.one_of(
    st.sampled_from(sorted(SYMBOLS)).map(leaf_symbol),
    st.integers(-20, 20).map(leaf_number),
)
divisors = st.one_of(
    st.integers(1, 12).map(leaf_number),
    st.sampled_from(POSITIVE).map(leaf_symbol),
    st.builds(
        mul,
        st.sampled_from(POSITIVE).map(leaf_symbol),
        st.integers(1, 4).map(leaf_number),
    ),
)


def _grow(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.builds(add, inner, inner),
        st.builds(sub, inner, inner),
        st.builds(mul, inner, st.one_of(leaves, inner)),
        st.builds(floordiv, inner, divisors),
        st.builds(mod, inner, divisors),
        st.builds(ceildiv, inner, divisors),
        st.builds(minimum, inner, inner),
        st.builds(maximum, inner, inner),
    )


trees = st.recursive(leaves, _grow, max_leaves=8)
polynomials = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(add, inner, inner),
        st.builds(sub, inner, inner),
        st.builds(mul, inner, inner),
    ),
    max_leaves=8,
)
