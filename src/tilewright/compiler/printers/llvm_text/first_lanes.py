"""The first lanes of a vector in memory, where stores under masks take long and only a call knows how many lanes there are.

All lanes, a half of them, a quarter, and so on, each behind a test of one bit of their number: rows of one length take the
same way each time.  Called by memory of this room.
"""

from __future__ import annotations

from typing import Final

from tilewright.compiler.printers.llvm_text.arithmetic import Arithmetic
from tilewright.compiler.printers.llvm_text.types import Value, split_type
from tilewright.compiler.printers.llvm_text.writer import FunctionWriter

MOST_STORES: Final = 12
"""Stores under masks of a function that are written out so; more make long code, of which little runs in a call."""


def store_first_lanes(
    a: Arithmetic, value: Value, place: Value, unit: str, count: Value
) -> None:
    """Store the first `count` lanes, an i32 from 0 to all of them, at `place`; there is a power of two of lanes."""
    writer, size, rest, at = a.writer, split_type(value.type)[1], value, place
    whole = size
    while size:
        part = further = rest
        if size < whole:
            low, high = (list(range(first, first + size)) for first in (0, size))
            part, further = a.shuffle(rest, None, low), a.shuffle(rest, None, high)
            before = a.binary("and", count, Value(str(-2 * size), "i32"))
            at = writer.local("ptr", f"getelementptr {unit}, {place}, {before}")
        bit = a.binary("and", count, Value(str(size), "i32"))
        around = _store_where(
            writer,
            a.compare("icmp ne", bit, a.integer(bit, 0)),
            f"store {part}, {at}, align 1",
        )
        if 1 < size < whole:
            then, after = writer.blocks[-2], writer.blocks[-1]
            rest = Value(writer.fresh("m"), part.type, writer.level)
            after.phis.append(
                f"{rest.text} = phi {rest.type} [ {part.text}, %{around} ], [ {further.text}, %{then.label} ]"
            )
        size //= 2


def _store_where(writer: FunctionWriter, condition: Value, store: str) -> str:
    """Run `store` in a block of its own where the condition holds; the label of the block in front."""
    around, then = writer.scope.block, writer.block("piece")
    writer.push(then, barrier=True)
    writer.effect(store)
    after = writer.block("rest")
    then.terminator = f"br label %{after.label}"
    around.terminator = f"br {condition}, label %{then.label}, label %{after.label}"
    writer.pop(after)
    return around.label
