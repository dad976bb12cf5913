"""Bytes of one function ↔ tuples of instructions.

Iterates over the table in `isa`; both directions know fields, not opcodes.  Decoding checks that
every field lies inside the function, nothing more (`verifier` does); encoding what was decoded
gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import BY_PREFIX, EXTENSIONS, Opcode

Moves: TypeAlias = tuple[tuple[int, int], ...]
FieldValue: TypeAlias = (
    "int | bytes | tuple[int, ...] | Moves | tuple[tuple[int, Moves], ...]"
)
"""What a field holds: registers and numbers are ints (float immediates as their bits), strings
bytes, lists tuples, moves pairs (source, target), cases pairs (block, moves)."""


@final
@record
class Instruction:
    """One instruction; `pc` is its place in the function, `values` run along its fields."""

    opcode: Opcode
    values: tuple[FieldValue, ...]
    pc: int = 0

    def value(self, field: str) -> FieldValue:
        """The value of a field by name."""
        for item, value in zip(self.opcode.fields, self.values, strict=True):
            if item.name == field:
                return value
        raise KeyError(field)

    def targets(self) -> tuple[int, ...]:
        """The pcs of all blocks the instruction may go to."""
        found: list[int] = []
        for field, value in zip(self.opcode.fields, self.values, strict=True):
            if field.kind is FieldKind.TARGET:
                found.append(cast("int", value))
            elif field.kind is FieldKind.CASES:
                cases = cast("tuple[tuple[int, Moves], ...]", value)
                found.extend(target for target, _ in cases)
        return tuple(found)


# --- decoding ----------------------------------------------------------------------------------

_Reader = Callable[[ByteView, int, str], tuple[FieldValue, int]]


def decode_function(code: Buffer, location: str = "function") -> tuple[Instruction, ...]:
    """All instructions of one function.

    Args:
        code: the bytes of the function and nothing more.
        location: how errors call it.

    Raises:
        ArchiveError: an opcode is unknown or a field reaches past the end.
    """
    view = ByteView(code, location)
    found: list[Instruction] = []
    pc = 0
    while pc < view.size:
        instruction, pc = decode_instruction(view, pc)
        found.append(instruction)
    return tuple(found)


def decode_instruction(view: ByteView, pc: int) -> tuple[Instruction, int]:
    """The instruction at `pc` and the pc behind it."""
    first = view.u8(pc, "opcode")
    length = 2 if first in EXTENSIONS else 1
    prefix = bytes(view.sub(pc, length, "opcode"))
    opcode = BY_PREFIX.get(prefix)
    if opcode is None:
        raise ArchiveError(
            f"unknown opcode {prefix.hex(' ')} at {pc:#x}",
            location=view.location,
            hint="the module may come from a newer compiler than this runtime knows",
        )
    start, pc = pc, pc + length
    values: list[FieldValue] = []
    for field in opcode.fields:
        value, pc = reader_of(field)(view, pc, field.name)
        values.append(value)
    return Instruction(opcode, tuple(values), start), pc


def _read_u16(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    return view.u16(pc, subject), pc + 2


def _read_u32(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    return view.u32(pc, subject), pc + 4


def _read_i32(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    return view.i32(pc, subject), pc + 4


def _read_u64(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    return view.u64(pc, subject), pc + 8


def _read_i64(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    return view.i64(pc, subject), pc + 8


def _read_string(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    length = view.u16(pc, subject)
    return bytes(view.sub(pc + 2, length, subject)), pc + 2 + length


def _read_list(view: ByteView, pc: int, subject: str) -> tuple[tuple[int, ...], int]:
    pc += pc & 1
    count = view.u16(pc, subject)
    data = view.sub(pc + 2, 2 * count, subject)
    return struct.unpack(f"<{count}H", data), pc + 2 + 2 * count


def _read_moves(view: ByteView, pc: int, subject: str) -> tuple[Moves, int]:
    pc += pc & 1
    count = view.u16(pc, subject)
    data = view.sub(pc + 2, 4 * count, subject)
    flat = struct.unpack(f"<{2 * count}H", data)
    return tuple(zip(flat[::2], flat[1::2], strict=True)), pc + 2 + 4 * count


def _read_cases(view: ByteView, pc: int, subject: str) -> tuple[FieldValue, int]:
    count, pc = view.u16(pc, subject), pc + 2
    found: list[tuple[int, Moves]] = []
    for _ in range(count):
        target = view.u32(pc, subject)
        moves, pc = _read_moves(view, pc + 4, subject)
        found.append((target, moves))
    return tuple(found), pc


# --- encoding ----------------------------------------------------------------------------------

_Writer = Callable[[bytearray, FieldValue], None]


def encode_function(instructions: Sequence[Instruction]) -> bytes:
    """The bytes of one function; the `pc`s in the instructions are ignored, targets are kept."""
    code = bytearray()
    for instruction in instructions:
        encode_instruction(code, instruction)
    return bytes(code)


def encode_instruction(code: bytearray, instruction: Instruction) -> None:
    """Append one instruction to the bytes of its function (padding counts from its start)."""
    code += instruction.opcode.prefix
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        writer_of(field)(code, value)


def _write_number(layout: str) -> _Writer:
    packer = struct.Struct(layout)

    def write(code: bytearray, value: FieldValue) -> None:
        code.extend(packer.pack(value))

    return write


def _write_string(code: bytearray, value: FieldValue) -> None:
    text = cast("bytes", value)
    code += struct.pack("<H", len(text)) + text


def _write_list(code: bytearray, value: FieldValue) -> None:
    items = cast("tuple[int, ...]", value)
    code.extend(b"\0" * (len(code) & 1))
    code += struct.pack(f"<{len(items) + 1}H", len(items), *items)


def _write_moves(code: bytearray, value: FieldValue) -> None:
    pairs = cast("Moves", value)
    code.extend(b"\0" * (len(code) & 1))
    flat = [register for pair in pairs for register in pair]
    code += struct.pack(f"<{len(flat) + 1}H", len(pairs), *flat)


def _write_cases(code: bytearray, value: FieldValue) -> None:
    cases = cast("tuple[tuple[int, Moves], ...]", value)
    code += struct.pack("<H", len(cases))
    for target, moves in cases:
        code += struct.pack("<I", target)
        _write_moves(code, moves)


# --- fields ------------------------------------------------------------------------------------

_U32_KINDS: Final = (
    FieldKind.GLOBAL,
    FieldKind.RODATA,
    FieldKind.FUNCTION,
    FieldKind.TYPE,
    FieldKind.TARGET,
)
_CODECS: Final[dict[FieldKind, tuple[_Reader, _Writer]]] = {
    FieldKind.OPERAND: (_read_u16, _write_number("<H")),
    FieldKind.RESULT: (_read_u16, _write_number("<H")),
    FieldKind.OPERANDS: (_read_list, _write_list),
    FieldKind.RESULTS: (_read_list, _write_list),
    FieldKind.SEGMENTS: (_read_list, _write_list),
    FieldKind.STRING: (_read_string, _write_string),
    FieldKind.MOVES: (_read_moves, _write_moves),
    FieldKind.CASES: (_read_cases, _write_cases),
    **{kind: (_read_u32, _write_number("<I")) for kind in _U32_KINDS},
}
_IMMEDIATES: Final[dict[str, tuple[_Reader, _Writer]]] = {
    "i32": (_read_i32, _write_number("<i")),
    "i64": (_read_i64, _write_number("<q")),
    "f32": (_read_u32, _write_number("<I")),
    "f64": (_read_u64, _write_number("<Q")),
}


def _codec(field: Field) -> tuple[_Reader, _Writer]:
    if field.kind is FieldKind.IMMEDIATE:
        return _IMMEDIATES[field.bank]
    return _CODECS[field.kind]


def reader_of(field: Field) -> _Reader:
    """The function that decodes a field."""
    return _codec(field)[0]


def writer_of(field: Field) -> _Writer:
    """The function that encodes a field."""
    return _codec(field)[1]


# --- float immediates --------------------------------------------------------------------------


def float_from_bits(bits: int, bank: str) -> float:
    """The value of a float immediate, which instructions keep as bits."""
    layout = ("<I", "<f") if bank == "f32" else ("<Q", "<d")
    return struct.unpack(layout[1], struct.pack(layout[0], bits))[0]


def bits_from_float(value: float, bank: str) -> int:
    """The bits of a float immediate; values too large for `f32` become infinite."""
    if bank == "f64":
        return struct.unpack("<Q", struct.pack("<d", value))[0]
    try:
        return struct.unpack("<I", struct.pack("<f", value))[0]
    except OverflowError:
        return 0x7F80_0000 if value > 0 else 0xFF80_0000
