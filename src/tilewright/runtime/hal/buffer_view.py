"""A buffer view: a buffer with a shape and an element type; what functions take and return.

Goes to and comes from numpy and DLPack without copies where the host sees the memory.  Not here:
element types themselves (`base.dtypes`).

Source: IREE `hal/buffer_view.h`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.hal.buffer import READ, WRITE, Buffer
from tilewright.runtime.hal.element_type import (
    Array,
    bit_count,
    element_type_name,
    numpy_type,
    unpack,
)

ENCODING_OPAQUE: Final = 0
ENCODING_DENSE_ROW_MAJOR: Final = 1
_RANK_LIMIT: Final = 128  # as IREE's


def dense_byte_count(element_type: int, shape: Sequence[int]) -> int:
    """Bytes of a dense tensor; sub-byte elements are packed.

    Raises: DeviceError for a negative dimension, or more of them than tensors have.
    """
    if len(shape) > _RANK_LIMIT:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"a shape of rank {len(shape)}, at most {_RANK_LIMIT}",
        )
    count = 1
    for dim in shape:
        if dim < 0:
            raise failure(StatusCode.INVALID_ARGUMENT, f"shape {list(shape)} is negative")
        count *= dim
    return (count * (element_type & 0xFF) + 7) // 8


@final
class BufferView:
    """A tensor in device memory.

    Thread-safety: immutable but for the bytes.
    """

    __slots__ = ("buffer", "element_type", "encoding_type", "shape")

    def __init__(
        self,
        buffer: Buffer,
        shape: Sequence[int],
        element_type: int,
        encoding_type: int = ENCODING_DENSE_ROW_MAJOR,
    ) -> None:
        self.buffer: Buffer = buffer
        self.shape: tuple[int, ...] = tuple(shape)
        self.element_type: int = element_type
        self.encoding_type: int = encoding_type
        if encoding_type == ENCODING_DENSE_ROW_MAJOR:
            size = dense_byte_count(element_type, self.shape)
            if size > buffer.byte_length:
                raise failure(
                    StatusCode.OUT_OF_RANGE,
                    f"a view of {size} bytes, the buffer has {buffer.byte_length}",
                )

    def __repr__(self) -> str:
        return f"<buffer view {self.type_text}>"

    @property
    def type_text(self) -> str:
        """`f32[2, 3]`."""
        return f"{element_type_name(self.element_type)}{list(self.shape)}"

    @property
    def dtype(self) -> DType:
        """The element type.  Raises: UserError where we have no such type."""
        return dtypes.from_iree(self.element_type)

    def to_numpy(self, dtype: np.dtype[np.generic] | None = None) -> Array:
        """An array over the same memory, which it keeps alive; a copy where the host cannot see it.

        Args:
            dtype: how to see the elements; default: their own type.
        Raises: DeviceError when the memory cannot be read, or numpy has no such shape.
        """
        wanted = numpy_type(self.element_type) if dtype is None else dtype
        size = dense_byte_count(self.element_type, self.shape)
        if bit_count(self.element_type) < 8:
            return self._unpacked(wanted, size)
        if not self.buffer.storage.is_host_visible:
            copy = np.empty(size, np.uint8)
            self.buffer.read_into(view_bytes(copy))
            return self._shaped(copy.view(wanted))
        access = self.buffer.allowed_access & (READ | WRITE)
        if self.buffer.storage.readonly:
            access &= ~WRITE
        view = self.buffer.map_range(access, 0, size)
        flat = np.frombuffer(view, np.uint8) if size else np.empty(0, np.uint8)
        return self._shaped(flat.view(wanted))

    def _shaped(self, flat: Array) -> Array:
        """The elements in the view's shape.  Raises: DeviceError for one that numpy does not have."""
        try:
            return flat.reshape(self.shape)
        except ValueError as error:
            raise failure(
                StatusCode.INVALID_ARGUMENT, f"no array can be {self.type_text}: {error}"
            ) from error

    def _unpacked(self, dtype: np.dtype[np.generic], size: int) -> Array:
        """A copy with one element per byte, as numpy has none that share one."""
        data = np.frombuffer(self.buffer.read(0, size), np.uint8)
        bits = bit_count(self.element_type)
        return self._shaped(unpack(data, math.prod(self.shape), dtype, bits))

    def __array__(
        self, dtype: np.dtype[np.generic] | None = None, copy: bool | None = None
    ) -> Array:
        return np.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **options: object) -> object:
        export = cast("Callable[..., object]", getattr(self.to_numpy(), "__dlpack__"))  # noqa: B009
        return export(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)
