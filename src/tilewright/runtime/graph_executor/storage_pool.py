"""The memory of a graph: one buffer per storage, which entries see with types and shapes of their own.

Storages of arguments and of outputs are buffers that can be exchanged for a caller's; all others lie
in one block, where those that do not live at the same time share bytes.  Nothing is taken before somebody asks: parameters that are given or shared take no memory.
Not here: what runs over it (`graph_program`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final, final

import numpy as np

from tilewright.base.arena import Block, align, pack
from tilewright.base.dtypes import DType, find_numpy_name
from tilewright.base.errors import ArchiveError
from tilewright.base.record import record
from tilewright.formats.graph_json import UNKNOWN, Graph
from tilewright.runtime import native
from tilewright.runtime.plan_executor.tensors import Array
from tilewright.runtime.recorder import Range, Recorder

ALIGNMENT: Final = 64
_PACKED_LIMIT: Final = 2048  # storages; packing looks at each pair
_MOST_BYTES: Final = 1 << 62  # of all tensors; what adds them up has 63 bits
# How TVM calls what has another name here.
_SPELLINGS: Final = {
    "uint1": "bool",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
}


@final
@record
class EntryType:
    """The tensor of an entry."""

    dtype: DType
    shape: tuple[int, ...]
    storage: int

    @property
    def size_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def entry_types(graph: Graph, location: str) -> tuple[EntryType, ...]:
    """The types of all entries.

    Raises: ArchiveError for a data type that tensors here do not have, a size that a call decides, or more bytes
        than there can be.
    """
    table = graph.entries
    names = {index: node.name for index, node in enumerate(graph.nodes)}
    owner = [
        names[index]
        for index in range(len(graph.nodes))
        for _ in range(graph.nodes[index].output_count)
    ]
    found: list[EntryType] = []
    left = _MOST_BYTES
    for entry, (name, shape, storage) in enumerate(
        zip(table.dtype, table.shape, table.storage_id, strict=True)
    ):
        dtype = find_numpy_name(_SPELLINGS.get(name, name))
        where = f"{location}: node '{owner[entry]:.80}'"
        if dtype is None:
            raise ArchiveError(f"unknown data type '{name:.80}'", location=where)
        if UNKNOWN in shape:
            raise ArchiveError(
                f"its shape {list(shape)} is known in a call only",
                location=where,
                hint="only the plan in this file can be run: call create with the module "
                "that was built with it",
            )
        # An extent of 0 makes others no smaller for numpy.
        left -= math.prod(max(size, 1) for size in shape) * dtype.itemsize
        if left < 0:
            raise ArchiveError(
                f"{dtype}{list(shape)!s:.80} is too large, with the tensors before it",
                location=where,
            )
        found.append(EntryType(dtype, shape, storage))
    return tuple(found)


@final
class StoragePool:
    """Buffers and the slots of a command list that they are given to.

    Args:
        graph: whose storages.
        types: of its entries.
        lives: the first and the last time at which a storage is used, where it is.
        heap: where memory comes from.

    Ownership: keeps its memory and what was bound until the next binding; views keep it, too.
    """

    def __init__(
        self,
        graph: Graph,
        types: Sequence[EntryType],
        lives: Mapping[int, tuple[int, int]],
        heap: native.Heap,
    ) -> None:
        self.types: tuple[EntryType, ...] = tuple(types)
        self.slot_storages: list[
            int
        ] = []  # the storage of each slot but the last, the block's
        self._heap: native.Heap = heap
        self._sizes: dict[int, int] = {}
        for entry in types:
            size = max(self._sizes.get(entry.storage, 0), entry.size_bytes)
            self._sizes[entry.storage] = size
        self._places: dict[int, tuple[int, int]] = {}  # storage -> slot, offset
        self._block_bytes: int = self._place(graph, lives)
        self._block: native.Memory | None = None
        self._buffers: dict[int, native.Memory | Array] = {}

    def _place(self, graph: Graph, lives: Mapping[int, tuple[int, int]]) -> int:
        """Give every storage a place; returns the size of the block."""
        border = [graph.entry(node) for node in graph.arguments]
        border += [graph.entry_of(head) for head in graph.heads]
        self.slot_storages = list(dict.fromkeys(self.types[e].storage for e in border))
        for slot, storage in enumerate(self.slot_storages):
            self._places[storage] = slot, 0
        inside = sorted(self._sizes.keys() - self._places.keys())
        if len(inside) > _PACKED_LIMIT:
            return self._stack(inside)
        end = max((last for _, last in lives.values()), default=0)
        packing = pack(
            [Block(self._sizes[one], *lives.get(one, (0, end))) for one in inside]
        )
        for storage, offset in zip(inside, packing.offsets, strict=True):
            self._places[storage] = len(self.slot_storages), offset
        return packing.size_bytes

    def _stack(self, inside: Sequence[int]) -> int:
        """One behind the other."""
        end = 0
        for storage in inside:
            self._places[storage] = len(self.slot_storages), end
            end += align(self._sizes[storage])
        return end

    # --- recording

    def add_slots(self, recorder: Recorder, written: Collection[int]) -> None:
        """The slots, in order; only storages that are `written` must be writable."""
        for storage in self.slot_storages:
            recorder.slot(self._sizes[storage], writable=storage in written)
        recorder.slot(self._block_bytes, writable=True, alignment=ALIGNMENT)

    def place(self, entry: int) -> Range:
        """Where an entry lies: slot, byte offset, bytes."""
        entry_type = self.types[entry]
        slot, offset = self._places[entry_type.storage]
        return slot, offset, entry_type.size_bytes

    def buffers(self) -> list[native.Memory | Array]:
        """A buffer for each slot; takes the memory that is still missing.

        Raises: DeviceError (RESOURCE_EXHAUSTED) where there is none.
        """
        return [self._buffer(storage) for storage in self.slot_storages] + [self._arena()]

    # --- tensors

    def view(self, entry: int) -> Array:
        """The memory of an entry as an array."""
        entry_type = self.types[entry]
        slot, offset = self._places[entry_type.storage]
        inside = slot == len(self.slot_storages)
        buffer = self._arena() if inside else self._buffer(entry_type.storage)
        if isinstance(buffer, np.ndarray):
            flat = buffer.reshape(-1).view(np.uint8)[: entry_type.size_bytes]
            return flat.view(entry_type.dtype.numpy).reshape(entry_type.shape)
        view = memoryview(buffer)
        return np.ndarray(entry_type.shape, entry_type.dtype.numpy, view, offset)

    def storage_of(self, entry: int) -> int:
        return self.types[entry].storage

    def room_of(self, storage: int) -> int:
        """Bytes that a buffer for the storage needs."""
        return self._sizes[storage]

    def bind(self, storage: int, buffer: native.Memory | Array) -> None:
        """Put a caller's buffer, or another pool's, in the place of a storage."""
        self._buffers[storage] = buffer

    def release(self, storage: int) -> bool:
        """Have memory of one's own for a storage again; whether it was bound."""
        if not isinstance(self._buffers.get(storage), np.ndarray):
            return False
        del self._buffers[storage]
        return True

    def buffer(self, storage: int) -> native.Memory | Array:
        """The buffer of an argument or output, for sharing."""
        return self._buffer(storage)

    def _buffer(self, storage: int) -> native.Memory | Array:
        found = self._buffers.get(storage)
        if found is None:
            found = self._lease(self._sizes[storage])
            self._buffers[storage] = found
        return found

    def _arena(self) -> native.Memory:
        if self._block is None:
            self._block = self._lease(self._block_bytes)
        return self._block

    def _lease(self, size_bytes: int) -> native.Memory:
        """Memory of zeros: what was never set is zero, whatever ran before."""
        memory = self._heap.lease(size_bytes, native.MemoryUse.TRANSIENT)
        np.ndarray((size_bytes,), np.uint8, memoryview(memory)).fill(0)
        return memory
