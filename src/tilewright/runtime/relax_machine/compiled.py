"""Relax functions that TVM compiled to machine code (`exec_mode="compiled"`).

`__vmtir__<name>` of the library gets four addresses: the machine, and lists of values of tvm-ffi for registers,
constants and functions.  The lists are arrays of tvm-ffi, whose items such code reads and writes in place.
The built-ins that it calls are asked for by name through a variable of the library; the ones here answer,
also where TVM's own are in the process, because those would take our machine for one of TVM's.

Source: TVM 0.27, `VirtualMachineImpl::GetClosureInternal`; tvm-ffi 0.1.15, `TVMFFISeqCell`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, final, runtime_checkable

from tilewright.base.errors import InputError
from tilewright.formats.relax_executable import Function
from tilewright.runtime.native.compiled_library import (
    LOOKUP_VARIABLES,
    NameLookup,
    items_address,
    opaque_pointer,
)
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module
from tilewright.runtime.relax_machine.builtins import BUILTINS, TAKE_THE_MACHINE, Machine

PREFIX: Final = "__vmtir__"
_MACHINES: Final[weakref.WeakValueDictionary[int, Any]] = weakref.WeakValueDictionary()
_TOKENS: Final = iter(range(1, 1 << 62))


@runtime_checkable
class HasVariables(Protocol):
    """A module whose library is in the process."""

    def set_variable(self, name: str, value: int) -> bool:
        """Give a variable of the library, a pointer, a value; returns whether there is one."""
        ...


@final
class CompiledFunctions:
    """The compiled functions of a machine.

    Args:
        machine: whose functions they are; not kept alive.
        constants: of the executable.
        functions: all functions of the table as values.
    """

    def __init__(
        self,
        machine: Machine,
        constants: Sequence[Any],
        functions: Sequence[PackedFunction],
    ) -> None:
        token = next(_TOKENS)
        _MACHINES[token] = machine
        self._machine: Final = opaque_pointer(token)
        self._constants: Final = tvm_ffi.Array(constants)
        self._functions: Final = tvm_ffi.Array(functions)

    def bind(self, function: Function, imports: Sequence[Module]) -> Callable[..., Any]:
        """A compiled function, to be called with its arguments.

        Raises: InputError when no library has its code.
        """
        code = _find(function, imports)
        count = function.argument_count
        empty = [None] * (function.register_count - count)
        constants, functions = (_address(one) for one in (self._constants, self._functions))

        def call(*arguments: Any) -> Any:
            registers = tvm_ffi.Array([*arguments, *empty])
            code(self._machine, _address(registers), constants, functions)
            return registers[count]

        return call


def _address(items: tvm_ffi.Array[Any]) -> object:
    return opaque_pointer(items_address(items.__chandle__(), len(items)))


def _find(function: Function, imports: Sequence[Module]) -> PackedFunction:
    for root in imports:
        for module in root.walk():
            code = module.find_function(PREFIX + function.name)
            if code is None:
                continue
            if isinstance(module, HasVariables):
                for name in LOOKUP_VARIABLES:
                    module.set_variable(name, _lookup().address)
            return code
    raise InputError(f"no library has the code of the compiled function '{function.name}'")


@functools.cache
def _lookup() -> NameLookup:
    """Answers for the built-ins; everything else tvm-ffi finds."""
    return NameLookup(tvm_ffi.LIB, _builtin)


@functools.cache
def _builtin(name: str) -> PackedFunction | None:
    row = BUILTINS.get(name)
    if row is None:
        return None
    if name not in TAKE_THE_MACHINE:
        return packed_function(row)
    return packed_function(lambda machine, *rest: row(_machine_of(machine), *rest))


def _machine_of(pointer: Any) -> Machine:
    machine = _MACHINES.get(pointer.value)
    if machine is None:
        raise InputError("the virtual machine of a compiled function is gone")
    return machine
