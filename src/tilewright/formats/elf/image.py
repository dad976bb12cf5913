"""A linked shared object, read and checked for the loader.

Every field is bounds-checked against the file and against the loaded address range before it is
handed out, so that a loader may copy, patch and protect without looking twice.  Whatever the
embedded loader of IREE could not honour (imports, thread-local data, writable code) is refused.
Maps no memory and runs nothing: `runtime.loaders.embedded_elf` does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.elf.dynamic import (
    DYNAMIC,
    DynamicTypes,
    WordType,
    dynamic_by_number,
)
from tilewright.formats.elf.header import read_file_header

PAGE_BYTES: Final = 4096
MAX_SPAN_BYTES: Final = 1 << 31
_MAX_PROGRAM_HEADERS: Final = 64
_LARGEST_PAGE_BYTES: Final = 1 << 16


@final
@record(kw_only=True)
class Segment:
    """One range to load.  Units: bytes; `memory_bytes` beyond `file_bytes` are zero."""

    address: int
    offset: int
    file_bytes: int
    memory_bytes: int
    flags: int

    @property
    def writable(self) -> bool:
        return bool(self.flags & elf.PF_W)

    @property
    def executable(self) -> bool:
        return bool(self.flags & elf.PF_X)


@final
@record(kw_only=True)
class ImageRelocation:
    """One load-time patch as the file states it; `value` is the address of `symbol`, if any.

    `moves` says whether the result is an address in the image; absolute symbols are not.
    """

    offset: int
    type: int
    symbol: str
    value: int
    addend: int
    moves: bool


@final
@record
class Patch:
    """Store the 64-bit `value` at `address` (both absolute).

    `moves` says that the value is an address in the image, so another bias gives another value.
    """

    address: int
    value: int
    moves: bool


@final
@record(kw_only=True)
class WordPatch:
    """Store 32 bits at `offset` of a segment's file bytes: the same wherever the image lies."""

    segment: Segment
    offset: int
    value: int


@final
@record(kw_only=True)
class ElfImage:
    """A loadable image.

    Ownership: `data` is the caller's buffer, which must outlive the image.

    Attributes:
        machine: a name of `DYNAMIC`.
        segments: disjoint, in address order, none both writable and executable.
        relocations: those of 64 bits, in file order, all inside segments.
        words: those of 32 bits, computed; `contents` has them in place.
        relro: `(address, size)` to make read-only after patching, or None.
        symbols: exported names and their addresses.
        init_function: address of `DT_INIT`, in an executable segment; 0 if none.
        init_array: `(address, size)` of `DT_INIT_ARRAY`, `(0, 0)` if none.
    """

    machine: str
    data: memoryview
    segments: tuple[Segment, ...]
    relocations: tuple[ImageRelocation, ...]
    words: tuple[WordPatch, ...]
    relro: tuple[int, int] | None
    symbols: Mapping[str, int]
    init_function: int
    init_array: tuple[int, int]

    @property
    def span(self) -> tuple[int, int]:
        """First page and number of bytes, whole pages, that the image takes in memory."""
        start = self.segments[0].address & -PAGE_BYTES
        last = self.segments[-1]
        end = last.address + last.memory_bytes
        return start, (end - start + PAGE_BYTES - 1) & -PAGE_BYTES

    def contents(self, segment: Segment) -> memoryview:
        """The file bytes of a segment, with patches of 32 bits in place; a view if there are none."""
        view = self.data[segment.offset : segment.offset + segment.file_bytes]
        words = [patch for patch in self.words if patch.segment is segment]
        if not words:
            return view
        copy = bytearray(view)
        for patch in words:
            copy[patch.offset : patch.offset + 4] = (patch.value & 0xFFFF_FFFF).to_bytes(
                4, "little"
            )
        return memoryview(copy)

    def patches(self, bias: int) -> Iterator[Patch]:
        """What to store where when address 0 of the image lies at `bias`."""
        relative = DYNAMIC[self.machine].relative
        for item in self.relocations:
            value = item.addend + (0 if item.type == relative else item.value)
            value += bias if item.moves else 0
            yield Patch(bias + item.offset, value & 0xFFFF_FFFF_FFFF_FFFF, item.moves)


def parse_image(data: Buffer, location: str = "ELF image") -> ElfImage:
    """Read and check a linked shared object.

    Args:
        data: the file; not copied.
        location: how errors call it.

    Raises:
        ArchiveError: the file is corrupt or wants what an embedded kernel may not have.
    """
    view = ByteView(data, location)
    header = read_file_header(view, elf.ET_DYN)
    machine = dynamic_by_number(header[2], location)
    programs = _program_headers(view, header)
    segments = _segments(view, programs)
    loaded = _Loaded(view, segments)
    tags = _dynamic_tags(loaded, programs)
    names = _symbols(loaded, tags)
    relocations, words = _relocations(loaded, tags, names, machine)
    init_array = (tags.get(elf.DT_INIT_ARRAY, 0), tags.get(elf.DT_INIT_ARRAYSZ, 0))
    if init_array[1]:
        loaded.check(init_array[0], init_array[1], "DT_INIT_ARRAY")
    if init := tags.get(elf.DT_INIT, 0):
        loaded.check_code(init, "DT_INIT")
    return ElfImage(
        machine=machine.name,
        data=view.data,
        segments=segments,
        relocations=relocations,
        words=words,
        relro=_relro(loaded, programs),
        symbols={s.name: s.value for s in names if s.is_global and s.name},
        init_function=init,
        init_array=init_array if init_array[1] else (0, 0),
    )


@final
class _Loaded:
    """The image seen by address instead of by file offset."""

    __slots__ = ("segments", "view")

    def __init__(self, view: ByteView, segments: Sequence[Segment]) -> None:
        self.view: Final = view
        self.segments: Final = segments

    def error(self, message: str) -> ArchiveError:
        return ArchiveError(message, location=self.view.location)

    def check(self, address: int, length: int, subject: str) -> Segment:
        """The segment in which `length` bytes at `address` lie."""
        for segment in self.segments:
            end = segment.address + segment.memory_bytes
            if segment.address <= address and address + length <= end:
                return segment
        raise self.error(
            f"{subject} at address {address:#x} with {length} bytes lies outside the segments"
        )

    def check_code(self, address: int, subject: str) -> None:
        """Refuse what is to be called and is no code."""
        if not self.check(address, 1, subject).executable:
            raise self.error(
                f"{subject} at address {address:#x} lies in data, expected code"
            )

    def read(self, address: int, length: int, subject: str) -> memoryview:
        """File bytes by address; the part a loader would fill with zeros is not readable."""
        segment = self.check(address, length, subject)
        start = address - segment.address
        if start + length > segment.file_bytes:
            raise self.error(f"{subject} at address {address:#x} has no bytes in the file")
        return self.view.sub(segment.offset + start, length, subject)


def _program_headers(view: ByteView, header: Sequence[int]) -> list[tuple[int, ...]]:
    offset, entry_size, count = header[5], header[9], header[10]
    if entry_size != elf.PROGRAM_HEADER.size or not 0 < count <= _MAX_PROGRAM_HEADERS:
        raise ArchiveError(
            f"{count} program headers of {entry_size} bytes, expected 1 to "
            f"{_MAX_PROGRAM_HEADERS} of {elf.PROGRAM_HEADER.size}",
            location=view.location,
        )
    table = view.sub(offset, count * elf.PROGRAM_HEADER.size, "program header table")
    programs = list(elf.PROGRAM_HEADER.iter_unpack(table))
    kinds = [program[0] for program in programs]
    if elf.PT_TLS in kinds:
        raise ArchiveError("the image has thread-local data", location=view.location)
    if elf.PT_INTERP in kinds:
        raise ArchiveError("the image is a program, not a kernel", location=view.location)
    return programs


def _segments(view: ByteView, programs: Sequence[tuple[int, ...]]) -> tuple[Segment, ...]:
    found: list[Segment] = []
    for kind, flags, offset, address, _, file_bytes, memory_bytes, _ in programs:
        if kind != elf.PT_LOAD or memory_bytes == 0:
            continue
        segment = Segment(
            address=address,
            offset=offset,
            file_bytes=file_bytes,
            memory_bytes=memory_bytes,
            flags=flags & 7,
        )
        _check_segment(view, segment)
        found.append(segment)
    found.sort(key=lambda segment: segment.address)
    if not found:
        raise ArchiveError("the image has nothing to load", location=view.location)
    for before, after in itertools.pairwise(found):
        _check_neighbours(view, before, after)
    span = found[-1].address + found[-1].memory_bytes - found[0].address
    if span > MAX_SPAN_BYTES:
        raise ArchiveError(
            f"the image spans {span} bytes of memory, at most {MAX_SPAN_BYTES} are possible",
            location=view.location,
        )
    return tuple(found)


def _check_segment(view: ByteView, segment: Segment) -> None:
    where = f"segment at address {segment.address:#x}"
    view.check(segment.offset, segment.file_bytes, where)
    if segment.file_bytes > segment.memory_bytes:
        raise ArchiveError(
            f"{where} has {segment.file_bytes} bytes in the file but {segment.memory_bytes} "
            "in memory",
            location=view.location,
        )
    if segment.writable and segment.executable:
        raise ArchiveError(
            f"{where} is both writable and executable", location=view.location
        )
    if segment.address + segment.memory_bytes >= 1 << 63:
        raise ArchiveError(f"{where} lies out of range", location=view.location)


def _check_neighbours(view: ByteView, before: Segment, after: Segment) -> None:
    end = before.address + before.memory_bytes
    if end > after.address:
        raise ArchiveError(
            f"segments at {before.address:#x} and {after.address:#x} overlap",
            location=view.location,
        )
    same_page = (end - 1) // PAGE_BYTES == after.address // PAGE_BYTES
    if same_page and before.flags != after.flags:
        raise ArchiveError(
            f"segments at {before.address:#x} and {after.address:#x} share a page but not "
            "their protection",
            location=view.location,
        )


def _dynamic_tags(loaded: _Loaded, programs: Sequence[tuple[int, ...]]) -> dict[int, int]:
    dynamic = [program for program in programs if program[0] == elf.PT_DYNAMIC]
    if len(dynamic) != 1:
        raise loaded.error(f"{len(dynamic)} dynamic tables, expected one")
    _, _, _, address, _, file_bytes, _, _ = dynamic[0]
    if file_bytes % elf.DYNAMIC.size:
        raise loaded.error("the dynamic table has a broken size")
    tags: dict[int, int] = {}
    for tag, value in elf.DYNAMIC.iter_unpack(
        loaded.read(address, file_bytes, "dynamic table")
    ):
        if tag == elf.DT_NULL:
            break
        tags.setdefault(tag, value)
    if elf.DT_NEEDED in tags:
        raise loaded.error("the image needs other libraries, which a kernel may not")
    if tags.get(elf.DT_REL) or tags.get(elf.DT_RELSZ) or tags.get(elf.DT_RELR):
        raise loaded.error("the image has relocations without addends")
    for tag, size, subject in (
        (elf.DT_SYMENT, elf.SYMBOL.size, "symbols"),
        (elf.DT_RELAENT, elf.RELOCATION.size, "relocations"),
    ):
        if tags.get(tag, size) != size:
            raise loaded.error(f"{subject} of {tags[tag]} bytes, expected {size}")
    return tags


@final
@record
class _Symbol:
    """A dynamic symbol; an absolute one does not move with the image."""

    name: str
    value: int
    is_global: bool
    is_absolute: bool


def _symbols(loaded: _Loaded, tags: Mapping[int, int]) -> list[_Symbol]:
    missing = [
        name
        for name, tag in (
            ("DT_HASH", elf.DT_HASH),
            ("DT_SYMTAB", elf.DT_SYMTAB),
            ("DT_STRTAB", elf.DT_STRTAB),
            ("DT_STRSZ", elf.DT_STRSZ),
        )
        if tag not in tags
    ]
    if missing:
        raise loaded.error(f"the dynamic table lacks {', '.join(missing)}")
    where = loaded.view.location
    text = loaded.read(tags[elf.DT_STRTAB], tags[elf.DT_STRSZ], "dynamic string table")
    strings = ByteView(text, where)
    head = ByteView(loaded.read(tags[elf.DT_HASH], 8, "hash table"), where)
    count = head.u32(4, "symbol count")
    table = loaded.read(
        tags[elf.DT_SYMTAB], count * elf.SYMBOL.size, "dynamic symbol table"
    )
    found: list[_Symbol] = []
    for index, fields in enumerate(elf.SYMBOL.iter_unpack(table)):
        name_offset, info, _, section, value, _ = fields
        name = strings.c_string(name_offset, "symbol name") if name_offset else ""
        if index and section == elf.SHN_UNDEF:
            raise loaded.error(f"the image imports '{name}', which a kernel may not")
        if info & 15 in (elf.STT_TLS, elf.STT_GNU_IFUNC):
            raise loaded.error(f"symbol '{name}' is thread-local or an indirect function")
        is_absolute = index == 0 or section == elf.SHN_ABS
        if not is_absolute:
            loaded.check(value, 0, f"symbol '{name}'")
        is_global = info >> 4 in (elf.STB_GLOBAL, elf.STB_WEAK)
        found.append(_Symbol(name, value, is_global, is_absolute))
    return found


def _relocations(
    loaded: _Loaded,
    tags: Mapping[int, int],
    symbols: Sequence[_Symbol],
    machine: DynamicTypes,
) -> tuple[tuple[ImageRelocation, ...], tuple[WordPatch, ...]]:
    entries: list[ImageRelocation] = []
    words: list[WordPatch] = []
    for start, size, subject in (
        (elf.DT_RELA, elf.DT_RELASZ, "relocations"),
        (elf.DT_JMPREL, elf.DT_PLTRELSZ, "call table relocations"),
    ):
        if not tags.get(size):
            continue
        if tags[size] % elf.RELOCATION.size:
            raise loaded.error(f"{subject} have a broken size")
        table = loaded.read(tags.get(start, 0), tags[size], subject)
        for offset, info, addend in elf.RELOCATION.iter_unpack(table):
            index, kind = info >> 32, info & 0xFFFF_FFFF
            if kind in machine.ignored:
                continue
            found = _relocation(loaded, symbols, machine, offset, kind, index, addend)
            if word := machine.words.get(kind):
                words.append(_word_patch(loaded, word, found))
            else:
                entries.append(found)
    return tuple(entries), tuple(words)


def _relocation(
    loaded: _Loaded,
    symbols: Sequence[_Symbol],
    machine: DynamicTypes,
    offset: int,
    kind: int,
    index: int,
    addend: int,
) -> ImageRelocation:
    known = (machine.relative, machine.symbol, *machine.slots, *machine.words)
    if kind not in known:
        reason = machine.refused.get(kind, f"it is not supported for '{machine.name}'")
        raise loaded.error(f"relocation type {kind} at address {offset:#x}: {reason}")
    if index >= len(symbols):
        raise loaded.error(f"relocation names symbol {index} of {len(symbols)}")
    segment = loaded.check(offset, 4 if kind in machine.words else 8, "relocation")
    if segment.executable:
        raise loaded.error(f"relocation at address {offset:#x} would patch code")
    symbol = symbols[index]
    return ImageRelocation(
        offset=offset,
        type=kind,
        symbol=(symbol.name or f"symbol {index}") if index else "",
        value=symbol.value,
        addend=addend,
        moves=kind == machine.relative or not symbol.is_absolute,
    )


def _word_patch(loaded: _Loaded, word: WordType, found: ImageRelocation) -> WordPatch:
    """The value of a relocation of 32 bits, which must not depend on where the image lies."""
    where = f"{word.name} at address {found.offset:#x}"
    if found.moves != word.relative:
        subject = (
            f"the address of '{found.symbol}'"
            if found.moves
            else "the distance to a fixed address"
        )
        raise loaded.error(
            f"{where}: {subject} needs 64 bits wherever the image is loaded; compile it as "
            "position-independent code (-fPIC)"
        )
    value = found.value + found.addend - (found.offset if word.relative else 0)
    if value not in word.range:
        raise loaded.error(f"{where}: {value:#x} does not fit into 32 bits")
    segment = loaded.check(found.offset, 4, "relocation")
    start = found.offset - segment.address
    if start + 4 > segment.file_bytes:
        raise loaded.error(f"{where}: the place has no bytes in the file")
    return WordPatch(segment=segment, offset=start, value=value)


def _relro(loaded: _Loaded, programs: Sequence[tuple[int, ...]]) -> tuple[int, int] | None:
    ranges = [(p[3], p[6]) for p in programs if p[0] == elf.PT_GNU_RELRO and p[6]]
    if not ranges:
        return None
    if len(ranges) > 1:
        raise loaded.error(f"{len(ranges)} read-only-after-relocation ranges, expected one")
    address, size = ranges[0]
    # Linkers round the range up to the largest page of the machine; nothing but the segment's
    # own pages is meant, and nothing else may be made read-only.
    segment = loaded.check(address, 1, "read-only-after-relocation range")
    if segment.executable:
        raise loaded.error(
            "the read-only-after-relocation range lies in code, expected data"
        )
    end = segment.address + segment.memory_bytes
    page_end = (end + PAGE_BYTES - 1) & -PAGE_BYTES
    if address + size > page_end + _LARGEST_PAGE_BYTES:
        raise loaded.error(
            "the read-only-after-relocation range is larger than its segment"
        )
    return address, min(address + size, page_end) - address
