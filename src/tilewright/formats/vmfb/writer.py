"""`ModuleDef` → `.vmfb` bytes, streaming read-only data from the caller's buffers.

The tables (a few kilobytes) are built in memory; weights of any size go from their buffers to
the file without a copy.  The same module always gives the same bytes.  The result is what IREE's
runtime accepts.  Called by `compiler.packaging`.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from tilewright.base.output_file import open_output
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb.debug import (
    CallSite,
    DebugDatabase,
    FileLine,
    Fused,
    Location,
    Named,
)
from tilewright.formats.vmfb.flatbuffer_writer import (
    Elements,
    Node,
    Scalar,
    Table,
    Tables,
    Text,
    write_flatbuffer,
)
from tilewright.formats.vmfb.module import (
    EXTERNAL_THRESHOLD_BYTES,
    ModuleDef,
    Rodata,
    Signature,
)
from tilewright.formats.vmfb.schema import (
    DESCRIPTOR,
    IDENTIFIER,
    RODATA_ALIGNMENT,
    LocationKind,
    Root,
    Segment,
)
from tilewright.formats.vmfb.seal import SEAL_ATTRIBUTE, SealWriter
from tilewright.formats.vmfb.verifier import verify_module

_CHUNK_BYTES: Final = 1 << 24


def write_archive(module: ModuleDef, target: str | Path | BinaryIO) -> int:
    """Write one module.

    Args:
        module: what to write; checked first.
        target: a path (see `base.output_file`: nobody ever sees half a file) or an open file.

    Returns:
        The number of bytes written.

    Raises:
        ArchiveError: the module is not one the reader would accept.
        UserError: the file cannot be written; an old one stays as it was.
    """
    verify_module(module)
    if not isinstance(target, (str, Path)):
        return _stream(module, target)
    with open_output(target) as file:
        return _stream(module, file)


def archive_bytes(module: ModuleDef) -> bytes:
    """The archive in memory; for small modules and tests."""
    file = io.BytesIO()
    write_archive(module, file)
    return file.getvalue()


def _stream(module: ModuleDef, file: BinaryIO) -> int:
    external = [segment for segment in module.rodata if _is_external(segment)]
    tables = write_flatbuffer(_root(module), IDENTIFIER)
    file.write(tables)
    seal = SealWriter(tables)
    size = len(tables)
    for segment in external:
        for piece in _pieces(segment, -size % RODATA_ALIGNMENT):
            file.write(piece)
            seal.add(piece)
            size += len(piece)
    if SEAL_ATTRIBUTE not in module.attributes:
        return size
    return size + file.write(seal.finish())


def _pieces(segment: Rodata, padding: int) -> Iterator[bytes | memoryview]:
    yield bytes(padding)
    data = view_bytes(segment.data)
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]


def _is_external(segment: Rodata) -> bool:
    if segment.external is None:
        return len(view_bytes(segment.data)) >= EXTERNAL_THRESHOLD_BYTES
    return segment.external


# --- the tree ----------------------------------------------------------------------------------


def _root(module: ModuleDef) -> Table:
    fields: list[tuple[int, Node | None]] = [
        (Root.NAME, Text(module.name)),
        (Root.VERSION, _u32(module.version)),
        (Root.REQUIREMENTS, _u32(module.requirements)),
        (Root.ATTRIBUTES, _attributes(module.attributes)),
        (Root.TYPES, _tables([_table((0, Text(name))) for name in module.types])),
        (Root.DEPENDENCIES, _dependencies(module)),
        (Root.IMPORTS, _imports(module)),
        (Root.EXPORTS, _exports(module)),
        (Root.SIGNATURES, _tables([_signature(item) for item in module.signatures])),
        (Root.RODATA, _tables(_rodata(module.rodata))),
        (Root.RWDATA, _tables([_table((0, Scalar("i", size))) for size in module.rwdata])),
        (Root.STATE, _state(module)),
        (Root.DESCRIPTORS, _descriptors(module)),
        (Root.BYTECODE_VERSION, _u32(module.bytecode_version)),
        (Root.BYTECODE, Elements(module.bytecode, 1, 8)),
        (Root.DEBUG, None if module.debug is None else _debug(module.debug)),
    ]
    return _table(*fields)


def _table(*fields: tuple[int, Node | None]) -> Table:
    return Table(tuple((int(slot), node) for slot, node in fields if node is not None))


def _tables(items: Sequence[Table]) -> Tables | None:
    return Tables(tuple(items)) if items else None


def _u32(value: int, default: int = 0) -> Scalar | None:
    return None if value == default else Scalar("I", value)


def _attributes(attributes: Mapping[str, str]) -> Tables | None:
    return _tables(
        [_table((0, Text(key)), (1, Text(text))) for key, text in attributes.items()]
    )


def _signature(signature: Signature) -> Table:
    convention = signature.calling_convention
    return _table(
        (0, Text(convention) if convention else None),
        (1, _attributes(signature.attributes)),
    )


def _dependencies(module: ModuleDef) -> Tables | None:
    return _tables(
        [
            _table(
                (0, Text(item.name)),
                (1, _u32(item.minimum_version)),
                (2, _u32(item.flags, 1)),
            )
            for item in module.dependencies
        ]
    )


def _imports(module: ModuleDef) -> Tables | None:
    return _tables(
        [
            _table(
                (0, Text(item.name)),
                (1, _signature(item.signature)),
                (2, _u32(item.flags, 1)),
            )
            for item in module.imports
        ]
    )


def _exports(module: ModuleDef) -> Tables | None:
    return _tables(
        [
            _table((0, Text(item.name)), (1, Scalar("i", item.function)))
            for item in module.exports
        ]
    )


def _rodata(segments: Sequence[Rodata]) -> list[Table]:
    """The segment tables; external offsets count from the aligned end of the tables."""
    found: list[Table] = []
    offset = 0
    for segment in segments:
        if not _is_external(segment):
            found.append(
                _table((Segment.EMBEDDED, Elements(view_bytes(segment.data), 1, 16)))
            )
            continue
        length = len(view_bytes(segment.data))
        offset += -offset % RODATA_ALIGNMENT
        found.append(
            _table(
                (Segment.OFFSET, Scalar("Q", offset)), (Segment.LENGTH, Scalar("Q", length))
            )
        )
        offset += length
    return found


def _state(module: ModuleDef) -> Table | None:
    state = module.state
    if not state.global_bytes and not state.global_refs:
        return None
    return _table((0, Scalar("i", state.global_bytes)), (1, Scalar("i", state.global_refs)))


def _descriptors(module: ModuleDef) -> Elements | None:
    if not module.functions:
        return None
    data = b"".join(
        DESCRIPTOR.pack(
            item.offset,
            item.length,
            item.requirements,
            0,
            item.block_count,
            item.word_registers,
            item.ref_registers,
        )
        for item in module.functions
    )
    return Elements(data, DESCRIPTOR.size, 4)


def _debug(debug: DebugDatabase) -> Table:
    entries = [_location(item) for item in debug.locations]
    kinds = bytes(kind for kind, _ in entries)
    maps = [
        _table(
            (0, Text(item.name)),
            (1, Elements(_packed_pairs(item.locations), 8, 4)),
        )
        for item in debug.functions
    ]
    return _table(
        (0, Elements(kinds, 1, 4) if entries else None),
        (1, Tables(tuple(table for _, table in entries)) if entries else None),
        (2, _tables(maps)),
    )


def _packed_pairs(pairs: Sequence[tuple[int, int]]) -> bytes:
    words = [word for pair in pairs for word in pair]
    return b"".join(word.to_bytes(4, "little", signed=True) for word in words)


def _location(item: Location) -> tuple[int, Table | None]:
    if isinstance(item, CallSite):
        table = _table((0, Scalar("i", item.callee)), (1, Scalar("i", item.caller)))
        return LocationKind.CALL_SITE, table
    if isinstance(item, FileLine):
        line, column = Scalar("i", item.line), Scalar("i", item.column)
        return LocationKind.FILE_LINE, _table(
            (0, Text(item.filename)), (1, line), (2, column)
        )
    if isinstance(item, Fused):
        words = b"".join(i.to_bytes(4, "little", signed=True) for i in item.locations)
        return LocationKind.FUSED, _table(
            (0, Text(item.metadata)), (1, Elements(words, 4, 4))
        )
    if isinstance(item, Named):
        return LocationKind.NAMED, _table(
            (0, Text(item.name)), (1, Scalar("i", item.child))
        )
    return LocationKind.NONE, None
