"""Handlers of opcodes that read and write the module's globals.

`LAYOUTS` says how the numbers of each type lie in memory, for buffers too.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final, cast

from tilewright.base.status import StatusCode, failure
from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.isa import (
    WORD_MASK,
)
from tilewright.runtime.vm.frame import Refs, State, Step, Words
from tilewright.runtime.vm.handlers.operands import (
    CodeContext,
    Handler,
    moves_ref,
    ref,
    word,
)

LAYOUTS: Final[Mapping[str, Struct]] = {
    "i8.u": Struct("<B"),
    "i8.s": Struct("<b"),
    "i16.u": Struct("<H"),
    "i16.s": Struct("<h"),
    "i32": Struct("<i"),
    "i64": Struct("<q"),
    "f32": Struct("<f"),
    "f64": Struct("<d"),
}
STORE_MASKS: Final[Mapping[str, int]] = {"i8": 0xFF, "i16": 0xFFFF}


def global_load(bank: str, *, indirect: bool) -> Handler:
    """Read a number among the globals."""
    layout = LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        result = word(instruction, "result")
        if indirect:
            register = word(instruction, "place")

            def step(w: Words, r: Refs, s: State) -> None:
                del r
                w[result] = layout.unpack_from(s.words, _place(w[register], layout, s))[0]

            return step
        place = cast("int", instruction.value("place"))

        def direct(w: Words, r: Refs, s: State) -> None:
            del r
            w[result] = layout.unpack_from(s.words, place)[0]

        return direct

    return handler


def global_store(bank: str, *, indirect: bool) -> Handler:
    """Write a number among the globals."""
    layout = LAYOUTS[bank]

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        value = word(instruction, "value")
        if indirect:
            register = word(instruction, "place")

            def step(w: Words, r: Refs, s: State) -> None:
                del r
                layout.pack_into(s.words, _place(w[register], layout, s), w[value])

            return step
        place = cast("int", instruction.value("place"))

        def direct(w: Words, r: Refs, s: State) -> None:
            del r
            layout.pack_into(s.words, place, w[value])

        return direct

    return handler


def _place(offset: int, layout: Struct, s: State) -> int:
    if offset < 0 or offset + layout.size > len(s.words):
        raise failure(
            StatusCode.OUT_OF_RANGE,
            f"global at byte {offset} of {len(s.words)} bytes of globals",
        )
    return offset


def _global_ref(index: int, s: State) -> int:
    if not 0 <= index < len(s.refs):
        raise failure(StatusCode.OUT_OF_RANGE, f"global reference {index} of {len(s.refs)}")
    return index


def global_load_ref(*, indirect: bool) -> Handler:
    """Read a reference among the globals."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        del context
        result = ref(instruction, "result")
        place = cast("int", instruction.value("place"))

        def step(w: Words, r: Refs, s: State) -> None:
            index = _global_ref(w[place & WORD_MASK], s) if indirect else place
            r[result] = s.refs[index]

        return step

    return handler


def global_store_ref(*, indirect: bool) -> Handler:
    """Write a reference among the globals."""

    def handler(instruction: Instruction, context: CodeContext) -> Step:
        value = ref(instruction, "value")
        moves = moves_ref(instruction, "value", context)
        place = cast("int", instruction.value("place"))

        def step(w: Words, r: Refs, s: State) -> None:
            index = _global_ref(w[place & WORD_MASK], s) if indirect else place
            s.refs[index] = r[value]
            if moves:
                r[value] = None

        return step

    return handler
