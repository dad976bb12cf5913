"""Single-precision functions of the C library that this process already has.

IREE's interpreter calls them too, so the virtual machine computes the same bits on the same host.
Not here: what happens where a function is missing.  Called by `vm.floats`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable


def f32_function(name: str, arity: int) -> Callable[..., float] | None:
    """`expf` and the like for Python floats; None where the C library has no such function."""
    try:
        found = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # the last: Windows wants a file's name
        return None
    found.restype = ctypes.c_float
    found.argtypes = (ctypes.c_float,) * arity
    return found
