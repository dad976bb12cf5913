"""Kernel statements as LLVM control flow: loops with phis, conditionals, grid variables.

Loops test at the end, behind one test at the entry where the extent may be zero.  REGISTER slots
that a loop writes become its phis.  Called by `function`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, assert_never, final

from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.grid import THREAD_KINDS
from tilewright.compiler.kernel.ir import (
    Barrier,
    For,
    If,
    LoopKind,
    Prefetch,
    Statement,
    Store,
)
from tilewright.compiler.printers.llvm_text import interleave
from tilewright.compiler.printers.llvm_text.body_summary import BodySummary
from tilewright.compiler.printers.llvm_text.expressions import Expressions
from tilewright.compiler.printers.llvm_text.indices import LoopFrame
from tilewright.compiler.printers.llvm_text.registers import Registers, Slot
from tilewright.compiler.printers.llvm_text.types import Value
from tilewright.compiler.printers.llvm_text.writer import Block, FunctionWriter

GRID_AXES: Final = {LoopKind.GRID_X: "x", LoopKind.GRID_Y: "y", LoopKind.GRID_Z: "z"}


@final
class Statements:
    """Emits the statements of one kernel."""

    def __init__(
        self,
        writer: FunctionWriter,
        expressions: Expressions,
        registers: Registers,
        summaries: dict[int, BodySummary],
        workgroup_id: Callable[[str], Value],
    ) -> None:
        self.writer: FunctionWriter = writer
        self.e: Expressions = expressions
        self.registers: Registers = registers
        self.summaries: dict[int, BodySummary] = summaries
        self.workgroup_id: Callable[[str], Value] = workgroup_id
        self.vector_registers: int = expressions.target.vector_registers

    def run(self, body: Sequence[Statement]) -> None:
        """Emit statements in order."""
        for run in interleave.runs(body, self.vector_registers):
            values = self.e.in_turns(run.ahead) if len(run.ahead) > 1 else {}
            for statement in run.statements:
                self.e.begin_statement()
                self._statement(statement, values.get(id(statement)))

    def _statement(self, statement: Statement, value: Value | None) -> None:
        match statement:
            case Store():
                self.e.memory.store(statement, value)
            case For():
                self._for(statement)
            case If():
                self._if(statement)
            case Prefetch():
                self.e.memory.prefetch(statement)
            case Barrier():
                raise InternalError("a barrier: threads were not made loops")
            case _:
                assert_never(statement)

    # --- loops -----------------------------------------------------------------------------

    def _for(self, loop: For) -> None:
        if loop.kind in GRID_AXES:
            self.e.indices.symbols[loop.var.key] = self.workgroup_id(GRID_AXES[loop.kind])
            self.run(loop.body)
            return
        if loop.extent == 0:
            return
        if loop.kind in THREAD_KINDS:
            raise InternalError(f"threads of '{loop.var.key}' were not made a loop")
        if loop.kind is LoopKind.VECTOR:
            raise InternalError(f"loop '{loop.var.key}' was not turned into lanes")
        self._loop(loop)

    def _loop(self, loop: For) -> None:
        writer, indices, memory = self.writer, self.e.indices, self.e.memory
        extent = indices.value(loop.extent)
        low, _ = indices.interval(loop.extent)
        certain = low is not None and low >= 1
        summary = self.summaries[id(loop)]
        memory.forget({store.buffer for store in summary.stores})
        slots = self.registers.written(summary.stores)
        before = writer.scope.block
        enter = "" if certain else writer.pure(
            "i1", f"icmp sgt i64 {extent.text}, 0", extent
        ).text  # fmt: skip
        header = writer.block("loop")
        scope = writer.push(header)
        frame = LoopFrame(loop.var.key, scope, not summary.has_loops)
        _collect_users(summary, frame)
        counter = Value(writer.fresh("i"), "i64", scope.level)
        indices.symbols[loop.var.key] = counter
        indices.frames.append(frame)
        firsts = {slot: memory.slot_value(slot) for slot in slots}
        for slot in slots:
            memory.slots[slot] = Value(writer.fresh("r"), firsts[slot].type, scope.level)
        phis = dict(memory.slots)
        self.run(loop.body)
        last = scope.block
        last.lines.extend(scope.latch)
        last.lines.append(f"{counter.text}.next = add nuw nsw i64 {counter.text}, 1")
        header.phis.append(
            _phi(f"{counter.text}", "i64", before, "0", last, f"{counter.text}.next")
        )
        for name, type_, first, following in frame.phis:
            header.phis.append(_phi(name, type_, before, first, last, following))
        for slot in slots:
            phi, first, end = phis[slot], firsts[slot], memory.slots[slot]
            header.phis.append(_phi(phi.text, phi.type, before, first.text, last, end.text))
        last.lines.append(
            f"%again{counter.text[2:]} = icmp slt i64 {counter.text}.next, {extent.text}"
        )
        following_block = writer.block("done")
        last.terminator = (
            f"br i1 %again{counter.text[2:]}, label %{header.label}, "
            f"label %{following_block.label}"
        )
        before.terminator = (
            f"br label %{header.label}" if certain
            else f"br i1 {enter}, label %{header.label}, label %{following_block.label}"
        )  # fmt: skip
        indices.frames.pop()
        del indices.symbols[loop.var.key]
        writer.pop(following_block)
        alive = self._alive(summary, slots)
        self._merge(alive, firsts, before, last, following_block, direct=certain)

    def _alive(self, summary: BodySummary, slots: Sequence[Slot]) -> list[Slot]:
        """Those of what a loop or conditional wrote that something may read after it; the others have no value from here on."""
        for slot in slots:
            if slot.buffer not in summary.later:
                self.e.memory.slots.pop(slot, None)
        return [slot for slot in slots if slot.buffer in summary.later]

    def _merge(
        self,
        slots: Sequence[Slot],
        firsts: dict[Slot, Value],
        before: Block,
        last: Block,
        after: Block,
        *,
        direct: bool,
    ) -> None:
        """Give slots their values where two paths meet (or `last` alone leads on)."""
        memory, level = self.e.memory, self.writer.level
        for slot in slots:
            end, first = memory.slots[slot], firsts[slot]
            if direct or end.text == first.text:
                memory.slots[slot] = Value(end.text, end.type, level)
                continue
            name = self.writer.fresh("m")
            after.phis.append(_phi(name, end.type, before, first.text, last, end.text))
            memory.slots[slot] = Value(name, end.type, level)

    # --- conditionals ----------------------------------------------------------------------

    def _if(self, node: If) -> None:
        writer, memory = self.writer, self.e.memory
        condition = self.e.value(node.condition)
        summary = self.summaries[id(node)]
        slots = self.registers.written(summary.stores)
        firsts = {slot: memory.slot_value(slot) for slot in slots}
        before = writer.scope.block
        then = writer.block("then")
        scope = writer.push(then, barrier=True)
        self.run(node.body)
        last = scope.block
        after = writer.block("join")
        last.terminator = f"br label %{after.label}"
        before.terminator = (
            f"br i1 {condition.text}, label %{then.label}, label %{after.label}"
        )
        writer.pop(after)
        alive = self._alive(summary, slots)
        for slot in alive:
            memory.slots.setdefault(slot, firsts[slot])
        self._merge(alive, firsts, before, last, after, direct=False)


def _phi(
    name: str, type_: str, before: Block, first: str, last: Block, following: str
) -> str:
    return (
        f"{name} = phi {type_} [ {first}, %{before.label} ], [ {following}, %{last.label} ]"
    )


def _collect_users(summary: BodySummary, frame: LoopFrame) -> None:
    """Which addresses move with the loop, by step."""
    if not frame.innermost:
        return
    for node in summary.accesses():
        moving = frame.split(node.indices[0])
        if moving is None or moving[0] == 0:
            continue
        step, rest = moving
        base: Dim = rest if isinstance(rest, int) else rest - rest.constant
        frame.users.setdefault(step, set()).add((node.buffer, base))


__all__ = ["Statements"]
