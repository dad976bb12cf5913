"""tvm-ffi's own modules seen as modules of ours, and genuine stand-ins for modules of Python.

A class of Python cannot be a `tvm_ffi.Module`: that is a final class of C++, its functions are found
through a table of the C++ compiler's, and the C interface has no way to make one.  So a module of ours
crosses the border as a Python object, which comes out as what it was (`Module.__tvm_ffi_object__`), and one
of tvm-ffi's comes in through here.

Where compiled code must find functions of a Python module among the imports of its library, something
genuine stands in for it: a "system library", which tvm-ffi makes for any prefix of names and never
takes away; its functions are addresses (`native.forwarders`).  Stand-ins that nothing genuine imports are
used again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any, Final, final

from tilewright.base.bound_to_process import BoundToProcess
from tilewright.base.errors import InputError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.runtime.native.forwarders import Forwarder, register_system_symbol
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.module import Module, ModuleProperties

_SYMBOL_PREFIX: Final = "__tvm_ffi_"


class GenuineModule(BoundToProcess, Module):
    """A `tvm_ffi.Module`.

    Args:
        genuine: made by a library, by TVM or by any other package that uses tvm-ffi.
    """

    _made_again = "tilewright.runtime.load_module(path)"

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
        try:
            self.genuine.write_to_file(str(file_name), fmt)
        except RuntimeError as error:  # that it writes nothing, or what its kind says
            raise InputError(
                f"a module of kind '{self.kind}' is not written: {error}",
                location=str(file_name),
                hint="formats: " + (", ".join(self.get_write_formats()) or "none"),
            ) from error

    def save_to_bytes(self) -> bytes:
        raise InputError(
            f"tvm-ffi gives no bytes of a module of kind '{self.kind}'",
            hint="export it with what made it (tvm: module.export_library)",
        )

    def inspect_source(self, fmt: str = "") -> str:
        return str(self.genuine.inspect_source(fmt))

    def get_function_metadata(
        self, name: str, query_imports: bool = False
    ) -> dict[str, Any] | None:
        """What the library says of a function (`type_schema`), or None."""
        return self.genuine.get_function_metadata(name, query_imports)

    def get_function_doc(self, name: str, query_imports: bool = False) -> str | None:
        """What the library explains of a function, or None."""
        return self.genuine.get_function_doc(name, query_imports)

    @property
    def imports(self) -> tuple[Module, ...]:
        """The modules that this one imports."""
        return tuple(as_module(one) for one in self.genuine.imports)

    def identity(self) -> Hashable:
        """The address of the object of tvm-ffi."""
        return ("tvm_ffi", self.genuine.__chandle__())

    def _add_import(self, module: Module) -> None:
        self.genuine.import_module(as_genuine(module))

    def clear_imports(self) -> None:
        self.genuine.clear_imports()

    def __tvm_ffi_object__(self) -> tvm_ffi.Object:
        """Itself."""
        return self.genuine


def as_module(module: object) -> Module:
    """A module as one of ours: itself, what a stand-in stands for, or a `tvm_ffi.Module` in its wrapper.

    Raises: InputError for anything else.
    """
    if isinstance(module, Module):
        return module
    if isinstance(module, tvm_ffi.Module):
        standing = _standing(module)
        if standing is None or standing.module is None:
            return GenuineModule(module)
        return standing.module
    raise InputError(
        f"'{type(module).__name__}' is no module",
        hint="load one: tilewright.runtime.load_module(path), or make one of functions: "
        "tilewright.runtime.FunctionTable({'name': function})",
    )


# --- the other way round ------------------------------------------------------------------------


@final
class _StandIn:
    """Something genuine, and the module that it stands for."""

    def __init__(self, prefix: str) -> None:
        self.genuine: Final[tvm_ffi.Module] = tvm_ffi.system_lib(prefix)
        self.prefix: Final[str] = prefix
        self.module: Module | None = None
        self.offered: list[tuple[PackedFunction, Forwarder]] | None = None

    def offer(self) -> None:
        """Let compiled code find the functions that the module lists now."""
        if self.offered is not None or self.module is None:
            return
        self.offered = []
        for name in self.module.function_names():
            function = self.module.find_function(name)
            if function is None:
                continue
            forwarder = Forwarder(tvm_ffi.LIB, function.__chandle__())
            self.offered.append((function, forwarder))
            symbol = f"{_SYMBOL_PREFIX}{self.prefix}{name}"
            register_system_symbol(tvm_ffi.LIB, symbol, forwarder.address)


_LOCK: Final = fork_lock(Rank.MODULE)
_STAND_INS: Final[dict[int, _StandIn]] = {}  # by the address of the genuine module
_FREE: Final[list[_StandIn]] = []  # those of them that stand for nothing


def _standing(genuine: tvm_ffi.Module) -> _StandIn | None:
    return _STAND_INS.get(genuine.__chandle__())


def as_genuine(module: Module) -> tvm_ffi.Module:
    """A module for what takes tvm-ffi's only: itself, or a stand-in that has its functions.

    The stand-in keeps the module, the functions that it lists now, and its imports for the rest of
    the process, because nobody can tell how long compiled code will call them.
    """
    if isinstance(module, GenuineModule):
        return module.genuine
    with _LOCK:
        for standing in _STAND_INS.values():
            if standing.module is module and standing.offered is not None:
                return standing.genuine
        genuine = stand_in(module)
        offer_functions(genuine)
        for imported in module.imports:
            genuine.import_module(as_genuine(imported))
        return genuine


def stand_in(module: Module) -> tvm_ffi.Module:
    """Something genuine, without functions yet, that `as_module` makes `module` of."""
    with _LOCK:
        name = f"tilewright.module.{len(_STAND_INS)}."
        standing = _FREE.pop() if _FREE else _StandIn(name)
        standing.module = module
        _STAND_INS[standing.genuine.__chandle__()] = standing
        return standing.genuine


def offer_functions(genuine: tvm_ffi.Module) -> None:
    """Let compiled code find the functions of what `genuine` stands for, from here on for ever."""
    with _LOCK:
        standing = _standing(genuine)
        if standing is not None:
            standing.offer()


def release_stand_in(genuine: tvm_ffi.Module) -> None:
    """Let a stand-in that nothing genuine imports stand for another, unless it has functions."""
    with _LOCK:
        standing = _standing(genuine)
        if standing is None or standing.module is None:
            return
        if standing.offered is None:
            genuine.clear_imports()
            standing.module = None
            _FREE.append(standing)
