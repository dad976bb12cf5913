"""Buffers between inaccessible pages, for tests that must notice a stray load or store.

What it is: regions of memory that are used again and again; an array stands at the end or at the
start of its region, so that the byte after (or before) it cannot be touched; the bytes on the
other side hold a pattern that is checked afterwards.
What it is not: memory for anything but tests.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE
_PATTERN = 0xC5
_libc = ctypes.CDLL(None, use_errno=True)


class Region:
    """Some pages between two inaccessible ones; holds one array at a time."""

    def __init__(self, size_bytes: int) -> None:
        self.room = max(1, -(-size_bytes // PAGE)) * PAGE
        self._memory = mmap.mmap(-1, self.room + 2 * PAGE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        for page in (address, address + PAGE + self.room):
            assert _libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        self._bytes = np.frombuffer(self._memory, np.uint8, self.room, PAGE)
        self._outside: list[np.ndarray] = []

    def place(self, array: np.ndarray, *, at_end: bool, alignment: int = 1) -> np.ndarray:
        """A copy of `array` against the end or the start; `alignment` moves it off the end."""
        start = (self.room - array.nbytes) // alignment * alignment if at_end else 0
        end = start + array.nbytes
        self._outside = [
            self._bytes[max(0, start - PAGE) : start],
            self._bytes[end:][:PAGE],
        ]
        for pad in self._outside:
            pad.fill(_PATTERN)
        view = self._bytes[start:end].view(array.dtype).reshape(array.shape)
        view[...] = array
        return view

    def is_intact(self) -> bool:
        """Whether nobody wrote beside the array."""
        return all(bool((pad == _PATTERN).all()) for pad in self._outside)


class Regions:
    """A region per position, each as large as it ever had to be."""

    def __init__(self) -> None:
        self._regions: list[Region] = []

    def place(
        self, position: int, array: np.ndarray, *, at_end: bool = True, alignment: int = 1
    ) -> np.ndarray:
        """A copy of `array` in the region of `position`."""
        while len(self._regions) <= position:
            self._regions.append(Region(4 * PAGE))
        if self._regions[position].room < array.nbytes:
            self._regions[position] = Region(array.nbytes)
        return self._regions[position].place(array, at_end=at_end, alignment=alignment)

    def is_intact(self, position: int) -> bool:
        """Whether nobody wrote beside the array at `position`."""
        return self._regions[position].is_intact()
