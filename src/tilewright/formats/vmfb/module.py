"""A VM module as frozen data: what a `.vmfb` archive says.

The fields are those of IREE's `bytecode_module_def.fbs`, with Python names and without offsets.
No bytes are interpreted here and nothing is checked beyond types (`reader` and `verifier` do).
Called by whoever reads, writes or looks at modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, final

from tilewright.base.record import field, record
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.bytecode.limits import BYTECODE_VERSION

if TYPE_CHECKING:
    from tilewright.formats.vmfb.debug import DebugDatabase

REQUIRED: Final = 1
OPTIONAL: Final = 2
"""Flags of imports and dependencies."""

EXTERNAL_THRESHOLD_BYTES: Final = 256
"""Read-only data from this size on is stored beside the tables, 64-byte aligned, unless told."""


@final
@record(kw_only=True)
class Dependency:
    """A module that must be (or may be) there, at least in the given version."""

    name: str
    minimum_version: int = 0
    flags: int = REQUIRED


@final
@record(kw_only=True)
class Signature:
    """How a function is called, and what it says about itself to host languages."""

    calling_convention: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)


@final
@record(kw_only=True)
class Import:
    """A function of another module, by its full name `module.function`."""

    name: str
    signature: Signature
    flags: int = REQUIRED


@final
@record(kw_only=True)
class Export:
    """A function others may call; `function` is its ordinal in this module."""

    name: str
    function: int


@final
@record(kw_only=True)
class Rodata:
    """One read-only data segment.

    Ownership: `data` is a view of the archive when read, the caller's buffer when written.

    Attributes:
        external: stored beside the tables (and so mappable); None lets the writer choose.
    """

    data: Buffer
    external: bool | None = None


@final
@record(kw_only=True)
class ModuleState:
    """Room for the globals of one context.  Units: bytes and number of references."""

    global_bytes: int = 0
    global_refs: int = 0


@final
@record(kw_only=True)
class FunctionDescriptor:
    """Where the code of a function lies in the bytecode, and what a frame of it needs."""

    offset: int
    length: int
    block_count: int
    word_registers: int
    ref_registers: int
    requirements: int = 0


@final
@record(kw_only=True)
class ModuleDef:
    """One VM module.

    `signatures` and `functions` run along each other; ordinals of functions, types, rodata and
    imports are positions in these tuples.
    """

    name: str
    version: int = 0
    requirements: int = 0
    attributes: Mapping[str, str] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    dependencies: tuple[Dependency, ...] = ()
    imports: tuple[Import, ...] = ()
    exports: tuple[Export, ...] = ()
    signatures: tuple[Signature, ...] = ()
    rodata: tuple[Rodata, ...] = ()
    rwdata: tuple[int, ...] = ()
    state: ModuleState = field(default_factory=ModuleState)
    functions: tuple[FunctionDescriptor, ...] = ()
    bytecode_version: int = BYTECODE_VERSION
    bytecode: Buffer = b""
    debug: DebugDatabase | None = None

    def code(self, function: int) -> memoryview:
        """The bytes of one function."""
        descriptor = self.functions[function]
        return view_bytes(self.bytecode)[descriptor.offset :][: descriptor.length]

    def function_names(self) -> list[str]:
        """The best name there is for each function: exported, from debug data, or its ordinal."""
        names = [f"function_{index}" for index in range(len(self.functions))]
        if self.debug is not None and len(self.debug.functions) == len(names):
            pairs = zip(self.debug.functions, names, strict=True)
            names = [known.name or ordinal for known, ordinal in pairs]
        for export in reversed(self.exports):  # of several exports the first one counts
            names[export.function] = export.name
        return names
