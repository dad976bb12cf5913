"""Handlers of opcodes about `!vm.buffer`."""

from __future__ import annotations

from typing import Final

from tilewright.formats.bytecode.encoding import Instruction
from tilewright.runtime.vm import integers
from tilewright.runtime.vm.frame import Refs, State, Step, Words
from tilewright.runtime.vm.handlers.global_values import LAYOUTS, STORE_MASKS
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    as_buffer,
    ref,
    word,
)
from tilewright.runtime.vm.hash import sip_hash

_HASH_COST: Final = 64  # hashing goes byte by byte in Python


def buffer_alloc(instruction: Instruction, context: CodeContext) -> Step:
    """A new buffer of zeros."""
    del context
    length, result = word(instruction, "length"), ref(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        r[result] = s.zeros(w[length])

    return step


def buffer_clone(instruction: Instruction, context: CodeContext) -> Step:
    """A copy of a range."""
    del context
    source, result = ref(instruction, "source"), ref(instruction, "result")
    offset, length = word(instruction, "offset"), word(instruction, "length")

    def step(w: Words, r: Refs, s: State) -> None:
        data = as_buffer(r[source]).range(w[offset], w[length])
        copy = s.zeros(w[length])
        copy.data[:] = data
        r[result] = copy

    return step


def buffer_length(instruction: Instruction, context: CodeContext) -> Step:
    """Bytes in a buffer."""
    del context
    buffer, result = ref(instruction, "buffer"), word(instruction, "result")

    def step(w: Words, r: Refs, s: State) -> None:
        del s
        w[result] = len(as_buffer(r[buffer]).data)

    return step


def buffer_copy(instruction: Instruction, context: CodeContext) -> Step:
    """Copy bytes between buffers that may be the same."""
    del context
    source, target = ref(instruction, "source"), ref(instruction, "target")
    source_offset, target_offset, length = (
        word(instruction, f) for f in ("source_offset", "target_offset", "length")
    )

    def step(w: Words, r: Refs, s: State) -> None:
        s.charge(w[length])
        data = as_buffer(r[source]).range(w[source_offset], w[length])
        as_buffer(r[target]).writable(w[target_offset], w[length])[:] = data

    return step


def buffer_compare(instruction: Instruction, context: CodeContext) -> Step:
    """1 if two ranges are equal."""
    del context
    left, right = ref(instruction, "left"), ref(instruction, "right")
    left_offset, right_offset, length, result = (
        word(instruction, f) for f in ("left_offset", "right_offset", "length", "result")
    )

    def step(w: Words, r: Refs, s: State) -> None:
        s.charge(w[length])
        a = as_buffer(r[left]).range(w[left_offset], w[length])
        b = as_buffer(r[right]).range(w[right_offset], w[length])
        w[result] = int(a == b)

    return step


def buffer_load(bank: str) -> Handler:
    """Read a number; the offset counts numbers."""
    layout = LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = ref(instruction, "buffer")
        offset, result = word(instruction, "offset"), word(instruction, "result")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            w[result] = as_buffer(r[buffer]).load(layout, w[offset] * layout.size)

        return step

    return handler


def buffer_store(bank: str) -> Handler:
    """Write a number; the offset counts numbers."""
    layout = LAYOUTS[bank if bank in LAYOUTS else f"{bank}.u"]
    mask = STORE_MASKS.get(bank)

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = ref(instruction, "buffer")
        offset, value = word(instruction, "offset"), word(instruction, "value")

        def step(w: Words, r: Refs, s: State) -> None:
            del s
            number = w[value] if mask is None else w[value] & mask
            as_buffer(r[buffer]).store(layout, w[offset] * layout.size, number)

        return step

    return handler


def buffer_fill(bank: str) -> Handler:
    """Repeat a number; offset and length count numbers."""
    layout = LAYOUTS[bank if bank in LAYOUTS else f"{bank}.u"]
    mask = STORE_MASKS.get(bank)

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        buffer = ref(instruction, "buffer")
        offset, length, value = (
            word(instruction, f) for f in ("offset", "length", "value")
        )

        def step(w: Words, r: Refs, s: State) -> None:
            s.charge(w[length] * layout.size)
            number = w[value] if mask is None else w[value] & mask
            size = layout.size
            as_buffer(r[buffer]).fill(layout, w[offset] * size, w[length] * size, number)

        return step

    return handler


def buffer_hash(instruction: Instruction, context: CodeContext) -> Step:
    """Hash of a range."""
    del context
    buffer = ref(instruction, "buffer")
    offset, length, result = (word(instruction, f) for f in ("offset", "length", "result"))

    def step(w: Words, r: Refs, s: State) -> None:
        s.charge(w[length] * _HASH_COST)
        data = as_buffer(r[buffer]).range(w[offset], w[length])
        w[result] = integers.wrap_i64(sip_hash(data))

    return step
