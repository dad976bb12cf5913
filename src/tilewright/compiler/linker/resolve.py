"""Which definition does each symbol mean, and which sections are needed at all?

First half of the linker: global names, section groups, refusals, reachability from the exported
functions.  Places nothing (`layout`) and patches nothing (`link`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, final

import tilewright.formats.elf.structures as elf
from tilewright.base.errors import ArchiveError
from tilewright.base.record import field, record
from tilewright.compiler.linker.architectures import Architecture
from tilewright.formats.elf.objects import (
    ObjectFile,
    ObjectRelocation,
    ObjectSection,
    ObjectSymbol,
)

TABLE_SYMBOL: Final = "_GLOBAL_OFFSET_TABLE_"

_CONSTRUCTOR_TYPES: Final = frozenset(
    {elf.SHT_INIT_ARRAY, elf.SHT_FINI_ARRAY, elf.SHT_PREINIT_ARRAY}
)
_CONSTRUCTOR_NAMES: Final = (".init", ".fini", ".ctors", ".dtors")
_DROPPED_NAMES: Final = (".eh_frame", ".gcc_except_table", ".ARM.exidx", ".note")
_LOADED_TYPES: Final = frozenset({elf.SHT_PROGBITS, elf.SHT_NOBITS, 0x7000_0001})


@final
@record(eq=False, frozen=False)
class InputSection:
    """One section on its way into the image: contents may be rewritten, an address is given."""

    owner: int
    index: int
    section: ObjectSection
    contents: bytearray
    relocations: list[ObjectRelocation]
    address: int = 0
    live: bool = False


@final
@record
class Target:
    """What a symbol means: a place in a section, a constant, or the offset table itself."""

    name: str
    section: InputSection | None
    value: int
    size: int
    is_table: bool = False

    @property
    def is_constant(self) -> bool:
        return self.section is None and not self.is_table

    @property
    def address(self) -> int:
        """The final address; meaningful once sections have theirs."""
        return self.value if self.section is None else self.section.address + self.value


@final
@record(eq=False, frozen=False)
class Resolution:
    """All objects with their names resolved; `sections[object][index]` is None when unused."""

    architecture: Architecture
    objects: Sequence[ObjectFile]
    sections: list[list[InputSection | None]]
    globals: dict[str, tuple[int, ObjectSymbol]] = field(default_factory=dict)
    _targets: dict[tuple[int, int], Target] = field(default_factory=dict)

    def target(self, owner: int, index: int, user: str) -> Target:
        """What symbol `index` of object `owner` means.

        Args:
            owner: position of the object.
            index: position of the symbol in it.
            user: who asks, for the message when there is no definition.
        """
        found = self._targets.get((owner, index))
        if found is None:
            found = self._find(owner, self.objects[owner].symbols[index], user)
            self._targets[(owner, index)] = found
        return found

    def export(self, name: str) -> Target:
        """The definition of an exported function."""
        definition = self.globals.get(name)
        if definition is None:
            raise ArchiveError(
                f"symbol '{name}' is to be exported but no object defines it",
                location=_names(self.objects),
            )
        return self._find(*definition, "the export table")

    def _find(self, owner: int, symbol: ObjectSymbol, user: str) -> Target:
        if symbol.name == TABLE_SYMBOL and symbol.section == elf.SHN_UNDEF:
            return Target(symbol.name, None, 0, 0, is_table=True)
        if symbol.binding != elf.STB_LOCAL and symbol.name in self.globals:
            owner, symbol = self.globals[symbol.name]
        where = self.objects[owner].name
        if symbol.section == elf.SHN_UNDEF:
            raise ArchiveError(
                f"undefined symbol '{symbol.name}', used by {user}",
                location=where,
                hint="a kernel has no libraries: define the function in one of the objects "
                "(LLVM makes calls to memset, memcpy and libm unless 'no-builtins' is set)",
            )
        if symbol.section == elf.SHN_ABS:
            return Target(symbol.name, None, symbol.value, symbol.size)
        if symbol.section >= elf.SHN_LORESERVE:
            raise ArchiveError(
                f"symbol '{symbol.name}' lies in the reserved section {symbol.section:#x}",
                location=where,
            )
        section = self.sections[owner][symbol.section]
        if section is None:
            name = self.objects[owner].sections[symbol.section].name
            raise ArchiveError(
                f"symbol '{symbol.name}', used by {user}, lies in section '{name}', which is "
                "not part of a kernel image",
                location=where,
            )
        if symbol.value > section.section.size:
            raise ArchiveError(
                f"symbol '{symbol.name}' lies outside section '{section.section.name}'",
                location=where,
            )
        name = symbol.name or section.section.name
        return Target(name, section, symbol.value, symbol.size)


def resolve(
    architecture: Architecture, objects: Sequence[ObjectFile], exported: Sequence[str]
) -> Resolution:
    """Resolve all names and mark what the exported functions reach.

    Raises:
        ArchiveError: a symbol is undefined, defined twice or of a kind kernels cannot have.
    """
    groups_seen: set[str] = set()
    sections = [_input_sections(i, o, groups_seen) for i, o in enumerate(objects)]
    resolution = Resolution(architecture, objects, sections)
    for owner, item in enumerate(objects):
        for symbol in item.symbols:
            _define(resolution, owner, symbol)
    _mark_live(resolution, [resolution.export(name) for name in exported])
    return resolution


def _input_sections(
    owner: int, item: ObjectFile, groups_seen: set[str]
) -> list[InputSection | None]:
    discarded: set[int] = set()
    for group in item.groups:
        if group.comdat and group.signature in groups_seen:
            discarded.update(group.sections)
        groups_seen.add(group.signature)
    result: list[InputSection | None] = []
    for index, section in enumerate(item.sections):
        wanted = index not in discarded and _is_loaded(item, section)
        relocations = list(section.relocations)
        contents = bytearray(section.data) if wanted else bytearray()
        result.append(
            InputSection(owner, index, section, contents, relocations) if wanted else None
        )
    return result


def _is_loaded(item: ObjectFile, section: ObjectSection) -> bool:
    if not section.flags & elf.SHF_ALLOC or section.name.startswith(_DROPPED_NAMES):
        return False
    if section.flags & elf.SHF_TLS:
        raise ArchiveError(
            f"section '{section.name}' is thread-local data, which a kernel cannot have",
            location=item.name,
        )
    constructor = section.name.split(".", 2)[:2] in [
        n.split(".") for n in _CONSTRUCTOR_NAMES
    ]
    if section.size and (section.type in _CONSTRUCTOR_TYPES or constructor):
        raise ArchiveError(
            f"section '{section.name}' holds constructors or destructors, which nothing runs",
            location=item.name,
        )
    both = elf.SHF_WRITE | elf.SHF_EXECINSTR
    if section.flags & both == both:
        raise ArchiveError(
            f"section '{section.name}' is both writable and executable", location=item.name
        )
    if (
        section.type == elf.SHT_NOBITS
        and not section.flags & elf.SHF_WRITE
        and section.size
    ):
        raise ArchiveError(
            f"section '{section.name}' has no contents but cannot be written",
            location=item.name,
        )
    if section.type not in _LOADED_TYPES and section.size:
        raise ArchiveError(
            f"section '{section.name}' has the unknown type {section.type:#x}",
            location=item.name,
        )
    return True


def _define(resolution: Resolution, owner: int, symbol: ObjectSymbol) -> None:
    where = resolution.objects[owner].name
    if symbol.section == elf.SHN_COMMON or symbol.type == elf.STT_COMMON:
        raise ArchiveError(
            f"symbol '{symbol.name}' is a common block; give it an initial value",
            location=where,
        )
    if symbol.type == elf.STT_TLS:
        raise ArchiveError(
            f"symbol '{symbol.name}' is thread-local, which a kernel cannot have",
            location=where,
        )
    if symbol.type == elf.STT_GNU_IFUNC:
        raise ArchiveError(
            f"symbol '{symbol.name}' is an indirect function, which a kernel cannot have",
            location=where,
        )
    if (
        symbol.binding == elf.STB_LOCAL
        or symbol.section == elf.SHN_UNDEF
        or not symbol.name
    ):
        return
    if symbol.section < elf.SHN_LORESERVE:
        section = resolution.objects[owner].sections[symbol.section]
        if (
            resolution.sections[owner][symbol.section] is None
            and section.flags & elf.SHF_ALLOC
            and symbol.name in resolution.globals
        ):
            return  # a copy in a section group that another object already brought
    present = resolution.globals.get(symbol.name)
    if present is None or present[1].binding == elf.STB_WEAK != symbol.binding:
        resolution.globals[symbol.name] = (owner, symbol)
    elif symbol.binding != elf.STB_WEAK:
        raise ArchiveError(
            f"symbol '{symbol.name}' is defined twice, first in "
            f"'{resolution.objects[present[0]].name}'",
            location=where,
        )


def _mark_live(resolution: Resolution, roots: Iterable[Target]) -> None:
    pending = [root.section for root in roots if root.section is not None]
    while pending:
        section = pending.pop()
        if section.live:
            continue
        section.live = True
        user = f"section '{section.section.name}'"
        for relocation in section.relocations:
            target = resolution.target(section.owner, relocation.symbol, user)
            if target.section is not None and not target.section.live:
                pending.append(target.section)


def _names(objects: Sequence[ObjectFile]) -> str:
    return ", ".join(item.name for item in objects) or "no objects"
