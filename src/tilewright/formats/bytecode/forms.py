"""The forms of instructions: field lists and texts that many opcodes share.

The vocabulary in which the rows of `isa` are written, and nothing else.
"""

from __future__ import annotations

import enum
import functools
from typing import Final, final

from tilewright.base.record import record


class FieldKind(enum.Enum):
    """What a field of an instruction is and how it is encoded."""

    OPERAND = "register that is read: u16"
    RESULT = "register that is written: u16"
    OPERANDS = "registers that are read: aligned u16 count, u16 each"
    RESULTS = "registers that are written: aligned u16 count, u16 each"
    SEGMENTS = "list sizes of a variadic call: aligned u16 count, u16 each"
    IMMEDIATE = "constant of the bank's width"
    GLOBAL = "place in the module state: u32, bytes for words, index for references"
    RODATA = "read-only data segment: u32"
    FUNCTION = "function: u32, bit 31 marks an import"
    TYPE = "index into the module's types: u32"
    STRING = "text: u16 length, bytes"
    TARGET = "block to go to: u32 from the start of the function"
    MOVES = "register moves on the way to a block: aligned u16 count, u16 pairs"
    CASES = "u16 count, then target and moves each"


class Effect(enum.Enum):
    """What running an instruction may do besides writing its results."""

    PURE = "nothing"
    READ = "reads memory or module state"
    WRITE = "writes memory or module state"
    ALLOCATE = "makes a new object"
    CALL = "anything"
    CONTROL = "chooses what runs next"
    DEBUG = "talks to the developer"


@final
@record
class Field:
    """One encoded field.

    Attributes:
        bank: a register bank, `any`, or empty where the field is no register.
        movable: a reference may be handed over here (the move bit empties the register).
    """

    name: str
    kind: FieldKind
    bank: str
    movable: bool = False


# --- forms: field lists that many opcodes share --------------------------------------------
#
# `name:bank` reads a register, `:=bank` writes one, `:*bank` and `:=*bank` are lists, `:#bank`
# is an immediate, `:@bank` a global; `$` and `$$` are the row's first and second bank, `&` marks
# a reference that may be handed over.

_WORDS: Final = {
    "rodata": FieldKind.RODATA,
    "function": FieldKind.FUNCTION,
    "type": FieldKind.TYPE,
    "string": FieldKind.STRING,
    "block": FieldKind.TARGET,
    "moves": FieldKind.MOVES,
    "cases": FieldKind.CASES,
    "segments": FieldKind.SEGMENTS,
}
_MARKS: Final = (
    ("=*", FieldKind.RESULTS),
    ("=", FieldKind.RESULT),
    ("*", FieldKind.OPERANDS),
    ("#", FieldKind.IMMEDIATE),
    ("@", FieldKind.GLOBAL),
)

MARKER: Final = ("", "")
UNARY: Final = ("operand:$ result:=$", "")
BINARY: Final = ("left:$ right:$ result:=$", "")
TERNARY: Final = ("first:$ second:$ third:$ result:=$", "")
SHIFT: Final = ("operand:$ amount:i32 result:=$", "")
POWER: Final = ("operand:$ exponent:i64 result:=$", "")
COMPARE: Final = ("left:$ right:$ result:=i32", "")
TEST: Final = ("operand:$ result:=i32", "")
CONVERT: Final = ("operand:$ result:=$$", "")
ZERO: Final = ("result:=$", "")
CONSTANT: Final = ("value:#$ result:=$", "")
RODATA: Final = ("segment:rodata result:=ref", "")
CAST_REF: Final = (
    "operand:&ref type:type result:=ref",
    "{operand} : !vm.ref<?> -> {type}",
)
SELECT: Final = (
    "condition:i32 true:$ false:$ result:=$",
    "{condition} ? {true} : {false}",
)
SELECT_REF: Final = (
    "condition:i32 type:type true:ref false:ref result:=ref",
    "{condition} ? {true} : {false} -> {type}",
)
SWITCH: Final = (
    "index:i32 default:$ values:*$ result:=$",
    "{index}[{values}] else {default}",
)
SWITCH_REF: Final = (
    "index:i32 type:type default:ref values:*ref result:=ref",
    "{index}[{values}] else {default} : {type}",
)
GLOBAL_LOAD: Final = ("place:@$ result:=$", ".rwdata[{place}]")
GLOBAL_STORE: Final = ("place:@$ value:$", "{value}, .rwdata[{place}]")
GLOBAL_LOAD_AT: Final = ("place:i32 result:=$", ".rwdata[{place}]")
GLOBAL_STORE_AT: Final = ("place:i32 value:$", "{value}, .rwdata[{place}]")
GLOBAL_LOAD_REF: Final = ("place:@ref type:type result:=ref", ".refs[{place}] : {type}")
GLOBAL_STORE_REF: Final = (
    "place:@ref type:type value:&ref",
    "{value}, .refs[{place}] : {type}",
)
GLOBAL_LOAD_REF_AT: Final = ("place:i32 type:type result:=ref", ".refs[{place}] : {type}")
GLOBAL_STORE_REF_AT: Final = (
    "place:i32 type:type value:&ref",
    "{value}, .refs[{place}] : {type}",
)
LIST_ALLOC: Final = ("type:type capacity:i32 result:=ref", "{capacity} : !vm.list<{type}>")
LIST_CAPACITY: Final = ("list:ref size:i32", "")
LIST_SIZE: Final = ("list:ref result:=i32", "")
LIST_GET: Final = ("list:ref index:i32 result:=$", "")
LIST_SET: Final = ("list:ref index:i32 value:$", "")
LIST_GET_REF: Final = (
    "list:ref index:i32 type:type result:=ref",
    "{list}, {index} : {type}",
)
BUFFER_ALLOC: Final = ("length:i64 alignment:i32 result:=ref", "")
BUFFER_CLONE: Final = ("source:ref offset:i64 length:i64 alignment:i32 result:=ref", "")
BUFFER_LENGTH: Final = ("buffer:ref result:=i64", "")
BUFFER_COPY: Final = (
    "source:ref source_offset:i64 target:ref target_offset:i64 length:i64",
    "",
)
BUFFER_COMPARE: Final = (
    "left:ref left_offset:i64 right:ref right_offset:i64 length:i64 result:=i32",
    "",
)
BUFFER_FILL: Final = ("buffer:ref offset:i64 length:i64 value:$", "")
BUFFER_LOAD: Final = ("buffer:ref offset:i64 result:=$", "")
BUFFER_STORE: Final = ("buffer:ref offset:i64 value:$", "{value}, {buffer}, {offset}")
BUFFER_HASH: Final = ("buffer:ref offset:i64 length:i64 result:=i64", "")
DISCARD: Final = ("refs:*&ref", "")
BRANCH: Final = ("target:block moves:moves", "{target}({moves})")
COND_BRANCH: Final = (
    "condition:i32 true:block true_moves:moves false:block false_moves:moves",
    "{condition}, {true}({true_moves}), {false}({false_moves})",
)
COND_BREAK: Final = (
    "condition:i32 target:block moves:moves",
    "{condition}, {target}({moves})",
)
BRANCH_TABLE: Final = (
    "index:i32 default:block default_moves:moves cases:cases",
    "{index} { default: {default}({default_moves}){cases} }",
)
CALL: Final = ("callee:function operands:*&any results:=*any", "{callee}({operands})")
CALL_VARIADIC: Final = (
    "callee:function segments:segments operands:*&any results:=*any",
    "{callee} segments[{segments}]({operands})",
)
CALL_RESUME: Final = (
    "callee:function operands:*&any target:block results:=*any",
    "{callee}({operands}) -> {target}({results})",
)
CALL_VARIADIC_RESUME: Final = (
    "callee:function segments:segments operands:*&any target:block results:=*any",
    "{callee} segments[{segments}]({operands}) -> {target}({results})",
)
IMPORT_RESOLVED: Final = ("callee:function result:=i32", "")
RETURN: Final = ("operands:*&any", "")
FAIL: Final = ("status:i32 message:string", "")
TRACE: Final = ("event:string operands:*&any", "{event}({operands})")


@functools.cache
def parse_fields(form: str, banks: str) -> tuple[Field, ...]:
    """The fields of a form with the banks of a row put in; many rows are alike."""
    first, _, second = banks.partition(" ")
    found: list[Field] = []
    for entry in form.split():
        name, _, kind = entry.partition(":")
        kind = kind.replace("$$", second).replace("$", first)
        word = _WORDS.get(kind)
        if word is not None:
            found.append(Field(name, word, ""))
            continue
        mark, field_kind = next(
            ((m, k) for m, k in _MARKS if kind.startswith(m)), ("", FieldKind.OPERAND)
        )
        bank = kind.removeprefix(mark)
        found.append(Field(name, field_kind, bank.removeprefix("&"), bank.startswith("&")))
    return tuple(found)
