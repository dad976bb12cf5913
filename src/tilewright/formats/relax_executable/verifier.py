"""What holds of every executable that is run: whoever translates it need not look again.

Registers lie within the frame of their function, jumps within its instructions, indices within their
tables; no function runs beyond its end, nor in a circle that no branch leads out of; a call of bytecode has as many arguments as the function takes; functions do
not share instructions, so that what is made of each takes time and memory by the size of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ArchiveError
from tilewright.formats.relax_executable.records import (
    VM_REGISTER,
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    Constant,
    Function,
    FunctionKind,
    Goto,
    Instruction,
    RelaxExecutable,
    Return,
)
from tilewright.formats.ways import first_lost

_REGISTERS_LIMIT: Final = 1 << 20
_ARGUMENTS_LIMIT: Final = 1 << 16
_ALL_ARGUMENTS_LIMIT: Final = 1 << 20  # of all functions: a file says them in a word each


def verify_executable(executable: RelaxExecutable) -> None:
    """Raises: ArchiveError that names the function and the instruction."""
    seen: set[str] = set()
    unused, arguments = len(executable.instructions), 0
    for function in executable.functions:
        if function.name in seen:
            raise ArchiveError(
                f"two functions are called '{function.name}'", location=executable.location
            )
        seen.add(function.name)
        if function.kind is FunctionKind.PACKED:
            continue
        _verify_frame(executable, function)
        arguments += function.argument_count
        if arguments > _ALL_ARGUMENTS_LIMIT:
            raise ArchiveError(
                f"functions of more than {_ALL_ARGUMENTS_LIMIT} arguments together",
                location=executable.location,
            )
        if function.kind is not FunctionKind.BYTECODE:
            continue
        unused -= function.end - function.first
        if unused < 0:
            raise ArchiveError(
                f"function '{function.name}' shares instructions with others",
                location=executable.location,
            )
        _verify_code(executable, function)
    for index, scope in executable.memory_scopes.items():
        if not 0 <= index < len(executable.constants):
            raise ArchiveError(
                f"memory scope '{scope}' for constant {index}, there are "
                f"{len(executable.constants)}",
                location=executable.location,
            )


def _verify_frame(executable: RelaxExecutable, function: Function) -> None:
    where = f"{executable.location}: function '{function.name}'"
    if not 0 <= function.argument_count <= min(function.register_count, _ARGUMENTS_LIMIT):
        raise ArchiveError(
            f"{function.argument_count} arguments in {function.register_count} registers",
            location=where,
        )
    if function.register_count > _REGISTERS_LIMIT:
        raise ArchiveError(f"{function.register_count} registers", location=where)
    if len(function.parameter_names) not in (0, function.argument_count):
        raise ArchiveError(
            f"{len(function.parameter_names)} names for {function.argument_count} parameters",
            location=where,
        )
    if function.kind is FunctionKind.COMPILED:
        if function.register_count == function.argument_count:
            raise ArchiveError("no register for its result", location=where)
        return
    if not 0 <= function.first < function.end <= len(executable.instructions):
        raise ArchiveError(
            f"instructions {function.first} to {function.end}, there are "
            f"{len(executable.instructions)}",
            location=where,
        )


def _verify_code(executable: RelaxExecutable, function: Function) -> None:
    where = f"{executable.location}: function '{function.name}'"
    for index in range(function.first, function.end):
        _verify_instruction(executable, function, index, f"{where}: instruction {index}")
    code = executable.instructions[function.first : function.end]
    if not any(isinstance(one, Goto) and one.offset <= 0 for one in code):
        return  # every instruction leads forwards
    lost = first_lost([_next_places(at, one, len(code)) for at, one in enumerate(code)])
    if lost is not None:
        raise ArchiveError(
            "no way leads from here to a return",
            location=f"{where}: instruction {function.first + lost}",
        )


def _next_places(at: int, instruction: Instruction, end: int) -> Sequence[int]:
    match instruction:
        case Return():
            return (end,)
        case Goto(offset):
            return (at + offset,)
        case Branch(_, otherwise):
            return (at + 1, at + otherwise)
        case Call():
            return (at + 1,)


def _verify_instruction(
    executable: RelaxExecutable, function: Function, index: int, where: str
) -> None:
    instruction = executable.instructions[index]
    match instruction:
        case Call():
            _verify_call(executable, function, instruction, where)
            _verify_jump(function, index + 1, where)
        case Return(register):
            _verify_register(function, register, where)
        case Goto(offset):
            _verify_jump(function, index + offset, where)
        case Branch(register, otherwise):
            _verify_register(function, register, where)
            _verify_jump(function, index + 1, where)
            if otherwise <= 1:
                raise ArchiveError(f"a branch by {otherwise} instructions", location=where)
            _verify_jump(function, index + otherwise, where)


def _verify_jump(function: Function, target: int, where: str) -> None:
    if not function.first <= target < function.end:
        raise ArchiveError(
            f"goes on at instruction {target}, outside of its function "
            f"({function.first} to {function.end - 1})",
            location=where,
        )


def _verify_call(
    executable: RelaxExecutable, function: Function, call: Call, where: str
) -> None:
    if call.target < VOID_REGISTER:
        _verify_register(function, call.target, where)
    if not 0 <= call.function < len(executable.functions):
        raise ArchiveError(
            f"calls function {call.function}, there are {len(executable.functions)}",
            location=where,
        )
    callee = executable.functions[call.function]
    if callee.kind is not FunctionKind.PACKED and callee.argument_count != len(
        call.arguments
    ):
        raise ArchiveError(
            f"calls '{callee.name}' with {len(call.arguments)} arguments, "
            f"expected {callee.argument_count}",
            location=where,
        )
    for argument in call.arguments:
        _verify_argument(executable, function, argument, where)


def _verify_argument(
    executable: RelaxExecutable, function: Function, argument: Argument, where: str
) -> None:
    match argument.kind:
        case ArgumentKind.REGISTER:
            _verify_register(function, argument.value, where)
        case ArgumentKind.CONSTANT:
            _verify_index(argument.value, executable.constants, "constant", where)
        case ArgumentKind.FUNCTION:
            _verify_index(argument.value, executable.functions, "function", where)
        case ArgumentKind.IMMEDIATE:
            pass


def _verify_register(function: Function, register: int, where: str) -> None:
    if 0 <= register < function.register_count or register in (VOID_REGISTER, VM_REGISTER):
        return
    raise ArchiveError(
        f"register {register}, the function has {function.register_count}", location=where
    )


def _verify_index(
    index: int, table: tuple[Constant, ...] | tuple[Function, ...], subject: str, where: str
) -> None:
    if not 0 <= index < len(table):
        raise ArchiveError(f"{subject} {index}, there are {len(table)}", location=where)
