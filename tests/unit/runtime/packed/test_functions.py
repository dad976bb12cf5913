"""Packed functions: every kind of argument and result, errors, threads, and the registry."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import traceback
import weakref
from collections.abc import Callable
from typing import cast

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import InputError, InternalError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import (
    function_at,
    get_global_func,
    list_global_func_names,
    packed_function,
    register_global_func,
    remove_global_func,
)

echo = packed_function(lambda x: x)


@pytest.fixture
def name():
    yield "tilewright.test.function"
    if get_global_func("tilewright.test.function", allow_missing=True):
        remove_global_func("tilewright.test.function")


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -1, 2**62, -(2**63), 1.5, float("inf"), "", "x", "ä" * 99, b"", b"ab"],
    ids=repr,
)  # fmt: skip
def test_plain_values_come_back_as_they_were(value: object) -> None:
    result = echo(value)
    assert result == value
    assert type(value).__name__ in {base.__name__ for base in type(result).__mro__}


@pytest.mark.parametrize("value", [2**63, 2**64, -(2**70)])
def test_a_number_of_any_size_comes_back(value: int) -> None:
    assert echo(value) == value


def test_types_devices_and_shapes_come_back() -> None:
    assert echo(tvm_ffi.dtype("bfloat16")) == "bfloat16"
    assert echo(np.dtype("float32")) == "float32"
    assert echo(tw.cpu(0)) == tw.cpu(0)
    assert tuple(echo(tvm_ffi.Shape((2, 3)))) == (2, 3)


def test_arrays_and_maps_come_back_nested() -> None:
    result = echo([1, [2.5, "x"], {"k": (None, True)}])
    assert result[0] == 1
    assert list(result[1]) == [2.5, "x"]
    assert list(result[2]["k"]) == [None, True]


def test_functions_are_arguments_and_results() -> None:
    twice = packed_function(lambda f: packed_function(lambda x: f(f(x))))
    assert twice(lambda x: x + 3)(1) == 7


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "u1", "i4", "i8", "?"])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
def test_numpy_arrays_go_and_come_without_a_copy(
    dtype: str, shape: tuple[int, ...]
) -> None:
    array = np.ones(shape, dtype)
    back = np.from_dlpack(echo(array))
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    assert not array.size or np.shares_memory(back, array)


def test_a_callee_writes_into_the_arrays_of_the_caller() -> None:
    def add(a: tvm_ffi.Tensor, b: tvm_ffi.Tensor, out: tvm_ffi.Tensor) -> None:
        np.add(np.from_dlpack(a), np.from_dlpack(b), out=np.from_dlpack(out))

    a, out = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
    packed_function(add)(a, a, out)
    np.testing.assert_array_equal(out, 2 * a)


def test_an_array_with_strides_keeps_them() -> None:
    array = np.arange(24.0).reshape(4, 6)[::2, 1::3]
    np.testing.assert_array_equal(np.from_dlpack(echo(array)), array)


def test_a_read_only_array_is_refused() -> None:
    array = np.ones(3)
    array.flags.writeable = False
    with pytest.raises(BufferError):
        echo(array)


def test_narrow_types_of_numpy_are_refused_by_name() -> None:
    with pytest.raises(BufferError):
        echo(np.ones(3, ml_dtypes.bfloat16))


@pytest.mark.needs_torch
def test_torch_tensors_go_and_come_without_a_copy() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.ones((2, 3), dtype=dtype)
        back = torch.from_dlpack(echo(tensor))
        assert back.data_ptr() == tensor.data_ptr()
        assert torch.equal(back, tensor)


@pytest.mark.parametrize(
    "raised",
    [ValueError("v"), TypeError("t"), ZeroDivisionError("z"), NotImplementedError("n"),
     FileNotFoundError("f"), OverflowError("o"), InputError("what", location="where"),
     MemoryError("m"), KeyboardInterrupt("k"), AttributeError("a"), RecursionError("r")],
    ids=lambda e: type(e).__name__,
)  # fmt: skip
def test_an_error_crosses_with_kind_message_and_traceback(raised: BaseException) -> None:
    def innermost_place() -> None:
        raise raised

    passed_on = packed_function(lambda f: f())
    with pytest.raises(type(raised), match=str(raised)) as caught:
        passed_on(innermost_place)
    assert type(caught.value) is type(raised)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert "innermost_place" in frames


def test_internal_errors_of_others_are_no_bugs_of_ours() -> None:
    theirs = tvm_ffi.core.Error("InternalError", "a check failed in C++", "")
    assert type(theirs.py_error()) is RuntimeError

    def fail() -> None:
        raise InternalError("ours")

    with pytest.raises(InternalError, match="ours"):
        packed_function(fail)()


def test_an_error_of_a_class_nobody_knows_arrives_with_its_message() -> None:
    class OddError(Exception):
        pass

    def fail() -> None:
        raise OddError("odd")

    with pytest.raises(RuntimeError, match="odd"):
        packed_function(fail)()


def test_memory_that_numpy_does_not_get_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="Unable to allocate"):
        packed_function(lambda: np.empty(1 << 62, np.uint8))()


def test_a_registered_function_is_found_by_everybody(name: str) -> None:
    register_global_func(name, lambda x: x + 1)
    assert get_global_func(name)(1) == 2
    assert tvm_ffi.get_global_func(name)(1) == 2
    assert tw.get_global_func(name)(1) == 2
    assert name in list_global_func_names()
    remove_global_func(name)
    assert get_global_func(name, allow_missing=True) is None


def test_registering_can_be_a_decorator(name: str) -> None:
    @tw.register_global_func(name)
    def double(x: int) -> int:
        return 2 * x

    assert double(4) == 8
    assert get_global_func(name)(4) == 8


def test_a_name_has_one_owner_unless_it_is_replaced(name: str) -> None:
    register_global_func(name, lambda: 1)
    with pytest.raises(InputError, match="is there already"):
        register_global_func(name, lambda: 2)
    register_global_func(name, lambda: 2, override=True)
    assert get_global_func(name)() == 2


def test_an_unknown_name_is_refused_with_what_is_close(name: str) -> None:
    register_global_func(name, lambda: 1)
    with pytest.raises(InputError, match=r"did you mean 'tilewright[.]test[.]function'"):
        get_global_func("tilewright.test.functoin")
    with pytest.raises(InputError, match="no global function 'zzz'"):
        remove_global_func("zzz")


def test_what_cannot_be_called_is_no_function() -> None:
    with pytest.raises(InputError, match="'int', expected a callable"):
        packed_function(cast("Callable[[], None]", 3))
    assert packed_function(echo) is echo
    with pytest.raises(InputError, match="no function at address 0"):
        function_at(0)


def test_a_device_that_nobody_has_is_refused() -> None:
    assert tw.device("cuda:1").index == 1
    assert tw.device("cpu", 2).index == 2
    with pytest.raises(InputError, match="no device 'warp'"):
        tw.device("warp")


def test_threads_call_one_function_at_once() -> None:
    add = packed_function(lambda a, b: a + b)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda i: sum(add(i, k) for k in range(200)), range(32)))
    assert results == [200 * i + 19900 for i in range(32)]


def test_neither_calls_nor_errors_keep_anything_alive() -> None:
    class Held:
        pass

    def fail(_: object) -> None:
        raise ValueError("no")

    held = Held()
    end = weakref.ref(held)
    for call in (lambda x: x, lambda x: [x], fail):
        with contextlib.suppress(ValueError):
            packed_function(call)(held)
    del held
    gc.collect()
    assert end() is None
