"""Types that the interpreter and its handlers share.

A function's code becomes blocks of steps: Python functions bound to their registers.  `w` is the
bank of words (an i64 or f64 lives in the first word of its pair), `r` that of references, `s` the
module's state in the context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from tilewright.formats.calling_convention import CallingConvention
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.module import Callee
from tilewright.runtime.vm.ref import Instance
from tilewright.runtime.vm.stack import Stack

Words = list[Any]
Refs = list[Any]
Step = Callable[[Words, Refs, "State"], object]
Leave = Callable[[Words, Refs, "State"], "int | tuple[object, ...]"]
"""Ends a block: the index of the next block, or the results of the function."""
Tracer = Callable[[str, Sequence[object]], object]


@final
@dataclass(slots=True)
class Block:
    """Straight-line code; `pcs` are the places of the steps, the last one of `leave`."""

    steps: list[Step]
    leave: Leave
    pcs: list[int]


@final
@dataclass(slots=True)
class Function:
    """A function ready to be interpreted."""

    index: int
    convention: CallingConvention
    word_registers: int
    ref_registers: int
    argument_places: tuple[tuple[bool, int], ...]  # (is a reference, register)
    blocks: list[Block] = field(default_factory=list)


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
    debugger: Callable[[], object] | None = None  # stops at `break` and `cond_break`
