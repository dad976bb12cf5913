"""The error that a packed function left in a thread, behind calls of C that only give a status.

Not here: how it becomes an exception (`runtime.packed.functions`).
"""

from __future__ import annotations

import ctypes

from tilewright.runtime.native.foreign_functions import address_of
from tilewright.runtime.native.forwarders import SAFE_CALL

_FAIL = SAFE_CALL(lambda *_: -1)


def failing_address() -> int:
    """A C function for a packed one that fails with the error that the thread has."""
    return address_of(_FAIL)


def has_raised(library: ctypes.CDLL) -> bool:
    """Whether this thread has an error of tvm-ffi's that nobody took yet.

    Args:
        library: tvm-ffi's C library.
    """
    take = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
    raised = ctypes.c_void_p()
    take(address_of(library.TVMFFIErrorMoveFromRaised))(ctypes.addressof(raised))
    if raised.value is None:
        return False
    take(address_of(library.TVMFFIErrorSetRaised))(raised.value)
    take(address_of(library.TVMFFIObjectDecRef))(raised.value)
    return True
