"""Control flow of a program in bytecode: labels become blocks, conditions and sizes are loaded from buffers.

A dimension expression that was computed before is known in a block only where every way to the block passes what
computed it; the blocks of regions nest, so what all branches to a block know is enough.  Called by `main`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast, final

from tilewright.base.symbolic import Dim, Expr, Symbol, floordiv, symbol, symbols
from tilewright.compiler.program.emit_bytecode.function import (
    STATUS_INVALID_ARGUMENT,
    HalFunction,
)
from tilewright.compiler.program.ir import (
    Branch,
    Entry,
    FlowStep,
    HostCall,
    Jump,
    Label,
    PickRow,
    Program,
    ReadSizes,
    Step,
    Storage,
    operands_of,
    place_of,
    results_of,
)
from tilewright.formats.bytecode.drafts import Block, Register

Span = Callable[[Entry], tuple[Register, Register, Register]]
Groups = dict[Storage, ReadSizes | None]


@final
class Flow:
    """The blocks of one function.

    Args:
        function: that is built.
        span: buffer, offset and length of an entry.
    """

    def __init__(self, function: HalFunction, span: Span) -> None:
        self.function: HalFunction = function
        self._span: Span = span
        self._blocks: dict[Label, Block] = {}
        self._known: dict[Label, dict[Dim, Register]] = {}
        self._rows: int = 0

    def emit(self, step: FlowStep) -> None:
        """Append a step; nothing is recorded that did not run."""
        build = self.function.build
        match step:
            case Label():
                if build.is_open:
                    build.branch(self._target(step))
                build.place(self._block(step))
                self.function.dims = dict(self._known[step])
            case Jump():
                build.branch(self._target(step.target))
            case Branch():
                go_on = build.block()
                build.branch_if(self._bit(step), go_on, self._target(step.otherwise))
                build.place(go_on)
            case ReadSizes():
                self._read(step)

    def _block(self, label: Label) -> Block:
        if label not in self._blocks:
            self._blocks[label] = self.function.build.block()
        return self._blocks[label]

    def _target(self, label: Label) -> Block:
        """The block of a label that is reached from here."""
        block, here = self._block(label), self.function.dims
        if not block.placed:
            known = self._known.get(label, here)
            self._known[label] = {d: r for d, r in known.items() if here.get(d) is r}
        return block

    def _bit(self, step: Branch) -> Register:
        buffer, offset, _ = self._span(step.condition)
        function = self.function
        return function.call("hal.buffer.load", [buffer, offset, function.i32(1)], "i32")

    def _read(self, step: ReadSizes) -> None:
        function, build = self.function, self.function.build
        buffer, start, _ = self._span(step.source)
        for place, size in enumerate(step.sizes):
            at = build.emit("add.i64", start, function.i64(8 * place))
            value = self._load(buffer, at)
            where = f"{place_of(step)}: the data gives a size"
            least = max(size.lower or 0, 0)
            self._refuse_less(value, function.i64(least), f"{where} less than {least}")
            if size.upper is not None:
                most = function.i64(size.upper)
                self._refuse_less(most, value, f"{where} greater than {size.upper}")
            self._bind(size, value)

    def _load(self, buffer: Register, start: Register) -> Register:
        """The i64 at a byte of a buffer."""
        function, build = self.function, self.function.build
        low, high = (
            function.call(
                "hal.buffer.load",
                [
                    buffer,
                    build.emit("add.i64", start, function.i64(half)),
                    function.i32(4),
                ],
                "i32",
            )
            for half in (0, 4)
        )
        upper = build.emit("shl.i64", build.emit("ext.i32.i64.s", high), function.i32(32))
        return build.emit("or.i64", upper, build.emit("ext.i32.i64.u", low))

    def _bind(self, size: Symbol, value: Register) -> None:
        """Let a symbol have a value; what was computed from that of another trip is not known any more."""
        self.function.dims = {
            dim: register
            for dim, register in self.function.dims.items()
            if size not in symbols(dim)
        }
        self.function.bind(size.name, value)

    def row_offset(self, step: PickRow) -> Dim:
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

    def _refuse_less(self, left: Register, right: Register, message: str) -> None:
        build = self.function.build
        failed, fine = build.block(), build.block()
        build.branch_if(build.emit("cmp.lt.i64.s", left, right), failed, fine)
        build.place(failed)
        build.fail(self.function.i32(STATUS_INVALID_ARGUMENT), message)
        build.place(fine)


def storage_groups(program: Program) -> Groups:
    """The step that reads the last size of each storage; None where inputs decide it."""
    order = {step: i for i, step in enumerate(program.steps) if isinstance(step, ReadSizes)}
    reads = {size.name: step for step in order for size in step.sizes}
    sizes: dict[Storage, list[Dim]] = {s: [s.size_bytes] for s in program.storages}
    # Outputs are views of their shape; of other storages views may have shapes that are read later.
    for _, entry in program.outputs:
        sizes[entry.storage] += entry.type.shape
    return {
        storage: max(
            (reads[n] for n in names_in(dims) if n in reads), key=order.__getitem__, default=None
        )
        for storage, dims in sizes.items()
    }  # fmt: skip


def entries_of(program: Program) -> list[Entry]:
    """Every entry of a program, in order."""
    entries = [e for _, e in (*program.inputs, *program.outputs)]
    for step in program.steps:
        entries += [*operands_of(step), *results_of(step)]
    return entries


def names_in(sizes: Iterable[Dim]) -> frozenset[str]:
    """The names of the symbols in some sizes."""
    return frozenset(s.name for size in sizes for s in symbols(size))


def late_names(step: Step) -> frozenset[str]:
    """The symbols in the types and attributes of a call out."""
    entries = (*operands_of(step), *results_of(step))
    names = names_in(d for e in entries for d in e.type.shape)
    if not isinstance(step, HostCall):
        return names
    for value in step.attributes.values():
        if isinstance(value, tuple):
            parts = cast("tuple[object, ...]", value)
            names |= names_in(part for part in parts if isinstance(part, Expr))
    return names
