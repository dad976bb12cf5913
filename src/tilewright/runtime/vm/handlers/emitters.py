"""How the opcodes that no template can express are written as Python: calls and control.

Called by the translator through `table`; the same instructions are bound to steps by `calls` and
`control`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tilewright.formats.bytecode.encoding import Instruction, Moves
from tilewright.formats.bytecode.isa import IMPORT_BIT, MOVE_BIT, PLAIN_ARGUMENT
from tilewright.runtime.vm.handlers.emission import Emission, register_name
from tilewright.runtime.vm.handlers.operands import block_behind


def _registers(instruction: Instruction, field: str) -> tuple[int, ...]:
    return cast("tuple[int, ...]", instruction.value(field))


# --- control ----------------------------------------------------------------------------------------


def emit_branch(instruction: Instruction, emission: Emission) -> None:
    """Go to a block."""
    moves = cast("Moves", instruction.value("moves"))
    emission.go(cast("int", instruction.value("target")), moves)


def emit_break(instruction: Instruction, emission: Emission) -> None:
    """Stop in a debugger if there is one, then go on."""
    emission.line("if S.debugger is not None: S.debugger()")
    emit_branch(instruction, emission)


def emit_conditional_break(instruction: Instruction, emission: Emission) -> None:
    """The same, if a condition holds."""
    condition = register_name(cast("int", instruction.value("condition")))
    emission.line(f"if {condition} and S.debugger is not None: S.debugger()")
    emit_branch(instruction, emission)


def emit_conditional_branch(instruction: Instruction, emission: Emission) -> None:
    """Go to one of two blocks; the first way never falls through into the second."""
    emission.line(f"if {register_name(cast('int', instruction.value('condition')))}:")
    emission.depth += 1
    pc = emission.pc
    moves = cast("Moves", instruction.value("true_moves"))
    emission.go(cast("int", instruction.value("true")), moves)
    emission.depth -= 1
    emission.pc = pc
    moves = cast("Moves", instruction.value("false_moves"))
    emission.go(cast("int", instruction.value("false")), moves)


def emit_branch_table(instruction: Instruction, emission: Emission) -> None:
    """Go to one of many blocks."""
    index = register_name(cast("int", instruction.value("index")))
    cases = cast("tuple[tuple[int, Moves], ...]", instruction.value("cases"))
    pc = emission.pc
    for number, (target, moves) in enumerate(cases):
        emission.pc = pc
        emission.line(f"if {index} == {number}:")
        emission.depth += 1
        emission.go(target, moves)
        emission.depth -= 1
    emission.pc = pc
    moves = cast("Moves", instruction.value("default_moves"))
    emission.go(cast("int", instruction.value("default")), moves)


def emit_return(instruction: Instruction, emission: Emission) -> None:
    """Leave the function: nothing, one value, or a tuple."""
    registers = _registers(instruction, "operands")
    names = ", ".join(register_name(register) for register in registers)
    emission.line(f"return {names}".rstrip())


def emit_fail(instruction: Instruction, emission: Emission) -> None:
    """Leave with an error; with a status of zero the interpreter goes on with the block behind.

    No compiler counts on that, and a way to that block would cost every function a jump.
    """
    status = register_name(cast("int", instruction.value("status")))
    text = cast("bytes", instruction.value("message")).decode("utf-8", errors="replace")
    emission.line(f"if {status}: raise failed({status}, {emission.name(text, 'text')})")
    behind = block_behind(instruction, emission.context)
    if behind is not None:
        emission.line(f"return resume({behind}, locals())")
        return
    blanks = {"ref": "None", "f32": "0.0", "f64": "0.0"}
    results = [blanks.get(bank, "0") for bank in emission.context.results]
    emission.line(f"return {', '.join(results)}".rstrip())


# --- the developer ----------------------------------------------------------------------------------


def emit_trace(instruction: Instruction, emission: Emission) -> None:
    """Report values to the tracer, if there is one."""
    event = cast("bytes", instruction.value("event")).decode("utf-8", errors="replace")
    registers = _registers(instruction, "operands")
    names = ", ".join(register_name(register) for register in registers)
    emission.line(
        f"if S.tracer is not None: S.tracer({emission.name(event, 'text')}, [{names}])"
    )


def emit_discard(instruction: Instruction, emission: Emission) -> None:
    """Empty references."""
    registers = [register | MOVE_BIT for register in _registers(instruction, "refs")]
    emission.clear(registers)


# --- calls ------------------------------------------------------------------------------------------


def emit_import_resolved(instruction: Instruction, emission: Emission) -> None:
    """1 if an optional import is there, which is known by now."""
    index = cast("int", instruction.value("callee")) & ~IMPORT_BIT
    result = register_name(cast("int", instruction.value("result")))
    emission.line(f"{result} = {0 if index in emission.missing else 1}")


def emit_call(instruction: Instruction, emission: Emission) -> None:
    """Call a function of this module, or an import without lists."""
    callee = cast("int", instruction.value("callee"))
    operands = _registers(instruction, "operands")
    arguments = [register_name(register) for register in operands]
    if callee & IMPORT_BIT:
        function = _import(callee & ~IMPORT_BIT, emission)
    else:
        function = f"calls[{callee}]"
        arguments.append("depth=depth + 1")
    _write_call(instruction, emission, function, arguments)


def emit_call_variadic(instruction: Instruction, emission: Emission) -> None:
    """Call an import with lists."""
    index = cast("int", instruction.value("callee")) & ~IMPORT_BIT
    names = [register_name(register) for register in _registers(instruction, "operands")]
    arguments = _folded(names, _registers(instruction, "segments"), index, emission)
    _write_call(instruction, emission, _import(index, emission), arguments)


def _folded(
    names: Sequence[str], segments: Sequence[int], index: int, emission: Emission
) -> list[str]:
    """Flat operands as arguments, with the entries of lists put together."""
    found: list[str] = []
    position = 0
    for argument, segment in zip(
        emission.context.imports[index].arguments, segments, strict=True
    ):
        if segment == PLAIN_ARGUMENT or isinstance(argument, str):
            found.append(names[position])
            position += 1
            continue
        width = len(argument)
        end = position + segment * width
        entries = names[position:end]
        if width > 1:
            entries = [
                f"({', '.join(names[i : i + width])})" for i in range(position, end, width)
            ]
        found.append(f"[{', '.join(entries)}]")
        position = end
    return found


def _import(index: int, emission: Emission) -> str:
    if index in emission.missing:
        return f"missing({emission.context.import_names[index]!r})"
    return f"i{index}"


def _write_call(
    instruction: Instruction, emission: Emission, function: str, arguments: Sequence[str]
) -> None:
    results = _registers(instruction, "results")
    left = ", ".join(register_name(register) for register in results)
    call = f"{function}({', '.join(arguments)})"
    emission.line(f"{left} = {call}" if results else call)
    emission.clear(_registers(instruction, "operands"), results)


def emit_resumable(instruction: Instruction, emission: Emission) -> None:
    """A call that may suspend: translated code waits instead, then goes to the block."""
    is_variadic = any(field.name == "segments" for field in instruction.opcode.fields)
    (emit_call_variadic if is_variadic else emit_call)(instruction, emission)
    emission.go(cast("int", instruction.value("target")))
