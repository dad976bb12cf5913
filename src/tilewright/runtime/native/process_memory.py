"""Reads this process's memory by address.

Not here: any check. Called by the loader of system libraries, whose tables lie outside our images.
"""

from __future__ import annotations

import ctypes


def read_process_memory(address: int, length: int) -> bytes:
    """The bytes at an address that must be readable: the reader for libraries the system loaded."""
    return ctypes.string_at(address, length)
