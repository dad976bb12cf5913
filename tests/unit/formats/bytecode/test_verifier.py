from __future__ import annotations

import pytest

from fakes.complaints import complaint_of
from tilewright.base.errors import ArchiveError
from tilewright.formats.bytecode.encoding import FieldValue, Instruction
from tilewright.formats.bytecode.isa import (
    BLOCK,
    IMPORT_BIT,
    MOVE_BIT,
    REF_BIT,
    opcode_by_name,
)
from tilewright.formats.bytecode.verifier import (
    FunctionLimits,
    ModuleLimits,
    _unfold,
    verify_function,
)
from tilewright.formats.calling_convention import parse_calling_convention
from tilewright.formats.vmfb import decode_module, read_archive

MODULE = ModuleLimits(
    imports=[parse_calling_convention(text) for text in ("0rI_I", "0iCiID_r")],
    functions=[parse_calling_convention("0i_i")],
    type_count=2,
    rodata_count=1,
    global_bytes=12,
    global_refs=1,
)
R, I0, I1 = REF_BIT, IMPORT_BIT, IMPORT_BIT | 1
PLAIN = 0xFFFF


def check(*items: tuple[str, tuple[FieldValue, ...]], **limits: object) -> None:
    """Verify a function of one block with the given instructions before its return."""
    code = [Instruction(BLOCK, (), 0)]
    code += [Instruction(opcode_by_name(name), values, 1) for name, values in items]
    if not items or not code[-1].opcode.terminator:
        code.append(Instruction(opcode_by_name("return"), ((),), 9))
    verify(code, **limits)


def verify(code: list[Instruction], **limits: object) -> None:
    declared = {
        "convention": parse_calling_convention("0v_v"),
        "block_count": 1,
        "word_registers": 6,
        "ref_registers": 2,
        **limits,
    }
    verify_function(code, FunctionLimits(**declared), MODULE, "@f")


def test_all_code_of_iree_is_accepted(iree_archive: bytes) -> None:
    module = read_archive(iree_archive)
    assert len(decode_module(module)) == len(module.functions)
    inner = [item.data for item in module.rodata if bytes(item.data[:4]) == b"PK\x03\x04"]
    for data in inner:
        assert decode_module(read_archive(data))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("add.i32", (5, 5, 5)),
        ("add.i64", (4, 0, 2)),
        ("const.ref.zero", (R | 1,)),
        ("buffer.length", (R | 1 | MOVE_BIT, 4)),
        ("global.store.i64", (4, 2)),
        ("global.load.ref", (0, 1, R)),
        ("const.ref.rodata", (0, R)),
        ("call", (I0, (R, 4), (2,))),
        ("call", (0, (5,), (5,))),
        ("call.variadic", (I1, (PLAIN, 2), (0, 1, 2, 3, 4), (R | 1,))),
        ("call.variadic", (I1, (PLAIN, 0), (0,), (R | 1,))),
        ("call.variadic", (I1, (1, 0), (0,), (R | 1,))),
        ("import.resolved", (I1, 0)),
        ("br", (0, ((0, 5), (R | MOVE_BIT, R | 1)))),
        ("br_table", (0, 0, (), ((0, ()), (0, ((1, 2),))))),
        ("switch.i64", (0, 2, (0, 4), 2)),
    ],
)
def test_what_stays_inside_the_limits_is_accepted(
    name: str, values: tuple[FieldValue, ...]
) -> None:
    assert complaint_of(check, (name, values)) == ""


@pytest.mark.parametrize(
    ("name", "values", "complaint"),
    [
        ("add.i32", (6, 0, 0), "left: word register 6 of 6"),
        ("add.i32", (0, 0, 6), "result: word register 6 of 6"),
        ("add.i64", (1, 0, 0), "left: i64 in the odd register 1"),
        ("add.i64", (0, 0, 6), "result: word register 7 of 6"),
        ("add.i32", (R, 0, 0), "left: a reference register, expected i32"),
        ("cmp.eq.ref", (0, R, 0), "left: a word register, expected ref"),
        ("cmp.eq.ref", (R | 2, R, 0), "left: reference register 2 of 2"),
        ("switch.i64", (0, 0, (0, 3), 0), "values: i64 in the odd register 3"),
        ("global.load.i32", (12, 0), "bytes 12 to 16 of 12"),
        ("global.load.i64", (8, 0), "bytes 8 to 16 of 12"),
        ("global.load.i32", (2, 0), "byte 2 is not aligned"),
        ("global.load.ref", (1, 0, R), "place: reference 1 of 1"),
        ("global.load.ref", (0, 2, R), "type: 2 of 2"),
        ("const.ref.rodata", (1, R), "segment: 1 of 1"),
        ("br", (1, ()), "0x1 is not the start of a block"),
        ("br", (0, ((0, R),)), "between words and references"),
        ("br", (0, ((R, R | MOVE_BIT),)), "target of a move has the move bit"),
        ("br", (0, ((9, 0),)), "moves: word register 9 of 6"),
        ("br_table", (0, 0, (), ((5, ()),)), "0x5 is not the start"),
        ("br_table", (0, 0, (), ((0, ((9, 0),)),)), "word register 9"),
        ("call", (I0 | 2, (), ()), "import 2 of 2"),
        ("call", (1, (), ()), "function 1 of 1"),
        ("call", (I0, (R,), (2,)), "1 arguments, expected 2"),
        ("call", (I0, (R, 3), (2,)), "arguments 1: i64 in the odd register"),
        ("call", (I0, (R, 2), ()), "0 results, expected 1"),
        ("call", (0, (R,), (0,)), "arguments 0: a reference register, expected i32"),
        ("call", (I1, (0,), (R,)), "the callee takes lists"),
        ("call.variadic", (I1, (PLAIN,), (0,), (R,)), "1 segments for 2 arguments"),
        ("call.variadic", (I1, (PLAIN, PLAIN), (0,), (R,)), "a list argument has no size"),
        (
            "call.variadic",
            (I1, (2, 0), (0,), (R,)),
            "plain argument has the segment size 2",
        ),
        ("call.variadic", (I1, (PLAIN, 9), (0, 1), (R,)), "longer than the operands"),
        ("call.variadic", (I1, (PLAIN, 1), (0, 1, 3), (R,)), "arguments 2: i64 in the odd"),
        ("import.resolved", (0, 0), "not an import"),
        ("return", ((0,),), "1 results, expected 0"),
    ],
)
def test_what_leaves_the_limits_is_refused_with_its_place(
    name: str, values: tuple[FieldValue, ...], complaint: str
) -> None:
    with pytest.raises(ArchiveError, match=rf"@f\+0x1: {name}: .*{complaint}"):
        check((name, values))


def test_blocks_are_marked_counted_and_ended() -> None:
    block = Instruction(BLOCK, ())
    add = Instruction(opcode_by_name("add.i32"), (0, 0, 0))
    end = Instruction(opcode_by_name("return"), ((),))
    for code, complaint in (
        ([], "no terminator"),
        ([add, end], "'add.i32' stands outside of a block"),
        ([block, add], "the last block has no terminator"),
        ([block, add, block, end], "the block before has no terminator"),
        ([block, end, end], "'return' stands outside of a block"),
        ([block, end, block, end], "2 blocks, the descriptor says 1"),
    ):
        with pytest.raises(ArchiveError, match=complaint):
            verify(code)


def test_arguments_must_fit_into_the_frame() -> None:
    for convention in ("0iiI_v", "0rrr_v"):
        with pytest.raises(ArchiveError, match="arguments do not fit"):
            check(convention=parse_calling_convention(convention), word_registers=3)


def test_lists_of_a_call_are_together_no_longer_than_its_operands() -> None:
    """A thousand lists of all operands each: as many banks as their product."""
    convention = parse_calling_convention(f"0{'CiD' * 1000}_v")
    banks, problem = _unfold(convention, (30_000,) * 1000, 30_000)
    assert not banks
    assert problem == "a list of 30000 entries is longer than the operands"
