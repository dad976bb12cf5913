"""Instructions ↔ lines of text, in the form IREE's `iree-dump-module` prints.

    %i6:7 = vm.mul.i64 %i16:17, %i6:7
    vm.cond_br %i2, ^bb2(%i0->%i4), ^bb3()

`%i` are word registers (pairs for 64-bit values), `%r` references, `%R` references handed over.
Each opcode's text comes from its row in `isa`; nothing here knows an opcode.  Text errors name
the line.  Functions and modules as text are `vmfb.text`'s business.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.base.text import whole_number
from tilewright.formats.bytecode.encoding import (
    FieldValue,
    Instruction,
    Moves,
    bits_from_float,
    float_from_bits,
)
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    MOVE_BIT,
    REF_BIT,
    REF_MASK,
    TEMPLATE_FIELD,
    WORD_MASK,
    Opcode,
    opcode_by_name,
)
from tilewright.formats.calling_convention import WIDE_BANKS


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What ordinals are called in text.

    Units: `rodata_bytes` in bytes per segment.  A function with the empty name is called by its
    ordinal (`@module:3`).
    """

    module: str = ""
    imports: Sequence[str] = ()
    functions: Sequence[str] = ()
    types: Sequence[str] = ()
    rodata_bytes: Sequence[int] = ()


def _listed(names: Sequence[str], ordinal: int, prefix: str) -> str:
    return names[ordinal] if ordinal < len(names) else f"{prefix}{ordinal}"


# --- printing ----------------------------------------------------------------------------------


def format_instruction(
    instruction: Instruction, names: Names, labels: Mapping[int, str]
) -> str:
    """One instruction as text.

    Args:
        instruction: any but a block marker.
        names: of functions and types.
        labels: block names by pc.
    """
    opcode = instruction.opcode
    values = dict(zip((f.name for f in opcode.fields), instruction.values, strict=True))
    fields = {field.name: field for field in opcode.fields}
    used = set(TEMPLATE_FIELD.findall(opcode.text))

    def shown(name: str) -> str:
        return _format_field(fields[name], values[name], names, labels)

    body = TEMPLATE_FIELD.sub(lambda match: shown(match.group(1)), opcode.text)
    prefix = "".join(
        f"{shown(field.name)} = "
        for field in opcode.fields
        if field.kind in (FieldKind.RESULT, FieldKind.RESULTS)
        and field.name not in used
        and values[field.name] != ()
    )
    line = f"{prefix}vm.{opcode.name} {body}".rstrip()
    return line + _comment(opcode, values, names)


def _comment(opcode: Opcode, values: Mapping[str, FieldValue], names: Names) -> str:
    for field in opcode.fields:
        value = values[field.name]
        if field.kind is FieldKind.IMMEDIATE and field.bank == "i32":
            return f"  // 0x{cast('int', value) & 0xFFFF_FFFF:08X}"
        if field.kind is FieldKind.IMMEDIATE and field.bank == "i64":
            return f"  // 0x{cast('int', value) & 0xFFFF_FFFF_FFFF_FFFF:016X}"
        if field.kind is FieldKind.RODATA and cast("int", value) < len(names.rodata_bytes):
            return f"  // {names.rodata_bytes[cast('int', value)]}b"
    return ""


def format_register(register: int, bank: str) -> str:
    """One register; pairs only where the bank says so."""
    if register & REF_BIT:
        return f"%{'R' if register & MOVE_BIT else 'r'}{register & REF_MASK}"
    pair = f":{register + 1}" if bank in WIDE_BANKS else ""
    return f"%i{register}{pair}"


def _format_list(registers: Sequence[int]) -> str:
    return ", ".join(format_register(register, "any") for register in registers)


def _format_moves(moves: Moves) -> str:
    return ", ".join(
        f"{format_register(source, 'any')}->{format_register(target, 'any')}"
        for source, target in moves
    )


def _format_immediate(value: int, bank: str) -> str:
    if bank in ("i32", "i64"):
        return str(value)
    number = float_from_bits(value, bank)
    text = format(number, ".9g" if bank == "f32" else ".17g")
    return text if bits_from_float(float(text), bank) == value else f"0x{value:X}"


def _format_function(ordinal: int, names: Names) -> str:
    if ordinal & IMPORT_BIT:
        return f"@{_listed(names.imports, ordinal & ~IMPORT_BIT, 'import')}"
    name = names.functions[ordinal] if ordinal < len(names.functions) else ""
    return f"@{names.module}.{name}" if name else f"@{names.module}:{ordinal}"


def _format_target(target: int, labels: Mapping[int, str]) -> str:
    return f"^{labels.get(target, f'pc{target:#x}')}"


def _format_cases(cases: Sequence[tuple[int, Moves]], labels: Mapping[int, str]) -> str:
    return "".join(
        f", {index}: {_format_target(target, labels)}({_format_moves(moves)})"
        for index, (target, moves) in enumerate(cases)
    )


def quote(data: bytes) -> str:
    """Bytes as a quoted string with the escapes of C."""
    text = data.decode("utf-8", "surrogateescape")
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"}
    shown = "".join(
        escapes.get(
            c, f"\\x{ord(c) & 0xFF:02x}" if c < " " or "\udc80" <= c <= "\udcff" else c
        )
        for c in text
    )
    return f'"{shown}"'


_PLAIN_FORMATS: Final[Mapping[FieldKind, Callable[[Any], str]]] = {
    FieldKind.OPERANDS: _format_list,
    FieldKind.RESULTS: _format_list,
    FieldKind.SEGMENTS: lambda value: ", ".join(map(str, value)),
    FieldKind.GLOBAL: str,
    FieldKind.RODATA: str,
    FieldKind.STRING: quote,
    FieldKind.MOVES: _format_moves,
}


def _format_field(
    field: Field, value: FieldValue, names: Names, labels: Mapping[int, str]
) -> str:
    plain = _PLAIN_FORMATS.get(field.kind)
    if plain is not None:
        return plain(cast("Any", value))
    if field.kind is FieldKind.CASES:
        return _format_cases(cast("Sequence[tuple[int, Moves]]", value), labels)
    number = cast("int", value)
    if field.kind is FieldKind.TARGET:
        return _format_target(number, labels)
    if field.kind is FieldKind.FUNCTION:
        return _format_function(number, names)
    if field.kind is FieldKind.TYPE:
        return _listed(names.types, number, "!type")
    if field.kind is FieldKind.IMMEDIATE:
        return _format_immediate(number, field.bank)
    return format_register(number, field.bank)


# --- parsing -----------------------------------------------------------------------------------

_REGISTER: Final = r"%[irR]\d+(?::\d+)?"
_MOVE_LIST: Final = r"[^()]*"
_PATTERNS: Final[Mapping[FieldKind, str]] = {
    FieldKind.OPERAND: _REGISTER,
    FieldKind.RESULT: _REGISTER,
    FieldKind.OPERANDS: rf"(?:{_REGISTER}(?:, )?)*",
    FieldKind.RESULTS: rf"(?:{_REGISTER}(?:, )?)*",
    FieldKind.SEGMENTS: r"[\d, ]*",
    FieldKind.IMMEDIATE: r"[^\s,]+",
    FieldKind.GLOBAL: r"\d+",
    FieldKind.RODATA: r"\d+",
    FieldKind.FUNCTION: r"@[^\s(\[]+",
    FieldKind.TYPE: r".+?",
    FieldKind.STRING: r'"(?:[^"\\]|\\.)*"',
    FieldKind.TARGET: r"\^\w+",
    FieldKind.MOVES: _MOVE_LIST,
    FieldKind.CASES: rf"(?:, \d+: \^\w+\({_MOVE_LIST}\))*",
}
_CASE: Final = re.compile(rf", \d+: \^(\w+)\(({_MOVE_LIST})\)")
_LINE: Final = re.compile(
    r"(?:(?P<results>%[^=]*?) = )?vm\.(?P<name>[\w.]+)(?: (?P<body>.*))?"
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}


@functools.cache
def _pattern(opcode: Opcode) -> re.Pattern[str]:
    parts: list[str] = []
    end = 0
    fields = {field.name: field for field in opcode.fields}
    for match in TEMPLATE_FIELD.finditer(opcode.text):
        parts.append(re.escape(opcode.text[end : match.start()]))
        field = fields[match.group(1)]
        parts.append(f"(?P<{field.name}>{_PATTERNS[field.kind]})")
        end = match.end()
    parts.append(re.escape(opcode.text[end:]))
    return re.compile("".join(parts))


def parse_instruction(line: str, names: Names, labels: Mapping[str, int]) -> Instruction:
    """Read one instruction.

    Args:
        line: the text, comments included.
        names: of functions and types.
        labels: the pc of each block by name; unknown names count as pc 0 when it is empty.

    Raises:
        ArchiveError: the text is not an instruction.
    """
    match = _LINE.fullmatch(_without_comment(line))
    if match is None:
        raise ArchiveError(f"'{line.strip()}' is not an instruction")
    try:
        opcode = opcode_by_name(match["name"])
    except KeyError as error:
        raise ArchiveError(f"unknown opcode 'vm.{match['name']}'") from error
    body = _pattern(opcode).fullmatch((match["body"] or "").strip())
    if body is None:
        raise ArchiveError(
            f"'{line.strip()}' does not read 'vm.{opcode.name} {opcode.text}'"
        )
    found = body.groupdict()
    values: list[FieldValue] = []
    for field in opcode.fields:
        text = found.get(field.name)
        if text is None:
            text = match["results"] or ""
        values.append(_parse_field(field, text.strip(), names, labels))
    return Instruction(opcode, tuple(values))


def _without_comment(line: str) -> str:
    return re.sub(r'("(?:[^"\\]|\\.)*")|//.*', lambda m: m.group(1) or "", line).strip()


def parse_register(text: str) -> int:
    """One register in its encoded form."""
    match = re.fullmatch(r"%([irR])(\d+)(?::\d+)?", text)
    if match is None:
        raise ArchiveError(f"'{text}' is not a register")
    number = int(match[2])
    if match[1] == "i":
        limit, bits = WORD_MASK, 0
    else:
        limit, bits = REF_MASK, REF_BIT | (MOVE_BIT if match[1] == "R" else 0)
    if number > limit:
        raise ArchiveError(f"register '{text}' does not exist, the last is {limit}")
    return number | bits


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _parse_moves(text: str) -> Moves:
    pairs: list[tuple[int, int]] = []
    for item in _items(text):
        source, arrow, target = item.partition("->")
        if not arrow:
            raise ArchiveError(f"'{item}' is not a move")
        pairs.append((parse_register(source.strip()), parse_register(target.strip())))
    return tuple(pairs)


def _parse_immediate(text: str, bank: str) -> int:
    try:
        if bank in ("f32", "f64"):
            hexadecimal = text.lower().startswith("0x")
            return int(text, 16) if hexadecimal else bits_from_float(float(text), bank)
        value = int(text, 0)
    except (ValueError, struct.error) as error:
        raise ArchiveError(f"'{text}' is not a number of type {bank}") from error
    bits = 32 if bank == "i32" else 64
    if not -(1 << (bits - 1)) <= value < 1 << bits:
        raise ArchiveError(f"{text} does not fit {bank}")
    return value - (1 << bits) if value >= 1 << (bits - 1) else value


def _parse_function(text: str, names: Names) -> int:
    name = text.removeprefix("@")
    module, _, ordinal = name.rpartition(":")
    number = whole_number(ordinal) if module == names.module else None
    if number is not None and number < len(names.functions):
        return number
    name = name.removeprefix(f"{names.module}.")
    if name and name in names.functions:
        return names.functions.index(name)
    if name in names.imports:
        return names.imports.index(name) | IMPORT_BIT
    raise ArchiveError(f"unknown function '{text}'")


def _parse_type(text: str, names: Names) -> int:
    if text not in names.types:
        raise ArchiveError(f"unknown type '{text}'")
    return names.types.index(text)


def _parse_target(name: str, labels: Mapping[str, int]) -> int:
    if labels and name not in labels:
        raise ArchiveError(f"unknown block '^{name}'")
    return labels.get(name, 0)


def unquote(text: str) -> bytes:
    """The bytes of a quoted string."""

    def plain(match: re.Match[str]) -> str:
        code = match.group(1)
        if code.startswith("x") and len(code) == 3:
            byte = int(code[1:], 16)
            return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, text[1:-1]).encode("utf-8", "surrogateescape")


def _parse_number(text: str) -> int:
    value = int(text)
    if value > 0xFFFF_FFFF:
        raise ArchiveError(f"{text} does not fit 32 bits")
    return value


def _parse_segments(text: str) -> tuple[int, ...]:
    values = tuple(int(item) for item in _items(text))
    if any(value > 0xFFFF for value in values):
        raise ArchiveError(f"segments [{text}] do not fit 16 bits")
    return values


_PLAIN_PARSERS: Final[Mapping[FieldKind, Callable[[str], FieldValue]]] = {
    FieldKind.OPERAND: parse_register,
    FieldKind.RESULT: parse_register,
    FieldKind.OPERANDS: lambda text: tuple(map(parse_register, _items(text))),
    FieldKind.RESULTS: lambda text: tuple(map(parse_register, _items(text))),
    FieldKind.SEGMENTS: _parse_segments,
    FieldKind.GLOBAL: _parse_number,
    FieldKind.RODATA: _parse_number,
    FieldKind.STRING: unquote,
    FieldKind.MOVES: _parse_moves,
}


def _parse_field(
    field: Field, text: str, names: Names, labels: Mapping[str, int]
) -> FieldValue:
    plain = _PLAIN_PARSERS.get(field.kind)
    if plain is not None:
        return plain(text)
    if field.kind is FieldKind.IMMEDIATE:
        return _parse_immediate(text, field.bank)
    if field.kind is FieldKind.FUNCTION:
        return _parse_function(text, names)
    if field.kind is FieldKind.TYPE:
        return _parse_type(text, names)
    if field.kind is FieldKind.TARGET:
        return _parse_target(text.removeprefix("^"), labels)
    return tuple(
        (_parse_target(name, labels), _parse_moves(moves))
        for name, moves in _CASE.findall(text)
    )
