"""The bytes of a linked image: dynamic tables, headers, symbol table.

Second half of the linker: everything here is decided already, it only has to be written down in
the form loaders expect.  Called by `link` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

import tilewright.formats.elf.structures as elf
from tilewright.base.record import record
from tilewright.compiler.linker.architectures import Architecture
from tilewright.compiler.linker.layout import OutputSection, PlacedSegment, Region, align
from tilewright.compiler.linker.resolve import Target

LocalSymbol = tuple[str, int, int, int, str]
"""(name, type, address, size, output section)."""


@final
@record(kw_only=True)
class DynamicInfo:
    """What the dynamic tables have to hold; their sizes follow before addresses are known."""

    exported: tuple[str, ...]
    relocation_count: int

    def names(self) -> tuple[bytes, list[int]]:
        """The `.dynstr` contents and the offset of each exported name in it."""
        return string_table(self.exported)

    def tag_count(self) -> int:
        """Entries of `.dynamic`."""
        return 7 + (4 if self.relocation_count else 0)

    def sections(self) -> list[OutputSection]:
        """The sections with the dynamic tables, sized, still empty."""
        count = len(self.exported) + 1
        alloc, read = elf.SHF_ALLOC, Region.READ
        text = len(self.names()[0])
        sections = [
            OutputSection(
                ".dynsym",
                read,
                elf.SHT_DYNSYM,
                alloc,
                8,
                24 * count,
                entry_bytes=24,
                info=1,
            ),
            OutputSection(
                ".hash", read, elf.SHT_HASH, alloc, 8, 4 * (3 + count), entry_bytes=4
            ),
            OutputSection(".dynstr", read, elf.SHT_STRTAB, alloc, 1, text),
        ]
        if self.relocation_count:
            size = elf.RELOCATION.size * self.relocation_count
            sections.append(
                OutputSection(
                    ".rela.dyn", read, elf.SHT_RELA, alloc, 8, size, entry_bytes=24
                )
            )
        size = elf.DYNAMIC.size * self.tag_count()
        flags = alloc | elf.SHF_WRITE
        sections.append(
            OutputSection(
                ".dynamic", Region.RELRO, elf.SHT_DYNAMIC, flags, 8, size, entry_bytes=16
            )
        )
        links = {".dynsym": ".dynstr", ".hash": ".dynsym", ".rela.dyn": ".dynsym"}
        links[".dynamic"] = ".dynstr"
        for section in sections:
            section.link = links.get(section.name, "")
        return sections


def string_table(names: Sequence[str]) -> tuple[bytes, list[int]]:
    """Zero-terminated strings after a leading zero, and where each begins."""
    contents, offsets = bytearray(b"\0"), list[int]()
    for name in names:
        offsets.append(len(contents))
        contents += name.encode() + b"\0"
    return bytes(contents), offsets


def dynamic_sections(
    sections: Mapping[str, OutputSection],
    info: DynamicInfo,
    exports: Mapping[str, Target],
    relocations: bytes,
) -> None:
    """Fill the dynamic tables once addresses are known."""
    contents, offsets = info.names()
    numbers = {name: i + 1 for i, name in enumerate(sections)}
    symbols = bytearray(elf.SYMBOL.size)
    for name, offset in zip(info.exported, offsets, strict=True):
        target = exports[name]
        holder = _holder(sections, target.address)
        symbols += elf.SYMBOL.pack(
            offset,
            elf.STB_GLOBAL << 4 | elf.STT_FUNC,
            elf.STV_DEFAULT,
            numbers[holder],
            target.address,
            target.size,
        )
    count = len(info.exported) + 1
    chain = [i + 1 if 0 < i < count - 1 else 0 for i in range(count)]
    words = [1, count, min(1, count - 1), *chain]
    sections[".dynsym"].contents = bytes(symbols)
    sections[".dynstr"].contents = contents
    sections[".hash"].contents = b"".join(word.to_bytes(4, "little") for word in words)
    tags = [
        (elf.DT_HASH, sections[".hash"].address),
        (elf.DT_STRTAB, sections[".dynstr"].address),
        (elf.DT_SYMTAB, sections[".dynsym"].address),
        (elf.DT_STRSZ, len(contents)),
        (elf.DT_SYMENT, elf.SYMBOL.size),
    ]
    if relocations:
        sections[".rela.dyn"].contents = relocations
        tags += [
            (elf.DT_RELA, sections[".rela.dyn"].address),
            (elf.DT_RELASZ, len(relocations)),
            (elf.DT_RELAENT, elf.RELOCATION.size),
            (elf.DT_RELACOUNT, info.relocation_count),
        ]
    tags += [(elf.DT_FLAGS, elf.DF_BIND_NOW), (elf.DT_NULL, 0)]
    sections[".dynamic"].contents = b"".join(elf.DYNAMIC.pack(*tag) for tag in tags)


def _holder(sections: Mapping[str, OutputSection], address: int) -> str:
    for section in sections.values():
        if section.inputs and section.address <= address <= section.address + section.size:
            return section.name
    return ".dynamic"


def write_image(
    architecture: Architecture,
    flags: int,
    sections: Sequence[OutputSection],
    segments: Sequence[PlacedSegment],
    local: Sequence[LocalSymbol],
) -> bytes:
    """The finished file."""
    image = bytearray(max(segment.offset + segment.file_bytes for segment in segments))
    for section in sections:
        if section.file_bytes:
            image[section.offset : section.offset + section.size] = section.contents
    table = list(sections)
    if local:
        table += _symbol_sections(local, sections)
    header_offset = _append_sections(image, table, len(sections))
    headers = _program_headers(architecture, sections, segments)
    image[: elf.FILE_HEADER.size] = elf.FILE_HEADER.pack(
        elf.MAGIC + bytes((elf.CLASS_64, elf.DATA_LITTLE, 1)),
        elf.ET_DYN,
        architecture.number,
        1,
        0,
        elf.FILE_HEADER.size,
        header_offset,
        flags,
        elf.FILE_HEADER.size,
        elf.PROGRAM_HEADER.size,
        len(headers),
        elf.SECTION_HEADER.size,
        len(table) + 1,
        len(table),
    )
    packed = b"".join(headers)
    image[elf.FILE_HEADER.size : elf.FILE_HEADER.size + len(packed)] = packed
    return bytes(image)


def _append_sections(image: bytearray, table: list[OutputSection], placed: int) -> int:
    """Write the sections no segment holds and the section headers; return where those begin."""
    names, offsets = string_table([s.name for s in table] + [".shstrtab"])
    table.append(
        OutputSection(
            ".shstrtab", Region.READ, elf.SHT_STRTAB, 0, size=len(names), contents=names
        )
    )
    for section in table[placed:]:
        image += bytes(align(len(image), section.alignment) - len(image))
        section.offset = len(image)
        image += section.contents
    image += bytes(align(len(image), 8) - len(image))
    header_offset = len(image)
    image += bytes(elf.SECTION_HEADER.size)
    numbers = {section.name: i + 1 for i, section in enumerate(table)}
    for section, name in zip(table, offsets, strict=True):
        image += elf.SECTION_HEADER.pack(
            name,
            section.type,
            section.flags,
            section.address,
            section.offset,
            section.size,
            numbers.get(section.link, 0),
            section.info,
            section.alignment,
            section.entry_bytes,
        )
    return header_offset


def _symbol_sections(
    local: Sequence[LocalSymbol], sections: Sequence[OutputSection]
) -> list[OutputSection]:
    names, offsets = string_table([entry[0] for entry in local])
    numbers = {section.name: i + 1 for i, section in enumerate(sections)}
    contents = bytearray(elf.SYMBOL.size)
    for (_, kind, address, size, output), offset in zip(local, offsets, strict=True):
        info = elf.STB_LOCAL << 4 | kind
        contents += elf.SYMBOL.pack(offset, info, 0, numbers[output], address, size)
    return [
        OutputSection(
            ".symtab",
            Region.READ,
            elf.SHT_SYMTAB,
            0,
            alignment=8,
            size=len(contents),
            entry_bytes=elf.SYMBOL.size,
            link=".strtab",
            info=len(local) + 1,
            contents=bytes(contents),
        ),
        OutputSection(
            ".strtab", Region.READ, elf.SHT_STRTAB, 0, size=len(names), contents=names
        ),
    ]


def _program_headers(
    architecture: Architecture,
    sections: Sequence[OutputSection],
    segments: Sequence[PlacedSegment],
) -> list[bytes]:
    page = architecture.page_bytes
    headers = [
        _segment_header(elf.PT_LOAD, segment.region.flags, segment, page)
        for segment in segments
    ]
    dynamic = next(section for section in sections if section.name == ".dynamic")
    headers.append(
        elf.PROGRAM_HEADER.pack(
            elf.PT_DYNAMIC,
            elf.PF_R | elf.PF_W,
            dynamic.offset,
            dynamic.address,
            dynamic.address,
            dynamic.size,
            dynamic.size,
            8,
        )
    )
    relro = next(segment for segment in segments if segment.region is Region.RELRO)
    to_page_end = align(relro.address + relro.memory_bytes, page) - relro.address
    headers.append(_segment_header(elf.PT_GNU_RELRO, elf.PF_R, relro, 1, to_page_end))
    stack = elf.PF_R | elf.PF_W
    headers.append(elf.PROGRAM_HEADER.pack(elf.PT_GNU_STACK, stack, 0, 0, 0, 0, 0, 16))
    return headers


def _segment_header(
    kind: int,
    flags: int,
    segment: PlacedSegment,
    alignment: int,
    memory_bytes: int | None = None,
) -> bytes:
    return elf.PROGRAM_HEADER.pack(
        kind,
        flags,
        segment.offset,
        segment.address,
        segment.address,
        segment.file_bytes,
        segment.memory_bytes if memory_bytes is None else memory_bytes,
        alignment,
    )
