"""Control flow of a program in bytecode: labels become blocks, conditions and sizes are loaded from buffers.

A dimension expression that was computed before is known in a block only where every way to the block passes what
computed it; the blocks of regions nest, so what all branches to a block know is enough.  Called by `main`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import cast, final

from tilewright.base.errors import InternalError, condition_text
from tilewright.base.symbolic import Dim, Expr, Symbol, floordiv, names_in, symbol, symbols
from tilewright.compiler.program import ir
from tilewright.compiler.program.emit_bytecode.function import HalFunction
from tilewright.formats.bytecode.drafts import Block, Register

Span = Callable[[ir.Entry], tuple[Register, Register, Register]]
Binder = ir.ReadSizes | ir.Rebind
Groups = dict[ir.Storage, Binder | None]
Moves = Sequence[tuple[Register, Register]]
"""Registers, and those that get their values."""


@final
class Flow:
    """The blocks of one function.

    Args:
        function: that is built.
        span: buffer, offset and length of an entry.
        changing: the symbols that several steps bind: each has one register, whoever writes it.
    """

    def __init__(
        self, function: HalFunction, span: Span, changing: Iterable[Symbol] = ()
    ) -> None:
        self.function: HalFunction = function
        self._span: Span = span
        self._blocks: dict[ir.Label, Block] = {}
        self._known: dict[ir.Label, dict[Dim, Register]] = {}
        self._rows: int = 0
        self._changing: dict[Symbol, Register] = {
            size: function.build.register("i64") for size in changing
        }

    def emit(self, step: ir.FlowStep) -> None:
        """Append a step; nothing is recorded that did not run."""
        build = self.function.build
        match step:
            case ir.Label():
                if build.is_open:
                    build.branch(self._target(step))
                build.place(self._block(step))
                self.function.dims = dict(self._known[step])
                # On the way back to the head of a loop these are others.
                self._forget(self._changing)
            case ir.Jump():
                build.branch(self._target(step.target))
            case ir.Branch():
                go_on = build.block()
                build.branch_if(self._bit(step), go_on, self._target(step.otherwise))
                build.place(go_on)
            case ir.ReadSizes():
                self._read(step)
            case ir.Rebind() | ir.Allocate():
                raise InternalError("memory changes hands where storages have places")

    def _block(self, label: ir.Label) -> Block:
        if label not in self._blocks:
            self._blocks[label] = self.function.build.block()
        return self._blocks[label]

    def _target(self, label: ir.Label) -> Block:
        """The block of a label that is reached from here."""
        block, here = self._block(label), self.function.dims
        if not block.placed:
            known = self._known.get(label, here)
            self._known[label] = {d: r for d, r in known.items() if here.get(d) is r}
        return block

    def _bit(self, step: ir.Branch) -> Register:
        buffer, offset, _ = self._span(step.condition)
        return self.function.call("hal.buffer.load", buffer, offset, 1)

    def _read(self, step: ir.ReadSizes) -> None:
        function, build = self.function, self.function.build
        buffer, start, _ = self._span(step.source)
        for place, size in enumerate(step.sizes):
            at = build.emit("add.i64", start, function.i64(8 * place))
            value = self._load(buffer, at)
            self._check_bounds(size, value, ir.place_of(step), "the data gives a size")
            self._bind(size, value)

    def rebind(self, step: ir.Rebind, moves: Moves) -> None:
        """New values for sizes, of what all were, and of other registers at the same time."""
        function = self.function
        values = [function.size(dim) for dim in step.values]
        for size, value in zip(step.sizes, values, strict=True):
            self._check_bounds(size, value, ir.place_of(step), "a size is")
        kept = [self._changing.get(size) for size in step.sizes]
        pairs = zip(values, kept, strict=True)
        function.assign([*((v, k) for v, k in pairs if k is not None), *moves])
        for size, value, register in zip(step.sizes, values, kept, strict=True):
            self._bind(size, register or value)

    def _check_bounds(self, size: Symbol, value: Register, where: str, name: str) -> None:
        told, refuse_less = condition_text(where), self.function.refuse_less
        least, most = max(size.lower or 0, 0), size.upper
        refuse_less(value, least, told or f"{where}: {name} less than {least}")
        if most is not None:
            refuse_less(most, value, told or f"{where}: {name} greater than {most}")

    def _load(self, buffer: Register, start: Register) -> Register:
        """The i64 at a byte of a buffer."""
        function, build = self.function, self.function.build
        low, high = (
            function.load(buffer, build.emit("add.i64", start, function.i64(half)))
            for half in (0, 4)
        )
        upper = build.emit("shl.i64", build.emit("ext.i32.i64.s", high), function.i32(32))
        return build.emit("or.i64", upper, build.emit("ext.i32.i64.u", low))

    def _bind(self, size: Symbol, value: Register) -> None:
        """Let a symbol have a value; what was computed from that of another trip is not known any more."""
        self._forget([size])
        self.function.bind(size.name, value)

    def _forget(self, sizes: Collection[Symbol]) -> None:
        """Let nothing be known that was computed of these symbols; where those that change are stays known."""
        self.function.dims = {
            dim: register
            for dim, register in self.function.dims.items()
            if symbols(dim).isdisjoint(sizes) or register in self._changing.values()
        }

    def row_offset(self, step: ir.PickRow) -> Dim:
        """Where the row begins in its table, in bytes."""
        function, build = self.function, self.function.build
        buffer, start, _ = self._span(step.place)
        given = self._load(buffer, start)
        table, row = step.table.type.size_bytes, step.row.type.size_bytes
        assert isinstance(row, int), "rows have known sizes"
        rows = floordiv(table, row)
        count, zero = function.size(rows), function.i64(0)
        back = build.emit("add.i64", given, count)
        is_back = build.emit("cmp.lt.i64.s", given, zero)
        place = build.emit("select.i64", is_back, back, given)
        last = function.size(rows - 1)
        place = build.emit("min.i64.s", build.emit("max.i64.s", place, zero), last)
        self._rows += 1
        dim = symbol(f"row${self._rows}", 0)
        (name,) = symbols(dim)
        self._bind(name, place)
        return dim * row


@final
class Binders:
    """Who gives symbols their values.

    Attributes:
        steps: by symbol, those that do, in order.
    """

    def __init__(self, program: ir.Program) -> None:
        self.steps: dict[Symbol, list[Binder]] = {}
        self._order: dict[Binder, int] = {}
        for index, step in enumerate(program.steps):
            if isinstance(step, ir.ReadSizes | ir.Rebind):
                self._order[step] = index
                for size in step.sizes:
                    self.steps.setdefault(size, []).append(step)

    @property
    def changing(self) -> list[Symbol]:
        """The symbols that several steps bind."""
        return [size for size, steps in self.steps.items() if len(steps) > 1]

    def last(self, dims: Iterable[Dim]) -> Binder | None:
        """The first step that binds the last of the symbols in some sizes; None where inputs decide them."""
        first = {
            self.steps[size][0]
            for dim in dims
            for size in symbols(dim)
            if size in self.steps
        }
        return max(first, key=self._order.__getitem__, default=None)

    def completed(self, step: Binder) -> list[Binder]:
        """What `last` gives for sizes of which this step binds the last one."""
        return list(dict.fromkeys(self.steps[size][0] for size in step.sizes))


def storage_groups(program: ir.Program, binders: Binders) -> Groups:
    """The first step that binds the last size of each storage; None where inputs decide it."""
    sizes: dict[ir.Storage, list[Dim]] = {s: [s.size_bytes] for s in program.storages}
    # Outputs are views of their shape; of other storages views may have shapes that are read later.
    for _, entry in program.outputs:
        sizes[entry.storage] += entry.type.shape
    return {storage: binders.last(dims) for storage, dims in sizes.items()}


def late_names(step: ir.Step) -> frozenset[str]:
    """The symbols in the types and attributes of a call out."""
    names = names_in(d for e in ir.entries_of(step) for d in e.type.shape)
    if not isinstance(step, ir.HostCall):
        return names
    for value in step.attributes.values():
        if isinstance(value, tuple):
            parts = cast("tuple[object, ...]", value)
            names |= names_in(part for part in parts if isinstance(part, Expr))
    return names
