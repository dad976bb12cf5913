"""Shared libraries of the system, and functions at addresses: the loaders' way to `dlopen`.

Not here: what the libraries mean.  Called by `loaders`.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import sys
import tempfile
import weakref
from typing import Final, final

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


@final
class SharedLibrary:
    """A library that was opened from its bytes.

    The bytes go to an anonymous file in memory (a temporary one where there is none), so that
    debuggers and profilers see them.

    Ownership: closed when nobody holds it any more; not at the end of the process.
    Raises: OSError with the system's reason.
    """

    def __init__(self, data: memoryview) -> None:
        file = _anonymous_file()
        try:
            done = 0
            while done < len(data):
                done += os.write(file, data[done:])
            folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
            self._library: ctypes.CDLL = ctypes.CDLL(f"{folder}/{file}")
        finally:
            os.close(file)
        close = getattr(_ctypes, "dlclose")  # noqa: B009 - not in the stubs
        handle = self._library._handle  # pyright: ignore[reportPrivateUsage]
        weakref.finalize(self, close, handle).atexit = False

    def address(self, symbol: str) -> int:
        """Where a symbol is; 0 where there is none."""
        try:
            return address_of(getattr(self._library, symbol))
        except AttributeError:
            return 0


def _anonymous_file() -> int:
    create = getattr(os, "memfd_create", None)
    if create is not None:
        return create("tilewright-executable")
    file, path = tempfile.mkstemp(prefix="tilewright-", suffix=".so")
    os.unlink(path)  # noqa: PTH108 - reached by its descriptor only
    return file
