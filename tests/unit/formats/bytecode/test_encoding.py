from __future__ import annotations

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.base.errors import ArchiveError
from tilewright.formats.bytecode.encoding import (
    Instruction,
    bits_from_float,
    decode_function,
    encode_function,
    float_from_bits,
)
from tilewright.formats.bytecode.isa import OPCODES, Opcode, opcode_by_name
from tilewright.formats.vmfb import read_archive
from unit.formats.bytecode.instructions import INSTRUCTIONS, value


@given(st.lists(INSTRUCTIONS, max_size=6))
def test_what_is_encoded_is_decoded(instructions: list[Instruction]) -> None:
    code = encode_function(instructions)
    decoded = decode_function(code)
    assert [(item.opcode, item.values) for item in decoded] == [
        (item.opcode, item.values) for item in instructions
    ]
    assert encode_function(decoded) == code


@pytest.mark.thinned(4)
@settings(max_examples=5)
@given(st.data())
@pytest.mark.parametrize("opcode", OPCODES, ids=lambda opcode: opcode.name)
def test_every_opcode_is_encoded_and_decoded(opcode: Opcode, data: st.DataObject) -> None:
    values = tuple(data.draw(value(field)) for field in opcode.fields)
    code = encode_function([Instruction(opcode, values)])
    assert [item.values for item in decode_function(code)] == [values]


def test_code_of_iree_keeps_its_bytes(iree_archive: bytes) -> None:
    module = read_archive(iree_archive)
    assert module.functions
    for index in range(len(module.functions)):
        code = bytes(module.code(index))
        instructions = decode_function(code)
        assert encode_function(instructions) == code
        blocks = sum(item.opcode.is_block for item in instructions)
        assert blocks == module.functions[index].block_count


def test_lists_are_padded_from_the_start_of_the_function() -> None:
    call = Instruction(opcode_by_name("call"), (1, (2, 3), ()))
    block = Instruction(opcode_by_name("block"), ())
    assert encode_function([call]).hex(" ") == "58 01 00 00 00 00 02 00 02 00 03 00 00 00"
    assert (
        encode_function([block, call]).hex(" ")
        == "79 58 01 00 00 00 02 00 02 00 03 00 00 00"
    )


@pytest.mark.parametrize(
    "code", ["ff", "e0", "e0 ff", "e1 80", "8a", "0d 01 00", "58 00 00 00 00"]
)
def test_unknown_and_cut_off_instructions_are_refused(code: str) -> None:
    with pytest.raises(ArchiveError, match="@f: "):
        decode_function(bytes.fromhex(code), "@f")


def test_an_unknown_opcode_is_named() -> None:
    with pytest.raises(ArchiveError, match="unknown opcode e0 f0 at 0x1"):
        decode_function(bytes.fromhex("79e0f0"))


def test_a_value_is_found_by_its_field() -> None:
    (item,) = decode_function(bytes.fromhex("0d 07 00 00 00 03 00"))
    assert (item.value("value"), item.value("result")) == (7, 3)
    with pytest.raises(KeyError):
        item.value("nothing")


@given(st.floats(width=32))
def test_floats_are_kept_as_bits(number: float) -> None:
    bits = bits_from_float(number, "f32")
    back = float_from_bits(bits, "f32")
    assert back == number or (math.isnan(back) and math.isnan(number))
    assert bits_from_float(1e300, "f32") == 0x7F80_0000
    assert bits_from_float(-1e300, "f32") == 0xFF80_0000
    assert bits_from_float(1.5, "f64") == struct.unpack("<Q", struct.pack("<d", 1.5))[0]


def test_signalling_nans_survive_the_round_trip() -> None:
    code = bytes.fromhex("e0 05 01 00 80 7f 00 00")
    assert encode_function(decode_function(code)) == code
