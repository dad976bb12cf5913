"""What stands for a value that nobody makes, by its type alone, so that what follows is still checked.

Called by the importer for the results of operations with a problem.
"""

from __future__ import annotations

from typing import Final

from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.stablehlo.call import element_dtype, static_shape
from tilewright.compiler.frontends.stablehlo.held import (
    Complex,
    Held,
    Token,
    Tuple,
    Unknown,
)
from tilewright.compiler.frontends.stablehlo.tree import (
    ComplexType,
    DialectType,
    TensorType,
    TupleType,
    Type,
)
from tilewright.compiler.graph.schema import TensorType as GraphType

TOKEN: Final = DialectType("stablehlo.token")


def stand_in(e: NodeMaker, type_: Type) -> Held | Unknown:
    """What stands for a value of a type; unknown where a call decides a size, or where we have no such elements."""
    if isinstance(type_, TupleType):
        items = [stand_in(e, item) for item in type_.items]
        known = tuple(item for item in items if not isinstance(item, Unknown))
        return Tuple(known) if len(known) == len(items) else Unknown()
    if type_ == TOKEN:
        return Token()
    try:
        stated = GraphType(element_dtype(type_), static_shape(type_))
    except UnsupportedError:
        return Unknown()
    if isinstance(type_, TensorType) and isinstance(type_.element, ComplexType):
        return Complex(e.stand_in(stated), e.stand_in(stated))
    return e.stand_in(stated)
