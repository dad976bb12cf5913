"""Writes one LLVM function: blocks, scopes, value numbering, hoisting.

Every open loop or conditional is a `Scope`.  A pure instruction goes to the outermost scope that
has all its operands, into the block that is open there, which ends right before the inner loop:
common subexpressions and loop-invariant code need no optimiser.  Knows LLVM's syntax, nothing of
kernels.  Called by the other files of this room.
"""

from __future__ import annotations

from typing import final

from tilewright.base.record import field, record
from tilewright.compiler.printers.llvm_text.types import Value

Key = tuple[object, ...]


@final
@record
class Masked:
    """What was stored under a mask: a load under the same one gives it, and zero in the other lanes."""

    value: Value
    mask: Value


@final
@record(eq=False, frozen=False)
class Block:
    """A basic block under construction."""

    label: str
    phis: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    terminator: str = ""


@final
@record(eq=False, frozen=False)
class Scope:
    """One nesting level: the function, a loop body or the body of a conditional.

    Attributes:
        block: the block that grows now.
        header: the first block of the level (where a loop has its phis).
        values: pure values by what computes them.
        loads: what memory was read into, or has been given, until a store may change it.
        barrier: expressions are not hoisted out of this level (body of a conditional).
        latch: lines for the end of a loop's last block.
    """

    level: int
    block: Block
    header: Block
    entry: str = ""
    barrier: bool = False
    values: dict[Key, Value] = field(default_factory=dict)
    loads: dict[Key, Value | Masked] = field(default_factory=dict)
    latch: list[str] = field(default_factory=list)


@final
class FunctionWriter:
    """Collects the text of one function."""

    def __init__(self) -> None:
        entry = Block("entry")
        self.blocks: list[Block] = [entry]
        self.scopes: list[Scope] = [Scope(0, entry, entry)]
        self.declarations: dict[str, str] = {}
        self.barrier: int = 0
        self._names: int = 0

    @property
    def level(self) -> int:
        """The depth of the current scope."""
        return len(self.scopes) - 1

    @property
    def scope(self) -> Scope:
        """The innermost scope."""
        return self.scopes[-1]

    def fresh(self, prefix: str = "v") -> str:
        """A new SSA name."""
        self._names += 1
        return f"%{prefix}{self._names}"

    # --- instructions ----------------------------------------------------------------------

    def pure(
        self, type_: str, text: str, *operands: Value, speculate: bool = True
    ) -> Value:
        """A pure instruction, shared with equal ones and hoisted as far as its operands go.

        Args:
            type_: the type of the result.
            text: the instruction without its name; also what equality means.
            operands: what `text` mentions.
            speculate: whether it may leave a conditional.
        """
        level = 0 if speculate else self.barrier
        for operand in operands:
            if operand.level > level:
                level = operand.level
        scope = self.scopes[level]
        known = scope.values.get((text,))
        if known is not None:
            return known
        name = self.fresh()
        scope.block.lines.append(f"{name} = {text}")
        value = Value(name, type_, level)
        scope.values[text,] = value
        return value

    def here(self, type_: str, text: str) -> Value:
        """An instruction that stays where it is (a load)."""
        name = self.fresh()
        scope = self.scopes[-1]
        scope.block.lines.append(f"{name} = {text}")
        return Value(name, type_, scope.level)

    def local(self, type_: str, text: str) -> Value:
        """A pure instruction shared within the current block only (addresses)."""
        scope = self.scopes[-1]
        key = (scope.block.label, text)
        known = scope.values.get(key)
        if known is None:
            known = scope.values[key] = self.here(type_, text)
        return known

    def effect(self, text: str) -> None:
        """An instruction without a result."""
        self.scopes[-1].block.lines.append(text)

    def call(
        self, type_: str, function: str, *operands: Value, speculate: bool = True
    ) -> Value:
        """A pure call of an intrinsic, declared on first use."""
        self.declare(type_, function, *(o.type for o in operands))
        arguments = ", ".join(map(str, operands))
        return self.pure(
            type_, f"call {type_} @{function}({arguments})", *operands, speculate=speculate
        )

    def declare(self, type_: str, function: str, *parameters: str) -> None:
        """Declare an intrinsic."""
        if function not in self.declarations:
            self.declarations[function] = (
                f"declare {type_} @{function}({', '.join(parameters)})"
            )

    def metadata(self, content: str) -> str:
        """The name of a node of metadata, of which functions of one module share the numbers."""
        told = [key for key in self.declarations if key.startswith("!")]
        key = f"!{content}"
        if key not in told:
            self.declarations[key] = f"!{len(told)} = {key}"
            told.append(key)
        return f"!{told.index(key)}"

    # --- control flow ----------------------------------------------------------------------

    def block(self, prefix: str) -> Block:
        """A new block at the end of the function."""
        self._names += 1
        block = Block(f"{prefix}{self._names}")
        self.blocks.append(block)
        return block

    def push(self, block: Block, *, barrier: bool = False) -> Scope:
        """Enter a nesting level whose code starts in `block`."""
        outer = self.scopes[-1]
        scope = Scope(len(self.scopes), block, block, outer.block.label, barrier)
        self.scopes.append(scope)
        self._update_barrier()
        return scope

    def pop(self, next_block: Block) -> None:
        """Leave a nesting level; the outer one goes on in `next_block`."""
        self.scopes.pop()
        self.scopes[-1].block = next_block
        self._update_barrier()

    def _update_barrier(self) -> None:
        self.barrier = max((s.level for s in self.scopes if s.barrier), default=0)

    def text(self) -> list[str]:
        """The lines of the body."""
        lines: list[str] = []
        for block in self.blocks:
            lines.append(f"{block.label}:")
            lines.extend(f"  {line}" for line in block.phis)
            lines.extend(f"  {line}" for line in block.lines)
            lines.append(f"  {block.terminator}")
        return lines
