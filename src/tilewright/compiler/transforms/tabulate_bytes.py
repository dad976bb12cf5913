"""What is computed of one byte, step by step, is looked up.

    quantize(gelu(dequantize(x)))     ->     table_lookup(x, table)

A byte has 256 values, so whatever elementwise steps make another byte of it and of known numbers are a table, which
the oracles of the steps fill: exact, and as long as what quantized models put between two products (a GELU, each step
of which they quantize, divides five times).  One division is still cheaper than to go through memory.
After `decompose_quantization`; `simplify` turns a cast of what is looked up into another table.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

import numpy as np

from tilewright.base.record import field, record
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Array, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.quantization import table_lookup
from tilewright.compiler.passes import Emitter, GraphPass, PassContext, PassResult
from tilewright.compiler.transforms.fold_constants import attributes_are_numbers
from tilewright.compiler.transforms.fusion_classes import is_cheap
from tilewright.compiler.transforms.matching import splat_of
from tilewright.compiler.transforms.quantized_values import BYTES

_WORTH: Final = 2
"""Steps of several instructions that take longer than to look a byte up, from memory into memory."""
_LONGEST: Final = 64
"""Values: far more than an activation has, and few enough to be gone through again from each byte."""


@final
@record(kw_only=True)
class TabulateBytes(GraphPass):
    """Replace elementwise steps from one tensor of bytes to another by a `table_lookup`.

    Requires: nothing.  Ensures: same values, as the oracles of the ops have them; no bytes are made of bytes and single
    numbers by `_WORTH` steps of more than one instruction, nor by more of them than `_LONGEST` values hold.
    """

    level: ClassVar[int] = 1

    def run(self, graph: Graph, _: PassContext) -> PassResult:
        """From the last node to the first: what lies inside a longer chain is gone when it would be looked at."""
        count = 0
        with Editor(graph) as edit:
            for node in tuple(edit.reversed_nodes()):
                if not edit.contains(node) or len(node.results) != 1:
                    continue
                if node.result.type.dtype not in BYTES or not edit.use_count(node.result):
                    continue
                chain = _chain(node.result)
                if (
                    chain is None
                    or sum(not is_cheap(step) for step in chain.steps) < _WORTH
                ):
                    continue
                emit = Emitter(edit, catalogue.schema, node)
                table = emit.constant(chain.table())
                edit.replace_uses(
                    node.result, emit.op(table_lookup.name, [chain.source, table])
                )
                edit.erase_dead(node)
                count += 1
            return PassResult(edit.modified, {"tables": count} if count else {})


@final
@record
class _Chain:
    """Steps from one tensor of bytes to a value, makers before users."""

    source: Value
    steps: tuple[Node, ...]

    def table(self) -> Array:
        """The last of the steps' results for each byte, by its bits."""
        every = np.arange(256, dtype=np.uint8).view(self.source.type.dtype.numpy)
        found: dict[Value, Array] = {self.source: every}
        for step in self.steps:
            operands = [
                None if v is None else found[v] if v in found else _single(v)
                for v in step.operands
            ]
            with np.errstate(all="ignore"):
                (found[step.result],) = step.schema.evaluate(operands, step.attributes)
        return found[self.steps[-1].result]


def _chain(value: Value) -> _Chain | None:
    """The steps that make `value` of the first bytes that it is made of alone; None where there are none."""
    walk = _Walk()
    source = walk.source(value)
    if source is None or source is value:
        return None
    wanted, steps = {value}, list[Node]()
    for step in reversed(walk.steps):
        if step.result in wanted and step.result is not source:
            steps.append(step)
            wanted.update(step.present_operands)
    return _Chain(source, tuple(reversed(steps)))


@final
@record(frozen=False)
class _Walk:
    """At most `_LONGEST` values behind one, as if those farther behind were given."""

    steps: list[Node] = field(default_factory=list[Node])
    """Makers before users."""
    sources: dict[Value, Value | None] = field(default_factory=dict[Value, "Value | None"])
    """Of the values that were met."""

    def source(self, value: Value) -> Value | None:
        """The first bytes that `value` is made of alone, itself perhaps; None if it is made of others."""
        if value not in self.sources:
            read = _read(value) if len(self.sources) < _LONGEST else ()
            self.sources[value] = None
            behind = {self.source(v) for v in reversed(read)}
            first = behind.pop() if len(behind) == 1 else None
            if first is not None and value.node is not None:
                self.steps.append(value.node)
            self.sources[value] = first or (value if value.type.dtype in BYTES else None)
        return self.sources[value]


def _read(value: Value) -> tuple[Value, ...]:
    """What a step makes `value` of, beside single numbers; nothing where it is no step or spreads what it reads."""
    if value.node is None or not _is_step(value.node):
        return ()
    read = tuple(v for v in value.node.present_operands if splat_of(v) is None)
    return read if all(v.type.shape == value.type.shape for v in read) else ()


def _is_step(node: Node) -> bool:
    """Whether one element of each operand makes one of the result."""
    return (
        node.has(Trait.PURE | Trait.ELEMENTWISE)
        and len(node.results) == 1
        and not node.regions
        and attributes_are_numbers(node)
    )


def _single(value: Value) -> Array:
    """The one number that a constant repeats."""
    return np.asarray(splat_of(value), value.type.dtype.numpy)
