from __future__ import annotations

from collections.abc import Callable

import pytest

from tilewright.base.errors import InternalError
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.encoding import decode_function
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    MOVE_BIT,
    PLAIN_ARGUMENT,
    REF_BIT,
)
from tilewright.formats.bytecode.limits import (
    FEATURE_F32,
    FEATURE_F64,
    FEATURE_UNWIND,
    FEATURE_YIELD,
)


def names(build: FunctionBuilder) -> list[str]:
    return [item.opcode.name for item in decode_function(build.finish().code)]


def test_constants_are_made_once_at_the_start() -> None:
    build = FunctionBuilder("0I_I")
    (value,) = build.arguments
    total = build.emit("add.i64", value, build.constant("i64", 5))
    total = build.emit("add.i64", total, build.constant("i64", 5))
    total = build.emit("add.i64", total, build.constant("i64", 0))
    build.return_(total)
    assert names(build) == [
        *("block", "const.i64", "const.i64.zero"),
        *("add.i64", "add.i64", "add.i64", "return"),
    ]


def test_negative_zero_is_not_the_zero_constant() -> None:
    build = FunctionBuilder("0v_f")
    build.return_(build.constant("f32", -0.0))
    code = decode_function(build.finish().code)
    assert code[1].opcode.name == "const.f32"
    assert code[1].value("value") == 0x8000_0000


def test_a_loop_brings_values_to_the_parameters_of_its_block() -> None:
    build = FunctionBuilder("0I_I")
    (count,) = build.arguments
    loop, done = build.block("i64"), build.block()
    build.branch(loop, build.constant("i64", 0))
    (index,) = build.place(loop)
    following = build.emit("add.i64", index, build.constant("i64", 1))
    build.branch_if(build.emit("cmp.lt.i64.s", following, count), loop, done, (following,))
    build.place(done)
    build.return_(following)
    function = build.finish()
    code = decode_function(function.code)
    starts = [item.pc for item in code if item.opcode.is_block]
    branch = next(item for item in code if item.opcode.name == "cond_br")
    assert branch.targets() == (starts[1], starts[2])
    assert function.block_count == 3


def test_variadic_calls_count_entries_not_registers() -> None:
    build = FunctionBuilder("0rr_v")
    first, second = build.arguments
    slot, offset = build.constant("i32", 0), build.constant("i64", 0)
    entries = [(slot, first, offset), (slot, second, offset)]
    build.call_variadic(3 | IMPORT_BIT, [offset, [], entries])
    build.return_()
    call = next(
        i for i in decode_function(build.finish().code) if i.opcode.name == "call.variadic"
    )
    assert call.value("segments") == (PLAIN_ARGUMENT, 0, 2)
    moved = [r for r in call.value("operands") if r & REF_BIT]
    assert moved == [REF_BIT | MOVE_BIT, 1 | REF_BIT | MOVE_BIT]


def test_features_follow_from_the_opcodes() -> None:
    build = FunctionBuilder("0f_F")
    build.return_(build.emit("ext.f32.f64", build.arguments[0]))
    assert build.finish().requirements == FEATURE_F64
    build = FunctionBuilder("0r_f")
    build.call_yieldable(IMPORT_BIT, [build.arguments[0]])
    build.return_(build.constant("f32", 1))
    assert build.finish().requirements == FEATURE_F32 | FEATURE_YIELD | FEATURE_UNWIND


def test_a_yieldable_call_goes_on_in_a_block_of_its_own() -> None:
    build = FunctionBuilder("0r_i")
    (status,) = build.call_yieldable(IMPORT_BIT, [[build.arguments[0]]], ["i32"])
    build.return_(status)
    assert names(build) == ["block", "call.variadic.yieldable", "block", "return"]


def test_a_value_may_be_assigned_again() -> None:
    build = FunctionBuilder("0I_I")
    (value,) = build.arguments
    build.emit("add.i64", value, value, into=value)
    build.return_(value)
    function = build.finish()
    assert function.word_registers == 2


def unplaced(build: FunctionBuilder) -> None:
    build.branch(build.block())
    build.finish()


def placed_twice(build: FunctionBuilder) -> None:
    block = build.block()
    build.branch(block)
    build.place(block)
    build.return_(build.arguments[0])
    build.place(block)


@pytest.mark.parametrize(
    ("mistake", "complaint"),
    [
        (lambda b: b.emit("add.i65", b.arguments[0]), "no VM opcode 'add.i65'"),
        (lambda b: b.emit("add.i64", b.arguments[0]), "lacks its field 'right'"),
        (lambda b: b.emit("not.i64", b.arguments[0], b.arguments[0]), "1 values too many"),
        (
            lambda b: b.emit("add.i32", b.arguments[0], b.arguments[0]),
            "wants i32 for 'left'",
        ),
        (lambda b: b.return_(), r"returns \(\), expected \('i64',\)"),
        (lambda b: b.branch(b.block("i64")), "a block takes"),
        (lambda b: b.place(b.block()), "does not end in a terminator"),
        (lambda b: b.finish(), "does not end in a terminator"),
        (unplaced, "never placed"),
        (placed_twice, "placed twice"),
    ],
)
def test_mistakes_of_an_emitter_are_internal_errors(
    mistake: Callable[[FunctionBuilder], None], complaint: str
) -> None:
    with pytest.raises(InternalError, match=complaint):
        mistake(FunctionBuilder("0I_I"))


def test_nothing_stands_behind_a_terminator() -> None:
    build = FunctionBuilder("0v_v")
    assert build.is_open
    build.return_()
    assert not build.is_open
    with pytest.raises(InternalError, match="behind the end"):
        build.return_()
