"""Random instructions, one strategy per field kind of the table."""

from __future__ import annotations

from hypothesis import strategies as st

from tilewright.formats.bytecode.encoding import Instruction
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import BLOCK, OPCODES

WORDS = st.integers(0, 0x7FFE)
REFS = st.integers(0, 0x3FFF).map(lambda n: n | 0x8000)
READ_REFS = st.builds(lambda n, move: n | (0x4000 if move else 0), REFS, st.booleans())
ANY = st.one_of(WORDS, READ_REFS)
MOVES = st.lists(
    st.one_of(st.tuples(WORDS, WORDS), st.tuples(READ_REFS, REFS)), max_size=4
).map(tuple)
ORDINALS = st.integers(0, 0xFFFF_FFFF)


def register(bank: str) -> st.SearchStrategy[int]:
    if bank == "ref":
        return READ_REFS
    if bank in ("i64", "f64"):
        return WORDS.map(lambda n: n & ~1)
    return ANY if bank == "any" else WORDS


def immediate(bank: str) -> st.SearchStrategy[int]:
    bits = 64 if bank.endswith("64") else 32
    if bank.startswith("f"):
        return st.integers(0, (1 << bits) - 1)
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def value(field: Field) -> st.SearchStrategy[object]:
    if field.kind in (FieldKind.OPERAND, FieldKind.RESULT):
        return register(field.bank)
    if field.kind in (FieldKind.OPERANDS, FieldKind.RESULTS):
        return st.lists(register(field.bank), max_size=5).map(tuple)
    return {
        FieldKind.SEGMENTS: st.lists(st.integers(0, 0xFFFF), max_size=4).map(tuple),
        FieldKind.IMMEDIATE: immediate(field.bank or "i32"),
        FieldKind.STRING: st.binary(max_size=12),
        FieldKind.MOVES: MOVES,
        FieldKind.CASES: st.lists(st.tuples(ORDINALS, MOVES), max_size=3).map(tuple),
    }.get(field.kind, ORDINALS)


INSTRUCTIONS = st.sampled_from(OPCODES).flatmap(
    lambda opcode: st.tuples(*(value(field) for field in opcode.fields)).map(
        lambda values: Instruction(opcode, values)
    )
)
PLAIN = INSTRUCTIONS.filter(lambda item: item.opcode is not BLOCK)
