"""The ELF subset that Tilewright writes and loads: freestanding kernels as shared objects.

`link_shared` turns relocatable objects of a code generator into one position-independent shared
object without imports (accepted by IREE's embedded loader and by `dlopen`); `parse_image` reads
such a file for the loader.  Not a general linker: no imports, no threads-local data, no
constructors, no debug information.  Called by `compiler.codegen.llvm`, `compiler.packaging` and
`runtime.loaders`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from tilewright.formats.elf.fat import is_fat, join_images, machines_of, select_image
from tilewright.formats.elf.image import (
    ElfImage,
    ImageRelocation,
    Patch,
    Segment,
    parse_image,
)

if TYPE_CHECKING:
    from tilewright.formats.elf.link import link_shared
    from tilewright.formats.elf.machines import MACHINES, Machine
    from tilewright.formats.elf.objects import ObjectFile, parse_object

__all__ = [
    "MACHINES",
    "ElfImage",
    "ImageRelocation",
    "Machine",
    "ObjectFile",
    "Patch",
    "Segment",
    "is_fat",
    "join_images",
    "link_shared",
    "machines_of",
    "parse_image",
    "parse_object",
    "select_image",
]

# A runtime only loads images: the linker comes when it is asked for.
_LATER: Final = {
    "MACHINES": "machines",
    "Machine": "machines",
    "ObjectFile": "objects",
    "link_shared": "link",
    "parse_object": "objects",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
