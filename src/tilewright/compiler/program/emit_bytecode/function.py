"""A function under construction, with the vocabulary of the `hal` module and of dimensions.

Bit patterns of the module's parameters (memory types, usages, stages) have their names here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast, final

from tilewright.base.record import record
from tilewright.base.symbolic import Atom, Dim, Expr, Operation, Symbol, bounds
from tilewright.base.symbolic import symbol as symbol_of
from tilewright.compiler.program.emit_bytecode.module import IMPORTS, ModuleTables
from tilewright.formats.bytecode.assembler import Argument, FunctionBuilder
from tilewright.formats.bytecode.drafts import Block, Register
from tilewright.formats.calling_convention import parse_calling_convention

Given = Register | Dim | str | None
"""What an import may be given: a value, a number or size, a text, or a null reference."""

ANY_QUEUE: Final = -1
MEMORY_DEVICE_LOCAL: Final = 48  # device visible and local
USAGE: Final = 0xC03  # transfer source and target, storage read and write
IMMUTABLE: Final = 1 << 19
CATEGORIES: Final = 3  # transfer and dispatch
ONE_SHOT: Final = 1
ENCODING_DENSE: Final = 1
AFTER: Final = 4 | 8 | 16  # dispatch, transfer, retire
BEFORE: Final = 1 | 4 | 8  # issue, dispatch, transfer
READ: Final = 1
CPU_CATEGORY: Final = "hal.cpu"
STATUS_INVALID_ARGUMENT: Final = 3
STATUS_INCOMPATIBLE: Final = 18
LARGEST_SIZE: Final = 1 << 56
TOO_LARGE: Final = "sizes are too large for this model"


def _listed(value: object) -> Sequence[object]:
    assert isinstance(value, list | tuple), "its convention says so"
    return cast("Sequence[object]", value)


@final
@record
class Place:
    """A storage at run time: a buffer and where the storage begins in it."""

    buffer: Register
    offset: Dim


@final
class HalFunction:
    """A builder with the vocabulary of the `hal` module."""

    def __init__(self, module: ModuleTables, calling_convention: str) -> None:
        self.module: ModuleTables = module
        self.build: FunctionBuilder = FunctionBuilder(calling_convention)
        self.dims: dict[Dim, Register] = {}

    def bind(self, name: str, value: Register) -> None:
        """Let the symbol called `name` have this value from here on."""
        self.dims[symbol_of(name)] = value

    def i32(self, value: int) -> Register:
        return self.build.constant("i32", value)

    def i64(self, value: int) -> Register:
        return self.build.constant("i64", value)

    def rodata(self, segment: int) -> Register:
        return self.build.emit("const.ref.rodata", segment)

    def text(self, text: str) -> Register:
        return self.rodata(self.module.text(text))

    def call(
        self, name: str, *given: Given | Sequence[Given | Sequence[Given]]
    ) -> Register:
        """Call an import, with its arguments as its calling convention has them.

        Returns: its only result, or a meaningless register.
        """
        convention = parse_calling_convention(IMPORTS[name])
        plain: list[Register] = []
        arguments: list[Argument] = []
        for banks, value in zip(convention.arguments, given, strict=True):
            if isinstance(banks, tuple):
                arguments.append([self._entry(banks, each) for each in _listed(value)])
            else:
                plain.append(self._register(banks, value))
                arguments.append(plain[-1])
        ordinal = self.module.import_(name)
        if convention.is_variadic:
            written = self.build.call_variadic(ordinal, arguments, convention.results)
        else:
            written = self.build.call(ordinal, plain, convention.results)
        return written[0] if written else Register(-1, "")

    def _entry(self, banks: Sequence[str], entry: object) -> Register | list[Register]:
        """An entry of a list: one register, or one for each bank."""
        if len(banks) == 1:
            return self._register(banks[0], entry)
        return [self._register(b, x) for b, x in zip(banks, _listed(entry), strict=True)]

    def _register(self, bank: str, value: object) -> Register:
        """A number, size, text, null reference or register as a register of a bank."""
        if isinstance(value, Register):
            return value
        if isinstance(value, str):
            return self.text(value)
        if value is None:
            return self.build.emit("const.ref.zero")
        assert isinstance(value, int | Expr), "what may be given"
        return self.narrow(value) if bank == "i32" else self.size(value)

    def assign(self, moves: Sequence[tuple[Register, Register]]) -> None:
        """Give registers the values of others, all at once."""
        if not moves:
            return
        block = Block(tuple(target for _, target in moves))
        self.build.branch(block, *(source for source, _ in moves))
        self.build.place(block)

    def device(self) -> Register:
        return self.call("hal.devices.get", 0)

    def allocate(self, allocator: Register, size: Register | Dim) -> Register:
        """A device-local buffer."""
        kind = (ANY_QUEUE, MEMORY_DEVICE_LOCAL, USAGE)
        return self.call("hal.allocator.allocate", allocator, *kind, size)

    def wait(self, fence: Register, subject: str) -> None:
        """Block until `fence` is reached; fail with its status."""
        status = self.call("hal.fence.await", -1, 0, [fence])
        failed, reached = self.build.block("i32"), self.build.block()
        self.build.branch_if(status, failed, reached, [status])
        (code,) = self.build.place(failed)
        self.build.fail(code, f"{subject} failed")
        self.build.place(reached)

    def load(self, buffer: Register, offset: Register) -> Register:
        """The i32 at a byte of a buffer."""
        return self.call("hal.buffer.load", buffer, offset, 4)

    def refuse(self, condition: Register, message: str) -> None:
        """Fail with `message` when the i32 `condition` is not zero."""
        failed, fine = self.build.block(), self.build.block()
        self.build.branch_if(condition, failed, fine)
        self.build.place(failed)
        self.build.fail(self.i32(STATUS_INVALID_ARGUMENT), message)
        self.build.place(fine)

    def refuse_less(
        self, left: Register | Dim, right: Register | Dim, message: str
    ) -> None:
        """Fail with `message` when one i64 is less than another."""
        pair = self._register("i64", left), self._register("i64", right)
        self.refuse(self.build.emit("cmp.lt.i64.s", *pair), message)

    def refuse_above(self, most: Register | int, size: Register | Dim) -> None:
        """Fail where a size is larger than that, or below zero."""
        pair = self._register("i64", most), self._register("i64", size)
        self.refuse(self.build.emit("cmp.lt.i64.u", *pair), TOO_LARGE)

    # --- sizes ---------------------------------------------------------------------------------

    def size(self, dim: Dim) -> Register:
        """An i64 with the value of a dimension expression."""
        if isinstance(dim, int):
            return self.i64(dim)
        if dim not in self.dims:
            self.dims[dim] = self._sum(dim)
        return self.dims[dim]

    def _sum(self, value: Expr) -> Register:
        total: Register | None = self.i64(value.constant) if value.constant else None
        for monomial, factor in value.terms:
            term = self._term(monomial, factor)
            total = term if total is None else self.build.emit("add.i64", total, term)
        assert total is not None
        return total

    def _term(self, monomial: Sequence[Atom], factor: int) -> Register:
        """A product; the call fails where it is larger than any memory, so that no sum of some leaves 64 bits."""
        emit, term = self.build.emit, self.i64(factor)
        room, part = self.i64(LARGEST_SIZE // abs(factor)), self.i64(1)
        for index, atom in enumerate(monomial):
            if index:
                room = emit("div.i64.s", room, emit("max.i64.s", part, self.i64(1)))
            part = self._atom(atom)
            term = part if index == 0 and factor == 1 else emit("mul.i64", term, part)
            # Where a size is 0 and nothing is left to compute, what is made of it may be below its bounds.
            lowest = None if isinstance(atom, Operation) else atom.bounds()[0]
            if lowest is None or lowest < 0:
                part = emit("abs.i64", part)
            self.refuse_above(room, part)
        return term

    def _atom(self, atom: Atom) -> Register:
        if isinstance(atom, Operation):
            return self._operation(atom)
        assert isinstance(atom, Symbol), "programs have no data-dependent sizes"
        return self.dims[symbol_of(atom.name)]

    def _operation(self, atom: Operation) -> Register:
        left, right = self.size(atom.left), self.size(atom.right)
        if atom.op in ("min", "max"):
            return self.build.emit(f"{atom.op}.i64.s", left, right)
        opcode = "div.i64.s" if atom.op == "floordiv" else "rem.i64.s"
        value = self.build.emit(opcode, left, right)
        low = bounds(atom.left)[0]
        if low is not None and low >= 0:
            return value
        # The instructions round toward zero; the sign of the remainder tells where that differs.
        rest = value if atom.op == "mod" else self.build.emit("rem.i64.s", left, right)
        borrow = self.build.emit("shr.i64.s", rest, self.i32(63))
        if atom.op == "mod":
            borrow = self.build.emit("and.i64", borrow, right)
        return self.build.emit("add.i64", value, borrow)

    def narrow(self, dim: Dim) -> Register:
        """The same as an i32."""
        if isinstance(dim, int):
            return self.i32(dim)
        return self.build.emit("trunc.i64.i32", self.size(dim))
