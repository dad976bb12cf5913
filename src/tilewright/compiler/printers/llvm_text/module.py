"""What a kernel is as LLVM IR: a text, and what LLVM and the loader are told about it.

Not here: who writes it (`function`), which much more belongs to.  Called by it, and by whoever hands texts to LLVM.
"""

from __future__ import annotations

from typing import Final, final

from tilewright.base.record import record

FUNCTION_ATTRIBUTES: Final = 'nounwind "no-builtins"'

TRIPLES: Final = {
    "x86_64": "x86_64-unknown-unknown-eabi-elf",
    "aarch64": "aarch64-unknown-unknown-eabi-elf",
    "riscv64": "riscv64-unknown-unknown-eabi-elf",
}
"""By architecture.  Images are ELF on every system: it is our own loader that reads them."""
SYSTEM_TRIPLES: Final = {
    "macos": "{arch}-apple-macosx12.0.0",
    "windows": "{arch}-pc-windows-gnu",
}
"""Of the systems whose linkers take another format, Mach-O and COFF, or pass arguments in other places."""


@final
@record(kw_only=True)
class KernelModule:
    """The LLVM IR of one kernel.

    Units: `local_memory_bytes` of workgroup-local memory.

    Attributes:
        symbol: the function's name, made of its content, so equal kernels share one object.
    """

    name: str
    symbol: str
    text: str
    constant_count: int
    binding_count: int
    local_memory_bytes: int
