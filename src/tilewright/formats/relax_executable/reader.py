"""Reads Relax executables: bytes that a stranger wrote, so every count and index is looked at.

Source: TVM 0.27, `src/runtime/vm/executable.cc`; 0.25 writes the same.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.dlpack_types import LAYOUT, DataType
from tilewright.formats.parameters.tvm import read_tensor
from tilewright.formats.relax_executable.records import (
    Argument,
    ArgumentKind,
    Branch,
    Call,
    Constant,
    Function,
    FunctionKind,
    Goto,
    Instruction,
    RelaxExecutable,
    Return,
    ShapeConstant,
    TensorConstant,
)
from tilewright.formats.relax_executable.verifier import verify_executable

_MAGIC: Final = 0xD225DE2F4214151D
_MAGIC_WITH_SCOPES: Final = _MAGIC + 1
_VERSION: Final = "0.14"
_FUNCTION_BYTES_AT_LEAST: Final = 4 + 6 * 8
_SCOPE_BYTES_AT_LEAST: Final = 16
_CONSTANT_BYTES_AT_LEAST: Final = 8
_WORD: Final = 8
_VALUE_BITS: Final = 56
_FUNCTION_KINDS: Final = frozenset(kind.value for kind in FunctionKind)
_ARGUMENT_KINDS: Final = frozenset(kind.value for kind in ArgumentKind)
_F64: Final = struct.Struct("<d")


def read_relax_executable(
    data: Buffer, location: str = "relax executable"
) -> RelaxExecutable:
    """The executable, verified: every register, jump and index is one that exists.

    Args:
        data: the file; tensors of constants are views of it.
        location: how messages call it.

    Raises: ArchiveError.
    """
    cursor = ByteCursor(ByteView(data, location))
    magic = cursor.u64("magic number")
    if magic not in (_MAGIC, _MAGIC_WITH_SCOPES):
        raise ArchiveError(
            f"no Relax executable: it begins with {magic:#x}", location=location
        )
    version = cursor.text("version")
    if version != _VERSION:
        raise ArchiveError(
            f"version '{version}' of Relax executables, expected '{_VERSION}'",
            location=location,
            hint="compile the model again with apache-tvm 0.25 or later",
        )
    count = cursor.counted(
        cursor.u64("number of functions"), _FUNCTION_BYTES_AT_LEAST, "table of functions"
    )
    executable = RelaxExecutable(
        location=location,
        functions=tuple(_read_function(cursor, index) for index in count),
        memory_scopes=_read_scopes(cursor) if magic == _MAGIC_WITH_SCOPES else {},
        constants=_read_constants(cursor),
        instructions=_read_code(cursor),
    )
    if cursor.offset != cursor.view.size:
        raise ArchiveError(
            f"{cursor.view.size - cursor.offset} bytes behind the end", location=location
        )
    verify_executable(executable)
    return executable


def _read_function(cursor: ByteCursor, index: int) -> Function:
    kind = cursor.i32("kind of a function")
    name = cursor.text("name of a function")
    if kind not in _FUNCTION_KINDS:
        raise ArchiveError(
            f"function {index} ('{name}') is of the unknown kind {kind}",
            location=cursor.view.location,
        )
    first, end, arguments, registers = (cursor.i64("range of a function") for _ in range(4))
    names = cursor.counted(cursor.u64("number of parameters"), 8, "names of parameters")
    pace(8 + len(names))
    return Function(
        kind=FunctionKind(kind),
        name=name,
        first=first,
        end=end,
        argument_count=arguments,
        register_count=registers,
        parameter_names=tuple(cursor.text("name of a parameter") for _ in names),
    )


def _read_scopes(cursor: ByteCursor) -> Mapping[int, str]:
    count = cursor.u64("number of memory scopes")
    return {
        cursor.i64("constant of a memory scope"): cursor.text("memory scope")
        for _ in cursor.counted(count, _SCOPE_BYTES_AT_LEAST, "table of memory scopes")
    }


# --- constants ----------------------------------------------------------------------------------


def _read_constants(cursor: ByteCursor) -> tuple[Constant, ...]:
    count = cursor.u64("number of constants")
    found: list[Constant] = []
    for index in cursor.counted(count, _CONSTANT_BYTES_AT_LEAST, "table of constants"):
        pace(4)
        kind = cursor.i32("kind of a constant")
        read = _CONSTANTS.get(kind)
        if read is None:
            raise ArchiveError(
                f"constant {index} is of the unknown kind {kind}",
                location=cursor.view.location,
            )
        found.append(read(cursor))
    return tuple(found)


def _read_tensor(cursor: ByteCursor) -> TensorConstant:
    record = read_tensor(cursor, "constant")
    data = cursor.view.sub(record.offset, record.length, "constant")
    return TensorConstant(record.element_type, record.shape, data)


def _read_shape(cursor: ByteCursor) -> ShapeConstant:
    sizes = cursor.counted(cursor.u64("rank of a shape"), 8, "shape")
    return ShapeConstant(tuple(cursor.i64("size") for _ in sizes))


def _read_type(cursor: ByteCursor) -> DataType:
    code, bits, lanes = cursor.view.unpack(
        LAYOUT, cursor.skip(LAYOUT.size, "data type"), "data type"
    )
    return DataType(code, bits, lanes)


def _read_float(cursor: ByteCursor) -> float:
    return cursor.view.unpack(_F64, cursor.skip(8, "number"), "number")[0]


# By the type index of tvm-ffi.
_CONSTANTS: Final[Mapping[int, Callable[[ByteCursor], Constant]]] = {
    1: lambda cursor: cursor.i64("number"),
    3: _read_float,
    5: _read_type,
    65: lambda cursor: cursor.text("text"),
    69: _read_shape,
    70: _read_tensor,
}


# --- code ---------------------------------------------------------------------------------------


def _read_code(cursor: ByteCursor) -> tuple[Instruction, ...]:
    offsets, words = _read_words(cursor, "instructions"), _read_words(cursor, "code")
    code, location = words.tolist(), cursor.view.location
    found: list[Instruction] = []
    at = 0
    for index, offset in enumerate(offsets.tolist()):
        pace(4)
        where = f"{location}: instruction {index}"
        if offset != at:
            raise ArchiveError(f"begins at word {offset}, expected {at}", location=where)
        instruction, at = _decode(code, at, where)
        found.append(instruction)
    if at != len(code):
        raise ArchiveError(
            f"{len(code) - at} words of code belong to no instruction", location=location
        )
    return tuple(found)


def _read_words(cursor: ByteCursor, subject: str) -> npt.NDArray[np.int64]:
    count = cursor.counted(cursor.u64(f"number of {subject}"), _WORD, subject)
    start = cursor.skip(len(count) * _WORD, subject)
    return np.frombuffer(cursor.view.data[start : cursor.offset], dtype="<i8")


def _decode(code: list[int], at: int, where: str) -> tuple[Instruction, int]:
    """The instruction at a word, and where the next one begins."""
    opcode = code[at] if at < len(code) else None
    length = {1: 4, 2: 2, 3: 2, 4: 3}.get(opcode) if opcode is not None else None
    if length is None:
        raise ArchiveError(f"unknown opcode {opcode}", location=where)
    if at + length > len(code):
        raise ArchiveError("ends behind the code", location=where)
    fields = code[at + 1 : at + length]
    if opcode == 2:
        return Return(fields[0]), at + length
    if opcode == 3:
        return Goto(fields[0]), at + length
    if opcode == 4:
        return Branch(fields[0], fields[1]), at + length
    target, function, count = fields
    end = at + length + count
    if count < 0 or end > len(code):
        raise ArchiveError(f"a call with {count} arguments", location=where)
    words = code[at + length : end]
    return Call(
        target, function, tuple(_decode_argument(word, where) for word in words)
    ), end


def _decode_argument(word: int, where: str) -> Argument:
    kind = (word >> _VALUE_BITS) & 0xFF
    if kind not in _ARGUMENT_KINDS:
        raise ArchiveError(f"an argument of the unknown kind {kind}", location=where)
    value = word & ((1 << _VALUE_BITS) - 1)
    sign = 1 << (_VALUE_BITS - 1)
    return Argument(ArgumentKind(kind), (value ^ sign) - sign)
