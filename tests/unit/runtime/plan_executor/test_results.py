"""Large results lie in blocks of the heap, which come back once nobody sees them any more."""

import gc

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from tilewright.base import dtypes
from tilewright.base.errors import DeviceError, InputError
from tilewright.base.status import StatusCode
from tilewright.runtime import native
from tilewright.runtime.plan_executor.results import (
    check_places,
    result_array,
)

LARGE = (5, 6557)  # 131 140 bytes of f32: a few more than 128 KiB, no whole cache lines
F32 = np.dtype(np.float32)

keeps_blocks = pytest.mark.skipif(
    native.Heap.__module__ == "tilewright.runtime.native.fallback_heap",
    reason="without the C core nothing is kept",
)


def transients(heap: native.Heap) -> int:
    return native.MemoryReport.of(heap).transients_bytes


@pytest.mark.parametrize("shape", [LARGE, (3, 7), (1,), (), (0,), (0, 1 << 20)])
def test_a_result_is_a_dense_array_for_writing(shape: tuple[int, ...]) -> None:
    array = result_array(native.Heap(), shape, F32)
    assert (array.shape, array.dtype) == (shape, F32)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 2.5
    assert array.sum() == 2.5 * array.size


@pytest.mark.parametrize("capacity", [None, 1 << 20])
@pytest.mark.parametrize(
    "shape", [(1 << 46,), (1 << 62, 1 << 62), (3, 1 << 61), (0, 1 << 62, 1 << 62)]
)
def test_a_result_that_nobody_has_the_memory_for_is_an_error(
    shape: tuple[int, ...], capacity: int | None
) -> None:
    with pytest.raises(DeviceError, match=r"no (memory|room) for") as caught:
        result_array(native.Heap(capacity), shape, F32)
    assert caught.value.code == StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("dtype", ["?", "u1", "u2", "f2", "i4", "f8"])
def test_elements_of_every_size_lie_in_blocks(dtype: str) -> None:
    heap, wanted = native.Heap(), np.dtype(dtype)
    array = result_array(heap, (131_073,), wanted)
    array[-1] = 1
    assert transients(heap) >= array.nbytes
    assert array[-1] == 1


def test_a_block_is_held_by_every_view_of_its_array() -> None:
    heap = native.Heap()
    array = result_array(heap, LARGE, F32)
    assert transients(heap) >= array.nbytes
    array[...] = 7
    view = array.reshape(-1)[-3:].view(np.int32)
    del array
    gc.collect()
    others = [result_array(heap, LARGE, F32) for _ in range(3)]
    for other in others:
        other[...] = -1
    np.testing.assert_array_equal(view.view(F32), np.full(3, 7, F32))
    del view, others, other
    gc.collect()
    assert transients(heap) == 0


@keeps_blocks
def test_what_nobody_holds_any_more_is_used_again() -> None:
    heap = native.Heap()
    array = result_array(heap, LARGE, F32)
    address = array.ctypes.data
    del array
    gc.collect()
    assert transients(heap) == 0
    again = result_array(heap, LARGE, F32)
    assert again.ctypes.data == address
    assert native.MemoryReport.of(heap).reuse_count == 1


def test_small_results_and_those_under_a_cap_are_not_of_the_heap() -> None:
    unbounded, bounded = native.Heap(), native.Heap(1 << 20)
    arrays = [
        result_array(unbounded, (32, 1023), F32),
        result_array(bounded, LARGE, F32),
        result_array(None, LARGE, F32),
    ]
    assert all(array.flags.owndata for array in arrays)
    assert transients(unbounded) == transients(bounded) == 0


def test_results_outlive_their_session_and_are_not_those_of_later_calls() -> None:
    x = np.arange(np.prod(LARGE), dtype=np.float32).reshape(LARGE)
    model = tw.compile(onnx_models.one_node("Neg", [x]))
    first = model(x)
    second = model(x + 1)
    third = model(x + 2)[1:]
    del model
    gc.collect()
    np.testing.assert_array_equal(first, -x)
    np.testing.assert_array_equal(second, -(x + 1))
    np.testing.assert_array_equal(third, -(x + 2)[1:])


def test_arrays_that_do_not_fit_are_named_before_those_that_overlap() -> None:
    memory = np.zeros((2, 3), np.float32)
    types = [(dtypes.f32, (2, 3)), None, (dtypes.f32, (3, 3))]
    with pytest.raises(
        InputError, match=r"output 'z': got f32\[2, 3\], expected f32\[3, 3\]"
    ):
        check_places("xyz", types, [memory, None, memory])
    with pytest.raises(InputError, match="output 'y': got memory that output 'x'"):
        check_places("xyz", types, [memory, memory, None])
    check_places("xyz", types, [memory, memory[:0], None])  # raises nothing
