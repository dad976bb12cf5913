"""Relocatable objects in, one position-independent shared object out.

    resolve → relax and allot table slots → lay out → patch → write

The result has no imports, no writable code, one symbol table entry per exported function, the
`DT_HASH` and section headers that IREE's embedded loader insists on, and only `RELATIVE`
relocations, all of them in pages that become read-only afterwards.  The same objects in the same
order give the same bytes.  Called by `compiler.backends.cpu`; needs no external tool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.base.record import field, record
from tilewright.compiler.linker.architectures import (
    ARCHITECTURES,
    NEEDS_SLOT,
    Architecture,
    RelocationRule,
    Value,
    architecture_by_number,
)
from tilewright.compiler.linker.layout import (
    OutputSection,
    PlacedSegment,
    Region,
    gather,
    output_name,
    place,
)
from tilewright.compiler.linker.resolve import (
    InputSection,
    Resolution,
    Target,
    resolve,
)
from tilewright.compiler.linker.write import DynamicInfo, dynamic_sections, write_image
from tilewright.formats.byte_view import Buffer
from tilewright.formats.elf.objects import ObjectFile, ObjectRelocation, parse_object

QUERY_FUNCTION: Final = "iree_hal_executable_library_query"

SlotKey = tuple[int, int]


@final
@record(eq=False, frozen=False)
class _Linker:
    """What the steps of one link share."""

    resolution: Resolution
    slots: dict[SlotKey, int] = field(default_factory=dict)
    slot_targets: list[Target] = field(default_factory=list)
    pointers: list[tuple[InputSection, ObjectRelocation, Target]] = field(
        default_factory=list
    )
    table_address: int = 0

    @property
    def architecture(self) -> Architecture:
        return self.resolution.architecture

    def live_sections(self) -> list[InputSection]:
        """The sections of the image, in input order."""
        return [
            section
            for sections in self.resolution.sections
            for section in sections
            if section is not None and section.live
        ]


def link_shared(
    objects: Sequence[Buffer],
    *,
    exported: Sequence[str] = (QUERY_FUNCTION,),
    machine: str | None = None,
    names: Sequence[str] | None = None,
    symbols: bool = True,
) -> bytes:
    """Link relocatable objects into one freestanding shared object.

    Args:
        objects: the bytes of the objects; sections that nothing exported reaches are left out.
        exported: names of the functions that the loader may look up.
        machine: a name of `ARCHITECTURES` that the objects must have; default: that of the first.
        names: what errors call the objects; default `object 0`, `object 1`, …
        symbols: keep a symbol table of local names for disassemblers and profilers.

    Raises:
        ArchiveError: an object is corrupt, or holds what a kernel cannot have (undefined or
            thread-local symbols, constructors, common blocks, absolute 32-bit addresses).
    """
    if not objects:
        raise ArchiveError("no objects to link, expected at least one")
    labels = names or [f"object {i}" for i in range(len(objects))]
    parsed = [parse_object(data, name) for data, name in zip(objects, labels, strict=True)]
    chosen = _architecture(parsed, machine)
    linker = _Linker(resolve(chosen, parsed, exported))
    for section in linker.live_sections():
        _scan(linker, section)
    sections, segments, info = _lay_out(linker, exported)
    for section in linker.live_sections():
        for relocation in section.relocations:
            _apply(linker, section, relocation)
    by_name = {section.name: section for section in sections}
    _fill(linker, by_name)
    exports = {name: linker.resolution.export(name) for name in exported}
    local = _local_symbols(linker) if symbols else []
    dynamic_sections(by_name, info, exports, _relative_entries(linker))
    return write_image(chosen, parsed[0].flags, sections, segments, local)


def _architecture(objects: Sequence[ObjectFile], wanted: str | None) -> Architecture:
    if wanted is not None and wanted not in ARCHITECTURES:
        raise ArchiveError(
            f"unknown machine '{wanted}', expected one of {', '.join(ARCHITECTURES)}"
        )
    first = architecture_by_number(objects[0].machine, objects[0].name)
    expected = first if wanted is None else ARCHITECTURES[wanted]
    for item in objects:
        found = architecture_by_number(item.machine, item.name)
        if found is not expected:
            raise ArchiveError(
                f"object is for '{found.name}', expected '{expected.name}'",
                location=item.name,
            )
        if item.flags != objects[0].flags:
            raise ArchiveError(
                f"object has ABI flags {item.flags:#x}, '{objects[0].name}' has "
                f"{objects[0].flags:#x}",
                location=item.name,
            )
    return expected


# --- before addresses are known ----------------------------------------------------------------


def _scan(linker: _Linker, section: InputSection) -> None:
    """Refuse what cannot be linked, relax, allot table slots, note loader-patched pointers."""
    for position, relocation in enumerate(section.relocations):
        rule = _rule(linker, section, relocation)
        target = _target(linker, section, relocation)
        if rule.value is Value.REFUSED:
            raise _error(linker, section, relocation, f"{rule.name}: {rule.reason}")
        if relocation.offset + rule.width > len(section.contents):
            raise _error(
                linker, section, relocation, f"{rule.name} reaches past the section"
            )
        if rule.value is Value.ABSOLUTE and not target.is_constant:
            raise _error(
                linker,
                section,
                relocation,
                f"{rule.name} is an absolute address of {8 * rule.width} bits; compile with the "
                "position-independent relocation model and the small code model",
            )
        if rule.value in NEEDS_SLOT and not target.is_constant and not target.is_table:
            relaxed = linker.architecture.relax(
                section.contents, relocation.offset, relocation.type, relocation.addend
            )
            if relaxed is not None:
                section.relocations[position] = replace(
                    relocation, type=relaxed[0], offset=relaxed[1]
                )
                continue
        if rule.value in NEEDS_SLOT:
            _slot(linker, target)
        if rule.value is Value.POINTER and not target.is_constant:
            _note_pointer(linker, section, relocation, target)


def _note_pointer(
    linker: _Linker, section: InputSection, relocation: ObjectRelocation, target: Target
) -> None:
    if output_name(section) in (".rodata", ".text"):
        raise _error(
            linker,
            section,
            relocation,
            "a pointer in read-only memory would need patching at load; compile with the "
            "position-independent relocation model",
        )
    linker.pointers.append((section, relocation, target))


def _slot(linker: _Linker, target: Target) -> int:
    key = (id(target.section), target.value)
    index = linker.slots.setdefault(key, len(linker.slot_targets))
    if index == len(linker.slot_targets):
        linker.slot_targets.append(target)
    return index


# --- layout ------------------------------------------------------------------------------------


def _lay_out(
    linker: _Linker, exported: Sequence[str]
) -> tuple[list[OutputSection], list[PlacedSegment], DynamicInfo]:
    slots = len(linker.slot_targets)
    relative = len(linker.pointers) + sum(not t.is_constant for t in linker.slot_targets)
    info = DynamicInfo(exported=tuple(exported), relocation_count=relative)
    sections = info.sections()
    page = linker.architecture.page_bytes
    if slots:
        sections.append(
            OutputSection(
                ".got",
                Region.RELRO,
                elf.SHT_PROGBITS,
                elf.SHF_ALLOC | elf.SHF_WRITE,
                alignment=8,
                size=8 * slots,
                entry_bytes=8,
            )
        )
    sections += gather(linker.live_sections(), page)
    order = (".data.rel.ro", ".got", ".dynamic", ".data", ".bss")
    sections.sort(key=lambda s: (list(Region).index(s.region), _rank(s.name, order)))
    segments = list(place(sections, page))
    table = next((s for s in sections if s.name == ".got"), None)
    dynamic = next(s for s in sections if s.name == ".dynamic")
    linker.table_address = dynamic.address if table is None else table.address
    return sections, segments, info


def _rank(name: str, order: Sequence[str]) -> int:
    return order.index(name) if name in order else -1


# --- after addresses are known -----------------------------------------------------------------


def _apply(linker: _Linker, section: InputSection, relocation: ObjectRelocation) -> None:
    rule = _rule(linker, section, relocation)
    if rule.value is Value.IGNORED:
        return
    target = _target(linker, section, relocation)
    value = _value(linker, section, relocation, rule, target)
    if not rule.low <= value <= rule.high:
        raise _error(
            linker,
            section,
            relocation,
            f"{rule.name} has the value {value}, out of its range",
        )
    if value % rule.multiple:
        raise _error(
            linker,
            section,
            relocation,
            f"{rule.name} has the value {value}, expected a multiple of {rule.multiple}",
        )
    rule.write(section.contents, relocation.offset, value)


def _value(
    linker: _Linker,
    section: InputSection,
    relocation: ObjectRelocation,
    rule: RelocationRule,
    target: Target,
) -> int:
    kind = rule.value
    table = linker.table_address
    place = section.address + relocation.offset
    where = table if target.is_table else target.address
    if kind in NEEDS_SLOT:
        where = table + 8 * _slot(linker, target)
    end = where + relocation.addend
    if kind in (Value.POINTER, Value.ABSOLUTE, Value.LOW, Value.SLOT_LOW):
        return end
    if kind in (Value.ADD, Value.SUBTRACT):
        return end
    if kind is Value.SIZE:
        return target.size + relocation.addend
    if kind in (Value.SLOT_OFFSET, Value.TABLE_OFFSET):
        return end - table
    if kind is Value.TABLE_RELATIVE:
        return table + relocation.addend - place
    if kind is Value.PAIRED:
        return _paired(linker, section, relocation, target)
    if target.is_constant and kind not in NEEDS_SLOT:
        raise _error(linker, section, relocation, f"{rule.name} to an absolute symbol")
    if kind in (Value.PAGE, Value.SLOT_PAGE):
        return (end & ~0xFFF) - (place & ~0xFFF)
    return end - place


def _paired(
    linker: _Linker, section: InputSection, relocation: ObjectRelocation, target: Target
) -> int:
    """The value of the upper half that the label of a lower half stands at (RISC-V)."""
    if target.section is not None:
        for upper in target.section.relocations:
            rule = _rule(linker, target.section, upper)
            if upper.offset == target.value and rule.value in (
                Value.RELATIVE,
                Value.SLOT_RELATIVE,
            ):
                found = _target(linker, target.section, upper)
                return _value(linker, target.section, upper, rule, found)
    raise _error(linker, section, relocation, "lower half without its upper half")


def _fill(linker: _Linker, sections: dict[str, OutputSection]) -> None:
    """Put the patched contents of the input sections together."""
    for output in sections.values():
        if not output.inputs or output.type == elf.SHT_NOBITS:
            continue
        filler = linker.architecture.filler if output.name == ".text" else b"\0"
        contents = bytearray(filler * output.size)
        for item in output.inputs:
            start = item.address - output.address
            data = item.contents.ljust(item.section.size, b"\0")
            contents[start : start + item.section.size] = data
        output.contents = bytes(contents)
    if ".got" in sections:
        sections[".got"].contents = b"".join(
            target.address.to_bytes(8, "little", signed=target.address < 0)
            for target in linker.slot_targets
        )


def _relative_entries(linker: _Linker) -> bytes:
    """The relocations the loader has to apply, in address order."""
    relative = linker.architecture.dynamic.relative
    entries = [
        (section.address + relocation.offset, target.address + relocation.addend)
        for section, relocation, target in linker.pointers
    ]
    entries += [
        (linker.table_address + 8 * index, target.address)
        for index, target in enumerate(linker.slot_targets)
        if not target.is_constant
    ]
    wrap = 1 << 63  # addresses count modulo 2⁶⁴, the field is signed
    return b"".join(
        elf.RELOCATION.pack(offset, relative, (addend + wrap) % (2 * wrap) - wrap)
        for offset, addend in sorted(entries)
    )


def _local_symbols(linker: _Linker) -> list[tuple[str, int, int, int, str]]:
    """(name, type, address, size, output section) of every named place, in address order."""
    found: list[tuple[str, int, int, int, str]] = []
    for item, sections in zip(
        linker.resolution.objects, linker.resolution.sections, strict=True
    ):
        for symbol in item.symbols:
            if symbol.section >= len(sections) or symbol.section == elf.SHN_UNDEF:
                continue
            section = sections[symbol.section]
            if section is None or not section.live or not symbol.name:
                continue
            if symbol.type not in (elf.STT_FUNC, elf.STT_OBJECT, elf.STT_NOTYPE):
                continue
            address = section.address + symbol.value
            found.append(
                (symbol.name, symbol.type, address, symbol.size, output_name(section))
            )
    return sorted(set(found), key=lambda entry: (entry[2], entry[0]))


# --- errors ------------------------------------------------------------------------------------


def _rule(
    linker: _Linker, section: InputSection, relocation: ObjectRelocation
) -> RelocationRule:
    rule = linker.architecture.rules.get(relocation.type)
    if rule is None:
        raise _error(
            linker,
            section,
            relocation,
            f"relocation type {relocation.type} of '{linker.architecture.name}' is not supported",
        )
    return rule


def _target(linker: _Linker, section: InputSection, relocation: ObjectRelocation) -> Target:
    user = f"section '{section.section.name}'"
    return linker.resolution.target(section.owner, relocation.symbol, user)


def _error(
    linker: _Linker, section: InputSection, relocation: ObjectRelocation, subject: str
) -> ArchiveError:
    item = linker.resolution.objects[section.owner]
    symbol = item.symbols[relocation.symbol]
    name = symbol.name
    if not name and 0 < symbol.section < len(item.sections):
        name = item.sections[symbol.section].name
    return ArchiveError(
        f"symbol '{name}': {subject}",
        location=f"{item.name}: {section.section.name}+{relocation.offset:#x}",
    )
