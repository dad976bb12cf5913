from __future__ import annotations

import pickle
import re
from collections import Counter

from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import (
    BY_PREFIX,
    EXTENSIONS,
    OPCODES,
    TEMPLATE_FIELD,
    Opcode,
    opcode_by_name,
)

BANKS = {"i32", "i64", "f32", "f64", "ref"}


def test_the_table_has_every_row_once() -> None:
    assert len(OPCODES) == 265
    assert max(Counter(opcode.name for opcode in OPCODES).values()) == 1
    assert len(BY_PREFIX) == len(OPCODES)
    assert {len(prefix) for prefix in BY_PREFIX} == {1, 2}
    assert not {prefix[0] for prefix in BY_PREFIX if len(prefix) == 1} & set(EXTENSIONS)


def test_every_row_is_whole() -> None:
    for opcode in OPCODES:
        assert_whole(opcode)


def assert_whole(opcode: Opcode) -> None:
    names = [field.name for field in opcode.fields]
    assert len(set(names)) == len(names)
    assert opcode.meaning
    assert re.fullmatch(r"\d+\.\d+", opcode.since)
    for field in opcode.fields:
        assert field.name.isidentifier()
        registers = (
            FieldKind.OPERAND,
            FieldKind.RESULT,
            FieldKind.IMMEDIATE,
            FieldKind.GLOBAL,
        )
        lists = (FieldKind.OPERANDS, FieldKind.RESULTS)
        if field.kind in registers:
            assert field.bank in BANKS
        elif field.kind in lists:
            assert field.bank in BANKS | {"any"}
        else:
            assert field.bank == ""
    shown = set(TEMPLATE_FIELD.findall(opcode.text))
    assert shown <= set(names)
    hidden = [field for field in opcode.fields if field.name not in shown]
    assert all(field.kind in (FieldKind.RESULT, FieldKind.RESULTS) for field in hidden)


def test_moves_follow_the_block_they_lead_to() -> None:
    before = {
        opcode.name: opcode.fields[index - 1].kind
        for opcode in OPCODES
        for index, field in enumerate(opcode.fields)
        if field.kind is FieldKind.MOVES
    }
    assert {"br", "cond_br"} <= before.keys()
    assert set(before.values()) == {FieldKind.TARGET}


def test_terminators_are_those_that_leave_a_block() -> None:
    assert {opcode.name for opcode in OPCODES if opcode.terminator} == {
        *("br", "cond_br", "br_table", "return", "fail", "yield", "break", "cond_break"),
        *("call.yieldable", "call.variadic.yieldable"),
    }


def test_an_extension_opcode_needs_its_feature_and_its_type() -> None:
    for opcode in OPCODES:
        expected = EXTENSIONS[opcode.prefix[0]] if len(opcode.prefix) == 2 else 0
        assert opcode.feature == expected
        if opcode.feature:
            assert ("f32", "f64")[opcode.feature - 1] in opcode.name


def test_opcodes_keep_their_identity_through_pickling() -> None:
    opcode = opcode_by_name("add.i64")
    assert pickle.loads(pickle.dumps(opcode)) is opcode
