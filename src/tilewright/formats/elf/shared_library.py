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
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.budget import pace
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.elf.dynamic import DynamicTypes, dynamic_by_number
from tilewright.formats.elf.header import read_file_header

_HEADERS_AT_MOST: Final = 256
_SPAN_AT_MOST: Final = 1 << 40
_LARGEST_TAG: Final = 0x7FFF_FFFF
_LARGEST_PAGE_BYTES: Final = 1 << 16
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
_IN_SEGMENTS: Final = {  # read where they are mapped
    elf.PT_DYNAMIC: "PT_DYNAMIC",
    elf.PT_NOTE: "PT_NOTE",
    elf.PT_TLS: "PT_TLS",
    elf.PT_GNU_PROPERTY: "PT_GNU_PROPERTY",
    elf.PT_GNU_EH_FRAME: "PT_GNU_EH_FRAME",
}
_RESOLVERS: Final = {"x86_64": 37, "aarch64": 1032, "riscv64": 58}
"""The relocations that call the code at their addend: `R_…_IRELATIVE`."""
_HALF: Final = struct.Struct("<H")
_WORD: Final = struct.Struct("<I")
_LONG: Final = struct.Struct("<Q")
_GNU_HASH: Final = struct.Struct("<IIII")
_VERSION_NEED: Final = struct.Struct("<HHIII")
_VERSION_NEED_ENTRY: Final = struct.Struct("<IHHII")
_VERSION_DEFINITION: Final = struct.Struct("<HHHHIII")
_VERSION_BITS: Final = 0x7FFF  # of a version's number; the highest bit hides a symbol


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
    _memory: _Memory

    @property
    def file_bytes(self) -> int:
        """Up to where the file is mapped."""
        return max(s.offset + s.file_end - s.address for s in self._memory.segments)

    def data_at(self, symbol: str, what: str) -> memoryview:
        """The bytes of the file from a symbol to the end of its segment; not copied."""
        return self._memory.rest(self.symbols[symbol].address, what)


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
    memory = _Memory(view, _program_headers(view, header))
    tags, needed = _dynamic(memory)
    names = _Names(memory, tags)
    count = _symbol_count(memory, tags)
    symbols, imports = _symbols(memory, tags, names, count)
    needs = tuple(names.at(place, "name of a library that it needs") for place in needed)
    _check_versions(memory, tags, names, needs, count)
    _check_relocations(memory, tags, machine, count)
    _check_code(memory, tags)
    return SharedLibraryFile(
        machine.name,
        symbols,
        imports,
        needs,
        memory,
    )


# --- segments -----------------------------------------------------------------------------------


@final
@record
class _Segment:
    address: int
    end: int
    file_end: int
    offset: int
    flags: int
    align: int


@final
class _Memory:
    """The library seen by address instead of by place in the file."""

    __slots__ = ("dynamic", "segments", "view")

    def __init__(self, view: ByteView, headers: Sequence[tuple[int, ...]]) -> None:
        self.view: Final[ByteView] = view
        self.segments: Final[tuple[_Segment, ...]] = tuple(_segments(view, headers))
        self.dynamic: tuple[int, int] = (0, 0)
        for kind, _, _, address, _, length, size, _ in headers:
            if kind in _IN_SEGMENTS and length:
                self.read(address, length, _IN_SEGMENTS[kind])
            if kind == elf.PT_GNU_RELRO:
                self._check_read_only(address, address + size)
            if kind == elf.PT_DYNAMIC:
                if length != size:
                    raise self.error(f"PT_DYNAMIC of {length} bytes, in memory {size}")
                self.dynamic = (address, length)

    def error(self, message: str) -> ArchiveError:
        return ArchiveError(message, location=self.view.location)

    def find(self, address: int, length: int, what: str) -> _Segment:
        """The segment in which `length` bytes at `address` lie."""
        for segment in self.segments:
            if segment.address <= address and address + length <= segment.end:
                return segment
        raise self.error(
            f"{what} at address {address:#x} with {length} bytes lies outside the segments"
        )

    def read(self, address: int, length: int, what: str) -> memoryview:
        """Bytes of the file by address."""
        segment = self.find(address, length, what)
        if address + length > segment.file_end:
            raise self.error(f"{what} at address {address:#x} has no bytes in the file")
        return self.view.sub(segment.offset + address - segment.address, length, what)

    def _check_read_only(self, begin: int, end: int) -> None:
        """What is protected after relocation ends with the last page of its segment."""
        segment = self.find(begin, 0, "PT_GNU_RELRO")
        page = min(segment.align, _LARGEST_PAGE_BYTES)
        if end > -(-segment.end // page) * page:
            raise self.error(f"PT_GNU_RELRO up to address {end:#x} leaves its segment")

    def rest(self, address: int, what: str) -> memoryview:
        """All bytes of the file from an address to the end of its segment."""
        segment = self.find(address, 0, what)
        return self.read(address, max(segment.file_end - address, 0), what)

    def unpack(self, layout: struct.Struct, address: int, what: str) -> tuple[int, ...]:
        return layout.unpack(self.read(address, layout.size, what))

    def check_code(self, address: int, what: str) -> None:
        if not self.find(address, 1, what).flags & elf.PF_X:
            raise self.error(f"{what} at address {address:#x} lies in data, expected code")


def _program_headers(view: ByteView, header: Sequence[int]) -> list[tuple[int, ...]]:
    offset, entry_size, count = header[5], header[9], header[10]
    if entry_size != elf.PROGRAM_HEADER.size or not 0 < count <= _HEADERS_AT_MOST:
        raise ArchiveError(
            f"{count} program headers of {entry_size} bytes, expected 1 to "
            f"{_HEADERS_AT_MOST} of {elf.PROGRAM_HEADER.size}",
            location=view.location,
        )
    table = view.sub(offset, count * entry_size, "program header table")
    return list(elf.PROGRAM_HEADER.iter_unpack(table))


def _segments(view: ByteView, headers: Sequence[tuple[int, ...]]) -> Iterator[_Segment]:
    """What is mapped: inside the file, rising, not overlapping."""
    end, found = 0, False
    for kind, flags, offset, address, _, length, size, align in headers:
        if kind != elf.PT_LOAD:
            continue
        view.check(offset, length, "segment")
        if length > size or address < end or address + size > _SPAN_AT_MOST:
            raise ArchiveError(
                f"a segment of {length} bytes in the file and {size} in memory at address "
                f"{address:#x} does not follow the one before",
                location=view.location,
            )
        if flags & elf.PF_X and length != size:
            raise ArchiveError(
                f"code at address {address:#x} has {length} of {size} bytes in the file",
                location=view.location,
            )
        if align & (align - 1) or (align > 1 and (address - offset) % align):
            raise ArchiveError(
                f"a segment at address {address:#x} is not aligned to {align}",
                location=view.location,
            )
        end, found = address + size, True
        yield _Segment(address, end, address + length, offset, flags, max(align, 1))
    if not found:
        raise ArchiveError("no segment to load", location=view.location)


# --- tables -------------------------------------------------------------------------------------


def _dynamic(memory: _Memory) -> tuple[dict[int, int], list[int]]:
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


@final
class _Names:
    """The table of names, in which every name must end."""

    def __init__(self, memory: _Memory, tags: Mapping[int, int]) -> None:
        size = tags.get(elf.DT_STRSZ, 0)
        self._memory: _Memory = memory
        self._table: bytes = bytes(memory.read(tags[elf.DT_STRTAB], size, "table of names"))
        if not self._table.endswith(b"\0"):
            raise memory.error("the last name of the table of names has no end")

    def at(self, place: int, what: str) -> str:
        if place >= len(self._table):
            raise self._memory.error(
                f"{what} at byte {place} of {len(self._table)} bytes of names"
            )
        return self._table[place : self._table.index(b"\0", place)].decode(errors="replace")


def _symbol_count(memory: _Memory, tags: Mapping[int, int]) -> int:
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


def _relocated_count(memory: _Memory, tags: Mapping[int, int]) -> int:
    """Up to which symbol relocations name one; 0 where a hash table has them all."""
    if elf.DT_HASH in tags or not _is_empty(memory, tags[elf.DT_GNU_HASH]):
        return 0
    tables = [_relocations_of(memory, tags, tag) for tag in (elf.DT_RELA, elf.DT_JMPREL)]
    named = (
        info >> 32 for table in tables for _, info, _ in elf.RELOCATION.iter_unpack(table)
    )
    return 1 + max(named, default=0)


def _is_empty(memory: _Memory, address: int) -> bool:
    """Whether no bucket of a GNU hash table, which was checked, has a symbol."""
    buckets, _, filters, _ = memory.unpack(_GNU_HASH, address, "hash table")
    return not any(_words(memory, address + 16 + 8 * filters, buckets, "buckets"))


def _relocations_of(memory: _Memory, tags: Mapping[int, int], tag: int) -> memoryview:
    """Whole relocations of a table; none where there is no table."""
    if tag not in tags:
        return memoryview(b"")
    size = tags.get(_TABLES[tag], 0) // elf.RELOCATION.size * elf.RELOCATION.size
    pace(size // elf.RELOCATION.size)
    return memory.read(tags[tag], size, "table of relocations")


def _words(memory: _Memory, address: int, count: int, what: str) -> tuple[int, ...]:
    pace(count)
    return struct.unpack(f"<{count}I", memory.read(address, 4 * count, what))


def _hash_count(memory: _Memory, address: int) -> int:
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


def _gnu_hash_count(memory: _Memory, address: int) -> int:
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
    memory: _Memory, tags: Mapping[int, int], names: _Names, count: int
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


def _check_versions(
    memory: _Memory,
    tags: Mapping[int, int],
    names: _Names,
    needs: Sequence[str],
    count: int,
) -> None:
    """The versions of symbols, as glibc reads them: their lists end where the next one is 0.

    What is said to be their number is not looked at.  A library whose versions are needed must be one that
    is loaded for this one, and a symbol's version one of the lists: glibc would end the process.
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
    memory: _Memory, tags: Mapping[int, int], names: _Names, needs: Sequence[str]
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


def _defined(memory: _Memory, tags: Mapping[int, int], names: _Names) -> int:
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
    memory: _Memory, address: int, layout: struct.Struct, most: int, what: str
) -> list[tuple[int, tuple[int, ...]]]:
    """The entries of a list with their addresses; the last member says how far away the next one is."""
    found: list[tuple[int, tuple[int, ...]]] = []
    following = 1
    while following:
        if len(found) >= most:
            raise memory.error("lists of versions do not fit the file")
        pace(1)
        fields = memory.unpack(layout, address, what)
        found.append((address, fields))
        following = fields[-1]
        address += following
    return found


def _check_relocations(
    memory: _Memory, tags: Mapping[int, int], machine: DynamicTypes, count: int
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


def _check_packed_relocations(memory: _Memory, tags: Mapping[int, int]) -> None:
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


def _check_code(memory: _Memory, tags: Mapping[int, int]) -> None:
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
