from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import InternalError
from tilewright.formats.bytecode import allocation
from tilewright.formats.bytecode.allocation import order_moves
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.drafts import Block, Register
from tilewright.formats.bytecode.encoding import decode_function
from tilewright.formats.bytecode.isa import IMPORT_BIT, MOVE_BIT, REF_BIT
from tilewright.formats.bytecode.verifier import (
    FunctionLimits,
    ModuleLimits,
    verify_function,
)
from tilewright.formats.calling_convention import parse_calling_convention
from unit.formats.bytecode.machine import (
    Frame,
    OutOfStepsError,
    World,
    run_code,
    run_drafts,
)

CONVENTIONS = ["0v_r", "0rIr_r", "0rIi_v", "0v_i", "0rr_rI"]
CALLS = {
    index | IMPORT_BIT: (
        list(parse_calling_convention(text).arguments),
        list(parse_calling_convention(text).results),
    )
    for index, text in enumerate(CONVENTIONS)
}
SIGNATURE = "0rIri_rI"
MODULE = ModuleLimits(
    imports=[parse_calling_convention(text) for text in CONVENTIONS],
    functions=[],
    type_count=0,
    rodata_count=0,
    global_bytes=0,
    global_refs=0,
)


class Author:
    """Writes a random function: any control flow, every value defined before it is read."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.build = FunctionBuilder(SIGNATURE)
        self.shared: dict[str, list[Register]] = {"i32": [], "i64": [], "ref": []}
        for register in self.build.arguments:
            self.shared[register.bank].append(register)
        self.visible = {bank: list(registers) for bank, registers in self.shared.items()}
        self.constants: set[Register] = set()

    def pick(self, bank: str) -> Register:
        return self.dice.choice(self.visible[bank])

    def target(self, bank: str) -> Register | None:
        """Sometimes an old register is assigned again."""
        old = [r for r in self.visible[bank] if r not in self.constants]
        return self.dice.choice(old) if old and self.dice.random() < 0.3 else None

    def statement(self) -> None:
        kind = self.dice.randrange(9)
        if kind < 5:
            self.call(self.dice.randrange(5) | IMPORT_BIT, self.dice.random() < 0.15)
        elif kind == 5:
            pair = self.pick("i64"), self.pick("i64")
            self.note(self.build.emit("add.i64", *pair, into=self.target("i64")))
        elif kind == 6:
            pair = self.pick("i64"), self.pick("i64")
            self.note(self.build.emit("cmp.lt.i64.s", *pair, into=self.target("i32")))
        elif kind == 7:
            source = self.pick("ref")
            self.note(self.build.emit("assign.ref", source, into=self.target("ref")))
        else:
            constant = self.build.constant("i64", self.dice.randrange(4))
            self.constants.add(constant)
            self.note(constant)

    def call(self, callee: int, yieldable: bool) -> None:
        arguments, results = CALLS[callee]
        given = [self.pick(bank) for bank in arguments]
        wanted = [self.target(bank) or bank for bank in results]
        if len({w for w in wanted if isinstance(w, Register)}) < len(
            [w for w in wanted if isinstance(w, Register)]
        ):
            wanted = list(results)
        emit = self.build.call_yieldable if yieldable else self.build.call
        for register in emit(callee, given, wanted):
            self.note(register)

    def note(self, register: Register) -> None:
        if register not in self.visible[register.bank]:
            self.visible[register.bank].append(register)

    def arguments(self, block: Block) -> list[Register]:
        return [self.pick(register.bank) for register in block.parameters]

    def terminator(self, blocks: list[Block]) -> None:
        kind = self.dice.randrange(5)
        plain = [block for block in blocks if not block.parameters]
        if kind == 0 or not blocks:
            self.build.return_(self.pick("ref"), self.pick("i64"))
        elif kind == 1:
            block = self.dice.choice(blocks)
            self.build.branch(block, *self.arguments(block))
        elif kind == 2 and plain:
            cases = [self.dice.choice(plain) for _ in range(3)]
            self.build.branch_table(self.pick("i32"), self.dice.choice(plain), cases)
        else:
            then, other = self.dice.choice(blocks), self.dice.choice(blocks)
            sides = self.arguments(then), self.arguments(other)
            self.build.branch_if(self.pick("i32"), then, other, *sides)

    def write(self) -> FunctionBuilder:
        for _ in range(self.dice.randrange(4)):
            self.statement()
        self.shared = {bank: list(registers) for bank, registers in self.visible.items()}
        blocks = [
            self.build.block(
                *self.dice.choices(["i32", "i64", "ref"], k=self.dice.randrange(4))
            )
            for _ in range(self.dice.randrange(1, 6))
        ]
        self.terminator(blocks)
        for block in blocks:
            self.visible = {
                bank: list(registers) for bank, registers in self.shared.items()
            }
            for register in self.build.place(block):
                self.note(register)
            for _ in range(self.dice.randrange(6)):
                self.statement()
            self.terminator(blocks)
        return self.build


@given(st.integers(0, 1 << 32))
def test_sharing_registers_changes_nothing_and_no_reference_is_lost(seed: int) -> None:
    build = Author(seed).write()
    function = build.finish()
    limits = FunctionLimits(
        convention=parse_calling_convention(SIGNATURE),
        block_count=function.block_count,
        word_registers=function.word_registers,
        ref_registers=function.ref_registers,
    )
    verify_function(decode_function(function.code), limits, MODULE)
    given_values = ["first", 3, "second", 1]
    for coin in range(3):
        virtual, real = World(coin, 400), World(coin, 800)
        arguments = dict(zip(build.arguments, given_values, strict=True))
        frame = Frame(function.word_registers, function.ref_registers)
        frame.refs[:2] = ["first", "second"]
        frame.counts.update(["first", "second"])
        frame.put_wide(0, 3)
        frame.words[2] = 1
        try:
            expected = run_drafts(build._blocks, arguments, virtual)
        except OutOfStepsError:
            expected = None
        try:
            got = run_code(function.code, frame, real, CALLS, ["ref", "i64"])
        except OutOfStepsError:
            got = None
        length = min(len(virtual.trace), len(real.trace))
        assert real.trace[:length] == virtual.trace[:length]
        if expected is not None and got is not None:
            assert got == expected
            assert real.trace == virtual.trace
            assert +frame.counts == {got[1]: 1}


def test_a_frame_is_no_larger_than_its_living_values() -> None:
    build = FunctionBuilder("0I_I")
    (value,) = build.arguments
    for _ in range(50):
        value = build.emit("add.i64", value, value)
    build.return_(value)
    assert build.finish().word_registers == 2


def test_an_unused_argument_is_discarded_and_a_result_too() -> None:
    build = FunctionBuilder("0rr_v")
    build.call(0 | IMPORT_BIT, [], ["ref"])
    build.return_()
    names = [item.opcode.name for item in decode_function(build.finish().code)]
    assert names == ["block", "discard.refs", "call", "discard.refs", "return"]


def test_only_the_last_mention_in_a_call_hands_the_reference_over() -> None:
    build = FunctionBuilder("0r_v")
    (resource,) = build.arguments
    build.call(4 | IMPORT_BIT, [resource, resource], ["ref", "i64"])
    build.return_()
    call = decode_function(build.finish().code)[1]
    assert call.value("operands") == (REF_BIT, REF_BIT | MOVE_BIT)


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ([(1, 1)], []),
        ([(0, 1), (1, 2)], [(1, 2), (0, 1)]),
        ([(0, 1), (1, 0)], [(1, 9), (0, 1), (9, 0)]),
        ([(0, 1), (1, 2), (2, 0)], [(1, 9), (0, 1), (2, 0), (9, 2)]),
        ([(0, 1), (0, 2)], [(0, 1), (0, 2)]),
    ],
)
def test_moves_at_once_become_moves_in_order(
    moves: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert order_moves(moves, 9, 9)[0] == expected


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5)),
        max_size=6,
        unique_by=lambda m: m[1],
    )
)
def test_ordered_moves_end_like_moves_at_once(moves: list[tuple[int, int]]) -> None:
    words = [f"value{index}" for index in range(6)] + ["scratch"]
    expected = list(words)
    for source, target in moves:
        expected[target] = words[source]
    for source, target in order_moves(moves, 6, 0)[0]:
        words[target] = words[source]
    assert words[:6] == expected[:6]


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 4)),
        max_size=6,
        unique_by=lambda m: m[1],
    ),
    st.sets(st.integers(0, 4)),
)
def test_ordered_moves_of_references_empty_what_is_no_longer_needed(
    moves: list[tuple[int, int]], needed: set[int]
) -> None:
    """A source is handed over unless it is needed later under its own name."""
    targets = {target for _, target in moves}
    kept = needed - targets
    given_up = {s for s, _ in moves} - kept
    encoded = [
        (s | REF_BIT | (MOVE_BIT if s in given_up else 0), t | REF_BIT) for s, t in moves
    ]
    frame = Frame(0, 6)
    frame.refs[:5] = [f"object{index}" for index in range(5)]
    frame.counts.update(held for held in frame.refs if held)
    expected: list[str | None] = list(frame.refs[:5])
    for source in given_up:
        expected[source] = None
    for source, target in moves:
        expected[target] = f"object{source}"
    for source, target in order_moves(encoded, 0, 5)[0]:
        frame.put(target, frame.take(source))
    assert frame.refs == [*expected, None]
    assert +frame.counts == Counter(held for held in expected if held)


def test_too_many_registers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation, "MAX_WORD_REGISTERS", 20)
    for count, fits in ((9, True), (10, False)):
        build = FunctionBuilder("0v_v")
        kept = [build.emit("const.i64", 7) for _ in range(count)]
        for register in kept:
            build.emit("add.i64", register, register)
        build.return_()
        if fits:
            assert build.finish().word_registers == 18
        else:
            with pytest.raises(InternalError, match="needs 20 word"):
                build.finish()
