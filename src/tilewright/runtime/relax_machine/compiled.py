"""Relax functions that TVM compiled to machine code (`exec_mode="compiled"`): finding them, and what they find.

`__vmtir__<name>` of the library is called by the C core with the addresses of registers, constants and functions.
The built-ins that such code calls are asked for by name through a variable of the library; ours answer,
also where TVM's own are in the process, because those would take our machine for one of TVM's.

Source: TVM 0.27, `VirtualMachineImpl::GetClosureInternal`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

from tilewright.base.errors import InputError
from tilewright.formats.relax_executable import Function
from tilewright.runtime.native.compiled_library import LOOKUP_VARIABLES, NameLookup
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.module import Module
from tilewright.runtime.relax_machine.builtins import BUILTINS
from tilewright.runtime.relax_machine.native_program import native_builtin

PREFIX: Final = "__vmtir__"


@runtime_checkable
class HasVariables(Protocol):
    """A module whose library is in the process."""

    def set_variable(self, name: str, value: int) -> bool:
        """Give a variable of the library, a pointer, a value; returns whether there is one."""
        ...


def find_code(function: Function, imports: Sequence[Module]) -> PackedFunction:
    """The code of a compiled function, whose library from here on finds our built-ins.

    Raises: InputError when no library has it.
    """
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
    native = native_builtin(name)
    if native is not None:
        return native
    row = BUILTINS.get(name)
    return None if row is None else packed_function(row)
