"""The instruction set of the VM: THE table.

One row per opcode; encoder, decoder, assembler, disassembler, verifier, interpreter,
translator and the reference page iterate over these rows and know no opcode by themselves.  A
new opcode is a new row here (and a handler in the interpreter).  No behaviour lives here beyond
lookup.

Registers: one bank of 32-bit words (`i32`, `f32`; `i64` and `f64` take an even-numbered pair)
and one bank of references (`ref`).  Integer arithmetic wraps.  Shift amounts count modulo the
width.  Floats are IEEE 754 binary32 and binary64, rounding to nearest even.  Offsets and lengths
of buffer loads, stores and fills count elements of the type in the opcode's name, those of all
other buffer opcodes bytes.

Source: IREE `vm/bytecode/isa/isa.json`, bytecode version 17.0, and IREE releases 2.9 to 3.13
(`since` is the first release with the opcode; numbers and encodings never changed).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, final

from tilewright.base.record import record
from tilewright.formats.bytecode.forms import (
    BINARY,
    BRANCH,
    BRANCH_TABLE,
    BUFFER_ALLOC,
    BUFFER_CLONE,
    BUFFER_COMPARE,
    BUFFER_COPY,
    BUFFER_FILL,
    BUFFER_HASH,
    BUFFER_LENGTH,
    BUFFER_LOAD,
    BUFFER_STORE,
    CALL,
    CALL_RESUME,
    CALL_VARIADIC,
    CALL_VARIADIC_RESUME,
    CAST_REF,
    COMPARE,
    COND_BRANCH,
    COND_BREAK,
    CONSTANT,
    CONVERT,
    DISCARD,
    FAIL,
    GLOBAL_LOAD,
    GLOBAL_LOAD_AT,
    GLOBAL_LOAD_REF,
    GLOBAL_LOAD_REF_AT,
    GLOBAL_STORE,
    GLOBAL_STORE_AT,
    GLOBAL_STORE_REF,
    GLOBAL_STORE_REF_AT,
    IMPORT_RESOLVED,
    LIST_ALLOC,
    LIST_CAPACITY,
    LIST_GET,
    LIST_GET_REF,
    LIST_SET,
    LIST_SIZE,
    MARKER,
    POWER,
    RETURN,
    RODATA,
    SELECT,
    SELECT_REF,
    SHIFT,
    SWITCH,
    SWITCH_REF,
    TERNARY,
    TEST,
    TRACE,
    UNARY,
    ZERO,
    Effect,
    Field,
    FieldKind,
    parse_fields,
)
from tilewright.formats.bytecode.limits import FEATURE_F32, FEATURE_F64

REF_BIT: Final = 0x8000
MOVE_BIT: Final = 0x4000
REF_MASK: Final = 0x3FFF
WORD_MASK: Final = 0x7FFF
IMPORT_BIT: Final = 0x8000_0000
PLAIN_ARGUMENT: Final = 0xFFFF
"""Segment size of a variadic call that means: one argument, not a list."""

MAX_PC: Final = 0x00FF_FFFF


@final
@record(kw_only=True)
class Opcode:
    """One row of the table.

    Attributes:
        prefix: the bytes that stand for the opcode.
        fields: in encoding order.
        text: how the instruction reads after its name, with `{field}` for each field.
        terminator: it ends its basic block.
    """

    name: str
    number: int
    prefix: bytes
    feature: int
    fields: tuple[Field, ...]
    text: str
    effect: Effect
    since: str
    meaning: str
    terminator: bool

    def __repr__(self) -> str:
        return f"Opcode({self.name})"

    def __reduce__(self) -> tuple[object, ...]:
        return (opcode_by_name, (self.name,))

    @property
    def is_block(self) -> bool:
        """It marks the start of a block and does nothing."""
        return self.number == _BLOCK and self.feature == 0


PURE: Final = Effect.PURE
READ: Final = Effect.READ
WRITE: Final = Effect.WRITE
ALLOCATE: Final = Effect.ALLOCATE
ANY: Final = Effect.CALL
CONTROL: Final = Effect.CONTROL
DEBUG: Final = Effect.DEBUG

_Form = tuple[str, str]
_Row = (
    tuple[int, str, _Form, str, Effect, str] | tuple[int, str, _Form, str, Effect, str, str]
)

# --- the rows: number, name, form, banks, effect, meaning, since (2.9 where left out) --------

_BLOCK: Final = 121

# fmt: off
_CORE: Final[tuple[_Row, ...]] = (
    (0, "global.load.i32", GLOBAL_LOAD, "i32", READ, "read a global"),
    (1, "global.store.i32", GLOBAL_STORE, "i32", WRITE, "write a global"),
    (2, "global.load.indirect.i32", GLOBAL_LOAD_AT, "i32", READ, "read a global at a place"),
    (3, "global.store.indirect.i32", GLOBAL_STORE_AT, "i32", WRITE, "write a global at a place"),
    (4, "global.load.i64", GLOBAL_LOAD, "i64", READ, "read a global"),
    (5, "global.store.i64", GLOBAL_STORE, "i64", WRITE, "write a global"),
    (6, "global.load.indirect.i64", GLOBAL_LOAD_AT, "i64", READ, "read a global at a place"),
    (7, "global.store.indirect.i64", GLOBAL_STORE_AT, "i64", WRITE, "write a global at a place"),
    (8, "global.load.ref", GLOBAL_LOAD_REF, "", READ, "read a global"),
    (9, "global.store.ref", GLOBAL_STORE_REF, "", WRITE, "write a global"),
    (10, "global.load.indirect.ref", GLOBAL_LOAD_REF_AT, "", READ, "read a global at a place"),
    (11, "global.store.indirect.ref", GLOBAL_STORE_REF_AT, "", WRITE, "write a global at a place"),
    (12, "const.i32.zero", ZERO, "i32", PURE, "zero"),
    (13, "const.i32", CONSTANT, "i32", PURE, "a constant"),
    (14, "const.i64.zero", ZERO, "i64", PURE, "zero"),
    (15, "const.i64", CONSTANT, "i64", PURE, "a constant"),
    (16, "const.ref.zero", ZERO, "ref", PURE, "null reference"),
    (17, "const.ref.rodata", RODATA, "", PURE, "read-only data segment as a buffer"),
    (18, "list.alloc", LIST_ALLOC, "", ALLOCATE, "new list"),
    (19, "list.reserve", LIST_CAPACITY, "", WRITE, "make room for more elements"),
    (20, "list.size", LIST_SIZE, "", READ, "number of elements"),
    (21, "list.resize", LIST_CAPACITY, "", WRITE, "grow with zeros or shrink"),
    (22, "list.get.i32", LIST_GET, "i32", READ, "element of a list"),
    (23, "list.set.i32", LIST_SET, "i32", WRITE, "replace an element of a list"),
    (24, "list.get.i64", LIST_GET, "i64", READ, "element of a list"),
    (25, "list.set.i64", LIST_SET, "i64", WRITE, "replace an element of a list"),
    (26, "list.get.ref", LIST_GET_REF, "", READ, "element of a list"),
    (27, "list.set.ref", LIST_SET, "&ref", WRITE, "replace an element of a list"),
    (28, "select.i32", SELECT, "i32", PURE, "one of two values by condition"),
    (29, "select.i64", SELECT, "i64", PURE, "one of two values by condition"),
    (30, "select.ref", SELECT_REF, "", PURE, "one of two values by condition"),
    (31, "switch.i32", SWITCH, "i32", PURE, "one of many values by index"),
    (32, "switch.i64", SWITCH, "i64", PURE, "one of many values by index"),
    (33, "switch.ref", SWITCH_REF, "", PURE, "one of many values by index"),
    (34, "add.i32", BINARY, "i32", PURE, "left + right, wrapping"),
    (35, "sub.i32", BINARY, "i32", PURE, "left - right, wrapping"),
    (36, "mul.i32", BINARY, "i32", PURE, "left * right, wrapping"),
    (37, "div.i32.s", BINARY, "i32", PURE, "left / right, towards zero (signed)"),
    (38, "div.i32.u", BINARY, "i32", PURE, "left / right, towards zero (unsigned)"),
    (39, "rem.i32.s", BINARY, "i32", PURE, "remainder of left / right (signed)"),
    (40, "rem.i32.u", BINARY, "i32", PURE, "remainder of left / right (unsigned)"),
    (41, "fma.i32", TERNARY, "i32", PURE, "first * second + third, wrapping"),
    (42, "add.i64", BINARY, "i64", PURE, "left + right, wrapping"),
    (43, "sub.i64", BINARY, "i64", PURE, "left - right, wrapping"),
    (44, "mul.i64", BINARY, "i64", PURE, "left * right, wrapping"),
    (45, "div.i64.s", BINARY, "i64", PURE, "left / right, towards zero (signed)"),
    (46, "div.i64.u", BINARY, "i64", PURE, "left / right, towards zero (unsigned)"),
    (47, "rem.i64.s", BINARY, "i64", PURE, "remainder of left / right (signed)"),
    (48, "rem.i64.u", BINARY, "i64", PURE, "remainder of left / right (unsigned)"),
    (49, "fma.i64", TERNARY, "i64", PURE, "first * second + third, wrapping"),
    (50, "not.i32", UNARY, "i32", PURE, "all bits flipped"),
    (51, "and.i32", BINARY, "i32", PURE, "bitwise and"),
    (52, "or.i32", BINARY, "i32", PURE, "bitwise or"),
    (53, "xor.i32", BINARY, "i32", PURE, "bitwise exclusive or"),
    (54, "not.i64", UNARY, "i64", PURE, "all bits flipped"),
    (55, "and.i64", BINARY, "i64", PURE, "bitwise and"),
    (56, "or.i64", BINARY, "i64", PURE, "bitwise or"),
    (57, "xor.i64", BINARY, "i64", PURE, "bitwise exclusive or"),
    (58, "shl.i32", SHIFT, "i32", PURE, "operand << amount"),
    (59, "shr.i32.s", SHIFT, "i32", PURE, "operand >> amount, keeping the sign"),
    (60, "shr.i32.u", SHIFT, "i32", PURE, "operand >> amount, filling with zeros"),
    (61, "shl.i64", SHIFT, "i64", PURE, "operand << amount"),
    (62, "shr.i64.s", SHIFT, "i64", PURE, "operand >> amount, keeping the sign"),
    (63, "shr.i64.u", SHIFT, "i64", PURE, "operand >> amount, filling with zeros"),
    (64, "trunc.i32.i8", UNARY, "i32", PURE, "low 8 bits"),
    (65, "trunc.i32.i16", UNARY, "i32", PURE, "low 16 bits"),
    (66, "trunc.i64.i32", CONVERT, "i64 i32", PURE, "low 32 bits"),
    (67, "ext.i8.i32.s", UNARY, "i32", PURE, "i8 widened with its sign"),
    (68, "ext.i8.i32.u", UNARY, "i32", PURE, "i8 widened with zeros"),
    (69, "ext.i16.i32.s", UNARY, "i32", PURE, "i16 widened with its sign"),
    (70, "ext.i16.i32.u", UNARY, "i32", PURE, "i16 widened with zeros"),
    (71, "ext.i32.i64.s", CONVERT, "i32 i64", PURE, "i32 widened with its sign"),
    (72, "ext.i32.i64.u", CONVERT, "i32 i64", PURE, "i32 widened with zeros"),
    (73, "cmp.eq.i32", COMPARE, "i32", PURE, "equal"),
    (74, "cmp.ne.i32", COMPARE, "i32", PURE, "not equal"),
    (75, "cmp.lt.i32.s", COMPARE, "i32", PURE, "left < right (signed)"),
    (76, "cmp.lt.i32.u", COMPARE, "i32", PURE, "left < right (unsigned)"),
    (77, "cmp.nz.i32", TEST, "i32", PURE, "not zero"),
    (78, "cmp.eq.i64", COMPARE, "i64", PURE, "equal"),
    (79, "cmp.ne.i64", COMPARE, "i64", PURE, "not equal"),
    (80, "cmp.lt.i64.s", COMPARE, "i64", PURE, "left < right (signed)"),
    (81, "cmp.lt.i64.u", COMPARE, "i64", PURE, "left < right (unsigned)"),
    (82, "cmp.nz.i64", TEST, "i64", PURE, "not zero"),
    (83, "cmp.eq.ref", COMPARE, "ref", PURE, "equal"),
    (84, "cmp.ne.ref", COMPARE, "ref", PURE, "not equal"),
    (85, "cmp.nz.ref", TEST, "ref", PURE, "not null"),
    (86, "br", BRANCH, "", CONTROL, "go to a block"),
    (87, "cond_br", COND_BRANCH, "", CONTROL, "go to one of two blocks"),
    (88, "call", CALL, "", ANY, "call a function"),
    (89, "call.variadic", CALL_VARIADIC, "", ANY, "call an import with argument lists"),
    (90, "return", RETURN, "", CONTROL, "leave the function with results"),
    (91, "fail", FAIL, "", CONTROL, "leave with an error unless the status is zero"),
    (92, "import.resolved", IMPORT_RESOLVED, "", PURE, "1 if an optional import is there"),
    (93, "yield", BRANCH, "", CONTROL, "suspend, then br"),
    (94, "trace", TRACE, "", DEBUG, "report values to a tracer"),
    (95, "print", TRACE, "", DEBUG, "print values"),
    (96, "cond_break", COND_BREAK, "", CONTROL, "stop in a debugger if set, then br"),
    (97, "break", BRANCH, "", CONTROL, "stop in a debugger, then br"),
    (98, "buffer.load.i8.u", BUFFER_LOAD, "i32", READ, "read i8 widened (unsigned)"),
    (99, "buffer.load.i8.s", BUFFER_LOAD, "i32", READ, "read i8 widened (signed)"),
    (100, "buffer.load.i16.u", BUFFER_LOAD, "i32", READ, "read i16 widened (unsigned)"),
    (101, "buffer.load.i16.s", BUFFER_LOAD, "i32", READ, "read i16 widened (signed)"),
    (102, "buffer.load.i32", BUFFER_LOAD, "i32", READ, "read i32"),
    (103, "buffer.load.i64", BUFFER_LOAD, "i64", READ, "read i64"),
    (104, "buffer.store.i8", BUFFER_STORE, "i32", WRITE, "write the low i8"),
    (105, "buffer.store.i16", BUFFER_STORE, "i32", WRITE, "write the low i16"),
    (106, "buffer.store.i32", BUFFER_STORE, "i32", WRITE, "write i32"),
    (107, "buffer.store.i64", BUFFER_STORE, "i64", WRITE, "write i64"),
    (108, "buffer.alloc", BUFFER_ALLOC, "", ALLOCATE, "new buffer, zeroed"),
    (109, "buffer.clone", BUFFER_CLONE, "", ALLOCATE, "copy of a range"),
    (110, "buffer.length", BUFFER_LENGTH, "", PURE, "bytes in a buffer"),
    (111, "buffer.copy", BUFFER_COPY, "", WRITE, "copy bytes between buffers"),
    (112, "buffer.compare", BUFFER_COMPARE, "", READ, "1 if two ranges are equal"),
    (113, "buffer.fill.i8", BUFFER_FILL, "i32", WRITE, "repeat a value"),
    (114, "buffer.fill.i16", BUFFER_FILL, "i32", WRITE, "repeat a value"),
    (115, "buffer.fill.i32", BUFFER_FILL, "i32", WRITE, "repeat a value"),
    (116, "buffer.fill.i64", BUFFER_FILL, "i64", WRITE, "repeat a value"),
    (117, "ctlz.i32", UNARY, "i32", PURE, "number of leading zero bits"),
    (118, "ctlz.i64", UNARY, "i64", PURE, "number of leading zero bits"),
    (119, "abs.i32", UNARY, "i32", PURE, "magnitude"),
    (120, "abs.i64", UNARY, "i64", PURE, "magnitude"),
    (121, "block", MARKER, "", CONTROL, "start of a basic block"),
    (122, "min.i32.s", BINARY, "i32", PURE, "the smaller (signed)"),
    (123, "min.i32.u", BINARY, "i32", PURE, "the smaller (unsigned)"),
    (124, "max.i32.s", BINARY, "i32", PURE, "the larger (signed)"),
    (125, "max.i32.u", BINARY, "i32", PURE, "the larger (unsigned)"),
    (126, "min.i64.s", BINARY, "i64", PURE, "the smaller (signed)"),
    (127, "min.i64.u", BINARY, "i64", PURE, "the smaller (unsigned)"),
    (128, "max.i64.s", BINARY, "i64", PURE, "the larger (signed)"),
    (129, "max.i64.u", BINARY, "i64", PURE, "the larger (unsigned)"),
    (130, "cast.any.ref", CAST_REF, "", PURE, "check that a reference has a type"),
    (131, "br_table", BRANCH_TABLE, "", CONTROL, "go to one of many blocks by index"),
    (132, "buffer.hash", BUFFER_HASH, "", READ, "stable 64-bit hash of a range"),
    (133, "discard.refs", DISCARD, "", WRITE, "release moved references", "3.10"),
    (134, "assign.ref", UNARY, "&ref", PURE, "copy or move a reference", "3.10"),
    (135, "call.yieldable", CALL_RESUME, "", ANY, "call that may suspend", "3.11"),
    (136, "call.variadic.yieldable", CALL_VARIADIC_RESUME, "", ANY, "variadic call that may suspend", "3.11"),
)

_F32: Final[tuple[_Row, ...]] = (
    (0, "global.load.f32", GLOBAL_LOAD, "f32", READ, "read a global"),
    (1, "global.store.f32", GLOBAL_STORE, "f32", WRITE, "write a global"),
    (2, "global.load.indirect.f32", GLOBAL_LOAD_AT, "f32", READ, "read a global at a place"),
    (3, "global.store.indirect.f32", GLOBAL_STORE_AT, "f32", WRITE, "write a global at a place"),
    (4, "const.f32.zero", ZERO, "f32", PURE, "zero"),
    (5, "const.f32", CONSTANT, "f32", PURE, "a constant"),
    (6, "list.get.f32", LIST_GET, "f32", READ, "element of a list"),
    (7, "list.set.f32", LIST_SET, "f32", WRITE, "replace an element of a list"),
    (8, "select.f32", SELECT, "f32", PURE, "one of two values by condition"),
    (9, "switch.f32", SWITCH, "f32", PURE, "one of many values by index"),
    (10, "add.f32", BINARY, "f32", PURE, "left + right"),
    (11, "sub.f32", BINARY, "f32", PURE, "left - right"),
    (12, "mul.f32", BINARY, "f32", PURE, "left * right"),
    (13, "div.f32", BINARY, "f32", PURE, "left / right"),
    (14, "rem.f32", BINARY, "f32", PURE, "remainder of left / right"),
    (15, "fma.f32", TERNARY, "f32", PURE, "first * second + third"),
    (16, "abs.f32", UNARY, "f32", PURE, "magnitude"),
    (17, "neg.f32", UNARY, "f32", PURE, "sign flipped"),
    (18, "ceil.f32", UNARY, "f32", PURE, "rounded up"),
    (19, "floor.f32", UNARY, "f32", PURE, "rounded down"),
    (20, "cast.si32.f32", CONVERT, "i32 f32", PURE, "signed i32 as float"),
    (21, "cast.ui32.f32", CONVERT, "i32 f32", PURE, "unsigned i32 as float"),
    (22, "cast.f32.si32", CONVERT, "f32 i32", PURE, "float as signed i32, to nearest"),
    (23, "cast.f32.ui32", CONVERT, "f32 i32", PURE, "float as unsigned i32, to nearest"),
    (24, "bitcast.i32.f32", CONVERT, "i32 f32", PURE, "the same bits as f32"),
    (25, "bitcast.f32.i32", CONVERT, "f32 i32", PURE, "the same bits as i32"),
    (26, "atan.f32", UNARY, "f32", PURE, "arc tangent"),
    (27, "atan2.f32", BINARY, "f32", PURE, "angle of the point (right, left)"),
    (28, "cos.f32", UNARY, "f32", PURE, "cosine"),
    (29, "sin.f32", UNARY, "f32", PURE, "sine"),
    (30, "exp.f32", UNARY, "f32", PURE, "e to the power of operand"),
    (31, "exp2.f32", UNARY, "f32", PURE, "2 to the power of operand"),
    (32, "expm1.f32", UNARY, "f32", PURE, "exp(operand) - 1"),
    (33, "log.f32", UNARY, "f32", PURE, "natural logarithm"),
    (34, "log10.f32", UNARY, "f32", PURE, "decimal logarithm"),
    (35, "log1p.f32", UNARY, "f32", PURE, "log(1 + operand)"),
    (36, "log2.f32", UNARY, "f32", PURE, "binary logarithm"),
    (37, "pow.f32", BINARY, "f32", PURE, "left to the power of right"),
    (38, "rsqrt.f32", UNARY, "f32", PURE, "1 / square root"),
    (39, "sqrt.f32", UNARY, "f32", PURE, "square root"),
    (40, "tanh.f32", UNARY, "f32", PURE, "hyperbolic tangent"),
    (41, "erf.f32", UNARY, "f32", PURE, "error function"),
    (42, "cmp.eq.f32.o", COMPARE, "f32", PURE, "equal, false if either is NaN"),
    (43, "cmp.eq.f32.u", COMPARE, "f32", PURE, "equal, true if either is NaN"),
    (44, "cmp.ne.f32.o", COMPARE, "f32", PURE, "not equal, true if either is NaN"),
    (45, "cmp.ne.f32.u", COMPARE, "f32", PURE, "not equal, true if either is NaN"),
    (46, "cmp.lt.f32.o", COMPARE, "f32", PURE, "left < right, false if either is NaN"),
    (47, "cmp.lt.f32.u", COMPARE, "f32", PURE, "left < right, true if either is NaN"),
    (48, "cmp.lte.f32.o", COMPARE, "f32", PURE, "left <= right, false if either is NaN"),
    (49, "cmp.lte.f32.u", COMPARE, "f32", PURE, "left <= right, true if either is NaN"),
    (50, "cmp.nan.f32", TEST, "f32", PURE, "is not a number"),
    (51, "buffer.load.f32", BUFFER_LOAD, "f32", READ, "read f32"),
    (52, "buffer.store.f32", BUFFER_STORE, "f32", WRITE, "write f32"),
    (53, "buffer.fill.f32", BUFFER_FILL, "f32", WRITE, "repeat a value"),
    (54, "round.f32", UNARY, "f32", PURE, "rounded to nearest, halves away from zero"),
    (55, "min.f32", BINARY, "f32", PURE, "the smaller"),
    (56, "max.f32", BINARY, "f32", PURE, "the larger"),
    (57, "round.f32.even", UNARY, "f32", PURE, "rounded to nearest, halves to even"),
    (58, "cast.f32.si64", CONVERT, "f32 i64", PURE, "float as signed i64, to nearest"),
    (59, "cast.f32.ui64", CONVERT, "f32 i64", PURE, "float as unsigned i64, to nearest"),
    (60, "cast.si64.f32", CONVERT, "i64 f32", PURE, "signed i64 as float", "3.1"),
    (61, "cast.ui64.f32", CONVERT, "i64 f32", PURE, "unsigned i64 as float", "3.3"),
    (62, "fpowi.f32", POWER, "f32", PURE, "operand to an integer power", "3.12"),
)

_F64: Final[tuple[_Row, ...]] = (
    (0, "global.load.f64", GLOBAL_LOAD, "f64", READ, "read a global"),
    (1, "global.store.f64", GLOBAL_STORE, "f64", WRITE, "write a global"),
    (2, "global.load.indirect.f64", GLOBAL_LOAD_AT, "f64", READ, "read a global at a place"),
    (3, "global.store.indirect.f64", GLOBAL_STORE_AT, "f64", WRITE, "write a global at a place"),
    (4, "const.f64.zero", ZERO, "f64", PURE, "zero"),
    (5, "const.f64", CONSTANT, "f64", PURE, "a constant"),
    (6, "list.get.f64", LIST_GET, "f64", READ, "element of a list"),
    (7, "list.set.f64", LIST_SET, "f64", WRITE, "replace an element of a list"),
    (8, "select.f64", SELECT, "f64", PURE, "one of two values by condition"),
    (9, "switch.f64", SWITCH, "f64", PURE, "one of many values by index"),
    (10, "add.f64", BINARY, "f64", PURE, "left + right"),
    (11, "sub.f64", BINARY, "f64", PURE, "left - right"),
    (12, "mul.f64", BINARY, "f64", PURE, "left * right"),
    (13, "div.f64", BINARY, "f64", PURE, "left / right"),
    (14, "rem.f64", BINARY, "f64", PURE, "remainder of left / right"),
    (15, "fma.f64", TERNARY, "f64", PURE, "first * second + third"),
    (16, "abs.f64", UNARY, "f64", PURE, "magnitude"),
    (17, "neg.f64", UNARY, "f64", PURE, "sign flipped"),
    (18, "ceil.f64", UNARY, "f64", PURE, "rounded up"),
    (19, "floor.f64", UNARY, "f64", PURE, "rounded down"),
    (20, "trunc.f64.f32", CONVERT, "f64 f32", PURE, "rounded to 32 bits"),
    (21, "ext.f32.f64", CONVERT, "f32 f64", PURE, "widened to 64 bits"),
    (22, "cast.si32.f64", CONVERT, "i32 f64", PURE, "signed i32 as float"),
    (23, "cast.ui32.f64", CONVERT, "i32 f64", PURE, "unsigned i32 as float"),
    (24, "cast.f64.si32", CONVERT, "f64 i32", PURE, "float as signed i32, to nearest"),
    (25, "cast.f64.ui32", CONVERT, "f64 i32", PURE, "float as unsigned i32, to nearest"),
    (26, "cast.si64.f64", CONVERT, "i64 f64", PURE, "signed i64 as float"),
    (27, "cast.ui64.f64", CONVERT, "i64 f64", PURE, "unsigned i64 as float"),
    (28, "cast.f64.si64", CONVERT, "f64 i64", PURE, "float as signed i64, to nearest"),
    (29, "cast.f64.ui64", CONVERT, "f64 i64", PURE, "float as unsigned i64, to nearest"),
    (30, "bitcast.i64.f64", CONVERT, "i64 f64", PURE, "the same bits as f64"),
    (31, "bitcast.f64.i64", CONVERT, "f64 i64", PURE, "the same bits as i64"),
    (32, "atan.f64", UNARY, "f64", PURE, "arc tangent"),
    (33, "atan2.f64", BINARY, "f64", PURE, "angle of the point (right, left)"),
    (34, "cos.f64", UNARY, "f64", PURE, "cosine"),
    (35, "sin.f64", UNARY, "f64", PURE, "sine"),
    (36, "exp.f64", UNARY, "f64", PURE, "e to the power of operand"),
    (37, "exp2.f64", UNARY, "f64", PURE, "2 to the power of operand"),
    (38, "expm1.f64", UNARY, "f64", PURE, "exp(operand) - 1"),
    (39, "log.f64", UNARY, "f64", PURE, "natural logarithm"),
    (40, "log10.f64", UNARY, "f64", PURE, "decimal logarithm"),
    (41, "log1p.f64", UNARY, "f64", PURE, "log(1 + operand)"),
    (42, "log2.f64", UNARY, "f64", PURE, "binary logarithm"),
    (43, "pow.f64", BINARY, "f64", PURE, "left to the power of right"),
    (44, "rsqrt.f64", UNARY, "f64", PURE, "1 / square root"),
    (45, "sqrt.f64", UNARY, "f64", PURE, "square root"),
    (46, "tanh.f64", UNARY, "f64", PURE, "hyperbolic tangent"),
    (47, "erf.f64", UNARY, "f64", PURE, "error function"),
    (48, "cmp.eq.f64.o", COMPARE, "f64", PURE, "equal, false if either is NaN"),
    (49, "cmp.eq.f64.u", COMPARE, "f64", PURE, "equal, true if either is NaN"),
    (50, "cmp.ne.f64.o", COMPARE, "f64", PURE, "not equal, true if either is NaN"),
    (51, "cmp.ne.f64.u", COMPARE, "f64", PURE, "not equal, true if either is NaN"),
    (52, "cmp.lt.f64.o", COMPARE, "f64", PURE, "left < right, false if either is NaN"),
    (53, "cmp.lt.f64.u", COMPARE, "f64", PURE, "left < right, true if either is NaN"),
    (54, "cmp.lte.f64.o", COMPARE, "f64", PURE, "left <= right, false if either is NaN"),
    (55, "cmp.lte.f64.u", COMPARE, "f64", PURE, "left <= right, true if either is NaN"),
    (56, "cmp.nan.f64", TEST, "f64", PURE, "is not a number"),
    (57, "buffer.load.f64", BUFFER_LOAD, "f64", READ, "read f64"),
    (58, "buffer.store.f64", BUFFER_STORE, "f64", WRITE, "write f64"),
    (59, "buffer.fill.f64", BUFFER_FILL, "f64", WRITE, "repeat a value"),
    (60, "round.f64", UNARY, "f64", PURE, "rounded to nearest, halves away from zero"),
    (61, "min.f64", BINARY, "f64", PURE, "the smaller"),
    (62, "max.f64", BINARY, "f64", PURE, "the larger"),
    (63, "round.f64.even", UNARY, "f64", PURE, "rounded to nearest, halves to even"),
    (64, "fpowi.f64", POWER, "f64", PURE, "operand to an integer power", "3.12"),
)

# fmt: on
# --- lookup --------------------------------------------------------------------------------

_SETS: Final = (
    (b"", 0, _CORE),
    (b"\xe0", FEATURE_F32, _F32),
    (b"\xe1", FEATURE_F64, _F64),
)


def _opcode(prefix: bytes, feature: int, row: _Row) -> Opcode:
    number, name, (form, text), banks, effect, meaning = row[:6]
    fields = parse_fields(form, banks)
    results = (FieldKind.RESULT, FieldKind.RESULTS)
    text = text or ", ".join(f"{{{f.name}}}" for f in fields if f.kind not in results)
    ends = any(field.kind is FieldKind.TARGET for field in fields) or name in (
        "return",
        "fail",
    )
    return Opcode(
        name=name,
        number=number,
        prefix=prefix + bytes((number,)),
        feature=feature,
        fields=fields,
        text=text,
        effect=effect,
        since=row[6] if len(row) == 7 else "2.9",
        meaning=meaning,
        terminator=ends,
    )


OPCODES: Final[tuple[Opcode, ...]] = tuple(
    _opcode(prefix, feature, row) for prefix, feature, rows in _SETS for row in rows
)
_BY_NAME: Final[Mapping[str, Opcode]] = {opcode.name: opcode for opcode in OPCODES}
BY_PREFIX: Final[Mapping[bytes, Opcode]] = {opcode.prefix: opcode for opcode in OPCODES}
EXTENSIONS: Final[Mapping[int, int]] = {0xE0: FEATURE_F32, 0xE1: FEATURE_F64}
"""First bytes that announce a second opcode byte, and the feature they need."""

BLOCK: Final = _BY_NAME["block"]
TEMPLATE_FIELD: Final = re.compile(r"\{(\w+)\}")


def opcode_by_name(name: str) -> Opcode:
    """The row with the given name; `KeyError` when there is none."""
    return _BY_NAME[name]
