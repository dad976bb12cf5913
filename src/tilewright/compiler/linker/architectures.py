"""Machines and their relocations, as tables that grow by a row.

A row says what a relocation's value is (`S + A - P` and its relatives), how wide it may be and
how it is written into the instruction.  The linker iterates over nothing else; it knows no
machine.  x86-64 is complete for position-independent code; AArch64 and RISC-V carry what their
code generators emit for freestanding kernels.

Source: System V psABI for x86-64 (section 4.4), ELF for the Arm 64-bit Architecture (section
5.7), RISC-V ELF psABI (section 8.4).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Final, final

from tilewright.base.record import record
from tilewright.formats.elf.dynamic import DYNAMIC, DynamicTypes, dynamic_by_number


class Value(enum.Enum):
    """How the value of a relocation is computed.

    S symbol, A addend, P place, G the symbol's slot in the offset table, T the table itself.
    """

    IGNORED = "nothing to do"
    POINTER = "S + A, patched by the loader"
    ABSOLUTE = "S + A, for constants only"
    LOW = "S + A, only bits below the page size"
    RELATIVE = "S + A - P"
    PAGE = "page(S + A) - page(P)"
    SLOT_RELATIVE = "G + A - P"
    SLOT_PAGE = "page(G + A) - page(P)"
    SLOT_LOW = "G + A, only bits below the page size"
    SLOT_OFFSET = "G + A - T"
    TABLE_RELATIVE = "T + A - P"
    TABLE_OFFSET = "S + A - T"
    SIZE = "size of S + A"
    PAIRED = "value of the relocation at the label S"
    ADD = "S + A, added to what is there"
    SUBTRACT = "S + A, subtracted from what is there"
    REFUSED = "refused"


NEEDS_SLOT: Final = frozenset(
    {Value.SLOT_RELATIVE, Value.SLOT_PAGE, Value.SLOT_LOW, Value.SLOT_OFFSET}
)

Writer = Callable[[bytearray, int, int], None]


@final
@record(kw_only=True)
class RelocationRule:
    """One relocation type.

    Units: `width` is the number of bytes touched; `low`/`high` bound the value (inclusive),
    which must also be a multiple of `multiple`.
    """

    name: str
    value: Value
    write: Writer
    width: int
    low: int = -(1 << 63)
    high: int = (1 << 64) - 1
    multiple: int = 1
    reason: str = ""


Relax = Callable[[bytearray, int, int, int], "tuple[int, int] | None"]


def _no_relaxation(code: bytearray, offset: int, kind: int, addend: int) -> None:
    del code, offset, kind, addend


@final
@record(kw_only=True)
class Architecture:
    """One instruction set as the linker and the loader see it.

    Units: `page_bytes` is the distance that keeps segments on pages of their own on every
    system the machine runs.
    """

    dynamic: DynamicTypes
    page_bytes: int
    filler: bytes
    rules: Mapping[int, RelocationRule]
    relax: Relax = _no_relaxation

    @property
    def name(self) -> str:
        """What targets call the instruction set."""
        return self.dynamic.name

    @property
    def number(self) -> int:
        """The `e_machine` value."""
        return self.dynamic.number


def _store(width: int) -> Writer:
    mask = (1 << (8 * width)) - 1

    def write(code: bytearray, offset: int, value: int) -> None:
        code[offset : offset + width] = (value & mask).to_bytes(width, "little")

    return write


def _accumulate(width: int, sign: int) -> Writer:
    mask = (1 << (8 * width)) - 1

    def write(code: bytearray, offset: int, value: int) -> None:
        old = int.from_bytes(code[offset : offset + width], "little")
        code[offset : offset + width] = ((old + sign * value) & mask).to_bytes(
            width, "little"
        )

    return write


def _insert(*fields: tuple[int, int, int], width: int = 4) -> Writer:
    """A writer that puts bits of the value into an instruction word.

    Args:
        fields: `(from_bit, bit_count, to_bit)` triples.
        width: bytes of the instruction word.
    """
    clear = 0
    for _, count, to_bit in fields:
        clear |= ((1 << count) - 1) << to_bit

    def write(code: bytearray, offset: int, value: int) -> None:
        word = int.from_bytes(code[offset : offset + width], "little") & ~clear
        for from_bit, count, to_bit in fields:
            word |= ((value >> from_bit) & ((1 << count) - 1)) << to_bit
        code[offset : offset + width] = word.to_bytes(width, "little")

    return write


def _plain(
    name: str, value: Value, width: int, *, signed: bool = True, either: bool = False
) -> RelocationRule:
    bits = 8 * width
    low = -(1 << (bits - 1)) if signed or either else 0
    high = (1 << bits) - 1 if either or not signed else (1 << (bits - 1)) - 1
    if width == 8:
        low, high = -(1 << 63), (1 << 64) - 1
    return RelocationRule(
        name=name, value=value, write=_store(width), width=width, low=low, high=high
    )


def _refused(name: str, reason: str) -> RelocationRule:
    return RelocationRule(
        name=name, value=Value.REFUSED, write=_store(0), width=0, reason=reason
    )


def _ignored(name: str) -> RelocationRule:
    return RelocationRule(name=name, value=Value.IGNORED, write=_store(0), width=0)


# --- x86-64 ------------------------------------------------------------------------------------

_PC32: Final = 2
_GOTPCRELX: Final = 41
_REX_GOTPCRELX: Final = 42
_THREAD: Final = "thread-local data is not possible in a kernel"
_LINKED: Final = "it belongs into linked files only"


def _x86_rules() -> dict[int, RelocationRule]:
    rules = {
        0: _ignored("R_X86_64_NONE"),
        1: _plain("R_X86_64_64", Value.POINTER, 8),
        _PC32: _plain("R_X86_64_PC32", Value.RELATIVE, 4),
        3: _plain("R_X86_64_GOT32", Value.SLOT_OFFSET, 4),
        4: _plain("R_X86_64_PLT32", Value.RELATIVE, 4),
        9: _plain("R_X86_64_GOTPCREL", Value.SLOT_RELATIVE, 4),
        10: _plain("R_X86_64_32", Value.ABSOLUTE, 4, signed=False),
        11: _plain("R_X86_64_32S", Value.ABSOLUTE, 4),
        12: _plain("R_X86_64_16", Value.ABSOLUTE, 2, either=True),
        13: _plain("R_X86_64_PC16", Value.RELATIVE, 2),
        14: _plain("R_X86_64_8", Value.ABSOLUTE, 1, either=True),
        15: _plain("R_X86_64_PC8", Value.RELATIVE, 1),
        24: _plain("R_X86_64_PC64", Value.RELATIVE, 8),
        25: _plain("R_X86_64_GOTOFF64", Value.TABLE_OFFSET, 8),
        26: _plain("R_X86_64_GOTPC32", Value.TABLE_RELATIVE, 4),
        27: _plain("R_X86_64_GOT64", Value.SLOT_OFFSET, 8),
        28: _plain("R_X86_64_GOTPCREL64", Value.SLOT_RELATIVE, 8),
        29: _plain("R_X86_64_GOTPC64", Value.TABLE_RELATIVE, 8),
        30: _plain("R_X86_64_GOTPLT64", Value.SLOT_OFFSET, 8),
        31: _plain("R_X86_64_PLTOFF64", Value.TABLE_OFFSET, 8),
        32: _plain("R_X86_64_SIZE32", Value.SIZE, 4, signed=False),
        33: _plain("R_X86_64_SIZE64", Value.SIZE, 8),
        _GOTPCRELX: _plain("R_X86_64_GOTPCRELX", Value.SLOT_RELATIVE, 4),
        _REX_GOTPCRELX: _plain("R_X86_64_REX_GOTPCRELX", Value.SLOT_RELATIVE, 4),
        43: _plain("R_X86_64_CODE_4_GOTPCRELX", Value.SLOT_RELATIVE, 4),
    }
    thread = {16: "DTPMOD64", 17: "DTPOFF64", 18: "TPOFF64", 19: "TLSGD", 20: "TLSLD"}
    thread |= {21: "DTPOFF32", 22: "GOTTPOFF", 23: "TPOFF32", 34: "GOTPC32_TLSDESC"}
    thread |= {35: "TLSDESC_CALL", 36: "TLSDESC"}
    linked = {5: "COPY", 6: "GLOB_DAT", 7: "JUMP_SLOT", 8: "RELATIVE", 37: "IRELATIVE"}
    rules |= {n: _refused(f"R_X86_64_{name}", _THREAD) for n, name in thread.items()}
    rules |= {n: _refused(f"R_X86_64_{name}", _LINKED) for n, name in linked.items()}
    return rules


def _relax_x86(
    code: bytearray, offset: int, kind: int, addend: int
) -> tuple[int, int] | None:
    """Turn an indirect access through the offset table into a direct one.

    rewrite: `mov f@GOT(%rip), r` → `lea f(%rip), r`; `call *f@GOT(%rip)` → `addr32 call f`;
    `jmp *f@GOT(%rip)` → `jmp f; nop`.  Other forms keep their table slot.

    Returns:
        The new relocation type and offset, or None when nothing was changed.
    """
    if kind not in (_GOTPCRELX, _REX_GOTPCRELX) or addend != -4 or offset < 2:
        return None
    opcode, modrm = code[offset - 2], code[offset - 1]
    if opcode == 0x8B:
        code[offset - 2] = 0x8D
        return _PC32, offset
    if kind == _GOTPCRELX and opcode == 0xFF and modrm == 0x15:
        code[offset - 2 : offset] = b"\x67\xe8"
        return _PC32, offset
    if kind == _GOTPCRELX and opcode == 0xFF and modrm == 0x25:
        code[offset - 2] = 0xE9
        code[offset + 3] = 0x90
        return _PC32, offset - 1
    return None


# --- AArch64 -----------------------------------------------------------------------------------


def _word(
    name: str,
    value: Value,
    *fields: tuple[int, int, int],
    bits: int | None = None,
    multiple: int = 1,
) -> RelocationRule:
    low, high = (-(1 << 63), (1 << 64) - 1)
    if bits is not None:
        low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return RelocationRule(
        name=name,
        value=value,
        write=_insert(*fields),
        width=4,
        low=low,
        high=high,
        multiple=multiple,
    )


def _aarch64_rules() -> dict[int, RelocationRule]:
    page = ((12, 2, 29), (14, 19, 5))
    near = ((0, 2, 29), (2, 19, 5))
    rel, low = Value.RELATIVE, Value.LOW
    rules = {
        0: _ignored("R_AARCH64_NONE"),
        256: _ignored("R_AARCH64_NONE"),
        257: _plain("R_AARCH64_ABS64", Value.POINTER, 8),
        258: _plain("R_AARCH64_ABS32", Value.ABSOLUTE, 4, either=True),
        259: _plain("R_AARCH64_ABS16", Value.ABSOLUTE, 2, either=True),
        260: _plain("R_AARCH64_PREL64", rel, 8),
        261: _plain("R_AARCH64_PREL32", rel, 4, either=True),
        262: _plain("R_AARCH64_PREL16", rel, 2, either=True),
        273: _word("R_AARCH64_LD_PREL_LO19", rel, (2, 19, 5), bits=21, multiple=4),
        274: _word("R_AARCH64_ADR_PREL_LO21", rel, *near, bits=21),
        275: _word("R_AARCH64_ADR_PREL_PG_HI21", Value.PAGE, *page, bits=33),
        276: _word("R_AARCH64_ADR_PREL_PG_HI21_NC", Value.PAGE, *page),
        277: _word("R_AARCH64_ADD_ABS_LO12_NC", low, (0, 12, 10)),
        278: _word("R_AARCH64_LDST8_ABS_LO12_NC", low, (0, 12, 10)),
        279: _word("R_AARCH64_TSTBR14", rel, (2, 14, 5), bits=16, multiple=4),
        280: _word("R_AARCH64_CONDBR19", rel, (2, 19, 5), bits=21, multiple=4),
        282: _word("R_AARCH64_JUMP26", rel, (2, 26, 0), bits=28, multiple=4),
        283: _word("R_AARCH64_CALL26", rel, (2, 26, 0), bits=28, multiple=4),
        284: _word("R_AARCH64_LDST16_ABS_LO12_NC", low, (1, 11, 10), multiple=2),
        285: _word("R_AARCH64_LDST32_ABS_LO12_NC", low, (2, 10, 10), multiple=4),
        286: _word("R_AARCH64_LDST64_ABS_LO12_NC", low, (3, 9, 10), multiple=8),
        299: _word("R_AARCH64_LDST128_ABS_LO12_NC", low, (4, 8, 10), multiple=16),
        311: _word("R_AARCH64_ADR_GOT_PAGE", Value.SLOT_PAGE, *page, bits=33),
        312: _word("R_AARCH64_LD64_GOT_LO12_NC", Value.SLOT_LOW, (3, 9, 10), multiple=8),
    }
    rules |= {n: _refused(f"R_AARCH64_TLS_{n}", _THREAD) for n in range(512, 574)}
    return rules


# --- RISC-V ------------------------------------------------------------------------------------


def _write_riscv_upper(code: bytearray, offset: int, value: int) -> None:
    _insert((12, 20, 12))(code, offset, value + 0x800)


def _write_riscv_call(code: bytearray, offset: int, value: int) -> None:
    _write_riscv_upper(code, offset, value)
    _insert((0, 12, 20))(code, offset + 4, value)


def _riscv_upper(name: str, value: Value, write: Writer, width: int) -> RelocationRule:
    bound = (1 << 31) - 0x800
    return RelocationRule(
        name=name, value=value, write=write, width=width, low=-bound, high=bound - 1
    )


def _riscv_short(
    name: str, bits: int, fields: tuple[tuple[int, int, int], ...]
) -> RelocationRule:
    return RelocationRule(
        name=name,
        value=Value.RELATIVE,
        write=_insert(*fields, width=2),
        width=2,
        low=-(1 << (bits - 1)),
        high=(1 << (bits - 1)) - 1,
        multiple=2,
    )


def _riscv_differences() -> dict[int, RelocationRule]:
    rules: dict[int, RelocationRule] = {}
    for index, width in enumerate((1, 2, 4, 8)):
        rules[33 + index] = RelocationRule(
            name=f"R_RISCV_ADD{8 * width}",
            value=Value.ADD,
            write=_accumulate(width, 1),
            width=width,
        )
        rules[37 + index] = RelocationRule(
            name=f"R_RISCV_SUB{8 * width}",
            value=Value.SUBTRACT,
            write=_accumulate(width, -1),
            width=width,
        )
    return rules


def _riscv_rules() -> dict[int, RelocationRule]:
    rel = Value.RELATIVE
    branch = ((11, 1, 7), (1, 4, 8), (5, 6, 25), (12, 1, 31))
    jump = ((12, 8, 12), (11, 1, 20), (1, 10, 21), (20, 1, 31))
    store = ((0, 5, 7), (5, 7, 25))
    short_branch = ((5, 1, 2), (1, 2, 3), (6, 2, 5), (3, 2, 10), (8, 1, 12))
    short_jump = (
        *((5, 1, 2), (1, 3, 3), (7, 1, 6), (6, 1, 7)),
        *((10, 1, 8), (8, 2, 9), (4, 1, 11), (11, 1, 12)),
    )

    rules = {
        0: _ignored("R_RISCV_NONE"),
        1: _plain("R_RISCV_32", Value.ABSOLUTE, 4, either=True),
        2: _plain("R_RISCV_64", Value.POINTER, 8),
        16: _word("R_RISCV_BRANCH", rel, *branch, bits=13, multiple=2),
        17: _word("R_RISCV_JAL", rel, *jump, bits=21, multiple=2),
        18: _riscv_upper("R_RISCV_CALL", rel, _write_riscv_call, 8),
        19: _riscv_upper("R_RISCV_CALL_PLT", rel, _write_riscv_call, 8),
        20: _riscv_upper("R_RISCV_GOT_HI20", Value.SLOT_RELATIVE, _write_riscv_upper, 4),
        23: _riscv_upper("R_RISCV_PCREL_HI20", rel, _write_riscv_upper, 4),
        24: _word("R_RISCV_PCREL_LO12_I", Value.PAIRED, (0, 12, 20)),
        25: _word("R_RISCV_PCREL_LO12_S", Value.PAIRED, *store),
        43: _ignored("R_RISCV_ALIGN"),
        44: _riscv_short("R_RISCV_RVC_BRANCH", 9, short_branch),
        45: _riscv_short("R_RISCV_RVC_JUMP", 12, short_jump),
        51: _ignored("R_RISCV_RELAX"),
        57: _plain("R_RISCV_32_PCREL", rel, 4),
    }
    rules |= _riscv_differences()
    absolute = "an absolute address; compile with the position-independent relocation model"
    rules |= {
        n: _refused(f"R_RISCV_{name}", absolute)
        for n, name in {26: "HI20", 27: "LO12_I", 28: "LO12_S"}.items()
    }
    rules |= {
        n: _refused(f"R_RISCV_{name}", _THREAD)
        for n, name in {21: "TLS_GOT_HI20", 22: "TLS_GD_HI20", 29: "TPREL_HI20"}.items()
    }
    return rules


# --- the table ---------------------------------------------------------------------------------

_ALL: Final = (
    Architecture(
        dynamic=DYNAMIC["x86_64"],
        page_bytes=4096,
        filler=b"\xcc",
        rules=_x86_rules(),
        relax=_relax_x86,
    ),
    Architecture(
        dynamic=DYNAMIC["aarch64"],
        page_bytes=65536,
        filler=b"\0",
        rules=_aarch64_rules(),
    ),
    Architecture(
        dynamic=DYNAMIC["riscv64"],
        page_bytes=4096,
        filler=b"\0",
        rules=_riscv_rules(),
    ),
)

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    architecture.name: architecture for architecture in _ALL
}


def architecture_by_number(number: int, location: str) -> Architecture:
    """The architecture with the given `e_machine` value.  Raises: ArchiveError if there is none."""
    return ARCHITECTURES[dynamic_by_number(number, location).name]
