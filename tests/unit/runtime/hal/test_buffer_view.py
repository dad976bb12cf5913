"""Views go to and come from numpy, torch and whoever speaks DLPack, without copies."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import registry
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.buffer_view import (
    BufferView,
    dense_byte_count,
)

F32, I4 = 0x21000020, 0x10000004


def view(array: np.ndarray, element_type: int) -> BufferView:
    device = registry.create_device("local-sync")
    buffer = device.allocator.allocate(
        int(MemoryType.DEVICE_LOCAL), int(BufferUsage.DEFAULT), array.nbytes
    )
    buffer.write(array.tobytes())
    return BufferView(buffer, array.shape, element_type)


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("dtype", "element_type"),
    [
        (np.float32, F32),
        (np.int32, 0x10000020),
        (np.uint32, 0x12000020),
        (np.bool_, 0x13000008),
        (ml_dtypes.bfloat16, 0x22000010),
        (ml_dtypes.float8_e4m3fn, 0x25000008),
    ],
)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 1)])
def test_arrays_have_the_type_and_shape_of_the_view(
    dtype: type, element_type: int, shape: tuple[int, ...]
) -> None:
    array = (np.arange(np.prod(shape, dtype=int)) % 2).reshape(shape).astype(dtype)
    back = view(array, element_type).to_numpy()
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert np.array_equal(back, array)


def test_an_array_is_the_memory_itself_and_keeps_it() -> None:
    made = view(np.zeros(4, np.float32), F32)
    array = made.to_numpy()
    array[2] = 7
    assert made.to_numpy().tolist() == [0, 0, 7, 0]
    allocator_buffer = made.buffer
    del made, allocator_buffer
    gc.collect()
    assert array.tolist() == [0, 0, 7, 0]


def test_dlpack_shares_the_memory() -> None:
    made = view(np.arange(6, dtype=np.float32).reshape(2, 3), F32)
    assert made.__dlpack_device__() == (1, 0)
    shared = np.from_dlpack(made)
    shared[1, 2] = -1
    assert made.to_numpy()[1, 2] == -1


def test_numpy_takes_a_view_as_an_array() -> None:
    made = view(np.arange(3, dtype=np.int32), 0x10000020)
    assert np.asarray(made).tolist() == [0, 1, 2]
    assert np.array(made, dtype=np.float64).dtype == np.float64


def test_packed_elements_share_bytes_and_are_unpacked() -> None:
    assert dense_byte_count(I4, (3, 3)) == 5
    made = view(np.array([0x21, 0xF3, 0x85, 0x07, 0x1F], np.uint8), 0x12000008)
    signed = BufferView(made.buffer, (3, 3), I4).to_numpy()
    assert signed.dtype == ml_dtypes.int4
    assert signed.astype(int).tolist() == [[1, 2, 3], [-1, 5, -8], [7, 0, -1]]
    unsigned = BufferView(made.buffer, (9,), 0x12000004).to_numpy()
    assert unsigned.astype(int).tolist() == [1, 2, 3, 15, 5, 8, 7, 0, 15]


def test_negative_shapes_are_refused() -> None:
    buffer: Buffer = view(np.zeros(4, np.float32), F32).buffer
    with pytest.raises(DeviceError, match=r"shape \[2, -1\] is negative"):
        BufferView(buffer, (2, -1), F32)
