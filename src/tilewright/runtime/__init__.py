"""The runtime roof: loads artifacts and runs them on a device.

Not here: anything that compiles. Importing this package loads no llvmlite, onnx or torch; its modules are
imported by name (`tilewright.runtime.native`, `tilewright.runtime.session`, ...), nothing is pulled in
up front. Called by `tilewright.api`, `tilewright.tuning` and the command line.

The few names below are for users, and load what stands behind them at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tilewright.runtime.library.static_library import load_static_library
    from tilewright.runtime.packed.function_table import FunctionTable
    from tilewright.runtime.packed.functions import packed_function
    from tilewright.runtime.packed.machine_module import InstrumentResult
    from tilewright.runtime.packed.module import Module, ModuleProperties
    from tilewright.runtime.packed.module_kinds import (
        register_module_kind,
        remove_module_kind,
    )
    from tilewright.runtime.packed.tensors import array_of, tensor_of

    # Written out: everything below `load` takes `native` from this package, which would be a circle.
    def load_module(
        path: str | Path, *, keep_module_alive: bool = True, **options: object
    ) -> Module:
        """The module in a file: see `tilewright.runtime.library.load`."""
        ...


_HOMES = {
    "FunctionTable": "tilewright.runtime.packed.function_table",
    "InstrumentResult": "tilewright.runtime.packed.machine_module",
    "Module": "tilewright.runtime.packed.module",
    "ModuleProperties": "tilewright.runtime.packed.module",
    "array_of": "tilewright.runtime.packed.tensors",
    "load_module": "tilewright.runtime.library.load",
    "load_static_library": "tilewright.runtime.library.static_library",
    "packed_function": "tilewright.runtime.packed.functions",
    "register_module_kind": "tilewright.runtime.packed.module_kinds",
    "remove_module_kind": "tilewright.runtime.packed.module_kinds",
    "tensor_of": "tilewright.runtime.packed.tensors",
}

__all__ = [
    "FunctionTable",
    "InstrumentResult",
    "Module",
    "ModuleProperties",
    "array_of",
    "load_module",
    "load_static_library",
    "packed_function",
    "register_module_kind",
    "remove_module_kind",
    "tensor_of",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'tilewright.runtime' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
