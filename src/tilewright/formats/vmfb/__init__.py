"""`.vmfb` archives: VM modules in a file, as IREE's runtime loads them.

`read_archive` and `write_archive` turn bytes into a `ModuleDef` and back; `ModuleBuilder` makes
one; `decode_module` gives its verified instructions.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from tilewright.formats.vmfb.module import (
    OPTIONAL,
    REQUIRED,
    Dependency,
    Export,
    FunctionDescriptor,
    Import,
    ModuleDef,
    ModuleState,
    Rodata,
    Signature,
)
from tilewright.formats.vmfb.reader import is_archive, read_archive
from tilewright.formats.vmfb.verifier import verify_module

if TYPE_CHECKING:
    from tilewright.formats.vmfb.builder import ModuleBuilder
    from tilewright.formats.vmfb.code import decode_module
    from tilewright.formats.vmfb.debug import (
        CallSite,
        DebugDatabase,
        FileLine,
        Fused,
        Location,
        Named,
        SourceMap,
    )
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
    "is_archive",
    "read_archive",
    "verify_module",
    "write_archive",
]

# A session that replays a plan reads tables only: instructions, places in sources and what writes
# come when they are asked for.
_LATER: Final = {
    "CallSite": "debug",
    "DebugDatabase": "debug",
    "FileLine": "debug",
    "Fused": "debug",
    "Location": "debug",
    "ModuleBuilder": "builder",
    "Named": "debug",
    "SourceMap": "debug",
    "archive_bytes": "writer",
    "decode_module": "code",
    "write_archive": "writer",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
