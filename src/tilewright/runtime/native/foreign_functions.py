"""Functions at addresses: how the loaders call what a library exports, and find what it imports.

Not here: how libraries get into the process (`core.CodeImage`, `shared_library`).  Called by `loaders`.
"""

from __future__ import annotations

import ctypes
from typing import Final

_QUERY: Final = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_uint32, ctypes.c_size_t)
_INITIALIZER: Final = ctypes.CFUNCTYPE(None)


def call_query(function: int, version: int, environment: int) -> int:
    """Call the query function of an executable library; the address of the library or 0."""
    return _QUERY(function)(version, environment)


def call_initializer(function: int) -> None:
    """Call a function without arguments."""
    _INITIALIZER(function)()


def process_has_symbol(name: str) -> bool:
    """Whether a symbol is visible in this process."""
    return hasattr(ctypes.CDLL(None), name)


def address_of(function: object) -> int:
    """The address of a function of `ctypes`, or the number itself.  Raises: TypeError."""
    if isinstance(function, int):
        return function
    try:
        return ctypes.cast(function, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]
    except ctypes.ArgumentError as error:
        raise TypeError(str(error)) from error
