"""Denormal floats taken as zero on this thread, for kernels that the interpreter calls or is.

IREE's local devices run every kernel so.  Not here: kernels that the C core calls, which switches by
itself (`native/src/denormals.h`).  Called by `fallback` and by kernels in bytecode.

Source: C11 7.6.4 (`fegetenv`, `fesetenv`); where `fenv_t` has the control word, from glibc and musl.
"""

from __future__ import annotations

import ctypes
import platform
import struct
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

_ENVIRONMENT_BYTES: Final = 256  # more than any fenv_t has
_WORD: Final = struct.Struct("<I")
_X86: Final = (28, 0x8040)  # MXCSR: flush to zero, denormals are zero
_ARM: Final = (0, 0x1080000)  # FPCR: FZ, FZ16
_CONTROL: Final = {"x86_64": _X86, "aarch64": _ARM}
"""Machine -> (offset of the control word in `fenv_t`, bits that take denormals as zero)."""


@contextmanager
def denormals_flushed() -> Generator[None]:
    """Denormal operands and results are zero inside, on this thread; nothing where unknown how."""
    means = _means()
    if means is None:
        yield
        return
    library, offset, bits = means
    before = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    library.fegetenv(before)
    changed = ctypes.create_string_buffer(before.raw, _ENVIRONMENT_BYTES)
    (word,) = _WORD.unpack_from(changed, offset)
    _WORD.pack_into(changed, offset, word | bits)
    library.fesetenv(changed)
    try:
        yield
    finally:
        library.fesetenv(before)


@cache
def _means() -> tuple[Any, int, int] | None:
    """The library with both functions, where the control word is, its bits; None on other systems."""
    control = _CONTROL.get(platform.machine())
    if control is None or platform.system() != "Linux":
        return None
    for name in (None, "libm.so.6", "libm.so"):
        try:
            found = ctypes.CDLL(name)
            _ = found.fegetenv, found.fesetenv
        except (AttributeError, OSError):
            continue
        return found, control[0], control[1]
    return None
