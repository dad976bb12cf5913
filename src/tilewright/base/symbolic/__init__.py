"""Integer expressions: dimensions of tensors, extents of loops, offsets into buffers.

A `Dim` is a Python `int` or an `Expr` over named symbols.  Expressions are kept in one normal
form (a polynomial over atoms), so equal ones compare equal and a constant result is always a
plain `int`.  Not a solver: what the normal form and interval bounds cannot decide stays
undecided.  Used by every room from shapes to kernel indices.

Semantics: mathematical integers; `//` and `%` round toward minus infinity, divisors are positive.
"""

from tilewright.base.symbolic.algebra import (
    Atom,
    Dim,
    Expr,
    Monomial,
    Opaque,
    Operation,
    Symbol,
    bounds,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    opaque,
    symbol,
)
from tilewright.base.symbolic.intervals import Bounds
from tilewright.base.symbolic.queries import (
    atoms,
    evaluate,
    is_multiple,
    linear,
    map_atoms,
    map_opaque,
    names_in,
    only_atom,
    opaques,
    proves_at_most,
    proves_equal,
    proves_less,
    quotients,
    sampled_difference,
    substitute,
    substitute_if_defined,
    symbols,
)
from tilewright.base.symbolic.text import DimReader, is_deep, parse

__all__ = [
    "Atom",
    "Bounds",
    "Dim",
    "DimReader",
    "Expr",
    "Monomial",
    "Opaque",
    "Operation",
    "Symbol",
    "atoms",
    "bounds",
    "ceildiv",
    "evaluate",
    "floordiv",
    "is_deep",
    "is_multiple",
    "linear",
    "map_atoms",
    "map_opaque",
    "maximum",
    "minimum",
    "mod",
    "names_in",
    "only_atom",
    "opaque",
    "opaques",
    "parse",
    "proves_at_most",
    "proves_equal",
    "proves_less",
    "quotients",
    "sampled_difference",
    "substitute",
    "substitute_if_defined",
    "symbol",
    "symbols",
]
