"""Numbers that data decides, computed as data where they are no sizes.

A size is read by the host, and is never negative; a place or a factor need not be read, and may be.  Called by
`node_maker` where an expression of sizes becomes a tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Atom, Dim, Expr, Operation, Symbol, symbols
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor

_OPS: Final = {"min": "min", "max": "max", "mod": "mod"}


class Maker(Protocol):
    """What writes nodes."""

    def op(self, name: str, *operands: Tensor | None, **attributes: object) -> Tensor:
        """A node of one result."""
        ...

    def scalar(self, number: complex, dtype: DType) -> Tensor:
        """A constant of rank 0."""
        ...

    def dim(self, dim: Dim) -> Tensor:
        """An i64 scalar that holds a size."""
        ...


def is_of_data(size: object, elements: Mapping[str, Tensor]) -> bool:
    """Whether an expression has one of the symbols whose elements are known."""
    if not elements or not isinstance(size, Expr):
        return False
    return any(symbol.name in elements for symbol in symbols(size))


def computed(e: Maker, size: Dim, elements: Mapping[str, Tensor]) -> Tensor:
    """An expression as an i64 scalar; `elements` has i64 scalars by the name of the symbol that each is."""
    if not is_of_data(size, elements) or isinstance(size, int):
        return e.dim(size)
    total: Tensor | None = None
    for monomial, factor in size.terms:
        term: Tensor | None = None
        for atom in monomial:
            part = _atom(e, atom, elements)
            term = part if term is None else e.op("mul", term, part)
        assert term is not None, "a term has an atom"
        if factor != 1:
            term = e.op("mul", term, e.scalar(factor, dtypes.i64))
        total = term if total is None else e.op("add", total, term)
    assert total is not None, "an expression has a term"
    if size.constant:
        total = e.op("add", total, e.scalar(size.constant, dtypes.i64))
    return total


def _atom(e: Maker, atom: Atom, elements: Mapping[str, Tensor]) -> Tensor:
    if isinstance(atom, Symbol):
        found = elements.get(atom.name)
        return e.dim(Expr.of_atom(atom)) if found is None else found
    if not isinstance(atom, Operation):
        raise UnsupportedError(f"the number '{atom}' of data is not supported")
    left, right = (computed(e, part, elements) for part in (atom.left, atom.right))
    if atom.op in _OPS:
        return e.op(_OPS[atom.op], left, right)
    # Rounded down; divisors are positive.
    return e.op("div", e.op("sub", left, e.op("mod", left, right)), right)
