"""Relocatable object files (`ET_REL`) as frozen data.

Reads what a code generator wrote: sections, symbols, relocations, section groups.  Does not
resolve or change anything (`compiler.linker` does) and keeps section contents as views of the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.byte_view import Buffer, ByteView
from tilewright.formats.elf.header import read_file_header

_MAX_ALIGNMENT: Final = 1 << 16
_MAX_SECTION_BYTES: Final = 1 << 31


@final
@record(kw_only=True)
class ObjectRelocation:
    """One entry of a `.rela` section, relative to the section it patches."""

    offset: int
    type: int
    symbol: int
    addend: int


@final
@record(kw_only=True)
class ObjectSymbol:
    """One symbol; `section` is a section index or one of the `SHN_` numbers."""

    name: str
    binding: int
    type: int
    visibility: int
    section: int
    value: int
    size: int


@final
@record(kw_only=True)
class ObjectSection:
    """One section with its contents and the relocations that apply to it.

    Units: `size` is in bytes and counts for `SHT_NOBITS` too, whose `data` is empty.
    """

    name: str
    type: int
    flags: int
    alignment: int
    size: int
    data: memoryview
    relocations: tuple[ObjectRelocation, ...] = ()


@final
@record(kw_only=True)
class SectionGroup:
    """Sections that live or die together under one signature name."""

    signature: str
    comdat: bool
    sections: tuple[int, ...]


@final
@record(kw_only=True)
class ObjectFile:
    """One relocatable object."""

    name: str
    machine: int
    flags: int
    sections: tuple[ObjectSection, ...]
    symbols: tuple[ObjectSymbol, ...]
    groups: tuple[SectionGroup, ...]


@final
@record
class _RawSection:
    name_offset: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def parse_object(data: Buffer, name: str = "object") -> ObjectFile:
    """Read one relocatable object.

    Args:
        data: the bytes of the object; section contents stay views of it.
        name: how errors call the object.

    Raises:
        ArchiveError: the object is corrupt or not a 64-bit little-endian ELF relocatable.
    """
    view = ByteView(data, name)
    header = read_file_header(view, elf.ET_REL)
    raw = _section_headers(view, header)
    names = _section_names(view, header, raw)
    contents = [_contents(view, section, names[i]) for i, section in enumerate(raw)]
    symbols, symbol_table = _symbols(name, raw, contents)
    relocations = _relocations(name, raw, contents, names, len(symbols), symbol_table)
    sections = tuple(
        ObjectSection(
            name=names[i],
            type=section.type,
            flags=section.flags,
            alignment=_alignment(section, names[i], name),
            size=section.size,
            data=contents[i],
            relocations=tuple(relocations.get(i, ())),
        )
        for i, section in enumerate(raw)
    )
    _check_relocation_places(name, sections)
    groups = _groups(name, raw, contents, symbols)
    return ObjectFile(
        name=name,
        machine=header[2],
        flags=header[7],
        sections=sections,
        symbols=symbols,
        groups=groups,
    )


def _section_headers(view: ByteView, header: Sequence[int]) -> list[_RawSection]:
    offset, entry_size, count = header[6], header[11], header[12]
    if count and entry_size != elf.SECTION_HEADER.size:
        raise ArchiveError(
            f"section header entries of {entry_size} bytes, expected {elf.SECTION_HEADER.size}",
            location=view.location,
        )
    view.check(offset, count * elf.SECTION_HEADER.size, "section header table")
    table = view.data[offset : offset + count * elf.SECTION_HEADER.size]
    return [_RawSection(*fields) for fields in elf.SECTION_HEADER.iter_unpack(table)]


def _section_names(
    view: ByteView, header: Sequence[int], raw: Sequence[_RawSection]
) -> list[str]:
    if not raw:
        return []
    if header[13] >= len(raw):
        raise ArchiveError(
            f"section name table is section {header[13]} of {len(raw)}",
            location=view.location,
        )
    strings = ByteView(_contents(view, raw[header[13]], "section names"), view.location)
    return [strings.c_string(section.name_offset, "section name") for section in raw]


def _contents(view: ByteView, section: _RawSection, name: str) -> memoryview:
    if section.type in (elf.SHT_NULL, elf.SHT_NOBITS):
        if section.size > _MAX_SECTION_BYTES:
            raise ArchiveError(
                f"section '{name}' has {section.size} bytes", location=view.location
            )
        return view.data[:0]
    return view.sub(section.offset, section.size, f"section '{name}'")


def _alignment(section: _RawSection, name: str, where: str) -> int:
    alignment = max(section.alignment, 1)
    if alignment & (alignment - 1) or alignment > _MAX_ALIGNMENT:
        raise ArchiveError(f"section '{name}' has alignment {alignment}", location=where)
    return alignment


def _symbols(
    where: str, raw: Sequence[_RawSection], contents: Sequence[memoryview]
) -> tuple[tuple[ObjectSymbol, ...], int]:
    tables = [i for i, section in enumerate(raw) if section.type == elf.SHT_SYMTAB]
    if len(tables) > 1:
        raise ArchiveError(f"{len(tables)} symbol tables, expected one", location=where)
    if not tables:
        return (), -1
    table = raw[tables[0]]
    if table.link >= len(raw) or table.size % elf.SYMBOL.size:
        raise ArchiveError("symbol table has a wrong size or string table", location=where)
    strings = ByteView(contents[table.link], where)
    symbols: list[ObjectSymbol] = []
    for fields in elf.SYMBOL.iter_unpack(contents[tables[0]]):
        name_offset, info, other, section, value, size = fields
        name = strings.c_string(name_offset, "symbol name") if name_offset else ""
        if section == elf.SHN_XINDEX or (
            section < elf.SHN_LORESERVE and section >= len(raw)
        ):
            raise ArchiveError(
                f"symbol '{name}' lies in section {section} of {len(raw)}", location=where
            )
        symbols.append(
            ObjectSymbol(
                name=name,
                binding=info >> 4,
                type=info & 15,
                visibility=other & 3,
                section=section,
                value=value,
                size=size,
            )
        )
    return tuple(symbols), tables[0]


def _relocations(
    where: str,
    raw: Sequence[_RawSection],
    contents: Sequence[memoryview],
    names: Sequence[str],
    symbol_count: int,
    symbol_table: int,
) -> dict[int, list[ObjectRelocation]]:
    found: dict[int, list[ObjectRelocation]] = {}
    for i, section in enumerate(raw):
        if section.type == elf.SHT_REL:
            raise ArchiveError(
                f"section '{names[i]}' has relocations without addends", location=where
            )
        if section.type != elf.SHT_RELA:
            continue
        if section.info >= len(raw) or section.link != symbol_table:
            raise ArchiveError(f"section '{names[i]}' has bad links", location=where)
        if section.size % elf.RELOCATION.size:
            raise ArchiveError(f"section '{names[i]}' has a broken size", location=where)
        entries = found.setdefault(section.info, [])
        for offset, info, addend in elf.RELOCATION.iter_unpack(contents[i]):
            symbol, kind = info >> 32, info & 0xFFFF_FFFF
            if symbol >= symbol_count:
                raise ArchiveError(
                    f"'{names[i]}' names symbol {symbol} of {symbol_count}", location=where
                )
            entries.append(
                ObjectRelocation(offset=offset, type=kind, symbol=symbol, addend=addend)
            )
    return found


def _check_relocation_places(where: str, sections: Sequence[ObjectSection]) -> None:
    for section in sections:
        for relocation in section.relocations:
            if relocation.offset >= len(section.data):
                raise ArchiveError(
                    f"relocation at byte {relocation.offset} lies outside section "
                    f"'{section.name}' of {len(section.data)} bytes",
                    location=where,
                )


def _groups(
    where: str,
    raw: Sequence[_RawSection],
    contents: Sequence[memoryview],
    symbols: Sequence[ObjectSymbol],
) -> tuple[SectionGroup, ...]:
    groups: list[SectionGroup] = []
    for i, section in enumerate(raw):
        if section.type != elf.SHT_GROUP:
            continue
        if section.size < 4 or section.size % 4 or section.info >= len(symbols):
            raise ArchiveError("broken section group", location=where)
        flags, *members = contents[i].cast("I").tolist()
        if any(member >= len(raw) for member in members):
            raise ArchiveError("section group names a missing section", location=where)
        groups.append(
            SectionGroup(
                signature=symbols[section.info].name,
                comdat=bool(flags & elf.GRP_COMDAT),
                sections=tuple(members),
            )
        )
    return tuple(groups)
