"""Two small machines that run the same function: before and after registers were allotted.

Both record what the function hands to its callees; the second counts references like the VM
does, so a forgotten or doubled release shows.
"""

from __future__ import annotations

import random
from collections import Counter

from tilewright.formats.bytecode.drafts import Block, Draft, Edge, Register
from tilewright.formats.bytecode.encoding import Instruction, decode_function
from tilewright.formats.bytecode.forms import FieldKind

Trace = list[tuple[object, ...]]
MASK = (1 << 64) - 1


class OutOfStepsError(Exception):
    """The function loops for longer than the test wants to wait."""


class World:
    """What the callees do: give new objects, toss coins, remember what they got."""

    def __init__(self, seed: int, steps: int) -> None:
        self.coins = random.Random(seed)
        self.trace: Trace = []
        self.objects = 0
        self.steps = steps

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OutOfStepsError

    def new(self) -> str:
        self.objects += 1
        return f"object{self.objects}"

    def call(
        self, callee: int, arguments: list[object], results: list[str]
    ) -> list[object]:
        self.trace.append((callee, *arguments))
        return [
            self.new() if bank == "ref" else self.coins.randrange(3) if bank == "i32" else 5
            for bank in results
        ]


def compute(name: str, values: list[int]) -> int:
    if name == "add.i64":
        return (values[0] + values[1]) & MASK
    if name == "cmp.lt.i64.s":
        return int(values[0] % 7 < values[1] % 7)
    if name == "trunc.i64.i32":
        return values[0] & 0xFFFF_FFFF
    raise AssertionError(name)


def run_drafts(
    blocks: list[Block], arguments: dict[Register, object], world: World
) -> object:
    """Run a function on its virtual registers; `discard.refs` means nothing here."""
    values: dict[Register, object] = dict(arguments)
    block = blocks[0]
    while True:
        edge: Edge | None = None
        for draft in block.drafts:
            world.step()
            outcome = _run_draft(draft, values, world)
            if isinstance(outcome, Edge):
                edge = outcome
            elif outcome is not None:
                return outcome
        assert edge is not None
        brought = [values[register] for register in edge.arguments]
        values.update(zip(edge.block.parameters, brought, strict=True))
        block = edge.block


def _run_draft(draft: Draft, values: dict[Register, object], world: World) -> object:
    name = draft.opcode.name
    read = (
        [values[register] for register, _ in draft.operands()]
        if name != "discard.refs"
        else []
    )
    results = list(draft.results())
    edges = list(draft.edges())
    if name.startswith("call"):
        callee = next(v for f, v in draft.items() if f.kind is FieldKind.FUNCTION)
        got = world.call(callee, read, [register.bank for register in results])
        values.update(zip(results, got, strict=True))
        return edges[0] if edges else None
    if name == "return":
        return ("returned", *read)
    if name.startswith("const"):
        immediate = [v for f, v in draft.items() if f.kind is FieldKind.IMMEDIATE]
        null = None if results[0].is_ref else 0
        values[results[0]] = immediate[0] & MASK if immediate else null
    elif name == "br":
        return edges[0]
    elif name == "cond_br":
        return edges[0] if read[0] else edges[1]
    elif name == "br_table":
        index = read[0]
        return edges[index + 1] if index + 1 < len(edges) else edges[0]
    elif name == "assign.ref":
        values[results[0]] = read[0]
    elif results:
        values[results[0]] = compute(name, read)
    return None


class Frame:
    """Real registers, with references counted."""

    def __init__(self, words: int, refs: int) -> None:
        self.words = [0] * words
        self.refs: list[str | None] = [None] * refs
        self.counts: Counter[str] = Counter()

    def take(self, register: int) -> object:
        """Read a register as an operand; the caller owns what comes back."""
        if not register & 0x8000:
            return self.words[register]
        index = register & 0x3FFF
        held = self.refs[index]
        if held is not None and not register & 0x4000:
            self.counts[held] += 1
        elif register & 0x4000:
            self.refs[index] = None
        return held

    def put(self, register: int, value: object) -> None:
        if not register & 0x8000:
            self.words[register] = value
            return
        self.drop(register)
        self.refs[register & 0x3FFF] = value

    def drop(self, register: int) -> None:
        self.release(self.refs[register & 0x3FFF])
        self.refs[register & 0x3FFF] = None

    def release(self, held: object) -> None:
        if isinstance(held, str):
            self.counts[held] -= 1
            assert self.counts[held] >= 0, f"{held} is released twice"

    def wide(self, register: int) -> int:
        assert register % 2 == 0
        return self.words[register] | self.words[register + 1] << 32

    def put_wide(self, register: int, value: int) -> None:
        self.words[register] = value & 0xFFFF_FFFF
        self.words[register + 1] = value >> 32 & 0xFFFF_FFFF


def run_code(
    code: bytes,
    frame: Frame,
    world: World,
    calls: dict[int, tuple[list[str], list[str]]],
    results: list[str],
) -> object:
    """Run encoded instructions; afterwards the frame must hold no reference."""
    by_pc = {item.pc: item for item in decode_function(code)}
    order = sorted(by_pc)
    pc = 0
    while True:
        world.step()
        item = by_pc[pc]
        following = order[order.index(pc) + 1] if pc != order[-1] else -1
        target, returned = _run_instruction(item, frame, world, calls, results)
        if returned is not None:
            assert not any(frame.refs), f"references left behind: {frame.refs}"
            return returned
        pc = following if target is None else target


def _read(frame: Frame, register: int, bank: str) -> object:
    return frame.wide(register) if bank in ("i64", "f64") else frame.take(register)


def _run_instruction(
    item: Instruction,
    frame: Frame,
    world: World,
    calls: dict[int, tuple[list[str], list[str]]],
    results: list[str],
) -> tuple[int | None, object]:
    name = item.opcode.name
    values = {f.name: v for f, v in zip(item.opcode.fields, item.values, strict=True)}
    if name.startswith("call"):
        argument_banks, result_banks = calls[values["callee"]]
        read = [
            _read(frame, r, b)
            for r, b in zip(values["operands"], argument_banks, strict=True)
        ]
        got = world.call(values["callee"], read, result_banks)
        for value in read:
            frame.release(value)
        for register, bank, value in zip(values["results"], result_banks, got, strict=True):
            if bank == "ref":
                frame.counts[value] += 1
            (frame.put_wide if bank == "i64" else frame.put)(register, value)
        return values.get("target"), None
    if name == "return":
        read = [
            _read(frame, r, b) for r, b in zip(values["operands"], results, strict=True)
        ]
        return None, ("returned", *read)
    if name == "discard.refs":
        for register in values["refs"]:
            assert register & 0x4000
            frame.drop(register)
    elif name in ("br", "cond_br"):
        side = (
            ""
            if name == "br"
            else ("true" if frame.words[values["condition"]] else "false")
        )
        _move(frame, values[f"{side}_moves" if side else "moves"])
        return values[side or "target"], None
    elif name == "br_table":
        index, cases = frame.words[values["index"]], values["cases"]
        default = (values["default"], values["default_moves"])
        target, moves = cases[index] if index < len(cases) else default
        _move(frame, moves)
        return target, None
    elif name != "block":
        _compute(item, frame)
    return None, None


def _compute(item: Instruction, frame: Frame) -> None:
    fields = list(zip(item.opcode.fields, item.values, strict=True))
    read = [_read(frame, v, f.bank) for f, v in fields if f.kind is FieldKind.OPERAND]
    result, bank = next((v, f.bank) for f, v in fields if f.kind is FieldKind.RESULT)
    if item.opcode.name.startswith("const"):
        immediate = [v for f, v in fields if f.kind is FieldKind.IMMEDIATE]
        value = immediate[0] & MASK if immediate else (None if bank == "ref" else 0)
    elif item.opcode.name == "assign.ref":
        value = read[0]
    else:
        value = compute(item.opcode.name, read)
    if bank == "i64":
        frame.put_wide(result, value)
    else:
        frame.put(result, value if bank == "ref" else value & 0xFFFF_FFFF)


def _move(frame: Frame, moves: tuple[tuple[int, int], ...]) -> None:
    for source, target in moves:
        frame.put(target, frame.take(source))
