"""The debug tables of a `.vmfb` → `DebugDatabase`.  Called by `reader` for modules that have them."""

from __future__ import annotations

import struct

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb.debug import (
    CallSite,
    DebugDatabase,
    FileLine,
    Fused,
    Location,
    Named,
    SourceMap,
)
from tilewright.formats.vmfb.flatbuffer import TableView
from tilewright.formats.vmfb.schema import LocationKind


def read_debug(table: TableView) -> DebugDatabase:
    """The debug database of a module.  Raises: ArchiveError if it is malformed."""
    kinds = bytes(table.vector(0, 1, "location kinds") or b"")
    entries = table.optional_tables(1, "locations")
    if len(kinds) != len(entries):
        raise ArchiveError(
            f"debug data has {len(entries)} locations of {len(kinds)} kinds",
            location="module",
        )
    return DebugDatabase(
        locations=tuple(_location(*entry) for entry in zip(kinds, entries, strict=True)),
        functions=tuple(_source_map(t) for t in table.tables(2, "source maps")),
    )


def _location(kind: int, table: TableView | None) -> Location:
    if kind == LocationKind.NONE or table is None:
        return None
    if kind == LocationKind.CALL_SITE:
        return CallSite(table.i32(0), table.i32(1))
    if kind == LocationKind.FILE_LINE:
        return FileLine(table.text(0, "file name"), table.i32(1), table.i32(2))
    if kind == LocationKind.FUSED:
        data = table.vector(1, 4, "fused locations") or memoryview(b"")
        return Fused(table.text(0, "metadata"), tuple(data.cast("i").tolist()))
    if kind == LocationKind.NAMED:
        return Named(table.text(0, "location name"), table.i32(1))
    raise ArchiveError(f"debug location of unknown kind {kind}", location="module")


def _source_map(table: TableView) -> SourceMap:
    data = table.vector(1, 8, "source map") or b""
    pairs = tuple(struct.iter_unpack("<ii", data))
    return SourceMap(name=table.text(0, "function name"), locations=pairs)
