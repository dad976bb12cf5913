"""Memory of Relax functions: storages from the heap of a device, tensors in them.

A storage goes back to its heap when the last tensor in it is gone, whoever holds that: a register, a
result, an array of numpy's.  Heaps are those of the C core (`runtime.native`): a *pooled* one keeps
blocks for the next storage, a *naive* one gives each back to the system.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import InputError
from tilewright.formats.dlpack_types import DataType
from tilewright.runtime.native import Heap, Memory, tensor_capsule
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.machine_module import MemoryManager

_CPU: Final = 1
_ALIGNMENT: Final = 64


def size_in_bytes(sizes: Iterable[int], element_type: DataType) -> int:
    """Of a dense tensor."""
    return -(-math.prod(sizes) * element_type.width // 8)


@functools.cache
def data_type_of(value: object) -> DataType:
    """A `tvm_ffi.dtype`, which is its name, as a record."""
    code, bits, lanes = (getattr(value, name) for name in ("type_code", "bits", "lanes"))
    return DataType(code, bits, lanes)


def dense_tensor(
    owner: object, address: int, sizes: tuple[int, ...], element_type: DataType
) -> tvm_ffi.Tensor:
    """A tensor at an address, which keeps `owner` alive.  Nobody checks the address."""
    kind = element_type
    return tvm_ffi.from_dlpack(
        tensor_capsule(owner, address, sizes, kind.code, kind.bits, kind.lanes)
    )


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """A dense array with undefined contents, where the kernels of TVM expect one to begin.

    Raises: MemoryError.
    """
    size = math.prod(shape) * dtype.itemsize
    whole = np.empty(size + _ALIGNMENT, np.uint8)
    start = -whole.ctypes.data % _ALIGNMENT
    return whole[start : start + size].view(dtype).reshape(shape)


@final
class Storage:
    """A block of memory that tensors lie in.

    Attributes:
        memory: goes back to its heap with the last object that holds it.
    """

    __slots__ = ("memory",)

    def __init__(self, memory: Memory) -> None:
        self.memory: Final[Memory] = memory

    def tensor(
        self, offset: int, sizes: tuple[int, ...], element_type: DataType
    ) -> tvm_ffi.Tensor:
        """A dense tensor at an offset in bytes.

        Raises: InputError for one that does not fit.
        """
        length = size_in_bytes(sizes, element_type)
        if offset < 0 or offset + length > self.memory.size_bytes:
            raise InputError(
                f"a tensor {element_type}{list(sizes)} at byte {offset} does not fit a storage "
                f"of {self.memory.size_bytes} bytes"
            )
        return dense_tensor(self.memory, self.memory.address + offset, sizes, element_type)


@final
class Allocator:
    """Makes storages on a device.

    Args:
        device_type, device_id: as in DLPack.
        kind: naive or pooled.

    Raises: InputError for a device that this machine does not run on, or another kind.
    """

    def __init__(self, device_type: int, device_id: int, kind: int) -> None:
        if device_type != _CPU:
            raise InputError(
                f"Relax functions run on the CPU (device type 1) here, not on device type {device_type}",
                hint='compile the model for target "llvm"',
            )
        if kind not in list(MemoryManager):
            raise InputError(
                f"an allocator of kind {kind}, expected 1 (naive) or 2 (pooled)"
            )
        self.device: Final[tvm_ffi.Device] = tvm_ffi.device("cpu", device_id)
        self.kind: Final[MemoryManager] = MemoryManager(kind)
        keeps = kind == MemoryManager.POOLED
        self.heap: Final[Heap] = Heap() if keeps else Heap(kept_bytes=0)

    def storage(self, size_bytes: int) -> Storage:
        """A storage with undefined contents.

        Raises: InputError for a size below 0; DeviceError when there is no memory.
        """
        if size_bytes < 0:
            raise InputError(f"a storage of {size_bytes} bytes")
        return Storage(self.heap.lease(size_bytes))

    def tensor(self, sizes: tuple[int, ...], element_type: DataType) -> tvm_ffi.Tensor:
        """A tensor in a storage of its own, with undefined contents."""
        if any(size < 0 for size in sizes):
            raise InputError(f"a tensor of shape {list(sizes)}")
        return self.storage(size_in_bytes(sizes, element_type)).tensor(
            0, sizes, element_type
        )
