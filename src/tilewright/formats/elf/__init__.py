"""ELF as kernels come in it: linked images and relocatable objects, read and checked.

`parse_image` reads a freestanding shared object for the loader, `parse_object` what a code generator
wrote, for the linker (`compiler.linker`).  Nothing is linked or loaded here.  Called by
`compiler.linker` and `runtime.loaders`.
"""

from tilewright.formats.elf.fat import is_fat, join_images, machines_of, select_image
from tilewright.formats.elf.image import (
    ElfImage,
    ImageRelocation,
    Patch,
    Segment,
    parse_image,
)

__all__ = [
    "ElfImage",
    "ImageRelocation",
    "Patch",
    "Segment",
    "is_fat",
    "join_images",
    "machines_of",
    "parse_image",
    "select_image",
]
