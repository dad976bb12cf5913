from __future__ import annotations

import pytest
from hypothesis import given

from tilewright.base.errors import ArchiveError
from tilewright.formats.bytecode.encoding import Instruction, bits_from_float
from tilewright.formats.bytecode.isa import IMPORT_BIT, MOVE_BIT, REF_BIT, opcode_by_name
from tilewright.formats.bytecode.text import (
    Names,
    format_instruction,
    parse_instruction,
    quote,
    unquote,
)
from unit.formats.bytecode.instructions import PLAIN

NAMES = Names(
    module="own",
    imports=["hal.fence.create", "hal.fence.await"],
    functions=["main", ""],
    types=["i32", "!hal.buffer"],
    rodata_bytes=[19],
)
LABELS = {0: "bb0", 0x20: "bb1"}
R = REF_BIT


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("const.i32", (-1, 3), "%i3 = vm.const.i32 -1  // 0xFFFFFFFF"),
        ("const.i64", (7, 4), "%i4:5 = vm.const.i64 7  // 0x0000000000000007"),
        ("const.i64.zero", (4,), "%i4:5 = vm.const.i64.zero"),
        ("const.f32", (bits_from_float(0.1, "f32"), 1), "%i1 = vm.const.f32 0.100000001"),
        ("const.ref.rodata", (0, R | 2), "%r2 = vm.const.ref.rodata 0  // 19b"),
        ("shr.i64.u", (26, 3, 32), "%i32:33 = vm.shr.i64.u %i26:27, %i3"),
        (
            "select.i64",
            (34, 36, 38, 38),
            "%i38:39 = vm.select.i64 %i34 ? %i36:37 : %i38:39",
        ),
        (
            "global.load.ref",
            (1, 1, R | 3),
            "%r3 = vm.global.load.ref .refs[1] : !hal.buffer",
        ),
        ("global.store.i64", (8, 2), "vm.global.store.i64 %i2:3, .rwdata[8]"),
        ("buffer.store.i32", (R, 2, 1), "vm.buffer.store.i32 %i1, %r0, %i2:3"),
        ("list.alloc", (0, 5, R), "%r0 = vm.list.alloc %i5 : !vm.list<i32>"),
        (
            "cast.any.ref",
            (R | 1 | MOVE_BIT, 1, R),
            "%r0 = vm.cast.any.ref %R1 : !vm.ref<?> -> !hal.buffer",
        ),
        ("switch.i32", (0, 1, (2, 3), 4), "%i4 = vm.switch.i32 %i0[%i2, %i3] else %i1"),
        ("br", (0x20, ((23, 8), (R | 4 | MOVE_BIT, R))), "vm.br ^bb1(%i23->%i8, %R4->%r0)"),
        ("cond_br", (0, 0x20, (), 0, ((1, 2),)), "vm.cond_br %i0, ^bb1(), ^bb0(%i1->%i2)"),
        (
            "br_table",
            (1, 0, (), ((0x20, ((0, 1),)), (0, ()))),
            "vm.br_table %i1 { default: ^bb0(), 0: ^bb1(%i0->%i1), 1: ^bb0() }",
        ),
        (
            "call",
            (IMPORT_BIT, (R, 14), (R | 4,)),
            "%r4 = vm.call @hal.fence.create(%r0, %i14)",
        ),
        ("call", (0, (), ()), "vm.call @own.main()"),
        ("call", (1, (), ()), "vm.call @own:1()"),
        (
            "call.variadic.yieldable",
            (IMPORT_BIT | 1, (0xFFFF, 1), (10, R | 1 | MOVE_BIT), 0x20, (0,)),
            "vm.call.variadic.yieldable @hal.fence.await segments[65535, 1](%i10, %R1) -> ^bb1(%i0)",
        ),
        ("return", ((),), "vm.return"),
        ("return", ((R | MOVE_BIT, 4),), "vm.return %R0, %i4"),
        ("fail", (4, b"no device"), 'vm.fail %i4, "no device"'),
        ("trace", (b"here", (1, R)), 'vm.trace "here"(%i1, %r0)'),
        ("discard.refs", ((R | 1 | MOVE_BIT,),), "vm.discard.refs %R1"),
    ],
)
def test_instructions_read_as_in_iree(
    name: str, values: tuple[object, ...], text: str
) -> None:
    instruction = Instruction(opcode_by_name(name), values)
    assert format_instruction(instruction, NAMES, LABELS) == text
    labels = {label: pc for pc, label in LABELS.items()}
    assert parse_instruction(text, NAMES, labels) == instruction


@given(PLAIN)
def test_every_instruction_is_read_back_as_it_was(instruction: Instruction) -> None:
    everything = Names(
        module="m",
        imports=Everything("import"),
        functions=Everything("fn"),
        types=Everything("!type"),
    )
    labels = {pc: f"pc{pc}" for pc in instruction.targets()}
    text = format_instruction(instruction, everything, labels)
    back = parse_instruction(text, everything, {label: pc for pc, label in labels.items()})
    assert back == Instruction(instruction.opcode, instruction.values)


class Everything:
    """A table of names that has every ordinal."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def __len__(self) -> int:
        return 1 << 33

    def __getitem__(self, ordinal: int) -> str:
        return f"{self.prefix}{ordinal}"

    def __contains__(self, name: str) -> bool:
        return name.removeprefix(self.prefix).isdigit()

    def index(self, name: str) -> int:
        return int(name.removeprefix(self.prefix))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("add %i0", "is not an instruction"),
        ("vm.add.i65 %i0", "unknown opcode 'vm.add.i65'"),
        ("%i0 = vm.add.i32 %i1", "does not read 'vm.add.i32 {left}, {right}'"),
        ("%i0 = vm.add.i32 %i1, %i40000", "register '%i40000' does not exist"),
        ("%i0 = vm.const.i32 4294967296", "does not fit i32"),
        ("%i0 = vm.const.i32 four", "is not a number of type i32"),
        ("vm.call @nobody()", "unknown function '@nobody'"),
        ("%r0 = vm.global.load.ref .refs[0] : !no.type", "unknown type '!no.type'"),
        ("vm.br ^bb7()", r"unknown block '\^bb7'"),
        ("vm.br ^bb0(%i0)", "'%i0' is not a move"),
        ("vm.br ^bb0(%i0=>%i1)", "is not a move"),
        ("%r0 = vm.const.ref.rodata 99999999999", "does not fit 32 bits"),
        ("vm.call.variadic @main segments[70000]()", "do not fit 16 bits"),
    ],
)
def test_other_text_is_refused(line: str, complaint: str) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        parse_instruction(line, NAMES, {"bb0": 0})


def test_functions_are_found_by_any_of_their_names() -> None:
    for name in ("main", "own.main", "own:0"):
        assert parse_instruction(f"vm.call @{name}()", NAMES, {}).values[0] == 0
    for name in ("own:2", "other:0", "own.", ""):
        with pytest.raises(ArchiveError, match=r"unknown function|does not read"):
            parse_instruction(f"vm.call @{name}()", NAMES, {})


@pytest.mark.parametrize(
    "data", [b"", b'a"b\\c', b"line\nnext\ttab\r", b"\x00\x1f", b"\xff\xc3", "é".encode()]
)
def test_strings_survive_quoting(data: bytes) -> None:
    assert unquote(quote(data)) == data
    assert "\n" not in quote(data)
