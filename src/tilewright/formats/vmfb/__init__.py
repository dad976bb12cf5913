"""`.vmfb` archives: VM modules in a file, as IREE's runtime loads them.

`read_archive` and `write_archive` turn bytes into a `ModuleDef` and back; `ModuleBuilder` makes
one; `decode_module` gives its verified instructions.
"""

from tilewright.formats.vmfb.builder import ModuleBuilder
from tilewright.formats.vmfb.code import decode_module
from tilewright.formats.vmfb.module import (
    OPTIONAL,
    REQUIRED,
    CallSite,
    DebugDatabase,
    Dependency,
    Export,
    FileLine,
    FunctionDescriptor,
    Fused,
    Import,
    Location,
    ModuleDef,
    ModuleState,
    Named,
    Rodata,
    Signature,
    SourceMap,
)
from tilewright.formats.vmfb.reader import read_archive
from tilewright.formats.vmfb.verifier import verify_module
from tilewright.formats.vmfb.writer import archive_bytes, write_archive

__all__ = [
    "OPTIONAL",
    "REQUIRED",
    "CallSite",
    "DebugDatabase",
    "Dependency",
    "Export",
    "FileLine",
    "FunctionDescriptor",
    "Fused",
    "Import",
    "Location",
    "ModuleBuilder",
    "ModuleDef",
    "ModuleState",
    "Named",
    "Rodata",
    "Signature",
    "SourceMap",
    "archive_bytes",
    "decode_module",
    "read_archive",
    "verify_module",
    "write_archive",
]
