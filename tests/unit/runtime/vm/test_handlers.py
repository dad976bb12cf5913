"""Opcodes and handlers are the same set."""

from __future__ import annotations

from tilewright.formats.bytecode.isa import OPCODES
from tilewright.runtime.vm import floats, integers
from tilewright.runtime.vm.handlers.table import ROWS


def test_every_opcode_has_a_handler_and_no_handler_is_left_over() -> None:
    assert set(ROWS) == {opcode.name for opcode in OPCODES}


def test_every_operation_belongs_to_an_opcode() -> None:
    names = {opcode.name for opcode in OPCODES}
    assert set(integers.OPERATIONS) | set(floats.OPERATIONS) <= names
    assert not set(integers.OPERATIONS) & set(floats.OPERATIONS)
