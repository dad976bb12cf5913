"""Building modules: names in, ordinals out, a checked `ModuleDef` at the end.

    build = ModuleBuilder("model")
    get = build.import_("hal.devices.get", "0i_r")
    function = build.function("0r_r", export="main")
    …                                              # fill the FunctionBuilder
    module = build.finish()

Equal types, imports and embedded data are stored once.  Knows no HAL and no model; called by
`compiler.program`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import InternalError
from tilewright.formats.byte_view import Buffer
from tilewright.formats.bytecode.assembler import FunctionBuilder
from tilewright.formats.bytecode.isa import IMPORT_BIT
from tilewright.formats.calling_convention import WIDE_BANKS
from tilewright.formats.vmfb.code import decode_module
from tilewright.formats.vmfb.module import (
    OPTIONAL,
    REQUIRED,
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Rodata,
    Signature,
)
from tilewright.formats.vmfb.verifier import verify_module

_CODE_ALIGNMENT: Final = 8


@final
@dataclass(frozen=True, slots=True)
class _Entry:
    builder: FunctionBuilder
    signature: Signature


@final
class ModuleBuilder:
    """Collects the parts of one module."""

    def __init__(
        self, name: str, *, version: int = 0, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._name: Final = name
        self._version: Final = version
        self._attributes: Final = dict(attributes or {})
        self._types: list[str] = []
        self._dependencies: list[Dependency] = []
        self._imports: dict[str, tuple[int, Import]] = {}
        self._exports: list[Export] = []
        self._rodata: list[Rodata] = []
        self._embedded: dict[bytes, int] = {}
        self._functions: list[_Entry] = []
        self._global_bytes = 0
        self._global_refs = 0

    def type(self, name: str) -> int:
        """The ordinal of a type (`!hal.buffer`, `i64`)."""
        if name not in self._types:
            self._types.append(name)
        return self._types.index(name)

    def dependency(self, name: str, minimum_version: int = 0) -> None:
        """Require a module."""
        self._dependencies.append(Dependency(name=name, minimum_version=minimum_version))

    def import_(self, name: str, calling_convention: str, *, optional: bool = False) -> int:
        """The ordinal of an imported function, ready for calls."""
        item = Import(
            name=name,
            signature=Signature(calling_convention=calling_convention),
            flags=OPTIONAL if optional else REQUIRED,
        )
        ordinal, known = self._imports.setdefault(name, (len(self._imports), item))
        if known != item:
            raise InternalError(f"import '{name}' has two signatures")
        return ordinal | IMPORT_BIT

    def rodata(self, data: Buffer, *, external: bool | None = None) -> int:
        """The ordinal of a new read-only segment; `data` is kept, not copied."""
        self._rodata.append(Rodata(data=data, external=external))
        return len(self._rodata) - 1

    def text(self, text: str) -> int:
        """The ordinal of a small embedded segment with the given text."""
        data = text.encode()
        if data not in self._embedded:
            self._embedded[data] = self.rodata(data, external=False)
        return self._embedded[data]

    def global_ref(self) -> int:
        """Room for a reference in the module state; returns its index."""
        self._global_refs += 1
        return self._global_refs - 1

    def global_word(self, bank: str) -> int:
        """Room for a number in the module state; returns its byte offset."""
        size = 8 if bank in WIDE_BANKS else 4
        offset = -(-self._global_bytes // size) * size
        self._global_bytes = offset + size
        return offset

    def function(
        self,
        calling_convention: str,
        *,
        export: str = "",
        attributes: Mapping[str, str] | None = None,
    ) -> FunctionBuilder:
        """A new function to fill; `ordinal_of` tells how to call it.

        Args:
            calling_convention: of the function.
            export: its public name; `__init` runs when a context is made.
            attributes: reflection for host languages.
        """
        builder = FunctionBuilder(calling_convention)
        signature = Signature(
            calling_convention=calling_convention, attributes=dict(attributes or {})
        )
        self._functions.append(_Entry(builder, signature))
        if export:
            self._exports.append(Export(name=export, function=len(self._functions) - 1))
        return builder

    def ordinal_of(self, function: FunctionBuilder) -> int:
        """The ordinal by which a function of this module is called."""
        for ordinal, entry in enumerate(self._functions):
            if entry.builder is function:
                return ordinal
        raise InternalError("the function belongs to another module")

    def finish(self) -> ModuleDef:
        """The module, verified.

        Raises:
            ArchiveError: an emitter built something that may not run.
        """
        code = bytearray()
        descriptors: list[FunctionDescriptor] = []
        requirements = 0
        for entry in self._functions:
            function = entry.builder.finish()
            code += bytes(-len(code) % _CODE_ALIGNMENT)
            requirements |= function.requirements
            descriptors.append(
                FunctionDescriptor(
                    offset=len(code),
                    length=len(function.code),
                    block_count=function.block_count,
                    word_registers=function.word_registers,
                    ref_registers=function.ref_registers,
                    requirements=function.requirements,
                )
            )
            code += function.code
        module = ModuleDef(
            name=self._name,
            version=self._version,
            requirements=requirements,
            attributes=self._attributes,
            types=tuple(self._types),
            dependencies=tuple(self._dependencies),
            imports=tuple(item for _, item in self._imports.values()),
            exports=tuple(self._exports),
            signatures=tuple(entry.signature for entry in self._functions),
            rodata=tuple(self._rodata),
            state=ModuleState(
                global_bytes=self._global_bytes, global_refs=self._global_refs
            ),
            functions=tuple(descriptors),
            bytecode=bytes(code),
        )
        verify_module(module)
        decode_module(module)
        return module
