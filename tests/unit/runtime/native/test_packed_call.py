"""Packed functions on buffers of known types: in C and over ctypes, with tvm-ffi's own functions."""

from __future__ import annotations

import gc
import threading
import weakref
from types import ModuleType
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.runtime.packed.ffi import tvm_ffi


def row(array: np.ndarray) -> tuple[int, int, int, tuple[int, ...]]:
    dtype = dtypes.from_numpy(array.dtype)
    return (*dtype.dlpack, dtype.itemsize, array.shape)


def bound(core: ModuleType, function: Any, *arrays: np.ndarray) -> Any:
    """`function` bound to the types of `arrays`."""
    function = tvm_ffi.convert(function)
    fail = tvm_ffi.Function.__from_extern_c__(core.PackedCall.fail_again())
    rows = tuple(map(row, arrays))
    return core.PackedCall(function.__chandle__(), rows, function, fail)


def test_a_function_reads_operands_and_writes_results(core: ModuleType) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.zeros((2, 3), np.float32)
    x.flags.writeable = False
    seen: list[object] = []

    def double(operand: Any, result: Any) -> None:
        seen.extend((operand.shape, str(operand.dtype), str(operand.device)))
        np.from_dlpack(result)[...] = np.multiply(cast("Any", np.from_dlpack(operand)), 2)

    assert bound(core, double, x, y)(x, y) is None
    np.testing.assert_array_equal(y, 2 * x)
    assert seen == [(2, 3), "float32", "cpu:0"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, np.bool_, np.int64, np.float16, np.uint8]
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 0), (1, 2, 3)])
def test_types_and_shapes_arrive_as_they_are(
    core: ModuleType, dtype: Any, shape: tuple[int, ...]
) -> None:
    x = np.zeros(shape, dtype)
    seen: list[Any] = []
    bound(core, lambda t: seen.append((t.shape, str(t.dtype), t.is_contiguous())), x)(
        x.reshape(-1).view(np.uint8)
    )
    assert seen == [(shape, str(x.dtype), True)]


def test_errors_arrive_as_what_they_were(core: ModuleType) -> None:
    def fail(_: Any) -> None:
        raise ValueError("no such luck")

    x = np.zeros(2, np.float32)
    call = bound(core, fail, x)
    for _ in range(3):
        with pytest.raises(ValueError, match="no such luck"):
            call(x)


def test_buffers_of_other_sizes_and_counts_are_refused(core: ModuleType) -> None:
    x = np.zeros(2, np.float32)
    call = bound(core, lambda *_: None, x)
    with pytest.raises(ValueError, match="tensor 0: buffer of 12 bytes, expected 8"):
        call(np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="got 2 buffers, expected 1"):
        call(x, x)
    with pytest.raises(TypeError, match="bytes-like"):
        call(3)


@pytest.mark.parametrize(
    "rows",
    [
        ((2, 32, 4, (-1,)),),
        ((2, 32, 4, (1 << 40, 1 << 40)),),
        ((2, 32, 4, (1 << 40, 1 << 40, 1 << 40, 0)),),  # no bytes, but strides
        ((2, 32, 4, (1,) * 65),),
    ],
)
def test_types_out_of_range_are_refused(core: ModuleType, rows: Any) -> None:
    function = tvm_ffi.convert(lambda: None)
    if core.__name__.endswith("fallback") and rows[0][3][0] > 0:
        pytest.skip("sizes of Python have no range")
    with pytest.raises(ValueError, match="out of range"):
        core.PackedCall(function.__chandle__(), rows, function, function)


def test_more_tensors_than_lie_on_the_stack(core: ModuleType) -> None:
    arrays = [np.full(2, i, np.int32) for i in range(40)]
    seen: list[int] = []
    call = bound(
        core, lambda *t: seen.extend(int(np.from_dlpack(x)[0]) for x in t), *arrays
    )
    call(*arrays)
    assert seen == list(range(40))


def test_what_a_function_returns_is_let_go(core: ModuleType) -> None:
    # Objects of Python travel as objects that hold a reference.
    class Resource:
        pass

    alive: list[Any] = []

    def make() -> Any:
        resource = Resource()
        alive.append(weakref.ref(resource))
        return resource

    bound(core, make)()
    gc.collect()
    assert alive[0]() is None


def test_a_tensor_that_is_kept_keeps_its_buffer(core: ModuleType) -> None:
    kept: list[Any] = []
    x = np.arange(4, dtype=np.float32)
    bound(core, lambda t: kept.append(np.from_dlpack(t)), x)(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is not None
    assert kept[0].tolist() == [0, 1, 2, 3]
    kept.clear()
    gc.collect()
    assert gone() is None


def test_calls_of_several_threads_are_independent(core: ModuleType) -> None:
    x = np.zeros(1, np.int64)

    def add(operand: Any, result: Any) -> None:
        np.from_dlpack(result)[...] = np.add(cast("Any", np.from_dlpack(operand)), 1)

    call = bound(core, add, x, x)
    wrong: list[int] = []

    def work(start: int) -> None:
        for value in range(start, start + 200):
            out = np.zeros(1, np.int64)
            call(np.array([value]), out)
            if out[0] != value + 1:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
