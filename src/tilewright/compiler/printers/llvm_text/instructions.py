"""Instructions of machines as calls of LLVM's intrinsics, in pieces of the width that there is.

What an instruction means and which forms it has is data (`kernel.instructions`).  Called by expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.kernel.ir import Form, Shifts
from tilewright.compiler.printers.llvm_text.arithmetic import Arithmetic
from tilewright.compiler.printers.llvm_text.types import Value, split_type, vector

_WORD_BITS = 32
_UNITS_PER_WORD = {"i8": 4, "i16": 2, "bfloat": 2, "i32": 1}


def apply_form(a: Arithmetic, form: Form, operands: Sequence[Value]) -> Value:
    """The results of all lanes, which are a multiple of the form's."""
    _, lanes = split_type(operands[0].type)
    if lanes == form.lanes:
        return _one(a, form, operands)
    result: Value | None = None
    for start in range(0, lanes, form.lanes):
        places = list(range(start, start + form.lanes))
        piece = _one(a, form, [a.shuffle(x, None, places) for x in operands])
        # As wide as the result, with the piece in its place.
        wide = a.shuffle(piece, None, [lane % form.lanes for lane in range(lanes)])
        order = [lane if lane < start else lanes + lane for lane in range(lanes)]
        result = wide if result is None else a.shuffle(result, wide, order)
    assert result is not None, "there are lanes"
    return result


def _one(a: Arithmetic, form: Form, operands: Sequence[Value]) -> Value:
    """The instruction itself."""
    total, *words = operands
    verb = "fadd" if split_type(total.type)[0] == "float" else "add"
    table = [Value(_numbers(form.table), total.type)] if form.table else []
    order = [Value(_bytes(form.order), vector("i8", len(form.order)))] if form.order else []
    packed = [_elements(a, form, word) for word in words]
    for shifts in form.rounds or (((),) * len(packed),):
        given = [_shifted(a, x, steps) for x, steps in zip(packed, shifts, strict=True)]
        given = [*table, *given, *order] if form.adds else [total, *table, *given, *order]
        result = _result(a, form, given, total.type)
        total = a.binary(verb, total, result) if form.adds else result
    return total


def _result(a: Arithmetic, form: Form, given: Sequence[Value], type_: str) -> Value:
    """What the instruction computes, as words of a type."""
    if form.order:
        moved = a.writer.call(given[0].type, form.llvm, *given, speculate=False)
        return a.reinterpret(moved, type_)
    if not form.joins:
        return a.writer.call(type_, form.llvm, *given, speculate=False)
    pairs = vector("i16", form.lanes * _UNITS_PER_WORD["i16"])
    sums = a.writer.call(pairs, form.llvm, *given, speculate=False)
    return a.writer.call(type_, form.joins, sums, a.integer(sums, 1), speculate=False)


def _elements(a: Arithmetic, form: Form, word: Value) -> Value:
    """A packed operand in units of the form."""
    count = _UNITS_PER_WORD[form.unit]
    type_ = vector(form.unit, form.lanes * count)
    bits = int(split_type(word.type)[0].removeprefix("i")) // count
    if bits == _WORD_BITS // count:
        return a.reinterpret(word, type_)
    short = a.reinterpret(word, vector(f"i{bits}", form.lanes * count))
    return a.convert("sext", short, form.unit)


def _numbers(table: Sequence[float]) -> str:
    """A vector of small whole numbers, which decimals hold exactly."""
    return f"<{', '.join(f'float {number:.1f}' for number in table)}>"


def _bytes(order: Sequence[int]) -> str:
    return f"<{', '.join(f'i8 {n}' for n in order)}>"


def _shifted(a: Arithmetic, value: Value, steps: Shifts) -> Value:
    """A packed operand after some operations."""
    for verb, number in steps:
        value = a.binary(verb, value, a.integer(value, number))
    return value
