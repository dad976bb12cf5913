"""Load a freestanding ELF image into memory and read its executable library.

Segments are copied, patched and then protected: never writable and executable at once, relocated
tables read-only afterwards.  Not here: parsing (`formats.elf`), calling (`native.Plan`).
Called by executable caches and by the graph executor.

Source: IREE `hal/local/elf`, restated in `formats.elf`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from tilewright.base.errors import ArchiveError, TargetError
from tilewright.base.host import describe
from tilewright.formats import executable as abi
from tilewright.formats.elf import ElfImage, parse_image
from tilewright.runtime import native


@final
@dataclass(frozen=True, slots=True)
class LoadedExecutable:
    """An executable library in memory.

    Ownership: `image` keeps the code mapped; hold this object while kernels may run.
    Thread-safety: immutable.
    """

    image: native.CodeImage
    environment: native.Memory
    library: native.Library
    exports: Mapping[str, native.Export]


def load_embedded_elf(
    data: bytes | memoryview, location: str = "executable", *, constants: bytes = b""
) -> LoadedExecutable:
    """Map the image and return its exports by name.

    Args:
        data: the image; it is copied.
        location: how errors call it.
        constants: specialisation constants, little-endian u32 each.

    Raises:
        ArchiveError: the image is corrupt, of another library version, or has imports.
        TargetError: the image is for another machine.
    """
    parsed = parse_image(data, location)
    arch = describe().arch
    if parsed.machine != arch:
        raise TargetError(
            f"code for '{parsed.machine}', this machine is '{arch}'", location=location
        )
    image = _map(parsed)
    start, _ = parsed.span
    query = parsed.symbols.get(abi.QUERY_FUNCTION)
    if query is None:
        raise ArchiveError(f"no symbol '{abi.QUERY_FUNCTION}'", location=location)
    environment = native.create_environment(constants)
    header = 0
    for version in range(abi.VERSION, abi.OLDEST_VERSION - 1, -1):
        header = header or image.call_query(query - start, version, environment.address)
    if header == 0:
        raise ArchiveError(
            f"library refuses versions {abi.OLDEST_VERSION} to {abi.VERSION} of the interface",
            location=location,
        )
    library = native.read_library(image, header)
    if library.imports:
        raise ArchiveError(
            f"library imports {sorted(library.imports)}, none are provided",
            location=location,
        )
    exports = {export.name: export for export in library.exports}
    return LoadedExecutable(image, environment, library, exports)


def _map(parsed: ElfImage) -> native.CodeImage:
    start, size = parsed.span
    segments = [(s.address - start, parsed.contents(s)) for s in parsed.segments]
    # A patch that moves with the image is relative to its base; the others are plain values.
    relocations = [
        (low.address, low.value, high.value != low.value)
        for low, high in zip(parsed.patches(-start), parsed.patches(1 - start), strict=True)
    ]
    protections: list[tuple[int, int, int]] = []
    for segment in parsed.segments:
        access = native.PROTECT_READ
        access |= native.PROTECT_WRITE if segment.writable else 0
        access |= native.PROTECT_EXECUTE if segment.executable else 0
        protections.append((segment.address - start, segment.memory_bytes, access))
    if parsed.relro is not None:
        address, length = parsed.relro
        protections.append((address - start, length, native.PROTECT_READ))
    return native.CodeImage(size, segments, relocations, protections)
