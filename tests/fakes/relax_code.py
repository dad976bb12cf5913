"""Relax executables written by hand: the calls of one function, with arguments as Python values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.formats.dlpack_types import DataType
from tilewright.formats.relax_executable import (
    VM_REGISTER,
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    Constant,
    Function,
    FunctionKind,
    Instruction,
    RelaxExecutable,
    Return,
    ShapeConstant,
)
from tilewright.formats.relax_executable.verifier import verify_executable
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.machine_module import MemoryManager
from tilewright.runtime.relax_machine import RelaxMachine
from tilewright.runtime.relax_machine.machine import as_value


@dataclass(frozen=True)
class Register:
    """A register as an argument."""

    number: int


MACHINE = Register(VM_REGISTER)
NOTHING = Register(VOID_REGISTER)
F32, I64, U8 = DataType(2, 32), DataType(0, 64), DataType(1, 8)


class Program:
    """Collects the code of `main`."""

    def __init__(self, parameters: int, registers: int = 32) -> None:
        self.parameters = parameters
        self.registers = registers
        self.names: list[str] = []
        self.constants: list[Constant] = []
        self.code: list[Instruction] = []

    def call(self, name: str, *arguments: Any, to: int | None = None) -> Program:
        """Call a packed function (`.x`: the built-in x) or main itself; returns this object."""
        full = f"vm.builtin{name}" if name.startswith(".") else name
        words = tuple(self._argument(one) for one in arguments)
        target = VOID_REGISTER if to is None else to
        self.code.append(Call(target, self._function(full), words))
        return self

    def branch(self, register: int, otherwise: int) -> Program:
        """Go on `otherwise` instructions from here where a register is 0; returns this object."""
        self.code.append(Branch(register, otherwise))
        return self

    def give(self, register: int) -> Program:
        """Return; the function ends."""
        self.code.append(Return(register))
        return self

    def _function(self, name: str) -> int:
        if name == "main":
            return 0
        if name not in self.names:
            self.names.append(name)
        return 1 + self.names.index(name)

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, Argument):
            return value
        if isinstance(value, Register):
            return Argument(ArgumentKind.REGISTER, value.number)
        if isinstance(value, int):
            return Argument(ArgumentKind.IMMEDIATE, value)
        constant = ShapeConstant(value) if isinstance(value, tuple) else value
        self.constants.append(constant)
        return Argument(ArgumentKind.CONSTANT, len(self.constants) - 1)

    def function(self, name: str) -> Argument:
        """A function as an argument."""
        return Argument(ArgumentKind.FUNCTION, self._function(name))

    def executable(self) -> RelaxExecutable:
        """The whole, verified."""
        packed = (
            Function(
                kind=FunctionKind.PACKED, name=name, first=0, end=0,
                argument_count=0, register_count=0, parameter_names=(),
            )
            for name in self.names
        )  # fmt: skip
        main = Function(
            kind=FunctionKind.BYTECODE, name="main", first=0, end=len(self.code),
            argument_count=self.parameters, register_count=self.registers, parameter_names=(),
        )  # fmt: skip
        made = RelaxExecutable(
            location="net.so",
            functions=(main, *packed),
            constants=tuple(self.constants),
            memory_scopes={},
            instructions=tuple(self.code),
        )
        verify_executable(made)
        return made

    def machine(self, functions: dict[str, Any] | None = None) -> RelaxMachine:
        """A machine that runs it."""
        table = FunctionTable(functions or {})
        return RelaxMachine(self.executable(), [table], MemoryManager.POOLED)


def run_both(program: Program, arguments: Sequence[Any]) -> tuple[Any, Any]:
    """What the C core (where it is) and the interpreter make of it: results or errors."""
    machine = program.machine()

    def outcome(call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            return error

    values = [as_value(one) for one in arguments]
    return (
        outcome(lambda: machine.call("main", arguments)),
        outcome(lambda: machine.call_value(0, values)),
    )
