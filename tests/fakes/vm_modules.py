"""Bytecode modules that call single opcodes, and the operands to try.

What it is: for every opcode that computes words from words, an exported function over bit patterns;
operands with the awkward values of each type.  Shared by the tests and by the script that records
what IREE's interpreter answers.
What it is not: programs; those stand in the tests that need them.
"""

from __future__ import annotations

import itertools
import math
import random
import struct
from collections.abc import Iterator

from tilewright.formats.bytecode.drafts import Register
from tilewright.formats.bytecode.forms import FieldKind
from tilewright.formats.bytecode.isa import OPCODES, Opcode
from tilewright.formats.vmfb import ModuleBuilder, ModuleDef

WORD_BANKS = ("i32", "i64", "f32", "f64")
CASES_PER_OPCODE = 28

_I32 = (0, 1, -1, 2, 7, -7, 31, 33, 127, 128, -129, 65535, -32768, 2**31 - 1, -(2**31))
_I64 = (*_I32, 63, 65, 2**31, 2**32, -(2**40), 2**63 - 1, -(2**63), 0x0123456789ABCDEF)
_FLOATS = (
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, -0.25, 1.5, 2.5, -2.5, 0.1, -7.25, math.pi, 100.0, 1e-3, 1e10, -3e38,
    1e-42, math.inf, -math.inf, math.nan,
)  # fmt: skip


def arithmetic_opcodes() -> list[Opcode]:
    """Opcodes with word operands and one word result, and nothing else."""
    return [opcode for opcode in OPCODES if _is_arithmetic(opcode)]


def _is_arithmetic(opcode: Opcode) -> bool:
    kinds = [field.kind for field in opcode.fields]
    operands = kinds[:-1]
    return (
        bool(operands)
        and kinds[-1] is FieldKind.RESULT
        and all(kind is FieldKind.OPERAND for kind in operands)
        and all(field.bank in WORD_BANKS for field in opcode.fields)
        and not opcode.name.startswith("global.")
    )


def arithmetic_module(name: str = "arithmetic") -> ModuleDef:
    """One export per opcode: bit patterns as i64 in, bit pattern as i64 out."""
    module = ModuleBuilder(name)
    for opcode in arithmetic_opcodes():
        opcode_function(module, opcode, opcode.name)
    return module.finish()


def opcode_function(module: ModuleBuilder, opcode: Opcode, export: str) -> None:
    """A function over bit patterns that runs one opcode."""
    banks = [field.bank for field in opcode.fields]
    build = module.function(f"0{'I' * (len(banks) - 1)}_I", export=export)
    operands = [
        from_bits(build, register, bank)
        for register, bank in zip(build.arguments, banks, strict=False)
    ]
    result = build.emit(opcode.name, *operands)
    build.return_(to_bits(build, result, banks[-1]))


def from_bits(build: object, register: Register, bank: str) -> Register:
    """The value of `bank` whose bits an i64 holds."""
    emit = build.emit
    if bank == "i64":
        return register
    if bank == "f64":
        return emit("bitcast.i64.f64", register)
    narrow = emit("trunc.i64.i32", register)
    return narrow if bank == "i32" else emit("bitcast.i32.f32", narrow)


def to_bits(build: object, register: Register, bank: str) -> Register:
    """The bits of a value, in an i64."""
    emit = build.emit
    if bank == "i64":
        return register
    if bank == "f64":
        return emit("bitcast.f64.i64", register)
    word = emit("bitcast.f32.i32", register) if bank == "f32" else register
    return emit("ext.i32.i64.u", word)


def bits(value: float, bank: str) -> int:
    """The bits of a value as a signed i64."""
    if bank in ("i32", "i64"):
        return int(value)
    if bank == "f64":
        return struct.unpack("<q", struct.pack("<d", value))[0]
    return struct.unpack("<I", struct.pack("<f", value))[0]


def value_of(pattern: int, bank: str) -> float:
    """The value that bits stand for."""
    if bank == "i64":
        return pattern
    if bank == "i32":
        return (pattern + 2**31) % 2**32 - 2**31
    if bank == "f64":
        return struct.unpack("<d", struct.pack("<q", pattern))[0]
    return struct.unpack("<f", struct.pack("<I", pattern & 0xFFFFFFFF))[0]


def operands_of(opcode: Opcode) -> list[tuple[int, ...]]:
    """Bit patterns to try, the same in every run; none that C leaves undefined."""
    banks = [field.bank for field in opcode.fields[:-1]]
    pools = [_I32 if b == "i32" else _I64 if b == "i64" else _FLOATS for b in banks]
    # A seed of its own per opcode: the cases of one do not move when another is added.
    chooser = random.Random(opcode.name)
    rows = list(itertools.product(*pools))
    chooser.shuffle(rows)
    found: list[tuple[int, ...]] = []
    for row in (*_diagonals(pools), *rows):
        if _is_defined(opcode, row):
            found.append(tuple(bits(v, b) for v, b in zip(row, banks, strict=True)))
        if len(found) == CASES_PER_OPCODE:
            break
    return list(dict.fromkeys(found))


def _diagonals(pools: list[tuple[float, ...]]) -> Iterator[tuple[float, ...]]:
    """Equal operands, where comparisons turn."""
    if len(pools) > 1:
        yield from ((v,) * len(pools) for v in pools[0][:6])


def _is_defined(opcode: Opcode, row: tuple[float, ...]) -> bool:
    name = opcode.name
    width = 32 if "i32" in name else 64
    if name.startswith(("div.i", "rem.i")):
        return row[1] != 0 and not (row[0] == -(2 ** (width - 1)) and row[1] == -1)
    if name.startswith(("shl.", "shr.")):
        return 0 <= row[1] < width
    if name.startswith("cast.f"):
        low = 0 if ".ui" in name else -(2.0 ** (width - 1))
        high = 2.0**width if ".ui" in name else 2.0 ** (width - 1)
        return math.isfinite(row[0]) and low - 1 < row[0] < high
    if name.startswith("ctlz"):
        return True
    if name.startswith("abs.i"):
        return row[0] != -(2 ** (width - 1))
    return not (name.startswith("fpowi") and abs(row[1]) > 1000)
