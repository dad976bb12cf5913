"""Reads this process's memory by address.

Called by the loaders of system and static libraries, whose tables lie outside our images.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Final, final

_MAPS: Final = Path("/proc/self/maps")


def read_process_memory(address: int, length: int) -> bytes:
    """The bytes at an address that must be readable."""
    return ctypes.string_at(address, length)


@final
class ProcessMemory:
    """All memory of the process as it is mapped now; elsewhere than on Linux nothing is checked.

    Thread-safety: immutable; what is unmapped later is not noticed.
    """

    def __init__(self) -> None:
        self._readable: list[tuple[int, int]] | None = None
        self._executable: list[tuple[int, int]] | None = None
        if not _MAPS.exists():
            return
        self._readable, self._executable = [], []
        for row in _MAPS.read_text(errors="replace").splitlines():
            places, access = row.split(maxsplit=2)[:2]
            begin, _, end = places.partition("-")
            place = int(begin, 16), int(end, 16)
            if "r" in access:
                _add(self._readable, place)
            if "x" in access:
                _add(self._executable, place)

    def read(self, address: int, length: int) -> bytes:
        """The bytes.  Raises: IndexError where they cannot be read."""
        if not _holds(self._readable, address, length):
            raise IndexError(
                f"{length} bytes at address {address:#x} are not readable memory"
            )
        return read_process_memory(address, length)

    def holds_code(self, address: int) -> bool:
        """Whether an address may be called."""
        return _holds(self._executable, address, 1)


def _add(ranges: list[tuple[int, int]], place: tuple[int, int]) -> None:
    """Append, as one with the range before where they touch."""
    if ranges and ranges[-1][1] == place[0]:
        place = ranges.pop()[0], place[1]
    ranges.append(place)


def _holds(ranges: list[tuple[int, int]] | None, address: int, length: int) -> bool:
    if ranges is None:
        return True
    return any(begin <= address and address + length <= end for begin, end in ranges)
