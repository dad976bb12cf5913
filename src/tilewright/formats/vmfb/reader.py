"""`.vmfb` bytes → `ModuleDef`, without copying read-only data.

Accepts what IREE's runtime accepts: a size-prefixed FlatBuffer, optionally behind a ZIP local
header (polyglot archives), with read-only data embedded or following on 64-byte boundaries.
Every offset and every table entry is checked; the bytecode itself is not looked into
(`bytecode.verifier` does).  Called by `runtime.vm`, `compiler.packaging` tests and the CLI.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tilewright.base.errors import ArchiveError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.signature import split_signatures
from tilewright.formats.vmfb.flatbuffer import PREFIX_BYTES, TableView
from tilewright.formats.vmfb.module import (
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Rodata,
    Signature,
)
from tilewright.formats.vmfb.schema import (
    DESCRIPTOR,
    IDENTIFIER,
    RODATA_ALIGNMENT,
    Root,
    Segment,
)
from tilewright.formats.vmfb.seal import SEAL_ATTRIBUTE, check_seal
from tilewright.formats.vmfb.verifier import verify_module

if TYPE_CHECKING:
    from tilewright.formats.vmfb.debug import DebugDatabase

_ZIP_LOCAL_HEADER: Final = struct.Struct("<4sHHHHHIIIHH")
_LARGEST_FILE: Final = 1 << 42  # beyond that, a size is damaged
_ZIP_MAGIC: Final = b"PK\x03\x04"


def read_archive(buffer: Buffer, location: str = "module") -> ModuleDef:
    """Read one module.

    Args:
        buffer: the whole archive: bytes, a memory map, a numpy array.  It must outlive the
            module, whose read-only data and bytecode are views of it.
        location: how errors call it, usually the file name.

    Raises:
        ArchiveError: the archive is corrupt, truncated or of an unknown version.
    """
    view = ByteView(split_signatures(buffer, location)[0], location)
    start = _flatbuffer_start(view)
    _check_identifier(view, start)
    size = view.u32(start, "size of the tables")
    _check_end(view, start + PREFIX_BYTES + size)
    tables = view.sub(start + PREFIX_BYTES, size, "tables")
    root = TableView.root(tables, IDENTIFIER, location)
    end = start + PREFIX_BYTES + size
    data_start = -(-end // RODATA_ALIGNMENT) * RODATA_ALIGNMENT
    module = ModuleDef(
        name=root.text(Root.NAME, "module name"),
        version=root.u32(Root.VERSION),
        requirements=root.u32(Root.REQUIREMENTS),
        attributes=_attributes(root, Root.ATTRIBUTES),
        types=tuple(t.text(0, "type name") for t in root.tables(Root.TYPES, "types")),
        dependencies=_dependencies(root),
        imports=_imports(root),
        exports=_exports(root),
        signatures=tuple(map(_signature, root.tables(Root.SIGNATURES, "signatures"))),
        rodata=tuple(_rodata(root, view, data_start)),
        rwdata=tuple(t.i32(0) for t in root.tables(Root.RWDATA, "writable segments")),
        state=_state(root),
        functions=tuple(_functions(root)),
        bytecode_version=root.u32(Root.BYTECODE_VERSION),
        bytecode=root.vector(Root.BYTECODE, 1, "bytecode") or b"",
        debug=_debug(root),
    )
    if start == 0:  # in a ZIP file the seal is not at the end
        check_seal(view.data, end, SEAL_ATTRIBUTE in module.attributes, location)
    verify_module(module, location)
    return module


def _check_identifier(view: ByteView, start: int) -> None:
    """Refuse other files in words, before their first bytes are taken for a size."""
    place = start + 2 * PREFIX_BYTES
    if view.size < place + len(IDENTIFIER):
        raise ArchiveError("is no .vmfb archive: too short", location=view.location)
    found = bytes(view.sub(place, len(IDENTIFIER), "file identifier"))
    if found != IDENTIFIER:
        raise ArchiveError(
            f"is no .vmfb archive: file identifier is {found!r}, expected {IDENTIFIER!r}",
            location=view.location,
        )


def _check_end(view: ByteView, end: int) -> None:
    """Say of a file that was not copied whole that it was not."""
    if view.size < end < _LARGEST_FILE:
        raise ArchiveError(
            f"the file is cut: it has {view.size} of at least {end} bytes",
            location=view.location,
            hint="get the file again, whole",
        )


def is_archive(data: Buffer) -> bool:
    """Whether bytes begin as an archive does; whether they are a sound one, reading them tells."""
    view = ByteView(data, "module")
    try:
        _check_identifier(view, _flatbuffer_start(view))
    except ArchiveError:
        return False
    return True


def _flatbuffer_start(view: ByteView) -> int:
    if bytes(view.data[:4]) != _ZIP_MAGIC:
        return 0
    fields = view.unpack(_ZIP_LOCAL_HEADER, 0, "ZIP header")
    compression, name_bytes, extra_bytes = fields[3], fields[9], fields[10]
    if compression != 0:
        raise ArchiveError(
            f"the module in the ZIP file is compressed with method {compression}, expected 0",
            location=view.location,
        )
    return _ZIP_LOCAL_HEADER.size + name_bytes + extra_bytes


def _attributes(table: TableView, slot: int) -> Mapping[str, str]:
    return {
        entry.text(0, "attribute name"): entry.text(1, "attribute value")
        for entry in table.tables(slot, "attributes")
    }


def _signature(table: TableView | None) -> Signature:
    if table is None:
        return Signature()
    return Signature(
        calling_convention=table.text(0, "calling convention"),
        attributes=_attributes(table, 1),
    )


def _dependencies(root: TableView) -> tuple[Dependency, ...]:
    return tuple(
        Dependency(
            name=table.text(0, "dependency name"),
            minimum_version=table.u32(1),
            flags=table.u32(2, 1),
        )
        for table in root.tables(Root.DEPENDENCIES, "dependencies")
    )


def _imports(root: TableView) -> tuple[Import, ...]:
    return tuple(
        Import(
            name=table.text(0, "import name"),
            signature=_signature(table.table(1)),
            flags=table.u32(2, 1),
        )
        for table in root.tables(Root.IMPORTS, "imports")
    )


def _exports(root: TableView) -> tuple[Export, ...]:
    return tuple(
        Export(name=table.text(0, "export name"), function=table.i32(1))
        for table in root.tables(Root.EXPORTS, "exports")
    )


def _rodata(root: TableView, view: ByteView, data_start: int) -> Iterator[Rodata]:
    segments = root.tables(Root.RODATA, "read-only data")
    places = [(t.u64(Segment.OFFSET), t.u64(Segment.LENGTH)) for t in segments]
    _check_end(view, max((data_start + o + n for o, n in places if n), default=0))
    for index, table in enumerate(segments):
        subject = f"read-only data {index}"
        if table.u8(Segment.COMPRESSION) > 1:
            raise ArchiveError(f"{subject} is compressed", location=view.location)
        embedded = table.vector(Segment.EMBEDDED, 1, subject)
        if embedded is not None:
            yield Rodata(data=embedded, external=False)
            continue
        offset, length = table.u64(Segment.OFFSET), table.u64(Segment.LENGTH)
        yield Rodata(data=view.sub(data_start + offset, length, subject), external=True)


def _state(root: TableView) -> ModuleState:
    table = root.table(Root.STATE)
    if table is None:
        return ModuleState()
    return ModuleState(global_bytes=table.i32(0), global_refs=table.i32(1))


def _functions(root: TableView) -> Iterator[FunctionDescriptor]:
    data = root.vector(Root.DESCRIPTORS, DESCRIPTOR.size, "function descriptors")
    for fields in DESCRIPTOR.iter_unpack(data or b""):
        offset, length, requirements, _, blocks, words, refs = fields
        yield FunctionDescriptor(
            offset=offset,
            length=length,
            requirements=requirements,
            block_count=blocks,
            word_registers=words,
            ref_registers=refs,
        )


def _debug(root: TableView) -> DebugDatabase | None:
    table = root.table(Root.DEBUG)
    if table is None:
        return None
    with LATE_IMPORTS:  # modules that run seldom have any
        from tilewright.formats.vmfb.read_debug import read_debug  # noqa: PLC0415

    return read_debug(table)
