"""Copies graphs: fresh nodes and values, shared schemas, attributes and arrays.

For callers that must not see their graph rewritten.  Called by the pipeline, and by passes
that take nodes into a graph of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.compiler.graph.ir import Graph, Node, Value


def copy_graph(graph: Graph) -> Graph:
    """The same graph, sharing no node or value with the original."""
    return _copy(graph, {})


def _copy(graph: Graph, outer: Mapping[Value, Value]) -> Graph:
    """`outer` maps values of enclosing graphs, which regions may read."""
    images: dict[Value, Value] = dict(outer)
    for value in graph.inputs:
        images[value] = Value(value.type, value.name)
    nodes = [copy_node(node, images) for node in graph]
    return Graph(
        name=graph.name,
        inputs=[images[v] for v in graph.inputs],
        nodes=nodes,
        outputs=[images[v] for v in graph.outputs],
        output_names=list(graph.output_names),
        equalities=graph.equalities,
    )


def graph_of(
    nodes: Iterable[Node],
    inputs: Sequence[Value],
    outputs: Iterable[Value],
    names: Iterable[str],
) -> Graph:
    """A graph of copies of these nodes, which makes `outputs` of `inputs`, called by these names."""
    images = {
        value: Value(value.type, name) for value, name in zip(inputs, names, strict=False)
    }
    taken = list(images.values())
    copies = [copy_node(node, images) for node in nodes]
    return Graph(inputs=taken, nodes=copies, outputs=[images[v] for v in outputs])


def copy_node(node: Node, images: dict[Value, Value]) -> Node:
    """The same node over the images of its operands; those of its results are added to them."""
    made = Node(
        node.schema,
        [None if v is None else images[v] for v in node.operands],
        node.attributes,
        [v.type for v in node.results],
        regions=[_copy(region, images) for region in node.regions],
        location=node.location,
        names=[v.name for v in node.results],
    )
    images.update(zip(node.results, made.results, strict=True))
    return made
