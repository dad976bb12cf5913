"""From the fused graph to a program: one step per kernel, views become aliases.

Every top-level node must be a constant, a view (`reshape`), a kernel (in `lowered`) or an op that
runs on the host.  Called by the pipeline after the kernels were scheduled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast, final

from tilewright.base.dtypes import from_numpy
from tilewright.base.errors import InternalError, ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Expr, Symbol, only_atom, symbols
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Array, TensorType, Trait
from tilewright.compiler.program import ir
from tilewright.compiler.program.build_flow import (
    allocate,
    emit_expectation,
    emit_if,
    emit_read,
    emit_while,
    reserve_states,
)
from tilewright.compiler.program.hidden_sizes import hidden_sizes, known_names, sizes_inside
from tilewright.compiler.program.updates import updates_of
from tilewright.compiler.program.work import nodes_of
from tilewright.formats.plan import CHECK_BYTES, Dimension, IndexCheck


@final
@record
class Lowered:
    """The kernel of a node: its index in the program, its arithmetic work and its traffic.

    `numbers` are constants that it reads after the operands.
    """

    kernel: int
    flops: Dim = 0
    bytes_moved: Dim | None = None
    numbers: tuple[Array, ...] = ()


def build_program(
    graph: Graph, kernels: Sequence[ir.KernelSignature], lowered: Mapping[Node, Lowered]
) -> ir.Program:
    """The program of `graph`; storages have lifetimes but no places yet (`memory.assign`).

    Raises: ModelError if a dimension of the model cannot be read off any input.
    """
    return _Builder(graph, kernels, lowered).build()


class _Builder:
    """State of one construction: where each value lives and the steps so far."""

    def __init__(
        self,
        graph: Graph,
        kernels: Sequence[ir.KernelSignature],
        lowered: Mapping[Node, Lowered],
    ) -> None:
        self.graph: Graph = graph
        self.kernels: Sequence[ir.KernelSignature] = kernels
        self.lowered: Mapping[Node, Lowered] = lowered
        self.top: frozenset[Node] = frozenset(graph.nodes)
        self.known: frozenset[str] = known_names(graph)
        self.entries: dict[Value, ir.Entry] = {}
        self.steps: list[ir.Step] = []
        self.names: dict[str, int] = {}
        self.outputs: dict[Value, ir.Entry] = {}
        self.states: set[Value] = set()
        self.finished: list[ir.Storage] = []
        self.checks: list[IndexCheck] = []
        self.check_storage: ir.Storage = ir.Storage("transient", 0, "index_checks")
        self.shown: dict[Value, list[str]] = {}
        for value in (v for node in graph.walk() for v in node.results if v.name):
            self.shown.setdefault(value.origin, []).append(value.name)
        self.arrays: dict[int, ir.Storage] = {}  # of all constants, by identity
        self.numbers: dict[tuple[str, bytes], ir.Entry] = {}

    def build(self) -> ir.Program:
        inputs = tuple(self._input(value) for value in self.graph.inputs)
        self._reserve_outputs()
        reserve_states(self, self.graph)
        for node in self.graph:
            self.emit(node)
        outputs = tuple(self._output(i) for i in range(len(self.graph.outputs)))
        return ir.Program(
            name=self.graph.name,
            inputs=inputs,
            outputs=outputs,
            dims=_find_dims(self.graph),
            kernels=tuple(self.kernels),
            steps=tuple(self.steps),
            equalities=(*self.graph.equalities, *hidden_sizes(self.graph, self.known)),
            checks=tuple(self.checks),
            check_storage=self.check_storage if self.checks else None,
        )

    def _input(self, value: Value) -> tuple[str, ir.Entry]:
        self.entries[value] = ir.Entry.alone("input", value.type, value.name)
        return value.name, self.entries[value]

    def _reserve_outputs(self) -> None:
        """Let the step that computes an output write it in place, through views if need be."""
        # The sizes of a view may be read after what it shows was written.
        reads = any(node.bound_sizes for node in self.graph)
        for value in self.graph.outputs:
            origin = value.origin
            if (
                origin.node is None
                or Trait.CONSTANT in origin.node.schema.traits
                or origin in self.outputs
                or (reads and origin.type.size_bytes != value.type.size_bytes)
            ):
                continue
            self.outputs[origin] = ir.Entry.alone("output", origin.type, value.name)

    def _output(self, index: int) -> tuple[str, ir.Entry]:
        value = self.graph.outputs[index]
        name = self.graph.output_names[index] if self.graph.output_names else value.name
        entry = self.entries[value]
        if entry.storage.kind != "output" or entry.storage in self.finished:
            target = ir.Entry.alone("output", value.type, name)
            self.steps.append(ir.Copy(entry, target))
            entry = target
        entry.storage.name = name
        self.finished.append(entry.storage)
        return name, entry

    def emit(self, node: Node) -> None:
        """Append the steps of a node."""
        if Trait.CONSTANT in node.schema.traits:
            self._constant(node)
        elif Trait.VIEW in node.schema.traits:
            source = self._entry(node, node.operands[0])
            self.entries[node.result] = ir.Entry(
                source.storage, node.result.type, source.offset_bytes
            )
        elif Trait.PART in node.schema.traits:
            self._pick_row(node)
        elif node in self.lowered:
            self._expect_sizes(node)
            self._dispatch(node, self.lowered[node])
        elif Trait.CALL in node.schema.traits:
            self._call(node)
        elif Trait.BINDS in node.schema.traits:
            emit_read(self, node)
        elif Trait.AGREES in node.schema.traits:
            emit_expectation(self, node)
        elif Trait.BRANCH in node.schema.traits:
            emit_if(self, node)
        elif Trait.LOOP in node.schema.traits:
            emit_while(self, node)
        else:
            self._host_call(node)

    def _pick_row(self, node: Node) -> None:
        table, place = (self._entry(node, v) for v in node.operands)
        row = ir.Entry.alone("row", node.result.type, node.result.name or "row")
        self.entries[node.result] = row
        self.steps.append(ir.PickRow(place, table, row))

    def signature_of(self, node: Node) -> ir.KernelSignature | None:
        """The kernel of a node, if it has one."""
        lowered = self.lowered.get(node)
        return None if lowered is None else self.kernels[lowered.kernel]

    def _constant(self, node: Node) -> None:
        """Where the bytes are; regions read those of the graph around them."""
        array = cast("Array", node.attributes["value"])
        storage = self.arrays.get(id(array))
        if storage is None or node in self.top:
            name = node.result.name or f"constant_{len(self.entries)}"
            storage = ir.Storage.of_array(array, name)
            self.arrays.setdefault(id(array), storage)
        self.entries[node.result] = ir.Entry(storage, node.result.type)

    def _entry(self, node: Node, value: Value | None) -> ir.Entry:
        if value is None or value not in self.entries:
            raise InternalError(
                f"operand {value} of '{node.op}' has no place", location=node.location
            )
        return self.entries[value]

    def _result(self, value: Value, step: str) -> ir.Entry:
        guard = _guard_of(value)
        if guard is not None:
            return self._check(guard, value)
        entry = self.outputs.get(value)
        if entry is None:
            entry = ir.Entry.alone("transient", value.type, value.name or step)
        entry = replace(entry, names=tuple(self.shown.get(value, ())))
        if entry.storage.kind == "block":
            allocate(self, entry)
        self.entries[value] = entry
        return entry

    def _expect_sizes(self, node: Node) -> None:
        """What is inside of a kernel is looked at where the kernel runs, unless every call does."""
        pairs = () if node in self.top else sizes_inside(node, self.known)
        if pairs:
            self.steps.append(ir.ExpectSizes(pairs, node.location))

    def _dispatch(self, node: Node, lowered: Lowered) -> None:
        kernel = self.kernels[lowered.kernel]
        operands = [self._entry(node, v) for v in node.present_operands]
        name = self.unique(kernel.name)
        operands += [self._numbers(array, name) for array in lowered.numbers]
        results = [self._result(v, name) for v in node.results]
        scratch = [
            self._scratch(kernel, index)
            for index in range(len(operands) + len(results), len(kernel.parameters))
        ]
        for place, result in updates_of(node):
            if operands[place].storage is not results[result].storage:
                self.steps.append(ir.Copy(operands[place], results[result]))
            operands[place] = results[result]
        arguments = (*operands, *results, *scratch)
        self.steps.append(
            ir.Dispatch(
                name=name,
                kernel=lowered.kernel,
                arguments=arguments,
                result_count=len(results) + len(scratch),
                grid=kernel.grid,
                dims=tuple(Expr.of_atom(s) for s in kernel.dims),
                location=node.location,
                flops=lowered.flops,
                bytes_moved=lowered.bytes_moved,
                nodes=nodes_of(node),
            )
        )

    def _numbers(self, array: Array, step: str) -> ir.Entry:
        """The place of numbers that kernels of one structure have different ones of; equal ones are there once."""
        key = array.dtype.str, array.tobytes()
        if key not in self.numbers:
            type_ = TensorType(from_numpy(array.dtype), array.shape)
            self.numbers[key] = ir.Entry(
                ir.Storage.of_array(array, f"{step}.numbers"), type_
            )
        return self.numbers[key]

    def _check(self, guard: Node, value: Value) -> ir.Entry:
        """The record that a check of indices writes, and what the host is to say of it."""
        place = len(self.checks) * CHECK_BYTES
        (size,), (low,), (high,) = (
            cast("tuple[Dim]", guard.attributes[name]) for name in ("size", "low", "high")
        )
        axis = cast("int", guard.attributes["axis"])
        self.checks.append(IndexCheck(guard.location.place, axis, size, low, high))
        self.check_storage.size_bytes = place + CHECK_BYTES
        return ir.Entry(self.check_storage, value.type, place)

    def _scratch(self, kernel: ir.KernelSignature, index: int) -> ir.Entry:
        name, type_ = kernel.parameters[index]
        return ir.Entry.alone("transient", type_, name)

    def _host_call(self, node: Node) -> None:
        operands = tuple(None if v is None else self._entry(node, v) for v in node.operands)
        name = self.unique(node.op)
        results = tuple(self._result(v, name) for v in node.results)
        given, origin = dict(node.attributes), (node.location, nodes_of(node))
        self.steps.append(ir.HostCall(name, node.op, given, operands, results, *origin))

    def _call(self, node: Node) -> None:
        symbol = cast("str", node.attributes["symbol"])
        operands = tuple(self._entry(node, v) for v in node.present_operands)
        name = self.unique(symbol)
        results = tuple(self._result(v, name) for v in node.results)
        origin = (node.location, nodes_of(node))
        self.steps.append(ir.ModuleCall(name, symbol, operands, results, *origin))

    def unique(self, name: str) -> str:
        """A name that no other step has."""
        count = self.names.get(name, 0)
        self.names[name] = count + 1
        return name if count == 0 else f"{name}.{count}"


def _guard_of(value: Value) -> Node | None:
    """The check whose finding `value` is, alone or as what a kernel yields."""
    node = value.node
    if node is not None and Trait.KERNEL in node.schema.traits:
        node = node.regions[0].outputs[value.index].node
    return node if node is not None and Trait.GUARD in node.schema.traits else None


def _find_dims(graph: Graph) -> tuple[Dimension, ...]:
    """Where a call finds the value of each symbol: the first input axis that is the bare symbol."""
    found: dict[str, Dimension] = {}
    for index, value in enumerate(graph.inputs):
        for axis, dim in enumerate(value.type.shape):
            symbol = only_atom(dim)
            if isinstance(symbol, Symbol):
                low, high = symbol.lower or 0, symbol.upper
                place = Dimension(symbol.name, index, axis, max(low, 0), high)
                found.setdefault(symbol.name, place)
    wanted = {s.name for v in graph.values() for d in v.type.shape for s in symbols(d)}
    read = {symbol.name for node in graph for symbol in node.bound_sizes}
    missing = sorted(wanted - set(found) - read)
    if missing:
        raise ModelError(
            f"dimensions {missing} are not the size of any input axis",
            location=graph.name,
            hint="fix the input shapes with input_shapes={'name': [..]} (--input-shape name=..)",
        )
    return tuple(found[name] for name in sorted(found))
