"""The parts of a Relax executable: functions, constants, instructions.

Source: TVM 0.27, `include/tvm/runtime/vm/bytecode.h` and `executable.h`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tilewright.formats.dlpack_types import DataType

VOID_REGISTER: Final = 1 << 54
"""Read, it is nothing; what is written to it is dropped."""
VM_REGISTER: Final = VOID_REGISTER + 1
"""The machine itself, as built-ins that allocate want it."""


class FunctionKind(enum.IntEnum):
    """What a function of the table is."""

    PACKED = 0
    """Found by its name: in the library, or registered."""
    BYTECODE = 1
    """A range of the instructions."""
    COMPILED = 2
    """Machine code of the library, `__vmtir__<name>`, that works on registers in memory."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A row of the function table.

    Attributes:
        first: its first instruction.
        end: the one behind its last.
        argument_count: arguments come in the registers from 0 on.
        register_count: of its frame, arguments included.
    """

    kind: FunctionKind
    name: str
    first: int
    end: int
    argument_count: int
    register_count: int
    parameter_names: tuple[str, ...]


class ArgumentKind(enum.IntEnum):
    """What an argument of a call names."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


@final
@dataclass(frozen=True, slots=True)
class Argument:
    """An argument: a register, a number, or a place in the table of constants or functions."""

    kind: ArgumentKind
    value: int


@final
@dataclass(frozen=True, slots=True)
class Call:
    """Call `function` of the table; its result goes to the register `target`."""

    target: int
    function: int
    arguments: tuple[Argument, ...]


@final
@dataclass(frozen=True, slots=True)
class Return:
    """Leave the function with what `register` holds."""

    register: int


@final
@dataclass(frozen=True, slots=True)
class Goto:
    """Go on `offset` instructions from here."""

    offset: int


@final
@dataclass(frozen=True, slots=True)
class Branch:
    """Go on with the next instruction, or `otherwise` instructions from here when `register` is 0."""

    register: int
    otherwise: int


Instruction: TypeAlias = Call | Return | Goto | Branch


@final
@dataclass(frozen=True, slots=True)
class TensorConstant:
    """Elements in row order, little endian; a view of the file."""

    element_type: DataType
    shape: tuple[int, ...]
    data: memoryview


@final
@dataclass(frozen=True, slots=True)
class ShapeConstant:
    """A shape."""

    sizes: tuple[int, ...]


Constant: TypeAlias = TensorConstant | ShapeConstant | DataType | str | int | float


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxExecutable:
    """A whole file.

    Attributes:
        location: how messages call it.
        functions: the table; calls name its rows.
        constants: arguments name them.
        memory_scopes: of constants that are not in plain memory.
        instructions: of all functions.
    """

    location: str
    functions: tuple[Function, ...]
    constants: tuple[Constant, ...]
    memory_scopes: Mapping[int, str]
    instructions: tuple[Instruction, ...]

    def function(self, name: str) -> Function | None:
        """The function of that name, or None."""
        return next((one for one in self.functions if one.name == name), None)
