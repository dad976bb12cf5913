"""Load a freestanding ELF image into memory and read its executable library.

Segments are copied, patched and then protected: never writable and executable at once, relocated
tables read-only afterwards; initialisers run last.  Of a FatELF the part for this machine is
taken.  Not here: parsing (`formats.elf`), calling (`native.CommandList`).
Called by executable caches and by the plan executor.

Source: IREE `hal/local/elf`, restated in `formats.elf`.
"""

from __future__ import annotations

import struct
from typing import Final, final

from tilewright.base.errors import ArchiveError, TargetError
from tilewright.base.host import architecture
from tilewright.base.record import record
from tilewright.formats import executable as abi
from tilewright.formats.elf import ElfImage, parse_image, select_image
from tilewright.runtime import native
from tilewright.runtime.loaders.executable_library import LoadedExecutable, open_library
from tilewright.runtime.native.foreign_functions import call_initializer
from tilewright.runtime.native.library import check_code

_ADDRESS_BYTES: Final = 8


def load_embedded_elf(
    data: bytes | memoryview, location: str = "executable", *, constants: bytes = b""
) -> LoadedExecutable:
    """Map the image and return its exports by name.

    Args:
        data: the image, or a FatELF with one for this machine; it is copied.
        location: how errors call it.
        constants: specialisation constants, little-endian u32 each.

    Raises:
        ArchiveError: the image is corrupt, of another library version, or has imports that nobody
            provides.
        TargetError: the image is for another machine.
    """
    arch = architecture()
    parsed = parse_image(select_image(data, arch, location), location)
    if parsed.machine != arch:
        raise TargetError(
            f"code for '{parsed.machine}', this machine is '{arch}'", location=location
        )
    image = _map(parsed)
    start, _ = parsed.span
    query = parsed.symbols.get(abi.QUERY_FUNCTION)
    if query is None:
        raise ArchiveError(f"no symbol '{abi.QUERY_FUNCTION}'", location=location)
    check_code(
        image, image.address(query - start), f"symbol '{abi.QUERY_FUNCTION}'", location
    )
    _initialize(parsed, image, start, location)
    return open_library(
        image,
        lambda version, environment: image.call_query(query - start, version, environment),
        image,
        constants=constants,
        location=location,
    )


@final
@record
class ImageLayout:
    """How an image gets into memory, in the order of the steps.  Units: bytes, offsets in the image.

    Attributes:
        size_bytes: of the address range, whole pages.
        segments: (offset, bytes).
        relocations: (offset, value, whether the base is added).
        protections: (offset, length, access), later ones override earlier ones.
    """

    size_bytes: int
    segments: tuple[tuple[int, memoryview], ...]
    relocations: tuple[tuple[int, int, bool], ...]
    protections: tuple[tuple[int, int, int], ...]


def image_layout(parsed: ElfImage) -> ImageLayout:
    """What to copy, patch and protect; the same for every machine."""
    start, size = parsed.span
    # A patch that moves with the image is relative to its base; the others are plain values.
    relocations = tuple(
        (patch.address, patch.value, patch.moves) for patch in parsed.patches(-start)
    )
    protections: list[tuple[int, int, int]] = []
    for segment in parsed.segments:
        access = native.PROTECT_READ
        access |= native.PROTECT_WRITE if segment.writable else 0
        access |= native.PROTECT_EXECUTE if segment.executable else 0
        protections.append((segment.address - start, segment.memory_bytes, access))
    if parsed.relro is not None:
        address, length = parsed.relro
        protections.append((address - start, length, native.PROTECT_READ))
    segments = tuple((s.address - start, parsed.contents(s)) for s in parsed.segments)
    return ImageLayout(size, segments, relocations, tuple(protections))


def _map(parsed: ElfImage) -> native.CodeImage:
    layout = image_layout(parsed)
    return native.CodeImage(
        layout.size_bytes, layout.segments, layout.relocations, layout.protections
    )


def _initialize(
    parsed: ElfImage, image: native.CodeImage, start: int, location: str
) -> None:
    """Run what the image wants to be run before its first kernel: DT_INIT, then its array."""
    addresses = (
        [image.address(parsed.init_function - start)] if parsed.init_function else []
    )
    table, length = parsed.init_array
    if length:
        packed = image.read(
            image.address(table - start), length // _ADDRESS_BYTES * _ADDRESS_BYTES
        )
        addresses += [value for (value,) in struct.iter_unpack("<Q", packed) if value]
    for address in addresses:
        check_code(image, address, "an initializer", location)
    for address in addresses:
        call_initializer(address)
