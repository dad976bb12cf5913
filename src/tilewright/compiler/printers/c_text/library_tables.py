"""The tables of an executable library in C: how a loader finds the kernels, by ordinal and by name.

The structures are those of `formats.executable`.  Called by the back end that writes C.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from tilewright.formats.executable import QUERY_FUNCTION, VERSION, ExportDecl

_HEAD: Final = """\
// Made by Tilewright: the kernels of a library, for IREE's loader and Tilewright's.
#include <stddef.h>
#include <stdint.h>

typedef int (*tw_kernel_t)(const void *, const void *, const void *);
typedef struct { uint32_t version; const char *name; uint32_t features, sanitizer; } tw_header_t;
typedef struct {
  uint64_t flags;
  uint16_t local_memory_pages;
  uint8_t constant_count, binding_count;
  uint32_t workgroup_size_x, workgroup_size_y;
  uint16_t workgroup_size_z, parameter_count;
  uint64_t reserved[5];
} tw_attributes_t;
typedef struct {
  const tw_header_t *header;
  uint32_t import_count;
  const void *imports;
  uint32_t export_count;
  const tw_kernel_t *functions;
  const tw_attributes_t *attributes;
  const void *parameters, *occupancy;
  const char *const *names;
  const void *tags, *parameter_names, *source_locations, *stage_locations;
  uint32_t constant_count, padding, source_count;
  const void *source_files;
} tw_executable_library_t;
"""
_QUERY: Final = f"""\
const tw_executable_library_t *{QUERY_FUNCTION}(uint32_t max_version, const void *environment) {{
  (void)environment;
  return max_version >= {VERSION} ? &library : NULL;
}}
"""


def library_tables(name: str, exports: Sequence[ExportDecl]) -> str:
    """A file with the tables and the query function.

    Args:
        name: the library's name, for tools.
        exports: the kernels, by ordinal.
    """
    symbols = dict.fromkeys(export.function for export in exports)
    count = len(exports)
    return "\n".join(
        [
            _HEAD,
            *(
                f"int {symbol}(const void *, const void *, const void *);"
                for symbol in symbols
            ),
            f"static const tw_kernel_t functions[{count}] = {{",
            *(f"  {export.function}," for export in exports),
            "};",
            f"static const char *const names[{count}] = {{",
            *(f"  {json.dumps(export.name)}," for export in exports),
            "};",
            f"static const tw_attributes_t attributes[{count}] = {{",
            *(f"  {_attributes(export)}," for export in exports),
            "};",
            f"static const tw_header_t header = {{{VERSION}, {json.dumps(name)}, 0, 0}};",
            "static const tw_executable_library_t library = {",
            f"  .header = &header, .export_count = {count}, .functions = functions,",
            "  .attributes = attributes, .names = names,",
            "};",
            "",
            _QUERY,
        ]
    )


def _attributes(export: ExportDecl) -> str:
    x, y, z = export.workgroup_size
    return (
        f"{{.flags = UINT64_C({export.flags}), .local_memory_pages = {export.local_memory_pages}, "
        f".constant_count = {export.constant_count}, .binding_count = {export.binding_count}, "
        f".workgroup_size_x = {x}, .workgroup_size_y = {y}, .workgroup_size_z = {z}}}"
    )
