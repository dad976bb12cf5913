"""Is it safe to run these instructions?  Strict, and iterating over the table.

IREE's own verifier looks at little (register numbers of plain instructions are not checked), so
everything that is emitted or loaded goes through this one: registers in range and of the right
bank, pairs aligned, blocks marked and ended, targets, ordinals, call signatures.  What it
accepts cannot make an interpreter read or jump outside of what the function declared; it says
nothing about values.  Called through `vmfb.code`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.bytecode.encoding import FieldValue, Instruction, Moves
from tilewright.formats.bytecode.forms import Field, FieldKind
from tilewright.formats.bytecode.isa import (
    IMPORT_BIT,
    MAX_PC,
    MOVE_BIT,
    PLAIN_ARGUMENT,
    REF_BIT,
    REF_MASK,
)
from tilewright.formats.calling_convention import WIDE_BANKS, CallingConvention

_CALLS: Final = frozenset({"call", "call.yieldable"})
_VARIADIC_CALLS: Final = frozenset({"call.variadic", "call.variadic.yieldable"})
_WORD_BYTES: Final = 4


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLimits:
    """What the instructions of a module may refer to."""

    imports: Sequence[CallingConvention]
    functions: Sequence[CallingConvention]
    type_count: int
    rodata_count: int
    global_bytes: int
    global_refs: int


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionLimits:
    """What one function declared about itself."""

    convention: CallingConvention
    block_count: int
    word_registers: int
    ref_registers: int


def verify_function(
    instructions: Sequence[Instruction],
    function: FunctionLimits,
    module: ModuleLimits,
    location: str = "function",
) -> None:
    """Check the decoded instructions of one function.

    Raises:
        ArchiveError: with the place and the opcode, for the first thing that is wrong.
    """
    _check_frame(function, location)
    _check_blocks(instructions, function, location)
    blocks = frozenset(item.pc for item in instructions if item.opcode.is_block)
    for instruction in instructions:
        for problem in _problems(instruction, function, module, blocks):
            raise ArchiveError(
                f"{instruction.opcode.name}: {problem}",
                location=f"{location}+{instruction.pc:#x}",
            )


def _check_frame(function: FunctionLimits, location: str) -> None:
    for bank, place in function.convention.argument_registers():
        limit = function.ref_registers if bank == "ref" else function.word_registers
        if place + (2 if bank in WIDE_BANKS else 1) > limit:
            raise ArchiveError(
                f"the arguments do not fit into {function.word_registers} word and "
                f"{function.ref_registers} reference registers",
                location=location,
            )


def _check_blocks(
    instructions: Sequence[Instruction], function: FunctionLimits, location: str
) -> None:
    inside = False
    count = 0
    for instruction in instructions:
        where = f"{location}+{instruction.pc:#x}"
        if instruction.opcode.is_block:
            if inside:
                raise ArchiveError("the block before has no terminator", location=where)
            inside, count = True, count + 1
        elif not inside:
            raise ArchiveError(
                f"'{instruction.opcode.name}' stands outside of a block", location=where
            )
        elif instruction.opcode.terminator:
            inside = False
    if inside or not instructions:
        raise ArchiveError("the last block has no terminator", location=location)
    if count != function.block_count:
        raise ArchiveError(
            f"{count} blocks, the descriptor says {function.block_count}", location=location
        )
    if instructions[-1].pc > MAX_PC:
        raise ArchiveError(f"the function is longer than {MAX_PC} bytes", location=location)


def _problems(
    instruction: Instruction,
    function: FunctionLimits,
    module: ModuleLimits,
    blocks: frozenset[int],
) -> Iterator[str]:
    for field, value in zip(instruction.opcode.fields, instruction.values, strict=True):
        problem = _field_problem(field, value, function, module, blocks)
        if problem:
            yield f"{field.name}: {problem}"
    name = instruction.opcode.name
    if name == "return":
        registers = cast("tuple[int, ...]", instruction.values[0])
        yield from _match(registers, function.convention.results, function, "results")
    elif name in _CALLS or name in _VARIADIC_CALLS:
        yield from _call_problems(instruction, function, module)
    elif name == "import.resolved" and not cast("int", instruction.values[0]) & IMPORT_BIT:
        yield "the function is not an import"


# --- fields ------------------------------------------------------------------------------------


def _field_problem(
    field: Field,
    value: FieldValue,
    function: FunctionLimits,
    module: ModuleLimits,
    blocks: frozenset[int],
) -> str:
    kind = field.kind
    if kind in (FieldKind.OPERAND, FieldKind.RESULT):
        return register_problem(cast("int", value), field.bank, function)
    if kind in (FieldKind.OPERANDS, FieldKind.RESULTS):
        return _first(
            register_problem(register, field.bank, function)
            for register in cast("tuple[int, ...]", value)
        )
    if kind is FieldKind.MOVES:
        return _moves_problem(cast("Moves", value), function)
    if kind is FieldKind.TARGET:
        return _target_problem(cast("int", value), blocks)
    if kind is FieldKind.CASES:
        return _first(
            _target_problem(target, blocks) or _moves_problem(moves, function)
            for target, moves in cast("tuple[tuple[int, Moves], ...]", value)
        )
    if kind is FieldKind.GLOBAL:
        return _global_problem(cast("int", value), field.bank, module)
    limits: Mapping[FieldKind, int] = {
        FieldKind.TYPE: module.type_count,
        FieldKind.RODATA: module.rodata_count,
    }
    if kind in limits:
        ordinal = cast("int", value)
        return "" if ordinal < limits[kind] else f"{ordinal} of {limits[kind]}"
    return (
        _function_problem(cast("int", value), module) if kind is FieldKind.FUNCTION else ""
    )


def _first(problems: Iterator[str]) -> str:
    return next((problem for problem in problems if problem), "")


def register_problem(register: int, bank: str, function: FunctionLimits) -> str:
    """What is wrong with a register in a field of the given bank; empty when nothing is."""
    if register & REF_BIT:
        if bank not in ("ref", "any"):
            return f"a reference register, expected {bank}"
        index = register & REF_MASK
        limit = function.ref_registers
        return "" if index < limit else f"reference register {index} of {limit}"
    if bank == "ref":
        return "a word register, expected ref"
    wide = bank in WIDE_BANKS
    if wide and register & 1:
        return f"{bank} in the odd register {register}"
    limit = function.word_registers
    return "" if register + wide < limit else f"word register {register + wide} of {limit}"


def _moves_problem(moves: Moves, function: FunctionLimits) -> str:
    for source, target in moves:
        if (source ^ target) & REF_BIT:
            return "a move between words and references"
        if target & REF_BIT and target & MOVE_BIT:
            return "the target of a move has the move bit"
        problem = register_problem(source, "any", function) or register_problem(
            target, "any", function
        )
        if problem:
            return problem
    return ""


def _target_problem(target: int, blocks: frozenset[int]) -> str:
    return "" if target in blocks else f"{target:#x} is not the start of a block"


def _global_problem(place: int, bank: str, module: ModuleLimits) -> str:
    if bank == "ref":
        limit = module.global_refs
        return "" if place < limit else f"reference {place} of {limit}"
    size = _WORD_BYTES * (2 if bank in WIDE_BANKS else 1)
    if place % _WORD_BYTES:
        return f"byte {place} is not aligned"
    limit = module.global_bytes
    return "" if place + size <= limit else f"bytes {place} to {place + size} of {limit}"


def _function_problem(ordinal: int, module: ModuleLimits) -> str:
    if ordinal & IMPORT_BIT:
        index, limit, subject = ordinal & ~IMPORT_BIT, len(module.imports), "import"
    else:
        index, limit, subject = ordinal, len(module.functions), "function"
    return "" if index < limit else f"{subject} {index} of {limit}"


# --- calls -------------------------------------------------------------------------------------


def _call_problems(
    instruction: Instruction, function: FunctionLimits, module: ModuleLimits
) -> Iterator[str]:
    ordinal = cast("int", instruction.value("callee"))
    if _function_problem(ordinal, module):
        return
    if ordinal & IMPORT_BIT:
        convention = module.imports[ordinal & ~IMPORT_BIT]
    else:
        convention = module.functions[ordinal]
    registers = cast("tuple[int, ...]", instruction.value("operands"))
    if instruction.opcode.name in _VARIADIC_CALLS:
        segments = cast("tuple[int, ...]", instruction.value("segments"))
        banks, problem = _unfold(convention, segments, len(registers))
        if problem:
            yield problem
            return
    elif convention.is_variadic:
        yield "the callee takes lists"
        return
    else:
        banks = cast("tuple[str, ...]", convention.arguments)
    yield from _match(registers, banks, function, "arguments")
    results = cast("tuple[int, ...]", instruction.value("results"))
    yield from _match(results, convention.results, function, "results")


def _unfold(
    convention: CallingConvention, segments: Sequence[int], register_count: int
) -> tuple[Sequence[str], str]:
    """The banks a variadic call must bring, or what is wrong with its segments."""
    if len(segments) != len(convention.arguments):
        return (), f"{len(segments)} segments for {len(convention.arguments)} arguments"
    banks: list[str] = []
    for segment, argument in zip(segments, convention.arguments, strict=True):
        if isinstance(argument, str):
            if segment not in (PLAIN_ARGUMENT, 1):
                return (), f"a plain argument has the segment size {segment}"
            banks.append(argument)
        elif segment == PLAIN_ARGUMENT:
            return (), "a list argument has no size"
        elif len(banks) + segment * len(argument) > register_count:
            return (), f"a list of {segment} entries is longer than the operands"
        else:
            banks.extend(argument * segment)
    return banks, ""


def _match(
    registers: Sequence[int], banks: Sequence[str], function: FunctionLimits, subject: str
) -> Iterator[str]:
    if len(registers) != len(banks):
        yield f"{len(registers)} {subject}, expected {len(banks)}"
        return
    for index, (register, bank) in enumerate(zip(registers, banks, strict=True)):
        problem = register_problem(register, bank, function)
        if problem:
            yield f"{subject} {index}: {problem}"
