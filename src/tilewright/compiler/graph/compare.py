"""Structural equality of graphs and a hash that agrees with it.

Two graphs are the same when they have the same inputs, ops, attributes, types and wiring in the
same order; names of values, graphs and locations do not count, contents of constants do.  Not a
check of meaning.  Called by deduplication of kernels, by caches and by tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import zip_longest

import numpy as np

from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.text import ArrayHashes


def fingerprint(graph: Graph, *, hashes: ArrayHashes | None = None) -> str:
    """A hexadecimal hash of everything that `same` looks at."""
    return _hash(_described(graph, hashes or ArrayHashes()))


def node_fingerprint(node: Node, hashes: ArrayHashes) -> str:
    """The same of one node: nodes of one hash differ in names, in where they come from, and in what they read.

    Operands count by their types, symbols of sizes by their names.
    """
    operands = ["_" if v is None else str(v.type) for v in node.operands]
    return _hash(_described_node(node, operands, hashes))


def same(left: Graph, right: Graph) -> bool:
    """Whether the two graphs are equal but for names and locations."""
    return difference(left, right) is None


def difference(left: Graph, right: Graph) -> str | None:
    """The first place where the graphs differ, as both have it, or None."""
    hashes = ArrayHashes()
    pairs = zip_longest(*(_described(graph, hashes) for graph in (left, right)))
    return next((f"{a} and {b}" for a, b in pairs if a != b), None)


def attributes_equal(left: object, right: object) -> bool:
    """Whether two attribute values are the same; arrays by bits, floats by representation."""
    if left is right:
        return True
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        if not (isinstance(left, np.ndarray) and isinstance(right, np.ndarray)):
            return False
        if left.dtype != right.dtype or left.shape != right.shape:
            return False
        return left.size == 0 or left.tobytes() == right.tobytes()
    return type(left) is type(right) and repr(left) == repr(right)


def attribute_key(value: object, hashes: ArrayHashes) -> str:
    """A text that is equal exactly when the attribute values are."""
    if isinstance(value, np.ndarray):
        return f"array {hashes.of(value)}"
    return f"{type(value).__name__} {value!r}"


def _hash(parts: Iterable[str]) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part.encode())
    return digest.hexdigest()


def _described(graph: Graph, hashes: ArrayHashes) -> Iterator[str]:
    """What counts of a graph, one node after the other, whose operands are numbers of values."""
    number: dict[Value, int] = {}

    def place(value: Value) -> str:
        # What nothing in the graph makes, as `verify` would say, is equal to itself alone.
        return (
            str(number[value])
            if value in number
            else f"{value.name} from outside, {id(value)}"
        )

    for value in graph.inputs:
        number[value] = len(number)
        yield f"input {value.type};"
    for node in graph.nodes:
        operands = ["_" if v is None else place(v) for v in node.operands]
        yield from _described_node(node, operands, hashes)
        for value in node.results:
            number[value] = len(number)
    yield f"return {[place(v) for v in graph.outputs]}"


def _described_node(node: Node, operands: list[str], hashes: ArrayHashes) -> Iterator[str]:
    attributes = [
        f"{name}={attribute_key(value, hashes)}"
        for name, value in sorted(node.attributes.items())
    ]
    types = [str(v.type) for v in node.results]
    yield f"{node.op}{operands}{attributes}{types};"
    for region in node.regions:
        yield "{"
        yield from _described(region, hashes)
        yield "}"
