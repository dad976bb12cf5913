"""FatELF: images for several machines in one file.

Called by `runtime.loaders.embedded_elf` (select) and by whoever packs executables (join).

Source: FatELF, format version 1; IREE `hal/local/elf/fatelf.h`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ArchiveError, TargetError
from tilewright.formats.byte_view import Buffer, ByteView, view_bytes
from tilewright.formats.elf.dynamic import DYNAMIC
from tilewright.formats.elf.image import parse_image

MAGIC: Final = struct.pack("<I", 0x1F0E70FA)
_HEADER: Final = struct.Struct("<4sHBB")  # magic, version, record count, reserved
_RECORD: Final = struct.Struct("<HBBBBHQQ")
# machine, system interface and its version, word size, byte order, reserved, offset, size
_VERSION: Final = 1
_WORD_64: Final = 2
_LITTLE: Final = 1  # not as in an ELF header
_SYSTEMS: Final = frozenset({0, 3, 255})  # none, Linux, standalone
_ALIGNMENT: Final = 4096


def is_fat(data: Buffer) -> bool:
    """Whether the file begins as a FatELF does."""
    return bytes(view_bytes(data)[: len(MAGIC)]) == MAGIC


def machines_of(data: Buffer, location: str = "FatELF") -> tuple[str, ...]:
    """The machines that it has images for, in its order.  Raises: ArchiveError."""
    names = {machine.number: machine.name for machine in DYNAMIC.values()}
    view = ByteView(data, location)
    return tuple(names[number] for number, _, _ in _records(view) if number in names)


def select_image(data: Buffer, machine: str, location: str = "FatELF") -> memoryview:
    """The image for a machine; a file that is no FatELF is returned as it is.

    Raises: ArchiveError for a corrupt file; TargetError when it has no image for the machine.
    """
    view = ByteView(data, location)
    if not is_fat(data):
        return view.data
    for number, offset, size in _records(view):
        if number == DYNAMIC[machine].number:
            return view.sub(offset, size, f"image for '{machine}'")
    raise TargetError(
        f"no image for '{machine}'; the file has {', '.join(machines_of(data)) or 'none'}",
        location=location,
    )


def _records(view: ByteView) -> list[tuple[int, int, int]]:
    """Machine, offset and size of the images that could run somewhere."""
    view.check(0, _HEADER.size, "FatELF header")
    _, version, count, _ = _HEADER.unpack_from(view.data)
    if version != _VERSION:
        raise ArchiveError(
            f"FatELF version {version}, expected {_VERSION}", location=view.location
        )
    table = view.sub(_HEADER.size, count * _RECORD.size, "FatELF records")
    return [
        (machine, offset, size)
        for machine, system, _, words, order, _, offset, size in _RECORD.iter_unpack(table)
        if system in _SYSTEMS and words == _WORD_64 and order == _LITTLE
    ]


def join_images(images: Sequence[Buffer]) -> bytes:
    """One file of several images, each beginning on a page.

    Raises: ArchiveError for an image that is none, or two for the same machine.
    """
    if len(images) > 0xFF:
        raise ArchiveError(f"{len(images)} images, a FatELF has at most 255")
    machines = [parse_image(image).machine for image in images]
    if len(set(machines)) != len(machines):
        raise ArchiveError(f"two images for one machine: {', '.join(machines)}")
    head = _HEADER.pack(MAGIC, _VERSION, len(images), 0)
    offset = _padded(_HEADER.size + len(images) * _RECORD.size)
    body = b""
    for machine, image in zip(machines, images, strict=True):
        size = view_bytes(image).nbytes
        number = DYNAMIC[machine].number
        head += _RECORD.pack(number, 0, 0, _WORD_64, _LITTLE, 0, offset + len(body), size)
        body += bytes(view_bytes(image)).ljust(_padded(size), b"\0")
    return head.ljust(offset, b"\0") + body


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
