"""C functions that pass a packed call on to a function object.

tvm-ffi's system libraries know functions by bare addresses, which are called without an object.  What a
Python module has are objects.  A `Forwarder` is an address that calls one.

Not here: what they stand for (`runtime.packed.genuine`).
"""

from __future__ import annotations

import ctypes
from typing import Final, final

from tilewright.runtime.native.foreign_functions import address_of

# int f(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result)
SAFE_CALL: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p
)


@final
class Forwarder:
    """The address of a C function that calls a packed function.

    Args:
        library: tvm-ffi's C library.
        handle: of the function object, which the caller keeps alive.

    Ownership: whoever was given the address must not call it when this object is gone.
    Thread-safety: threads that Python does not know may call it.
    """

    def __init__(self, library: ctypes.CDLL, handle: int) -> None:
        call = SAFE_CALL(address_of(library.TVMFFIFunctionCall))

        def forward(_: int | None, args: int | None, count: int, result: int | None) -> int:
            return call(handle, args, count, result)

        self._callback = SAFE_CALL(forward)
        self.address: int = address_of(self._callback)


def register_system_symbol(library: ctypes.CDLL, name: str, address: int) -> None:
    """Enter an address into tvm-ffi's table of system libraries, for the rest of the process."""
    enter = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
    enter(address_of(library.TVMFFIEnvModRegisterSystemLibSymbol))(name.encode(), address)
