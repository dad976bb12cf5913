"""Relax executables for people: TVM's listing, its statistics, and its builder calls in Python.

The texts are those of TVM 0.27's `as_text`, `stats` and `as_python`, character by character, so that
they can be compared with what TVM prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilewright.formats.dlpack_types import DataType
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
    ShapeConstant,
    TensorConstant,
)


def format_executable(executable: RelaxExecutable) -> str:
    """The listing of all functions: `call matmul in: %0, c[1] dst: %2`."""
    return "".join(_function_text(executable, one) for one in executable.functions)


def format_instruction(executable: RelaxExecutable, instruction: Instruction) -> str:
    """One line of the listing."""
    match instruction:
        case Call(target, function, arguments):
            shown = ", ".join(_argument_text(executable, one) for one in arguments)
            name = executable.functions[function].name
            return f"call  {name:<16} in: {shown:<12} dst: {_register_text(target)}"
        case Return(register):
            return f"ret   {_register_text(register)}"
        case Goto(offset):
            return f"goto  {offset}"
        case Branch(register, otherwise):
            return f"If    {_register_text(register)}, {otherwise}"


def format_statistics(executable: RelaxExecutable) -> str:
    """How many constants and functions there are, and which."""
    constants = ", ".join(_constant_text(one) for one in executable.constants)
    names = ", ".join(one.name for one in executable.functions)
    return (
        "Relax VM executable statistics:\n"
        f"  Constant pool (# {len(executable.constants)}): [{constants}]\n"
        f"  Globals (#{len(executable.functions)}): [{names}]\n"
    )


def format_builder_calls(executable: RelaxExecutable) -> str:
    """The calls of TVM's `ExecBuilder` that write the same code."""
    return "\n".join(_builder_lines(executable)) + "\n"


# --- listing ------------------------------------------------------------------------------------


def _function_text(executable: RelaxExecutable, function: Function) -> str:
    if function.kind is FunctionKind.PACKED:
        return f"@{function.name} packed_func;\n\n"
    if function.kind is FunctionKind.COMPILED:
        return f"@{function.name} num_inputs={function.argument_count} vm_tir_func;\n\n"
    lines = executable.instructions[function.first : function.end]
    body = "".join(f"  {format_instruction(executable, one)}\n" for one in lines)
    return f"@{function.name}:\n{body}\n"


def _register_text(register: int) -> str:
    special = {VOID_REGISTER: "%void", VM_REGISTER: "%vm"}
    return special.get(register, f"%{register}")


def _argument_text(executable: RelaxExecutable, argument: Argument) -> str:
    match argument.kind:
        case ArgumentKind.REGISTER:
            return _register_text(argument.value)
        case ArgumentKind.IMMEDIATE:
            return f"i{argument.value}"
        case ArgumentKind.CONSTANT:
            return f"c[{argument.value}]"
        case ArgumentKind.FUNCTION:
            return f"f[{executable.functions[argument.value].name}]"


def _constant_text(constant: Constant) -> str:
    match constant:
        case TensorConstant(_, shape):
            return str(list(shape)) if shape else "scalar"
        case ShapeConstant(sizes):
            return f"shapetuple{list(sizes)}"
        case DataType():
            return str(constant)
        case str():
            return f'"{constant}"'
        case _:
            return f"{constant:g}" if isinstance(constant, float) else str(constant)


# --- builder calls ------------------------------------------------------------------------------


def _builder_lines(executable: RelaxExecutable) -> Iterator[str]:
    yield "ib = rx.Builder()"
    for function in executable.functions:
        if function.kind is not FunctionKind.BYTECODE:
            continue
        yield f'with ib.function("{function.name}", num_inputs={function.argument_count}):'
        for instruction in executable.instructions[function.first : function.end]:
            yield f"    ib.{_builder_call(executable, instruction)}"


def _builder_call(executable: RelaxExecutable, instruction: Instruction) -> str:
    match instruction:
        case Call(target, function, arguments):
            shown = ", ".join(
                _BUILDER[one.kind](executable, one.value) for one in arguments
            )
            name = executable.functions[function].name
            stored = "" if target == VOID_REGISTER else f", dst=ib.r({target})"
            return f'emit_call("{name}", args=[{shown}]{stored})'
        case Return(register):
            return f"emit_ret(ib.r({register}))"
        case Goto(offset):
            return f"emit_goto({offset})"
        case Branch(register, otherwise):
            return f"emit_if(ib.r({register}), {otherwise})"


_BUILDER: dict[ArgumentKind, Callable[[RelaxExecutable, int], str]] = {
    ArgumentKind.REGISTER: lambda _, value: (
        "ib.r(vm)" if value == VM_REGISTER else f"ib.r({value})"
    ),
    ArgumentKind.IMMEDIATE: lambda _, value: f"ib.imm({value})",
    ArgumentKind.CONSTANT: lambda _, value: f"ib.c({value})",
    ArgumentKind.FUNCTION: lambda executable, value: (
        f'ib.f("{executable.functions[value].name}")'
    ),
}
