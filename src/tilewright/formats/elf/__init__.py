"""The ELF subset that Tilewright writes and loads: freestanding kernels as shared objects.

`link_shared` turns relocatable objects of a code generator into one position-independent shared
object without imports (accepted by IREE's embedded loader and by `dlopen`); `parse_image` reads
such a file for the loader.  Not a general linker: no imports, no threads-local data, no
constructors, no debug information.  Called by `compiler.codegen.llvm`, `compiler.packaging` and
`runtime.loaders`.
"""

from tilewright.formats.elf.image import (
    ElfImage,
    ImageRelocation,
    Patch,
    Segment,
    parse_image,
)
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
    "link_shared",
    "parse_image",
    "parse_object",
]
