"""Arrays become tensors and come back, of every type, with their memory where it can be shared."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm_ffi
from onnx import TensorProto, helper

import tilewright as tw
from fakes import small_models
from fakes.borrowed_tensors import call_with_borrowed
from tilewright.base.errors import InputError
from tilewright.runtime import load_module
from tilewright.runtime.native import tensor_capsule
from tilewright.runtime.packed.functions import packed_function
from tilewright.runtime.packed.tensors import array_of, tensor_from, tensor_of

INT, UINT, FLOAT4 = 0, 1, 17  # codes of DLPack
TYPES = (np.float32, np.int64, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
def test_an_array_comes_back_as_it_was(dtype: type, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    tensor = tensor_of(array)
    assert tuple(tensor.shape) == shape
    again = array_of(tensor)
    assert again.dtype == array.dtype
    assert np.array_equal(again, array)


def test_a_tensor_shares_and_keeps_the_memory() -> None:
    array = np.zeros(4, ml_dtypes.bfloat16)
    tensor = tensor_of(array)
    array[1] = 2
    assert array_of(tensor)[1] == 2
    del array
    gc.collect()
    assert array_of(tensor)[1] == 2


class ForeignTensor:
    """Memory of any type as DLPack has it, to be taken once."""

    def __init__(self, code: int, bits: int, shape: tuple[int, ...]) -> None:
        memory = np.zeros(64, np.uint8)
        self._capsule = tensor_capsule(memory, memory.ctypes.data, shape, code, bits, 1)

    def __dlpack__(self, **options: object) -> object:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("code", [INT, UINT, FLOAT4], ids=["int4", "uint4", "float4"])
def test_a_tensor_whose_elements_share_bytes_is_refused(code: int) -> None:
    """Read as a byte each they would reach far behind its memory."""
    tensor = tvm_ffi.from_dlpack(ForeignTensor(code, 4, (64,)))
    with pytest.raises(
        InputError, match="have a byte each, those of DLPack are packed"
    ) as caught:
        array_of(tensor)
    assert caught.value.hint == "cast it to i8 or u8 in the model"


@pytest.mark.parametrize(("code", "shape"), [(99, (4,)), (2, (1 << 40, 1 << 40))])
def test_a_tensor_that_no_array_stands_for_is_refused(
    code: int, shape: tuple[int, ...]
) -> None:
    """A type that DLPack does not have, and a size that no memory has."""
    with pytest.raises(InputError, match="got a "):
        array_of(tensor_from(ForeignTensor(code, 32, shape)))


def test_memory_that_was_taken_before_is_refused_by_who_offers_it() -> None:
    tensor = ForeignTensor(2, 32, (4,))
    assert tensor_from(tensor).shape == (4,)
    machine = tw.VirtualMachine(tw.compile(small_models.mlp(), jobs=1).build(), tw.cpu(0))
    for use in (tensor_from, lambda x: machine.set_input("main", x)):
        with pytest.raises(InputError, match="got ForeignTensor that gives no tensor"):
            use(tensor)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_an_array_that_is_read_only_is_refused(dtype: type) -> None:
    """As one of a file that is mapped is: a function may write to what it gets."""
    array = np.zeros(4, dtype)
    array.flags.writeable = False
    with pytest.raises(InputError, match="an array that is read-only") as caught:
        tensor_of(array)
    assert caught.value.hint == "pass a copy: array.copy()"


def test_an_array_of_a_type_that_numpy_does_not_exchange_is_refused_with_strides() -> None:
    with pytest.raises(InputError, match="bfloat16 with strides") as caught:
        tensor_of(np.zeros((4, 6), ml_dtypes.bfloat16)[:, ::2])
    assert caught.value.hint == "pass numpy.ascontiguousarray(array)"


def test_elements_below_a_mask_are_no_tensor() -> None:
    array = np.ma.masked_equal(np.arange(4, dtype=np.float32), 2)
    with pytest.raises(InputError, match="elements below its mask"):
        tensor_of(array)
    assert array_of(tensor_of(array.filled(7))).tolist() == [0, 1, 7, 3]


def test_modules_take_and_give_tensors_that_numpy_cannot_exchange(tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [2, 3]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g", info[:1], info[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    tw.compile(model, jobs=1).save(tmp_path / "net.vmfb")
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    module = load_module(tmp_path / "net.vmfb")
    np.testing.assert_array_equal(array_of(module["main"](tensor_of(x))), np.negative(x))
    machine = tw.VirtualMachine(module, tw.cpu(0))
    np.testing.assert_array_equal(array_of(machine["main"](tensor_of(x))), np.negative(x))
    machine.set_input("main", x)
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(array_of(machine.get_outputs("main")), np.negative(x))


@pytest.mark.parametrize("dtype", TYPES)
def test_a_tensor_that_is_borrowed_for_a_call_is_read_in_it(dtype: type) -> None:
    seen: list[np.ndarray] = []
    read = packed_function(lambda tensor: seen.append(array_of(tensor).copy()))
    array = np.ones((2, 3), dtype)
    call_with_borrowed(read, tensor_of(array))
    assert np.array_equal(seen[0], array)


def test_executors_and_kernels_take_tensors_that_are_borrowed() -> None:
    """TVM's callers in C++ pass them to all of these."""
    factory = tw.compile(small_models.mlp(), threads=1).build()
    module = tw.graph_executor.GraphModule(factory["default"](tw.cpu(0)))
    x = np.linspace(-1, 1, 100, dtype=np.float32).reshape(5, 20)
    module.run(x=x)
    expected = module.get_output(0).numpy()
    out = np.zeros_like(expected)
    lent, target = tensor_of(x.copy()), tensor_of(out)
    for name in ("set_input", "set_input_zero_copy", "run_from_inputs"):
        call_with_borrowed(module[name], "x", lent)
        module.run()
        call_with_borrowed(module["get_output"], 0, target)
        assert np.array_equal(out, expected), name
    call_with_borrowed(module["set_output_zero_copy"], 0, target)
    out[...] = 0
    module.run()
    assert np.array_equal(out, expected)
    rows, shares = (
        tensor_of(np.zeros((5, 7), np.float32)),
        tensor_of(np.zeros((5, 7), np.float32)),
    )
    call_with_borrowed(factory.lib["softmax"], rows, shares)
    assert array_of(shares).sum() == pytest.approx(5)


@pytest.mark.parametrize("value", [[1.0, 2.0], 3, None, "x"])
def test_what_is_no_array_and_what_is_no_tensor_is_said(value: Any) -> None:
    with pytest.raises(InputError, match=f"got {type(value).__name__}, expected an array"):
        tensor_of(value)
    with pytest.raises(InputError, match=f"got {type(value).__name__}, expected a tensor"):
        array_of(value)
