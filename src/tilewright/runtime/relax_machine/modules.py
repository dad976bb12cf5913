"""Relax executables as modules: kind `relax.VMExecutable`, and the virtual machine that one gives.

Source: TVM 0.27, `VMExecutable::GetFunction`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final, final

from tilewright.base.errors import InputError
from tilewright.formats.relax_executable import (
    FunctionKind,
    RelaxExecutable,
    format_builder_calls,
    format_executable,
    format_statistics,
    read_relax_executable,
)
from tilewright.runtime.packed.functions import PackedFunction, packed_function
from tilewright.runtime.packed.machine_module import (
    LOAD_MACHINE,
    MachineModule,
    MemoryManager,
)
from tilewright.runtime.packed.module import Module, ModuleProperties
from tilewright.runtime.relax_machine.machine import RelaxMachine

KIND: Final = "relax.VMExecutable"


@final
class RelaxExecutableModule(Module):
    """An executable of TVM's; the library with its kernels is its import.

    Args:
        data: the bytes of the executable.
        location: how messages call it.

    Raises: ArchiveError for bytes that are damaged.
    """

    kind = KIND
    properties = ModuleProperties.BINARY_SERIALIZABLE | ModuleProperties.RUNNABLE

    def __init__(self, data: bytes, location: str = KIND) -> None:
        super().__init__()
        self._data: Final[bytes] = data
        self.executable: RelaxExecutable = read_relax_executable(data, location)
        self._own: Final[dict[str, Callable[..., object]]] = {
            "stats": self.stats,
            "as_text": self.as_text,
            "as_python": self.as_python,
            "has_function": self.has_function,
            LOAD_MACHINE: self.load_machine,
        }

    def _add_import(self, module: Module) -> None:
        super()._add_import(module)
        where = getattr(module, "location", None)
        if isinstance(where, str):  # the file that the executable lies in
            self.executable = dataclasses.replace(self.executable, location=where)

    def function_names(self) -> Sequence[str]:
        return tuple(self._own)

    def find_function(self, name: str) -> PackedFunction | None:
        # Made anew: the collector of cycles does not see through a packed function.
        return packed_function(self._own[name]) if name in self._own else None

    def _what_there_is(self, wanted: str) -> str:
        if self.has_function(wanted):
            return (
                "its machine has it: tilewright.VirtualMachine(module, tilewright.cpu(0))"
            )
        return super()._what_there_is(wanted)

    def save_to_bytes(self) -> bytes:
        return self._data

    def inspect_source(self, fmt: str = "") -> str:
        """The listing; `python`: calls of TVM's builder; `stats`: constants and functions.

        Raises: InputError for another format.
        """
        shown: dict[str, Callable[[], str]] = {
            "": self.as_text,
            "text": self.as_text,
            "python": self.as_python,
            "stats": self.stats,
        }
        if fmt not in shown:
            raise InputError(f"format '{fmt}', expected 'text', 'python' or 'stats'")
        return shown[fmt]()

    def stats(self) -> str:
        """How many constants and functions there are, and which."""
        return format_statistics(self.executable)

    def as_text(self) -> str:
        """The listing."""
        return format_executable(self.executable)

    def as_python(self) -> str:
        """Calls of TVM's `ExecBuilder` that write the same code."""
        return format_builder_calls(self.executable)

    def has_function(self, name: str) -> bool:
        """Whether the table has the name."""
        return self.executable.function(name) is not None

    def load_machine(self) -> MachineModule:
        """A virtual machine of its own, without devices yet."""
        names = [
            one.name
            for one in self.executable.functions
            if one.kind is not FunctionKind.PACKED
        ]

        def open_machine(manager: MemoryManager) -> RelaxMachine:
            return RelaxMachine(self.executable, self.imports, manager)

        return MachineModule(open_machine, names)


def load_relax_executable(data: bytes) -> Module:
    """The loader of the kind.  Raises: ArchiveError."""
    return RelaxExecutableModule(bytes(data))
