"""A shared library that a system linker made, read and checked before the system loads it.

The system's loader trusts what it maps: a table that lies outside the file, a chain without end or a
constructor that is no code ends the process.  So all that it will follow is followed here first, within
bounds.  Against damage, not against intent: whoever loads a library runs its code.

Not here: images without imports, for our own loader (`image`).  Called by `runtime.library` and by the
loader of system libraries.

Source: System V ABI (gABI) chapter 5; glibc's `elf/dl-load.c`, `dl-lookup.c` and `dl-version.c` for what it
reads; `DT_GNU_HASH` as binutils writes it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.budget import pace
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.elf.dynamic import DynamicTypes, dynamic_by_number
from tilewright.formats.elf.header import read_file_header
from tilewright.formats.elf.library_memory import Memory, Names, program_headers
from tilewright.formats.elf.library_versions import check_versions

_LARGEST_TAG: Final = 0x7FFF_FFFF
_TABLES: Final = {  # what a tag points to, and the tag of its size
    elf.DT_STRTAB: elf.DT_STRSZ,
    elf.DT_RELA: elf.DT_RELASZ,
    elf.DT_JMPREL: elf.DT_PLTRELSZ,
    elf.DT_INIT_ARRAY: elf.DT_INIT_ARRAYSZ,
    elf.DT_FINI_ARRAY: elf.DT_FINI_ARRAYSZ,
    elf.DT_PREINIT_ARRAY: elf.DT_PREINIT_ARRAYSZ,
    elf.DT_RELR: elf.DT_RELRSZ,
}
_CODE_TAGS: Final = {elf.DT_INIT: "DT_INIT", elf.DT_FINI: "DT_FINI"}
_RESOLVERS: Final = {"x86_64": 37, "aarch64": 1032, "riscv64": 58}
"""The relocations that call the code at their addend: `R_…_IRELATIVE`."""
_WORD: Final = struct.Struct("<I")
_LONG: Final = struct.Struct("<Q")
_GNU_HASH: Final = struct.Struct("<IIII")


@final
@record
class LibrarySymbol:
    """A symbol that a library defines.  Units: bytes."""

    address: int
    size: int
    is_code: bool


@final
@record
class SharedLibraryFile:
    """What a library says of itself.

    Attributes:
        machine: a name of `dynamic.DYNAMIC`.
        symbols: what others can look up.
        imports: symbols that others must define; the weak ones may be missing.
        needs: libraries that it is linked to.
    """

    machine: str
    symbols: Mapping[str, LibrarySymbol]
    imports: frozenset[str]
    needs: tuple[str, ...]
    _memory: Memory

    @property
    def file_bytes(self) -> int:
        """Up to where the file is mapped."""
        return max(s.offset + s.file_end - s.address for s in self._memory.segments)

    def data_at(self, symbol: str, subject: str) -> memoryview:
        """The bytes of the file from a symbol to the end of its segment; not copied."""
        return self._memory.rest(self.symbols[symbol].address, subject)


def read_shared_library(data: Buffer, location: str = "library") -> SharedLibraryFile:
    """Read and check a library.

    Args:
        data: the file; not copied.
        location: how errors call it.

    Raises: ArchiveError for a file that is none or would not load, with the place.
    """
    view = ByteView(data, location)
    header = read_file_header(view, elf.ET_DYN)
    machine = dynamic_by_number(header[2], location)
    memory = Memory(view, program_headers(view, header))
    tags, needed = _dynamic(memory)
    names = Names(memory, tags)
    count = _symbol_count(memory, tags)
    symbols, imports = _symbols(memory, tags, names, count)
    needs = tuple(names.at(place, "name of a library that it needs") for place in needed)
    check_versions(memory, tags, names, needs, count)
    _check_relocations(memory, tags, machine, count)
    _check_code(memory, tags)
    return SharedLibraryFile(
        machine.name,
        symbols,
        imports,
        needs,
        memory,
    )


# --- tables -------------------------------------------------------------------------------------


def _dynamic(memory: Memory) -> tuple[dict[int, int], list[int]]:
    """The dynamic section: a value per tag, and the places of the names of needed libraries."""
    address, length = memory.dynamic
    table = memory.read(address, length // 16 * 16, "dynamic section")
    tags: dict[int, int] = {}
    needed: list[int] = []
    for tag, value in elf.DYNAMIC.iter_unpack(table):
        if tag == elf.DT_NULL:
            break
        if tag > _LARGEST_TAG:
            raise memory.error(f"a dynamic section with a tag {tag:#x}")
        if tag == elf.DT_NEEDED:
            needed.append(value)
        tags[tag] = value
    else:
        raise memory.error("the dynamic section has no end")
    if elf.DT_REL in tags or tags.get(elf.DT_PLTREL, elf.DT_RELA) != elf.DT_RELA:
        raise memory.error("relocations without addends, expected those with")
    sizes = {elf.DT_SYMENT: elf.SYMBOL.size, elf.DT_RELAENT: elf.RELOCATION.size}
    for tag, size in sizes.items():
        if tags.get(tag, size) != size:
            raise memory.error(f"entries of {tags[tag]} bytes in a table, expected {size}")
    for tag, size_tag in _TABLES.items():
        if tag in tags:
            size = tags.get(size_tag, 0)
            memory.find(tags[tag], size, f"table of tag {tag}")
            pace(size // elf.DYNAMIC.size)
    if elf.DT_STRTAB not in tags or elf.DT_SYMTAB not in tags:
        raise memory.error("no table of symbols")
    return tags, needed


def _symbol_count(memory: Memory, tags: Mapping[int, int]) -> int:
    """How many symbols there are, which only the hash tables tell; they are checked on the way.

    A GNU table of a library that shows nothing is empty: then it is as many as relocations name.
    """
    if elf.DT_HASH not in tags and elf.DT_GNU_HASH not in tags:
        raise memory.error("no hash table of symbols")
    counts = [
        count(memory, tags[tag])
        for tag, count in ((elf.DT_HASH, _hash_count), (elf.DT_GNU_HASH, _gnu_hash_count))
        if tag in tags
    ]
    return max(*counts, _relocated_count(memory, tags))


def _relocated_count(memory: Memory, tags: Mapping[int, int]) -> int:
    """Up to which symbol relocations name one; 0 where a hash table has them all."""
    if elf.DT_HASH in tags or not _is_empty(memory, tags[elf.DT_GNU_HASH]):
        return 0
    tables = [_relocations_of(memory, tags, tag) for tag in (elf.DT_RELA, elf.DT_JMPREL)]
    named = (
        info >> 32 for table in tables for _, info, _ in elf.RELOCATION.iter_unpack(table)
    )
    return 1 + max(named, default=0)


def _is_empty(memory: Memory, address: int) -> bool:
    """Whether no bucket of a GNU hash table, which was checked, has a symbol."""
    buckets, _, filters, _ = memory.unpack(_GNU_HASH, address, "hash table")
    return not any(_words(memory, address + 16 + 8 * filters, buckets, "buckets"))


def _relocations_of(memory: Memory, tags: Mapping[int, int], tag: int) -> memoryview:
    """Whole relocations of a table; none where there is no table."""
    if tag not in tags:
        return memoryview(b"")
    size = tags.get(_TABLES[tag], 0) // elf.RELOCATION.size * elf.RELOCATION.size
    pace(size // elf.RELOCATION.size)
    return memory.read(tags[tag], size, "table of relocations")


def _words(memory: Memory, address: int, count: int, subject: str) -> tuple[int, ...]:
    pace(count)
    return struct.unpack(f"<{count}I", memory.read(address, 4 * count, subject))


def _hash_count(memory: Memory, address: int) -> int:
    buckets, chains = struct.unpack("<II", memory.read(address, 8, "hash table"))
    heads = _words(memory, address + 8, buckets, "buckets of the hash table")
    links = _words(memory, address + 8 + 4 * buckets, chains, "chains of the hash table")
    if not buckets or any(place >= chains for place in (*heads, *links)):
        raise memory.error(f"the hash table points behind its {chains} symbols")
    # Each symbol hangs in one chain: one that is met twice would be a circle.
    seen = bytearray(chains)
    for place in heads:
        while place and chains:
            if seen[place]:
                raise memory.error("a chain of the hash table has no end")
            seen[place] = 1
            place = links[place]
    return chains


def _gnu_hash_count(memory: Memory, address: int) -> int:
    head = memory.unpack(_GNU_HASH, address, "hash table")
    buckets, first, filters, _ = head
    if not buckets or not filters or filters & (filters - 1):
        raise memory.error(f"a hash table of {buckets} buckets and {filters} filters")
    memory.read(address + 16, 8 * filters, "filters of the hash table")
    place = address + 16 + 8 * filters
    heads = _words(memory, place, buckets, "buckets of the hash table")
    if any(0 < symbol < first for symbol in heads):
        raise memory.error(f"the hash table names a symbol before {first}, its first")
    last = max(heads)
    if last == 0:
        return first
    chains = place + 4 * buckets
    rest = memory.rest(chains + 4 * (last - first), "chains of the hash table")
    for count, (value,) in enumerate(_WORD.iter_unpack(rest[: len(rest) // 4 * 4]), 1):
        pace(1)
        if value & 1:
            return last + count
    raise memory.error("a chain of the hash table has no end")


def _symbols(
    memory: Memory, tags: Mapping[int, int], names: Names, count: int
) -> tuple[dict[str, LibrarySymbol], frozenset[str]]:
    table = memory.read(tags[elf.DT_SYMTAB], count * elf.SYMBOL.size, "table of symbols")
    pace(count)
    found: dict[str, LibrarySymbol] = {}
    imports: set[str] = set()
    for index, entry in enumerate(elf.SYMBOL.iter_unpack(table)):
        place, info, _, section, value, size = entry
        name = names.at(place, "name of a symbol")
        kind, binding = info & 15, info >> 4
        if section == elf.SHN_UNDEF:
            if index and (not name or binding == elf.STB_LOCAL):
                raise memory.error(f"symbol {index} '{name}' is neither here nor elsewhere")
            if name and binding == elf.STB_GLOBAL:
                imports.add(name)
            continue
        if section == elf.SHN_ABS or kind in (elf.STT_TLS, elf.STT_SECTION, elf.STT_FILE):
            continue
        is_code = kind in (elf.STT_FUNC, elf.STT_GNU_IFUNC)
        if is_code:
            memory.check_code(value, f"function '{name}'")
        else:
            memory.find(value, 0, f"symbol '{name}'")
        if binding != elf.STB_LOCAL:
            found[name] = LibrarySymbol(value, size, is_code)
    return found, frozenset(imports)


def _check_relocations(
    memory: Memory, tags: Mapping[int, int], machine: DynamicTypes, count: int
) -> None:
    text = elf.DT_TEXTREL in tags or bool(tags.get(elf.DT_FLAGS, 0) & elf.DF_TEXTREL)
    for tag in (elf.DT_RELA, elf.DT_JMPREL):
        if tag not in tags:
            continue
        table = _relocations_of(memory, tags, tag)
        relative = tags.get(elf.DT_RELACOUNT, 0) if tag == elf.DT_RELA else 0
        if relative > len(table) // elf.RELOCATION.size:
            raise memory.error(
                f"{relative} relocations of addresses do not fit their table"
            )
        for index, (place, info, addend) in enumerate(elf.RELOCATION.iter_unpack(table)):
            if index < relative and info != machine.relative:
                raise memory.error(
                    f"relocation {index} of {relative} that add the address is of another type"
                )
            if info & 0xFFFF_FFFF == 0:
                continue
            segment = memory.find(place, 1, "place of a relocation")
            if not (text or segment.flags & elf.PF_W):
                raise memory.error(
                    f"a relocation at address {place:#x} in read-only memory"
                )
            if info >> 32 >= count:
                raise memory.error(f"a relocation of symbol {info >> 32} of {count}")
            if info & 0xFFFF_FFFF == _RESOLVERS[machine.name]:
                memory.check_code(addend, "resolver of a function")
    if elf.DT_RELR in tags:
        _check_packed_relocations(memory, tags)


def _check_packed_relocations(memory: Memory, tags: Mapping[int, int]) -> None:
    """`DT_RELR`: an address, then bits for the 63 words behind it."""
    size = tags.get(elf.DT_RELRSZ, 0) // 8 * 8
    table = memory.read(tags[elf.DT_RELR], size, "table of relocations")
    pace(size // 8)
    place = 0
    for (word,) in _LONG.iter_unpack(table):
        if word & 1:
            memory.find(place, 8 * ((word >> 1).bit_length()), "place of a relocation")
            place += 8 * 63
        else:
            memory.find(word, 8, "place of a relocation")
            place = word + 8


def _check_code(memory: Memory, tags: Mapping[int, int]) -> None:
    """What is called when the library is loaded and unloaded."""
    for tag, name in _CODE_TAGS.items():
        if tags.get(tag):
            memory.check_code(tags[tag], name)
    slots = {
        place
        for tag in (elf.DT_INIT_ARRAY, elf.DT_FINI_ARRAY, elf.DT_PREINIT_ARRAY)
        for place in range(
            tags.get(tag, 0), tags.get(tag, 0) + tags.get(_TABLES[tag], 0), 8
        )
    }
    if not slots:
        return
    size = tags.get(elf.DT_RELASZ, 0) // elf.RELOCATION.size * elf.RELOCATION.size
    table = memory.read(tags.get(elf.DT_RELA, 0), size, "relocations") if size else b""
    for place, info, addend in elf.RELOCATION.iter_unpack(table):
        if place in slots and info & 0xFFFF_FFFF:
            slots.remove(place)
            if info >> 32 == 0:
                memory.check_code(addend, "constructor")
    for place in slots:  # packed relocations keep the address in place
        (address,) = memory.unpack(_LONG, place, "constructor")
        if elf.DT_RELR not in tags:
            raise memory.error(f"a constructor at address {place:#x} is not relocated")
        memory.check_code(address, "constructor")
