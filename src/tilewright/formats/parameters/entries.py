"""What a parameter file holds: entries by name, stored or made of a repeated pattern.

Called by the readers of this package and by whoever loads parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import ByteView


@final
@record
class StoredEntry:
    """Bytes in the file.

    Attributes:
        name: unique in its file.
        offset: from the beginning of the file, in bytes.
        length: in bytes.
        element_type: as the file calls it (`F32`, `Q4_0`); empty where it does not say.
        shape: of the tensor, where the file says.
        metadata: what else is attached, uninterpreted.
    """

    name: str
    offset: int
    length: int
    element_type: str = ""
    shape: tuple[int, ...] = ()
    metadata: bytes = b""


@final
@record
class SplatEntry:
    """`length` bytes that repeat `pattern` (1, 2, 4, 8 or 16 bytes) and take no space."""

    name: str
    length: int
    pattern: bytes
    metadata: bytes = b""


Entry: TypeAlias = StoredEntry | SplatEntry


@final
@dataclass(frozen=True, slots=True)
class ParameterIndex:
    """The entries of one file, in its order.

    Attributes:
        format: `irpa`, `safetensors`, `gguf` or `params`.
        contents: the whole file; entries are ranges of it.
        entries: by name.
    """

    format: str
    contents: memoryview = field(repr=False)
    entries: Mapping[str, Entry]

    def bytes_of(self, entry: StoredEntry) -> memoryview:
        """The bytes of a stored entry, in place."""
        return self.contents[entry.offset : entry.offset + entry.length]


def index_entries(format_: str, view: ByteView, entries: Iterable[Entry]) -> ParameterIndex:
    """The index of checked entries.

    Raises: ArchiveError for a name that stands twice or bytes outside of the file.
    """
    by_name: dict[str, Entry] = {}
    for entry in entries:
        if entry.name in by_name:
            raise ArchiveError(
                f"parameter '{entry.name}' stands twice", location=view.location
            )
        if isinstance(entry, StoredEntry):
            view.check(entry.offset, entry.length, f"parameter '{entry.name}'")
        by_name[entry.name] = entry
    return ParameterIndex(format_, view.data, by_name)
