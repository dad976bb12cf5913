"""Turns one graph node into one naive kernel.

A node is a single op or a `fused` region.  The kernel's parameters are the node's operands in
order (absent ones left out) and then its results; values inside a region become temporaries,
scalar and splat constants immediates, other constants tables.  Bodies come from the op
declarations; which nests are merged, inlined or localised is the schedule's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Expr, Symbol
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.kernel.builder import Immediate, KernelBuilder, Source
from tilewright.compiler.kernel.ir import Buffer, Kernel
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.bodies import copy_nest

# Larger constants belong into the program's read-only data, as operands of the node.
_TABLE_LIMIT: Final = 4096


def can_build(node: Node) -> bool:
    """Whether every op of `node` has a body for its types."""
    if Trait.KERNEL in node.schema.traits:
        inner = (n for n in node.regions[0].nodes if Trait.CONSTANT not in n.schema.traits)
        return all(map(can_build, inner))
    if node.regions:
        return False
    return catalogue.lookup(node.op).supports(node.operand_types, node.attributes)


def build_kernel(node: Node, name: str) -> Kernel:
    """The naive kernel of `node`.

    Buffers are named by position, so that nodes that compute the same print the same.

    Raises: InternalError when an op has no body (ask `can_build` first).
    """
    return _Builder(node, name).build()


class _Builder:
    """One node on its way to a kernel."""

    def __init__(self, node: Node, name: str) -> None:
        self.node: Node = node
        self.b: KernelBuilder = KernelBuilder(name, symbols_of(node))
        self.sources: dict[Value, Source] = {}
        self.operands: list[Buffer | None] = []
        self.results: list[Buffer] = []
        for position, operand in enumerate(node.operands):
            self.operands.append(self._parameter(position, operand))
        for position, result in enumerate(node.results):
            type_ = result.type
            self.results.append(self.b.result(f"out{position}", type_.dtype, type_.shape))

    def _parameter(self, position: int, operand: Value | None) -> Buffer | None:
        if operand is None:
            return None
        type_ = operand.type
        return self.b.parameter(f"in{position}", type_.dtype, type_.shape)

    def build(self) -> Kernel:
        if Trait.KERNEL in self.node.schema.traits:
            self._region(self.node.regions[0])
        else:
            self._emit(self.node, self.operands, self.results)
        return self.b.build()

    # --- regions -------------------------------------------------------------------------

    def _region(self, region: Graph) -> None:
        present = (b for b in self.operands if b is not None)
        for value, buffer in zip(region.inputs, present, strict=True):
            self.sources[value] = buffer
        targets: dict[Value, Buffer] = {}
        for value, buffer in zip(region.outputs, self.results, strict=True):
            targets.setdefault(value, buffer)
        for inner in region.nodes:
            if Trait.CONSTANT in inner.schema.traits:
                self.sources[inner.result] = self._constant(inner.result, inner)
                continue
            buffers = [targets.get(v) or self._temporary(v) for v in inner.results]
            self._emit(inner, [self._source(v) for v in inner.operands], buffers)
            self.sources.update(zip(inner.results, buffers, strict=True))
        for value, buffer in zip(region.outputs, self.results, strict=True):
            source = self.sources[value]
            if source is not buffer:
                copy_nest(self.b, source, buffer)

    def _source(self, value: Value | None) -> Source | None:
        return None if value is None else self.sources[value]

    def _temporary(self, value: Value) -> Buffer:
        label = value.node.title if value.node else "t"
        return self.b.temporary(value.type.dtype, value.type.shape, label)

    def _constant(self, value: Value, node: Node) -> Source:
        array = cast("Array", node.attributes["value"])
        splat = splat_value(array)
        if splat is not None:
            return Immediate(splat, value.type.dtype, value.type.shape)
        if array.size > _TABLE_LIMIT:
            raise InternalError(
                f"constant {value.type} is too large for a table in a kernel",
                location=node.location,
            )
        flat = np.ravel(array)
        wide = flat.astype(np.float64) if value.type.dtype.is_float else flat
        return self.b.table(
            tuple(wide.tolist()), value.type.dtype, value.type.shape,
            "table",
        )  # fmt: skip

    # --- ops -----------------------------------------------------------------------------

    def _emit(
        self, node: Node, operands: Sequence[Source | None], results: Sequence[Buffer]
    ) -> None:
        row = catalogue.lookup(node.op)
        if row.body is None:
            raise InternalError(
                f"op '{node.op}' has no kernel body", location=node.location
            )
        if all(0 in result.shape for result in results):
            return  # nothing to store, and bodies may divide by sizes
        missing = 0
        if not any(s.variadic for s in row.schema.operands):
            missing = len(row.schema.operands) - len(operands)
        padded = [*operands, *([None] * missing)]
        row.body.emit(self.b, row.complete(node.attributes), padded, results)


def splat_value(array: Array) -> float | None:
    """The element of a constant whose elements are all the same bits, else None."""
    if array.size == 0 or not (array.size == 1 or array.size <= _SPLAT_SCAN):
        return None
    flat = np.ravel(array)
    first = flat[0]
    if flat.size > 1 and not _same_bits(flat):
        return None
    dtype = dtypes.from_numpy(array.dtype)
    if dtype.is_bool:
        return bool(first)
    return float(first) if dtype.is_float else int(first)


_SPLAT_SCAN: Final = 1 << 20


def _same_bits(flat: Array) -> bool:
    raw = np.ascontiguousarray(flat).view(np.uint8).reshape(flat.size, flat.dtype.itemsize)
    return bool((raw == raw[0]).all())


def symbols_of(node: Node) -> list[Symbol]:
    """Every dimension symbol of the types and attributes of `node`, by name."""
    found: dict[str, Symbol] = {}

    def take(value: object) -> None:
        if isinstance(value, Expr):
            found.update({s.name: s for s in symbolic.symbols(value)})
        elif isinstance(value, tuple):
            for item in cast("tuple[object, ...]", value):
                take(item)

    def visit(one: Node) -> None:
        for value in (*one.present_operands, *one.results):
            take(value.type.shape)
        for attribute in one.attributes.values():
            take(attribute)
        for region in one.regions:
            for inner in region.nodes:
                visit(inner)

    visit(node)
    return [found[n] for n in sorted(found)]
