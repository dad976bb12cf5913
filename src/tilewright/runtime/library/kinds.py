"""The kinds of modules that libraries of ours carry as bytes, and who makes them again.

What users register (`packed.module_kinds`) comes before, what others put into tvm-ffi's registry after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import tilewright.runtime.relax_machine as relax_machine
from tilewright.runtime.library.c_module import load_c_module
from tilewright.runtime.library.params_module import load_params
from tilewright.runtime.library.static_library import load_static_library_bytes
from tilewright.runtime.library.vm_module import VmModule
from tilewright.runtime.packed.module_kinds import LoadFromBytes, registered_loader


def _load_vm(data: bytes) -> VmModule:
    return VmModule(data, find_loader=find_loader)


BUILT_IN: Final[Mapping[str, LoadFromBytes]] = {
    "c": load_c_module,
    "params": load_params,
    "static_library": load_static_library_bytes,
    "vm": _load_vm,
    relax_machine.KIND: relax_machine.load_relax_executable,
}


def find_loader(kind: str) -> LoadFromBytes | None:
    """The loader of a kind; None for one that nobody knows."""
    return registered_loader(kind, BUILT_IN)
