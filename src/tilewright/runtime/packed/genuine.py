"""tvm-ffi's own modules, seen as modules of ours.

A class of Python cannot be a `tvm_ffi.Module`: that is a final class of C++, its functions are found
through a table of the C++ compiler's, and the C interface has no way to make one.  So a module of ours
crosses the border as a Python object, which comes out as what it was (`Module.__tvm_ffi_object__`), and one
of tvm-ffi's comes in through here.  Where compiled code must find functions of a Python module among its
imports, something genuine stands in for it (`stand_in`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.module import Module, ModuleProperties


@final
class GenuineModule(Module):
    """A `tvm_ffi.Module`.

    Args:
        genuine: made by a library, by TVM or by any other package that uses tvm-ffi.
    """

    def __init__(self, genuine: tvm_ffi.Module) -> None:
        super().__init__()
        self.genuine: Final[tvm_ffi.Module] = genuine
        self.kind: str = str(genuine.kind)
        self.properties: ModuleProperties = ModuleProperties(genuine.get_property_mask())

    def find_function(self, name: str) -> PackedFunction | None:
        if not self.genuine.implements_function(name):
            return None
        try:
            return self.genuine.get_function(name)
        except AttributeError:  # it has the source of it only
            return None

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        return self.genuine.implements_function(name, query_imports)

    def get_write_formats(self) -> Sequence[str]:
        return tuple(str(one) for one in self.genuine.get_write_formats())

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        self.genuine.write_to_file(str(file_name), fmt)

    def save_to_bytes(self) -> bytes:
        raise InputError(
            f"tvm-ffi gives no bytes of a module of kind '{self.kind}'",
            hint="export it with what made it (tvm: module.export_library)",
        )

    def inspect_source(self, fmt: str = "") -> str:
        return str(self.genuine.inspect_source(fmt))

    @property
    def imports(self) -> tuple[Module, ...]:
        """The modules that this one imports."""
        return tuple(as_module(one) for one in self.genuine.imports)

    def identity(self) -> Hashable:
        """The address of the object of tvm-ffi."""
        return ("tvm_ffi", self.genuine.__chandle__())

    def _add_import(self, module: Module) -> None:
        if not isinstance(module, GenuineModule):
            raise InputError(
                f"a module of tvm-ffi (kind '{self.kind}') cannot import one of Python "
                f"(kind '{module.kind}')",
                hint="import the other way round",
            )
        self.genuine.import_module(module.genuine)

    def clear_imports(self) -> None:
        self.genuine.clear_imports()

    def __tvm_ffi_object__(self) -> tvm_ffi.Object:
        """Itself."""
        return self.genuine


def as_module(module: object) -> Module:
    """A module as one of ours: itself, or a `tvm_ffi.Module` in its wrapper.

    Raises: InputError for anything else.
    """
    if isinstance(module, Module):
        return module
    if isinstance(module, tvm_ffi.Module):
        return GenuineModule(module)
    raise InputError(f"'{type(module).__name__}' is no module")
