"""Memory of the host under a buffer: allocated here, or somebody else's.

Called by the heap allocator.  Not here: pooling decisions.
"""

from __future__ import annotations

from typing import Final, cast, final

import numpy as np

from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime import native
from tilewright.runtime.hal.buffer import Storage

ALIGNMENT_BYTES: Final = 64
"""Kernels of IREE's compilers take buffers to begin on such a boundary."""


@final
class HeapStorage(Storage):
    """Host memory with a known address.

    Ownership: arrays and views made by `map` keep the storage, which keeps its owner: a block of a
    heap goes back when nothing refers to it any more.
    """

    __slots__ = ("_is_block", "_owner", "_readonly", "_size_bytes", "address")

    def __init__(
        self,
        owner: object,
        address: int,
        size_bytes: int,
        *,
        readonly: bool = False,
        is_block: bool = False,
    ) -> None:
        self._owner: object = owner
        self.address: int = address
        self._size_bytes: int = size_bytes
        self._readonly: bool = readonly
        self._is_block: bool = is_block  # the owner is a `native.Memory`

    @staticmethod
    def wrap(memory: HostBytes) -> HeapStorage:
        """Somebody's memory; nothing is copied."""
        array = np.frombuffer(cast("bytes", memory), np.uint8) if _size(memory) else _EMPTY
        return HeapStorage(
            memory,
            cast("int", array.__array_interface__["data"][0]),
            array.nbytes,
            readonly=not array.flags.writeable,
        )

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    @property
    def readonly(self) -> bool:
        return self._readonly

    @property
    def __array_interface__(self) -> dict[str, object]:
        """Lets numpy see the bytes and keep the storage as the array's base."""
        return {
            "version": 3,
            "shape": (self._size_bytes,),
            "typestr": "|u1",
            "data": (self.address, self._readonly),
        }

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if not self._is_block:
            self.map(offset, len(data))[:] = data
        else:  # no array has to keep it for the time of the copy
            block = memoryview(cast("native.Memory", self._owner))
            block[offset : offset + len(data)] = data

    def map(self, offset: int, length: int) -> memoryview:
        if length == 0:
            return memoryview(b"") if self._readonly else memoryview(bytearray())
        return view_bytes(np.asarray(self)[offset : offset + length])


_EMPTY: Final = np.zeros(0, np.uint8)


def _size(memory: HostBytes) -> int:
    return memoryview(cast("bytes", memory)).nbytes
