"""The versions of a shared library's symbols: lists that the system follows without asking.

Called by `shared_library`.

Source: glibc's `elf/dl-version.c` and `dl-lookup.c`; LSB 5.0, symbol versioning.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import tilewright.formats.elf.structures as elf
from tilewright.base.budget import pace
from tilewright.formats.elf.library_memory import Memory, Names

_HALF: Final = struct.Struct("<H")
_WORD: Final = struct.Struct("<I")
_VERSION_NEED: Final = struct.Struct("<HHIII")
_VERSION_NEED_ENTRY: Final = struct.Struct("<IHHII")
_VERSION_DEFINITION: Final = struct.Struct("<HHHHIII")
_VERSION_BITS: Final = 0x7FFF  # of a version's number; the highest bit hides a symbol


def check_versions(
    memory: Memory,
    tags: Mapping[int, int],
    names: Names,
    needs: Sequence[str],
    count: int,
) -> None:
    """The versions of symbols, as glibc reads them: their lists end where the next one is 0.

    What is said to be their number is not looked at.  A library whose versions are needed must be one that
    is loaded for this one, and a symbol's version one of the lists: glibc would end the process.

    Args:
        memory: of the library.
        tags: its dynamic section.
        names: its names.
        needs: the libraries that it needs.
        count: of its symbols.

    Raises: ArchiveError for lists that lead astray.
    """
    has_lists = elf.DT_VERNEED in tags or elf.DT_VERDEF in tags
    if not has_lists and elf.DT_VERSYM not in tags:
        return
    highest = max(
        _needed_versions(memory, tags, names, needs), _defined(memory, tags, names)
    )
    if elf.DT_VERSYM not in tags:
        raise memory.error("lists of versions, but no versions of symbols")
    if highest == 0:
        raise memory.error("versions of symbols, but no list of versions")
    table = memory.read(tags[elf.DT_VERSYM], _HALF.size * count, "versions of symbols")
    pace(count)
    for index, (version,) in enumerate(_HALF.iter_unpack(table)):
        if version & _VERSION_BITS > highest:
            raise memory.error(
                f"symbol {index} has version {version & _VERSION_BITS} of {highest}"
            )


def _needed_versions(
    memory: Memory, tags: Mapping[int, int], names: Names, needs: Sequence[str]
) -> int:
    """The highest number of a version that the library needs."""
    if elf.DT_VERNEED not in tags:
        return 0
    left = memory.view.size // _VERSION_NEED.size
    libraries = _follow(memory, tags[elf.DT_VERNEED], _VERSION_NEED, left, "needed version")
    highest = 0
    for address, (_, _, file, first, _) in libraries:
        library = names.at(file, "name of a library")
        if library not in needs:
            raise memory.error(
                f"versions of '{library}', which is not among the libraries that it needs"
            )
        # Lists may overlap, so that few bytes would be very many entries.
        entries = _follow(
            memory, address + first, _VERSION_NEED_ENTRY, left, "needed version"
        )
        left -= len(entries)
        for _, (_, _, number, name, _) in entries:
            names.at(name, "name of a version")
            highest = max(highest, number & _VERSION_BITS)
    return highest


def _defined(memory: Memory, tags: Mapping[int, int], names: Names) -> int:
    """The highest number of a version that the library defines."""
    if elf.DT_VERDEF not in tags:
        return 0
    most = memory.view.size // _VERSION_DEFINITION.size
    highest = 0
    for address, fields in _follow(
        memory, tags[elf.DT_VERDEF], _VERSION_DEFINITION, most, "defined version"
    ):
        (name,) = memory.unpack(_WORD, address + fields[5], "defined version")
        names.at(name, "name of a version")
        highest = max(highest, fields[2] & _VERSION_BITS)
    return highest


def _follow(
    memory: Memory, address: int, layout: struct.Struct, most: int, subject: str
) -> list[tuple[int, tuple[int, ...]]]:
    """The entries of a list with their addresses; the last member says how far away the next one is."""
    found: list[tuple[int, tuple[int, ...]]] = []
    following = 1
    while following:
        if len(found) >= most:
            raise memory.error("lists of versions do not fit the file")
        pace(1)
        fields = memory.unpack(layout, address, subject)
        found.append((address, fields))
        following = fields[-1]
        address += following
    return found
