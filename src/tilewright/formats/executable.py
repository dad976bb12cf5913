"""The kernel ABI: IREE's executable library, version 6 (and what versions 4 and 5 did differently).

Struct layouts as data (for code generators, loaders and Python callers alike), the limits, the
declaration of one exported kernel, and the library's tables as LLVM IR *text*: strings only, so
this room needs no LLVM.  Knows neither how kernels are made nor how they are called.

Called by `compiler.backends.cpu` (tables, offsets) and `runtime.loaders` (reading a library).

Source: IREE `hal/local/executable_library.h`, library version 0.6; version 5 from modules of
releases 20240828 to 3.7, version 4 from those before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import numpy as np

from tilewright.base.errors import ArchiveError
from tilewright.base.record import record

VERSION: Final = 6
OLDEST_VERSION: Final = 4
QUERY_FUNCTION: Final = "iree_hal_executable_library_query"

LOCAL_MEMORY_PAGE_BYTES: Final = 4096
MAX_CONSTANTS: Final = 64
MAX_BINDINGS: Final = 64
MAX_WORKGROUPS_Z: Final = 0xFFFF
PROCESSOR_DATA_WORDS: Final = 8

FLAG_SEQUENTIAL: Final = 1
"""Workgroups next to each other should run one after the other."""
FLAG_DYNAMIC_WORKGROUP_SIZE: Final = 2
"""The size in the attributes is a hint; the dispatch brings its own."""
FLAG_KEEPS_DENORMALS: Final = 1 << 62
"""Ours: the kernel computes with denormals.  Kernels without it run with denormals taken as zero, as
IREE's local devices run all kernels; IREE does not know the flag."""

SANITIZERS: Final = ("none", "address", "memory", "thread", "undefined")

# --- layouts -----------------------------------------------------------------------------------

_CODES: Final[Mapping[str, str]] = {
    "u8": "<u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "ptr": "<u8",
    "size": "<u8",
}


@final
@record(kw_only=True)
class Field:
    """One member of a C struct.  Units: `offset` in bytes; `count` elements of `type`."""

    name: str
    type: str
    offset: int
    count: int = 1


@final
@record(kw_only=True)
class Layout:
    """A C struct on a 64-bit little-endian machine."""

    name: str
    fields: tuple[Field, ...]
    size: int

    def offset(self, field: str) -> int:
        """Where a member begins, in bytes."""
        return next(f.offset for f in self.fields if f.name == field)

    @property
    def dtype(self) -> np.dtype[np.void]:
        """The struct as a numpy type: arrays of it have the bytes C expects."""
        formats = [
            _CODES[f.type] if f.count == 1 else (_CODES[f.type], f.count)
            for f in self.fields
        ]
        return np.dtype(
            {
                "names": [field.name for field in self.fields],
                "formats": formats,
                "offsets": [field.offset for field in self.fields],
                "itemsize": self.size,
            }
        )


def _layout(name: str, text: str) -> Layout:
    """A layout from `type name, type name[count], …` by the alignment rules of C."""
    fields: list[Field] = []
    end, widest = 0, 1
    for member in text.replace("\n", " ").split(","):
        kind, _, label = member.strip().partition(" ")
        label, _, count = label.strip().partition("[")
        width = int(_CODES[kind][-1])
        repeat = int(count.rstrip("]")) if count else 1
        offset = -(-end // width) * width
        fields.append(Field(name=label, type=kind, offset=offset, count=repeat))
        end, widest = offset + width * repeat, max(widest, width)
    return Layout(name=name, fields=tuple(fields), size=-(-end // widest) * widest)


ENVIRONMENT: Final = _layout(
    "environment",
    "ptr constants, ptr import_thunk, ptr import_functions, ptr import_contexts, "
    "u64 processor_data[8]",
)
DISPATCH_STATE: Final = _layout(
    "dispatch_state",
    "u32 workgroup_size_x, u32 workgroup_size_y, u16 workgroup_size_z, u16 constant_count, "
    "u32 workgroup_count_x, u32 workgroup_count_y, u16 workgroup_count_z, "
    "u8 max_concurrency, u8 binding_count, "
    "ptr constants, ptr binding_pointers, ptr binding_lengths",
)
WORKGROUP_STATE: Final = _layout(
    "workgroup_state",
    "u32 workgroup_id_x, u32 workgroup_id_y, u16 workgroup_id_z, u16 reserved, "
    "u32 processor_id, ptr local_memory, u32 local_memory_size",
)
HEADER: Final = _layout("header", "u32 version, ptr name, u32 features, u32 sanitizer")
EXPORT_ATTRIBUTES: Final = _layout(
    "export_attributes",
    "u64 flags, u16 local_memory_pages, u8 constant_count, u8 binding_count, "
    "u32 workgroup_size_x, u32 workgroup_size_y, u16 workgroup_size_z, u16 parameter_count, "
    "u64 reserved[5]",
)
EXPORT_ATTRIBUTES_5: Final = _layout(
    "export_attributes_5",
    "u16 local_memory_pages, u8 constant_count, u8 binding_count, u32 reserved_0, "
    "u64 reserved[8]",
)
EXPORT_ATTRIBUTES_4: Final = _layout(
    "export_attributes_4", "u16 local_memory_pages, u16 reserved"
)
LIBRARY: Final = _layout(
    "library",
    "ptr header, u32 import_count, ptr import_symbols, "
    "u32 export_count, ptr export_functions, ptr export_attributes, ptr export_parameters, "
    "ptr export_occupancy, ptr export_names, ptr export_tags, ptr export_parameter_names, "
    "ptr export_source_locations, ptr export_stage_locations, "
    "u32 constant_count, u32 padding, u32 source_count, ptr source_files",
)
LIBRARY_5: Final = _layout(
    "library_5",
    "ptr header, u32 import_count, ptr import_symbols, "
    "u32 export_count, ptr export_functions, ptr export_attributes, ptr export_names, "
    "ptr export_tags, ptr export_source_locations, ptr export_stage_locations, "
    "u32 constant_count, u32 padding, u32 source_count, ptr source_files",
)
LIBRARIES: Final[Mapping[int, tuple[Layout, Layout]]] = {
    6: (LIBRARY, EXPORT_ATTRIBUTES),
    5: (LIBRARY_5, EXPORT_ATTRIBUTES_5),
    4: (LIBRARY_5, EXPORT_ATTRIBUTES_4),
}
"""Per header version: the library and the attributes of one export."""

# --- declarations ------------------------------------------------------------------------------


@final
@record(kw_only=True)
class ExportDecl:
    """One exported kernel.

    Units: `local_memory_pages` of 4096 bytes; `workgroup_size` in the kernel's own terms
    (0, 0, 0 where it means nothing).

    Attributes:
        name: what the loader looks up.
        symbol: the function's name in the object code; `name` when empty.
    """

    name: str
    constant_count: int = 0
    binding_count: int = 0
    local_memory_pages: int = 0
    workgroup_size: tuple[int, int, int] = (0, 0, 0)
    flags: int = FLAG_KEEPS_DENORMALS
    symbol: str = ""

    def __post_init__(self) -> None:
        x, y, z = self.workgroup_size
        for subject, value, limit in (
            ("constants", self.constant_count, MAX_CONSTANTS),
            ("bindings", self.binding_count, MAX_BINDINGS),
            ("local memory pages", self.local_memory_pages, 0xFFFF),
            ("workgroup size x", x, 0xFFFF_FFFF),
            ("workgroup size y", y, 0xFFFF_FFFF),
            ("workgroup size z", z, 0xFFFF),
        ):
            if not 0 <= value <= limit:
                raise ArchiveError(
                    f"{subject} is {value}, expected 0 to {limit}",
                    location=f"kernel '{self.name}'",
                )

    @property
    def function(self) -> str:
        """The symbol of the kernel function."""
        return self.symbol or self.name


# --- tables as LLVM IR -------------------------------------------------------------------------


def library_tables_ir(
    name: str, exports: Sequence[ExportDecl], *, declare_functions: bool = True
) -> str:
    """The library's read-only tables and its query function, as LLVM IR text.

    The text has no target triple or data layout: it is 64-bit position-independent IR to be
    compiled like the kernels (relocation model `pic`, code model `small`) and linked with them.

    Args:
        name: the library's name, for tools.
        exports: the kernels, by ordinal.
        declare_functions: declare the kernel functions as external; off when they are defined
            in the module the text is merged into.
    """
    strings = [
        f"@.tw.name.{i} = {_string(export.name)}" for i, export in enumerate(exports)
    ]
    count = len(exports)
    attributes = f"[{count} x {_ATTRIBUTES}] [{', '.join(map(_attributes, exports))}]"
    names = ", ".join(f"ptr @.tw.name.{i}" for i in range(count))
    functions = ", ".join(f"ptr @{_quote(export.function)}" for export in exports)
    declarations = [
        f"declare hidden i32 @{_quote(function)}(ptr, ptr, ptr) nounwind"
        for function in dict.fromkeys(export.function for export in exports)
    ]
    pointers = ", ".join(["ptr"] * 9)
    library = (
        f"{{ ptr, {{ i32, ptr }}, {{ i32, {pointers} }}, {{ i32, i32 }}, {{ i32, ptr }} }}"
    )
    header = f"i32 {VERSION}, ptr @.tw.library.name, i32 0, i32 0"
    table = (
        f"i32 {count}, ptr @.tw.functions, ptr @.tw.attributes, ptr null, ptr null, "
        "ptr @.tw.names, ptr null, ptr null, ptr null, ptr null"
    )
    value = (
        f"{{ ptr @.tw.header, {{ i32, ptr }} zeroinitializer, {{ i32, {pointers} }} {{ {table} }}, "
        "{ i32, i32 } zeroinitializer, { i32, ptr } zeroinitializer }"
    )
    lines = [
        f"@.tw.library.name = {_string(name)}",
        *strings,
        f"@.tw.header = internal constant {{ i32, ptr, i32, i32 }} {{ {header} }}",
        f"@.tw.functions = internal constant [{count} x ptr] [{functions}]",
        f"@.tw.names = internal constant [{count} x ptr] [{names}]",
        f"@.tw.attributes = internal constant {attributes}, align 8",
        f"@.tw.library = internal constant {library} {value}",
        *(declarations if declare_functions else ()),
        f"define ptr @{QUERY_FUNCTION}(i32 %max_version, ptr %environment) nounwind {{",
        f"  %known = icmp uge i32 %max_version, {VERSION}",
        "  %library = select i1 %known, ptr @.tw.library, ptr null",
        "  ret ptr %library",
        "}",
    ]
    return "\n".join(lines) + "\n"


_ATTRIBUTES: Final = "{ i64, i16, i8, i8, i32, i32, i16, i16, [5 x i64] }"


def _attributes(export: ExportDecl) -> str:
    x, y, z = export.workgroup_size
    return (
        f"{_ATTRIBUTES} {{ i64 {export.flags}, i16 {export.local_memory_pages}, "
        f"i8 {export.constant_count}, i8 {export.binding_count}, i32 {x}, i32 {y}, i16 {z}, "
        "i16 0, [5 x i64] zeroinitializer }"
    )


def _escape(text: str) -> str:
    plain = range(0x20, 0x7F)
    return "".join(
        chr(byte) if byte in plain and byte not in b'"\\' else f"\\{byte:02X}"
        for byte in text.encode()
    )


def _quote(symbol: str) -> str:
    return f'"{_escape(symbol)}"'


def _string(text: str) -> str:
    length = len(text.encode()) + 1
    return f'internal constant [{length} x i8] c"{_escape(text)}\\00"'
