"""Appends nodes to a graph with checked operands, attributes and inferred types.

The one way front ends, transforms and tests make nodes by name.  `GraphBuilder` has a method per
op of the catalogue (`b.add(x, y)`, `b.softmax(x, axis=-1)`).  Editing existing nodes is
`graph.editor`'s work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.compiler.graph.ir import UNKNOWN_LOCATION, Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, TensorType
from tilewright.compiler.ops import catalogue

Operands = Sequence[Value | None]


def make_node(
    name: str,
    operands: Operands,
    attributes: Mapping[str, object] | None = None,
    *,
    location: Location = UNKNOWN_LOCATION,
    names: Sequence[str] = (),
) -> Node:
    """A node of op `name` with complete attributes and inferred result types.

    Raises: ModelError with the location for an unknown op, wrong operands or attributes.
    """
    try:
        row = catalogue.lookup(name)
        full = row.complete(attributes or {})
        types = [None if v is None else v.type for v in operands]
        results = row.schema.infer(types, full)
    except TilewrightError as error:
        error.location = error.location or location
        raise
    return Node(row.schema, operands, full, results, location=location, names=names)


@final
class GraphBuilder:
    """Appends to `graph`; every node gets `location`, which may be changed between calls.

    >>> from tilewright.base.dtypes import f32
    >>> b = GraphBuilder()
    >>> x = b.input("x", TensorType(f32, (2, 3)))
    >>> y = b.output("y", b.relu(b.add(x, b.constant(np.float32(1)))))
    >>> str(y.type)
    'f32[2, 3]'
    """

    def __init__(
        self, graph: Graph | None = None, location: Location = UNKNOWN_LOCATION
    ) -> None:
        self.graph: Graph = graph if graph is not None else Graph()
        self.location: Location = location

    def input(self, name: str, type_: TensorType) -> Value:
        """A new graph input."""
        value = Value(type_, name)
        self.graph.inputs.append(value)
        return value

    def output(self, name: str, value: Value) -> Value:
        """Make `value` a graph output called `name`."""
        self.graph.outputs.append(value)
        self.graph.output_names.append(name)
        return value

    def add_node(self, node: Node) -> Node:
        """Append a finished node."""
        self.graph.nodes.append(node)
        return node

    def node(
        self,
        name: str,
        operands: Operands,
        attributes: Mapping[str, object] | None = None,
        *,
        names: Sequence[str] = (),
    ) -> Node:
        """Append op `name`.  Raises: ModelError as `make_node`."""
        return self.add_node(
            make_node(name, operands, attributes, location=self.location, names=names)
        )

    def op(
        self,
        name: str,
        operands: Operands,
        attributes: Mapping[str, object] | None = None,
        *,
        names: Sequence[str] = (),
    ) -> Any:
        """Append op `name`; its result, or a tuple when it has several."""
        results = self.node(name, operands, attributes, names=names).results
        return results[0] if len(results) == 1 else results

    def constant(self, value: Array | float, name: str = "") -> Value:
        """A constant node; the array is not copied."""
        array = np.asarray(value)
        return self.node("constant", (), {"value": array}, names=(name,)).result

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """`b.softmax(x, axis=1)` is `b.op("softmax", (x,), {"axis": 1})`."""
        plain = name.removesuffix("_")
        if name.startswith("__") or catalogue.find(plain) is None:
            raise AttributeError(f"GraphBuilder has no method and no op is called '{name}'")

        def call(*operands: Value | None, **attributes: object) -> Any:
            return self.op(plain, operands, attributes)

        return call
