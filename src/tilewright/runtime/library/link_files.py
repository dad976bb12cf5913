"""What a module brings to a linker: objects, sources in C, and how they are compiled.

Modules that are exported and are ours say it all at once (`Linkable`); of others, one file is written
(`Module.write_to_file`).  Called by `export`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Protocol, cast, final

from tilewright.base.record import field, record
from tilewright.formats.byte_view import Buffer

FUNCTION: Final = "__tvm_ffi_{}"
"""The symbol of a packed function."""


@final
@record(kw_only=True)
class LinkFiles:
    """Files that become one library.

    All `files` go below one folder, where the compiler is started.

    Attributes:
        name: what the symbols of the C interface begin with; empty where there is none.
        arch, os: of the machine that the objects are for, as in a `Target`.
        files: sources, headers and data by name.
        objects: relocatable objects by name.
        units: those of `files` that a compiler takes.
        entry_units: likewise, of which a process has one each: they define the names by which a library
            is found when it is loaded.
        public: headers for users of the library.
        exports: the symbols that a shared library shows.
        flags: for the compiler.
        link_flags: for the linker.
        functions: the symbols of packed functions by the names they are asked for.
        loader_symbols: further symbols that loaders look for: a blob of modules, the place of a context.
        has_model: whether the C interface is a model's, which a program can run.
    """

    name: str
    arch: str
    os: str
    files: Mapping[str, Buffer] = field(default_factory=dict)
    objects: Mapping[str, Buffer] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    entry_units: tuple[str, ...] = ()
    public: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    loader_symbols: tuple[str, ...] = ()
    has_model: bool = False


@final
@record(kw_only=True)
class LinkOptions:
    """How a module is to be linked.

    Attributes:
        name: what the symbols of the C interface shall begin with.
        weights: the file beside the library that has the weights (written on the way); None: inside.
        written: what is to be there only when the library is, the weights; whoever makes these options closes it.
        kernel_functions: whether each kernel is a packed function, too.
        symbol_prefix: what the names of packed functions begin with, for a system library.
        kernel_sources: whether kernels are to be sources in C, not objects.
        is_closed: whether what is linked is the end of it, so that no other linker sees the names inside.
    """

    name: str
    weights: Path | None = None
    written: ExitStack = field(default_factory=ExitStack)
    kernel_functions: bool = False
    symbol_prefix: str = ""
    kernel_sources: bool = False
    is_closed: bool = False


class Linkable(Protocol):
    """A module of ours that brings all its files, and those of the modules that go with it."""

    def link_files(self, options: LinkOptions) -> LinkFiles:
        """The files.  Raises: UserError for what cannot be linked so."""
        ...

    def goes_along(self, module: object) -> bool:
        """Whether what `link_files` gives has an imported module in it already."""
        ...


def linkable(module: object) -> Linkable | None:
    """The module as one that brings all its files; None for others.

    The class is asked: a function of the name is no method.
    """
    has_files = hasattr(type(module), "link_files")
    return cast("Linkable", module) if has_files else None
