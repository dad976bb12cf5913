"""Structural equality of graphs and a hash that agrees with it.

Two graphs are the same when they have the same inputs, ops, attributes, types and wiring in the
same order; names of values, graphs and locations do not count, contents of constants do.  Not a
check of meaning.  Called by deduplication of kernels, by caches and by tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.text import ArrayHashes


def fingerprint(graph: Graph, *, hashes: ArrayHashes | None = None) -> str:
    """A hexadecimal hash of everything that `same` looks at."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, graph, hashes or ArrayHashes())
    return digest.hexdigest()


def node_fingerprint(node: Node, hashes: ArrayHashes) -> str:
    """The same of one node: nodes of one hash differ in names, in where they come from, and in what they read.

    Operands count by their types, symbols of sizes by their names.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed_node(
        digest, node, ["_" if v is None else str(v.type) for v in node.operands], hashes
    )
    return digest.hexdigest()


def same(left: Graph, right: Graph) -> bool:
    """Whether the two graphs are equal but for names and locations."""
    return difference(left, right) is None


def difference(left: Graph, right: Graph) -> str | None:
    """The first place where the graphs differ, in words, or None."""
    if [v.type for v in left.inputs] != [v.type for v in right.inputs]:
        return f"inputs {left.inputs} and {right.inputs}"
    if len(left.nodes) != len(right.nodes):
        return f"{len(left.nodes)} and {len(right.nodes)} nodes"
    paired: dict[Value, Value] = dict(zip(left.inputs, right.inputs, strict=True))
    for index, (a, b) in enumerate(zip(left.nodes, right.nodes, strict=True)):
        found = _node_difference(a, b, paired)
        if found is not None:
            return f"node {index}: {found}"
        paired.update(zip(a.results, b.results, strict=True))
    if [paired.get(v) for v in left.outputs] != list(right.outputs):
        return "outputs"
    return None


def _node_difference(a: Node, b: Node, paired: Mapping[Value, Value]) -> str | None:
    if a.op != b.op:
        return f"op '{a.op}' and '{b.op}'"
    if [v.type for v in a.results] != [v.type for v in b.results]:
        return f"op '{a.op}' gives {a.results} and {b.results}"
    if [None if v is None else paired.get(v) for v in a.operands] != b.operands:
        return f"op '{a.op}' has other operands"
    if a.attributes.keys() != b.attributes.keys():
        return (
            f"op '{a.op}' has attributes {sorted(a.attributes)} and {sorted(b.attributes)}"
        )
    for name, value in a.attributes.items():
        if not attributes_equal(value, b.attributes[name]):
            return f"op '{a.op}': attribute '{name}'"
    if len(a.regions) != len(b.regions):
        return f"op '{a.op}' has {len(a.regions)} and {len(b.regions)} regions"
    for mine, other in zip(a.regions, b.regions, strict=True):
        found = difference(mine, other)
        if found is not None:
            return f"op '{a.op}': region: {found}"
    return None


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


def _feed(digest: hashlib.blake2b, graph: Graph, hashes: ArrayHashes) -> None:
    number: dict[Value, int] = {}
    for value in graph.inputs:
        number[value] = len(number)
        digest.update(f"input {value.type};".encode())
    for node in graph.nodes:
        operands = ["_" if v is None else str(number.get(v)) for v in node.operands]
        _feed_node(digest, node, operands, hashes)
        for value in node.results:
            number[value] = len(number)
    digest.update(f"return {[number.get(v) for v in graph.outputs]}".encode())


def _feed_node(
    digest: hashlib.blake2b, node: Node, operands: list[str], hashes: ArrayHashes
) -> None:
    attributes = [
        f"{name}={attribute_key(value, hashes)}"
        for name, value in sorted(node.attributes.items())
    ]
    types = [str(v.type) for v in node.results]
    digest.update(f"{node.op}{operands}{attributes}{types};".encode())
    for region in node.regions:
        digest.update(b"{")
        _feed(digest, region, hashes)
        digest.update(b"}")
