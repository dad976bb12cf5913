"""Types that the interpreter and its handlers share.

A function's code becomes blocks of steps: Python functions bound to their registers.  `w` is the
bank of words (an i64 or f64 lives in the first word of its pair), `r` that of references, `s` the
module's state in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from tilewright.base.budget import CURRENT, Budget
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.calling_convention import CallingConvention
from tilewright.runtime.vm.buffer import VmBuffer, held_zeros
from tilewright.runtime.vm.module import Callee
from tilewright.runtime.vm.ref import Instance
from tilewright.runtime.vm.stack import Stack

Words = list[Any]
Refs = list[Any]
Step = Callable[[Words, Refs, "State"], object]
Leave = Callable[[Words, Refs, "State"], "int | tuple[object, ...]"]
"""Ends a block: the index of the next block, or the results of the function."""
Tracer = Callable[[str, Sequence[object]], object]
Debugger = Callable[[], object]


@final
@dataclass(slots=True)
class Block:
    """Straight-line code; `code` are the instructions of the steps, the last one that of `leave`."""

    steps: list[Step]
    leave: Leave
    code: list[Instruction]
    pc: int  # of the block's marker


@final
@dataclass(slots=True)
class Function:
    """A function ready to be interpreted; `name` is for people."""

    index: int
    name: str
    convention: CallingConvention
    word_registers: int
    ref_registers: int
    argument_places: tuple[tuple[bool, int], ...]  # (is a reference, register)
    blocks: list[Block] = field(default_factory=list)

    def registers(self, arguments: Sequence[Any]) -> tuple[Words, Refs]:
        """Words and references at the beginning of a call."""
        words: Words = [0] * self.word_registers
        refs: Refs = [None] * self.ref_registers
        for (is_ref, place), value in zip(self.argument_places, arguments, strict=True):
            (refs if is_ref else words)[place] = value
        return words, refs

    def named_registers(self, values: Mapping[str, object]) -> tuple[Words, Refs]:
        """Words and references of a call under way, where `w0`, `r3` and so on have values."""
        words: Words = [values.get(f"w{place}", 0) for place in range(self.word_registers)]
        refs: Refs = [values.get(f"r{place}") for place in range(self.ref_registers)]
        return words, refs


@final
@dataclass(slots=True)
class State:
    """A bytecode module in one context."""

    instance: Instance
    words: bytearray
    refs: list[Any]
    imports: list[Callee | None]
    rodata: Sequence[VmBuffer]
    call: Callable[[int, Sequence[object]], tuple[object, ...]]
    stack: Stack
    tracer: Tracer | None = None
    waits: list[Callee | None] = field(default_factory=list)  # see `ModuleState.waits`
    budget: Budget | None = None  # of modules that are not trusted
    debugger: Debugger | None = None

    def charge(self, length: int) -> None:
        """Account for work on so many bytes, where somebody counts."""
        if self.budget is not None and CURRENT.account is not None:
            CURRENT.account.spend_bytes(length)

    def zeros(self, length: int) -> VmBuffer:
        """A new buffer, whose memory counts as long as anything refers to it."""
        if self.budget is None:
            return VmBuffer.allocate(length)
        self.charge(length)
        return VmBuffer(held_zeros(self.budget, length))
