"""Reads the tables of a loaded executable library, versions 0.4 to 0.6, out of memory.

Not here: loading (`CodeImage`, the loaders) and calling (`CommandList`).  Every pointer goes through a reader
that refuses addresses outside the image, so a corrupt library gives an error and no crash.

Source: IREE's executable library interface, versions 0.4 (releases to 20240724), 0.5 (to 3.7)
and 0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol, final

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record

Reader = Callable[[int, int], bytes]

_HEADER: Final = Struct("<I4xQII")  # version, name, features, sanitizer
# header, imports, exports (9 arrays; 6 before version 6), constants
_LIBRARY: Final = Struct("<Q I4xQ I4xQQQQQQQQQ I")
_LIBRARY_5: Final = Struct("<Q I4xQ I4xQQQQQQ I")
_ATTRIBUTES: Final = Struct("<QHBBIIHH40x")
_ATTRIBUTES_5: Final = Struct("<HBB68x")
_ATTRIBUTES_4: Final = Struct("<H2x")
_POINTER: Final = Struct("<Q")
_COUNT_LIMIT: Final = 1 << 20
_NAME_LIMIT: Final = 1 << 16
_PAGE_BYTES: Final = 4096  # of local memory, by definition of the interface


class ImageMemory(Protocol):
    """What knows its readable memory: `CodeImage`, `ProcessMemory`."""

    def read(self, address: int, length: int, /) -> bytes:
        """The bytes, or IndexError."""
        ...

    def holds_code(self, address: int, /) -> bool:
        """Whether an address may be called."""
        ...


def check_code(memory: ImageMemory, address: int, subject: str, location: str) -> None:
    """Refuse to call what is no code.  Raises: ArchiveError."""
    if not memory.holds_code(address):
        raise ArchiveError(f"{subject} points to data, expected code", location=location)


@final
@record
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
@record
class Library:
    """The tables of a library that a caller needs."""

    name: str
    version: int
    features: int
    sanitizer: int
    constant_count: int
    imports: tuple[str, ...]  # a leading "?" marks an optional one
    exports: tuple[Export, ...]
    has_counts: bool = True  # whether the exports say what constants and bindings they take


def read_library(memory: ImageMemory, library_address: int) -> Library:
    """Read the library whose address a query function returned.

    Raises:
        ArchiveError: a table or name lies outside the readable memory, an export is no code, or a
            count is absurd.
    """
    try:
        library = _read_library(memory.read, library_address)
    except IndexError as error:
        raise ArchiveError(f"executable library: {error}") from error
    for export in library.exports:
        check_code(memory, export.function, f"export '{export.name}'", "executable library")
    return library


def _read_library(read: Reader, address: int) -> Library:
    (header,) = _POINTER.unpack(read(address, _POINTER.size))
    version, name, features, sanitizer = _HEADER.unpack(read(header, _HEADER.size))
    form = _LIBRARY if version >= 6 else _LIBRARY_5
    fields = form.unpack(read(address, form.size))
    _, import_count, imports, export_count, functions, attributes = fields[:6]
    names = fields[8 if version >= 6 else 6]
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
        exports=tuple(
            _read_export(read, version, function, record, symbol)
            for function, record, symbol in zip(
                _read_pointers(read, functions, export_count),
                _attribute_addresses(version, attributes, export_count),
                _read_pointers(read, names, export_count if names else 0)
                or (0,) * export_count,
                strict=True,
            )
        ),
        has_counts=attributes != 0 and version >= 5,
    )


def _attribute_addresses(version: int, attributes: int, count: int) -> tuple[int, ...]:
    """Where the attributes of each export are; 0 where there are none."""
    size = _attributes_form(version).size
    return tuple(attributes + i * size if attributes else 0 for i in range(count))


def _attributes_form(version: int) -> Struct:
    if version >= 6:
        return _ATTRIBUTES
    return _ATTRIBUTES_5 if version == 5 else _ATTRIBUTES_4


def _read_export(
    read: Reader, version: int, function: int, attributes: int, name: int
) -> Export:
    read(function, 1)  # inside the image
    flags, pages, constant_count, binding_count, x, y, z, parameter_count = (
        0, 0, 0, 0, 1, 1, 1, 0,
    )  # fmt: skip
    form = _attributes_form(version)
    row = form.unpack(read(attributes, form.size)) if attributes else ()
    if len(row) == 8:
        flags, pages, constant_count, binding_count, x, y, z, parameter_count = row
    elif len(row) == 3:
        pages, constant_count, binding_count = row
    elif row:
        (pages,) = row
    return Export(
        name=_read_name(read, name),
        function=function,
        flags=flags,
        local_memory_bytes=pages * _PAGE_BYTES,
        constant_count=constant_count,
        binding_count=binding_count,
        workgroup_size=(x, y, z),
        parameter_count=parameter_count,
    )


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
