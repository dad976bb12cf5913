"""Runs bytecode of Relax in Python, instruction by instruction: the twin of `native/src/relax`.

Used where the C core was not built.  Functions that call each other are functions of
Python that do, so their depth is bounded by Python's limit.  Not here: what built-ins do (`builtins`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, final

from tilewright.base.errors import InputError, TilewrightError
from tilewright.formats.relax_executable import (
    VM_REGISTER,
    VOID_REGISTER,
    Argument,
    ArgumentKind,
    Branch,
    Call,
    FunctionKind,
    Goto,
    RelaxExecutable,
    Return,
)
from tilewright.runtime.packed.functions import PackedFunction


class Caller(Protocol):
    """What runs what the code calls."""

    @property
    def executable(self) -> RelaxExecutable:
        """Verified."""
        ...

    @property
    def constants(self) -> Sequence[Any]:
        """Of the executable, as values."""
        ...

    def value(self, index: int) -> PackedFunction:
        """A function of the table as a value."""
        ...

    def run_packed(self, index: int, arguments: Sequence[Any]) -> Any:
        """Call a packed function or a built-in."""
        ...


@final
class Interpreter:
    """The functions of bytecode of a machine, which has no others."""

    def __init__(self, machine: Caller) -> None:
        self._machine: Final[Caller] = machine

    def call(self, index: int, arguments: Iterable[Any]) -> Any:
        """Run a function of bytecode.

        Raises: InputError for calls that are nested deeper than Python's limit; what is called raises, with a
        note of the instruction.
        """
        machine = self._machine
        function = machine.executable.functions[index]
        registers: dict[int, Any] = dict(enumerate(arguments))
        at = function.first
        try:
            while True:
                one = machine.executable.instructions[at]
                match one:
                    case Return(register):
                        return self._register(register, registers)
                    case Goto(offset):
                        at += offset
                    case Branch(register, otherwise):
                        at += 1 if self._register(register, registers) else otherwise
                    case Call():
                        result = self._call(one, registers)
                        if one.target < VOID_REGISTER:
                            registers[one.target] = result
                        at += 1
        except Exception as error:
            raise _located(error, machine.executable, index, at) from None

    def _call(self, call: Call, registers: dict[int, Any]) -> Any:
        arguments = [self._argument(one, registers) for one in call.arguments]
        if self._machine.executable.functions[call.function].kind is FunctionKind.PACKED:
            return self._machine.run_packed(call.function, arguments)
        return self.call(call.function, arguments)

    def _register(self, register: int, registers: dict[int, Any]) -> Any:
        return self._machine if register == VM_REGISTER else registers.get(register)

    def _argument(self, argument: Argument, registers: dict[int, Any]) -> Any:
        match argument.kind:
            case ArgumentKind.REGISTER:
                return self._register(argument.value, registers)
            case ArgumentKind.IMMEDIATE:
                return argument.value
            case ArgumentKind.CONSTANT:
                return self._machine.constants[argument.value]
            case ArgumentKind.FUNCTION:
                return self._machine.value(argument.value)


def _located(
    error: Exception, executable: RelaxExecutable, index: int, at: int
) -> Exception:
    """The error, with the place where it came up first."""
    if getattr(error, "relax_place", None) is not None:
        return error
    one = executable.instructions[at]
    problem = (
        f" ('{executable.functions[one.function].name}')" if isinstance(one, Call) else ""
    )
    name = executable.functions[index].name
    where = f"{executable.location}: function '{name}': instruction {at}{problem}"
    if isinstance(error, RecursionError):
        error = InputError(
            "calls are nested too deeply",
            hint="a loop in Relax is a function that calls itself: sys.setrecursionlimit(n)",
        )
    if isinstance(error, TilewrightError):
        error.location = where if error.location is None else f"{where}: {error.location}"
    else:
        error.add_note(f"in {where}")
    vars(error)["relax_place"] = where
    return error
