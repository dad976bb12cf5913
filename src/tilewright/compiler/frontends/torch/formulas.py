"""Numbers and conditions that follow from sizes, as tensors of the graph.

What `sizes` reads of torch's expressions and has no word for among sizes: real numbers, what is rounded
of them, comparisons.  Called by the importer and by rows.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base.dtypes import f64, i64
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.program import (
    Formula,
    Ref,
    Relation,
    Rounded,
)
from tilewright.compiler.frontends.torch.sizes import parts_of_signed

Find = Callable[[Ref], Tensor]


def condition_of(e: NodeMaker, relation: Relation, find: Find) -> Tensor:
    """What holds of sizes and elements, which `find` has, as a truth value of the graph."""
    is_real = any(isinstance(part, float | Formula | Ref) for part in relation.parts)
    parts: list[Tensor] = []
    for part in relation.parts:
        if isinstance(part, Relation):
            parts.append(condition_of(e, part, find))
        elif isinstance(part, int | Expr) and not is_real:
            parts.append(e.dim(part))
        else:
            parts.append(_part(e, part, find))
    return _folded(e, relation.op, parts)


def number_of(e: NodeMaker, formula: Formula, find: Find) -> Tensor:
    """A real number of sizes and elements, which `find` has, as a scalar of f64."""
    return _folded(e, formula.op, [_part(e, part, find) for part in formula.parts])


def bind_rounded(e: NodeMaker, rounded: Rounded, find: Find) -> None:
    """Let the symbol of a rounded number be what the formula gives, from here on."""
    # To whole numbers goes towards zero; formulas that round otherwise say so.
    whole = e.cast(number_of(e, rounded.formula, find), i64)
    e.bind_sizes(e.reshape(whole, (1,)), (rounded.size,))


def bind_number(e: NodeMaker, values: Tensor, number: Dim) -> None:
    """Let a whole number that sizes follow from be an element; where it may be negative, it need not be read."""
    flat = e.reshape(e.cast(values, i64), (1,))
    if isinstance(number, int):
        # Torch knows it from what the module expects of it, and asks the data no more.
        control.require(e, flat, number, "number")
        return
    parts = parts_of_signed(number)
    if parts is None:
        e.bind_sizes(flat, (number,))
        return
    zero = e.scalar(0, i64)
    for part, held in zip(parts, (flat, e.op("neg", flat)), strict=True):
        above = e.op("max", held, zero)
        e.elements[str(part)] = e.reshape(above, ())
        e.bind_sizes(above, (part,))


def _part(e: NodeMaker, part: Expr | float | Formula | Ref, find: Find) -> Tensor:
    if isinstance(part, Formula):
        return number_of(e, part, find)
    if isinstance(part, Ref):
        return e.reshape(e.cast(find(part), f64), ())
    if isinstance(part, Expr):
        return e.cast(e.dim(part), f64)
    return e.scalar(part, f64)


def _folded(e: NodeMaker, op: str, parts: list[Tensor]) -> Tensor:
    found, *rest = parts
    if not rest:
        return e.op(op, found)
    for part in rest:
        found = e.op(op, found, part)
    return found
