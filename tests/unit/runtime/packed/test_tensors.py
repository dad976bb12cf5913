"""Arrays become tensors and come back, of every type, with their memory where it can be shared."""

from __future__ import annotations

import gc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tilewright.runtime import load_module
from tilewright.runtime.packed.tensors import array_of, tensor_of

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


def test_an_array_that_is_read_only_is_refused() -> None:
    array = np.zeros(4, ml_dtypes.bfloat16)
    array.flags.writeable = False
    with pytest.raises((BufferError, TypeError, RuntimeError)):
        tensor_of(array)


def test_modules_take_and_give_tensors_that_numpy_cannot_exchange(tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(n, TensorProto.BFLOAT16, [2, 3]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "g", info[:1], info[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    tw.compile(model, jobs=1).save(tmp_path / "net.vmfb")
    x = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    module = load_module(tmp_path / "net.vmfb")
    np.testing.assert_array_equal(array_of(module["main"](tensor_of(x))), -x)
    machine = tw.VirtualMachine(module, tw.cpu(0))
    np.testing.assert_array_equal(array_of(machine["main"](tensor_of(x))), -x)
    machine.set_input("main", x)
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(array_of(machine.get_outputs("main")), -x)
