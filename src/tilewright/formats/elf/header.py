"""The first 64 bytes: what objects and images have in common, checked.

Called by `objects`, `image` and `shared_library`.
"""

from __future__ import annotations

from collections.abc import Sequence

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import ByteView


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
