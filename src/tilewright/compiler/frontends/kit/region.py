"""A region of control flow while a model is imported: a graph, and what it reads from outside.

Opened and filled by the node maker, closed before the node that has it is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType


@final
class Region:
    """A graph under construction.

    Args:
        inputs: the types of what it takes before its captures.
        is_certain: it runs whenever what is around it does.

    Attributes:
        inputs: the tensors that it takes.
        own: its values.
        captures: values of the graph around it, and what they are inside, in order.
        made: constants that stand in it.
        expected: pairs of sizes that are compared in it.
    """

    __slots__ = ("captures", "expected", "graph", "inputs", "is_certain", "made", "own")

    def __init__(self, inputs: Sequence[TensorType], *, is_certain: bool = False) -> None:
        self.is_certain: bool = is_certain
        self.expected: set[tuple[Dim, Dim]] = set()
        self.graph: Graph = Graph("region")
        self.own: set[Value] = set()
        self.captures: dict[Value, Value] = {}
        self.made: dict[Tensor, Value] = {}
        self.inputs: tuple[Tensor, ...] = tuple(self.add_input(type_) for type_ in inputs)

    def add_input(self, type_: TensorType) -> Tensor:
        """One more tensor that it takes."""
        value = Value(type_)
        self.graph.inputs.append(value)
        self.own.add(value)
        return Tensor(type_, value=value)

    def inside(self, value: Value) -> Value:
        """What a value from outside is in here."""
        if value not in self.captures:
            inner = Value(value.type, value.name)
            self.captures[value] = inner
            self.own.add(inner)
        return self.captures[value]
