"""The first 64 bytes: what objects and images have in common, checked.

Called by `objects`, `image`, and the loader of system libraries.
"""

from __future__ import annotations

from collections.abc import Sequence

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer, ByteView


def read_file_header(view: ByteView, expected_type: int) -> Sequence[int]:
    """Check the identification and return the fields of the file header.

    Returns:
        The fields in file order; index 0 is the identification, 2 the machine, 5 and 6 the
        offsets of program and section headers, 7 the flags, 10 and 12 their counts.
    """
    fields = view.unpack(elf.FILE_HEADER, 0, "ELF file header")
    identification = view.sub(0, 16, "ELF identification")
    kinds = {elf.ET_REL: "relocatable object", elf.ET_DYN: "shared object"}
    if bytes(identification[:4]) != elf.MAGIC:
        raise ArchiveError("not an ELF file", location=view.location)
    if identification[4] != elf.CLASS_64 or identification[5] != elf.DATA_LITTLE:
        raise ArchiveError(
            f"ELF class {identification[4]} with data encoding {identification[5]}, "
            "expected 64-bit little-endian",
            location=view.location,
        )
    if fields[1] != expected_type:
        raise ArchiveError(
            f"ELF type {fields[1]}, expected {expected_type} ({kinds[expected_type]})",
            location=view.location,
        )
    if fields[3] != 1 or fields[8] != elf.FILE_HEADER.size:
        raise ArchiveError(
            "ELF header of an unknown version or size", location=view.location
        )
    return fields


def check_complete(data: Buffer, machine: int, location: str) -> None:
    """Check that every segment of a shared library lies in the file.

    The system maps what the program headers say, and touching pages behind the end of a file that
    was cut kills the process.

    Args:
        data: the file.
        machine: the `e_machine` value that it must have.
        location: how errors call it.

    Raises: ArchiveError.
    """
    view = ByteView(data, location)
    fields = read_file_header(view, elf.ET_DYN)
    if fields[2] != machine:
        raise ArchiveError(
            f"ELF machine {fields[2]}, expected {machine}", location=location
        )
    offset, count = fields[5], fields[10]
    table = view.sub(offset, count * elf.PROGRAM_HEADER.size, "program header table")
    for _, _, place, _, _, length, _, _ in elf.PROGRAM_HEADER.iter_unpack(table):
        view.check(place, length, "segment")
