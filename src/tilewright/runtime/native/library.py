"""Reads the tables of a loaded executable library, version 0, out of memory.

Not here: loading (`CodeImage`, the loaders) and calling (`Plan`).  Every pointer goes through a reader
that refuses addresses outside the image, so a corrupt library gives an error and no crash.

Source: IREE's executable library interface, version 0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol, final

from tilewright.base.errors import ArchiveError

Reader = Callable[[int, int], bytes]

_HEADER: Final = Struct("<I4xQII")  # version, name, features, sanitizer
_LIBRARY: Final = Struct(
    "<Q I4xQ I4xQQQQQQQQQ I"
)  # header, imports, exports (9 arrays), constants
_ATTRIBUTES: Final = Struct("<QHBBIIHH40x")
_POINTER: Final = Struct("<Q")
_COUNT_LIMIT: Final = 1 << 20
_NAME_LIMIT: Final = 1 << 16
_PAGE_BYTES: Final = 4096  # of local memory, by definition of the interface


class ImageMemory(Protocol):
    """What knows its readable memory: `CodeImage`."""

    def read(self, address: int, length: int, /) -> bytes:
        """The bytes, or IndexError."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Export:
    """One kernel of a library.

    Units: bytes for the local memory.
    """

    name: str
    function: int  # address
    flags: int
    local_memory_bytes: int
    constant_count: int
    binding_count: int
    workgroup_size: tuple[int, int, int]
    parameter_count: int


@final
@dataclass(frozen=True, slots=True)
class Library:
    """The tables of a library that a caller needs."""

    name: str
    version: int
    features: int
    sanitizer: int
    constant_count: int
    imports: tuple[str, ...]  # a leading "?" marks an optional one
    exports: tuple[Export, ...]


def read_library(memory: ImageMemory | Reader, library_address: int) -> Library:
    """Read the library whose address a query function returned.

    Raises:
        ArchiveError: a table or name lies outside the readable memory, or a count is absurd.
    """
    read = memory if callable(memory) else memory.read
    try:
        return _read_library(read, library_address)
    except IndexError as error:
        raise ArchiveError(f"executable library: {error}") from error


def _read_library(read: Reader, address: int) -> Library:
    fields = _LIBRARY.unpack(read(address, _LIBRARY.size))
    header, import_count, imports, export_count, functions, attributes, _, _, names = (
        fields[:9]
    )
    version, name, features, sanitizer = _HEADER.unpack(read(header, _HEADER.size))
    for count in (import_count, export_count):
        if count > _COUNT_LIMIT:
            raise ArchiveError(f"executable library: table of {count} entries")
    return Library(
        name=_read_name(read, name),
        version=version,
        features=features,
        sanitizer=sanitizer,
        constant_count=fields[-1],
        imports=tuple(
            _read_name(read, p) for p in _read_pointers(read, imports, import_count)
        ),
        exports=_read_exports(read, export_count, functions, attributes, names),
    )


def _read_exports(
    read: Reader, count: int, functions: int, attributes: int, names: int
) -> tuple[Export, ...]:
    exports: list[Export] = []
    name_addresses = _read_pointers(read, names, count)
    for i, function in enumerate(_read_pointers(read, functions, count)):
        read(function, 1)  # inside the image
        row = (0, 0, 0, 0, 1, 1, 1, 0)
        if attributes != 0:
            row = _ATTRIBUTES.unpack(
                read(attributes + i * _ATTRIBUTES.size, _ATTRIBUTES.size)
            )
        flags, pages, constant_count, binding_count, x, y, z, parameter_count = row
        exports.append(
            Export(
                name=_read_name(read, name_addresses[i]),
                function=function,
                flags=flags,
                local_memory_bytes=pages * _PAGE_BYTES,
                constant_count=constant_count,
                binding_count=binding_count,
                workgroup_size=(x, y, z),
                parameter_count=parameter_count,
            )
        )
    return tuple(exports)


def _read_pointers(read: Reader, address: int, count: int) -> tuple[int, ...]:
    data = read(address, count * _POINTER.size) if count else b""
    return tuple(pointer for (pointer,) in _POINTER.iter_unpack(data))


def _read_name(read: Reader, address: int) -> str:
    """A zero-terminated string; empty for a null pointer."""
    name = bytearray()
    while address != 0 and len(name) < _NAME_LIMIT:
        piece, end, _ = _read_up_to(read, address + len(name), 32).partition(b"\0")
        name += piece
        if end:
            break
    return name.decode("utf-8", errors="replace")


def _read_up_to(read: Reader, address: int, length: int) -> bytes:
    """Some bytes, a single one where the end of the memory is near."""
    try:
        return read(address, length)
    except IndexError:
        return read(address, 1)
