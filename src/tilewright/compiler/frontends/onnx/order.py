"""The order of nodes: ONNX asks for producers in front of consumers, and some tools write them otherwise.

Called by the importer for every graph, subgraph and function.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from onnx import GraphProto, NodeProto

from tilewright.compiler.frontends.onnx.attributes import text_of


def ordered(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """The nodes with each behind those whose results it reads, in their own order otherwise.

    Nodes that stand in such an order, and those that read each other in a circle, stay as they are.
    """
    makers = {text_of(name): i for i, n in enumerate(nodes) for name in n.output if name}
    needs = [{makers[r] for r in _reads(n) if r in makers} for n in nodes]
    if all(maker < place for place, own in enumerate(needs) for maker in own):
        return nodes
    waiting = [len(own) for own in needs]
    readers: list[list[int]] = [[] for _ in nodes]
    for place, own in enumerate(needs):
        for maker in own:
            readers[maker].append(place)
    ready = [place for place, count in enumerate(waiting) if not count]
    found: list[NodeProto] = []
    while ready:
        place = heapq.heappop(ready)
        found.append(nodes[place])
        for reader in readers[place]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return found if len(found) == len(nodes) else nodes


def _reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, those that its subgraphs read from around them included."""
    yield from (text_of(name) for name in node.input if name)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            yield from _captured(graph)


def _captured(graph: GraphProto) -> Iterator[str]:
    own = {text_of(v.name) for v in graph.input}
    own |= {text_of(t.name) for t in graph.initializer}
    own |= {text_of(name) for node in graph.node for name in node.output}
    read = [name for node in graph.node for name in _reads(node)]
    read += [text_of(v.name) for v in graph.output]
    yield from (name for name in read if name not in own)
