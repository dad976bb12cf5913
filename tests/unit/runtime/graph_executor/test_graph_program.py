"""Graphs written by hand run with functions of numpy: storages, views, copies, errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from fakes.graphs_of_tvm import GraphMaker
from tilewright.base.errors import ArchiveError, DeviceError, InputError, UserError
from tilewright.formats.graph_json import read_graph
from tilewright.runtime import native
from tilewright.runtime.graph_executor import GraphModule, create, executor_module
from tilewright.runtime.graph_executor.graph_program import GraphProgram
from tilewright.runtime.packed.devices import cpu
from tilewright.runtime.packed.function_table import FunctionTable


def numpy_function(compute: Callable[..., Any]) -> Callable[..., None]:
    """A packed function that writes `compute` of its operands into its last tensor."""

    def call(*tensors: Any) -> None:
        arrays = [np.from_dlpack(tensor) for tensor in tensors]
        np.copyto(arrays[-1], compute(*arrays[:-1]))

    return call


FUNCTIONS: Mapping[str, Callable[..., None]] = {
    "add": numpy_function(np.add),
    "multiply": numpy_function(np.multiply),
    "relu": numpy_function(lambda x: np.maximum(x, 0)),
    "matmul": numpy_function(np.matmul),
}


def net(
    data: bytes, functions: Mapping[str, Callable[..., Any]] = FUNCTIONS
) -> GraphModule:
    return GraphModule(create(data, FunctionTable(functions), threads=1))


def chain() -> bytes:
    """y = (x + w) * w, then relu into the storage of the sum."""
    made = GraphMaker()
    x, w = made.input("x", [2, 3]), made.input("p0", [2, 3])
    (total,) = made.call("add", [x, w], [[2, 3]])
    (product,) = made.call("multiply", [total, w], [[2, 3]])
    (out,) = made.call("relu", [product], [[2, 3]], storages=[2])
    return made.file([out])


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 4
W = np.float32([[1, 2, 3], [-1, -2, -3]])


def test_functions_of_python_run_in_order() -> None:
    module = net(chain())
    module.set_input("x", X)
    module.set_input(p0=W)
    module.run()
    assert np.array_equal(module.get_output(0), np.maximum((X + W) * W, 0))
    module.run(x=-X)
    assert np.array_equal(module.get_output(0), np.maximum((W - X) * W, 0))


def test_what_was_never_set_is_zero() -> None:
    module = net(chain())
    module.run()
    assert np.array_equal(module.get_output(0), np.zeros((2, 3), np.float32))


def test_a_view_is_the_same_memory_with_another_shape() -> None:
    made = GraphMaker()
    x = made.input("x", [2, 3])
    (total,) = made.call("add", [made.view(x, [6]), made.view(x, [6])], [[6]])
    module = net(made.file([made.view(total, [3, 2])]))
    module.run(x=X)
    assert np.array_equal(module.get_output(0), (X + X).reshape(3, 2))
    aligned = module.get_input("x").copy()
    module.set_input_zero_copy("x", on_64_bytes(aligned + 1))
    module.run()
    assert np.array_equal(module.get_output(0), (X + X + 2).reshape(3, 2))


def on_64_bytes(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def test_flattened_data_reach_the_function_with_one_axis() -> None:
    seen: list[tuple[int, ...]] = []

    def look(x: Any, y: Any) -> None:
        seen.extend((tuple(x.shape), tuple(y.shape)))

    made = GraphMaker()
    x = made.input("x", [2, 3])
    (y,) = made.call("look", [x], [[3, 2]], flatten_data="1")
    (z,) = made.call("look", [y], [[6, 1]])
    net(made.file([z]), {"look": look}).run()
    assert seen == [(6,), (6,), (3, 2), (6, 1)]


def test_a_copy_is_a_copy() -> None:
    made = GraphMaker()
    x = made.input("x", [2, 3])
    (y,) = made.call("__copy", [x], [[2, 3]])
    module = net(made.file([y]))
    module.run(x=X)
    module.set_input("x", X + 1)
    assert np.array_equal(module.get_output(0), X)


def test_an_input_may_be_an_output() -> None:
    made = GraphMaker()
    x = made.input("x", [2, 3])
    module = net(made.file([x, x]))
    module.run(x=X)
    assert np.array_equal(module.get_output(1), X)
    assert module.get_num_outputs() == 2


@pytest.mark.parametrize("shape", [[], [0], [3, 0, 2], [1], [7, 13]])
@pytest.mark.parametrize(
    "dtype", ["float32", "int8", "bool", "bfloat16", "float64", "uint1"]
)
def test_odd_shapes_and_types_pass(shape: list[int], dtype: str) -> None:
    made = GraphMaker()
    x = made.input("x", shape, dtype)
    (y,) = made.call("__copy", [x], [shape], dtype)
    (z,) = made.call("second", [x, y], [shape], dtype)
    types: set[str] = set()

    def second(a: Any, b: Any, out: Any) -> None:
        types.update(str(t.dtype) for t in (a, b, out))

    module = net(made.file([y, z]), {"second": second})
    given = np.ones(shape, module.get_input("x").dtype)
    module.run(x=given)
    assert np.array_equal(module.get_output(0), given)
    assert types == {"bool" if dtype == "uint1" else dtype}


def test_a_function_of_several_outputs_writes_each() -> None:
    def split(x: Any, left: Any, right: Any) -> None:
        whole = np.from_dlpack(x)
        np.from_dlpack(left)[...] = whole[:, :1]
        np.from_dlpack(right)[...] = whole[:, 1:]

    made = GraphMaker()
    x = made.input("x", [2, 3])
    left, right = made.call("split", [x], [[2, 1], [2, 2]])
    module = net(made.file([right, left]), {"split": split})
    module.run(x=X)
    assert np.array_equal(module.get_output(0), X[:, 1:])
    assert np.array_equal(module.get_output(1), X[:, :1])


def test_small_tensors_share_the_storage_of_large_ones() -> None:
    made = GraphMaker()
    x = made.input("x", [4])
    (big,) = made.call("add", [x, x], [[4]])
    (row,) = made.call("multiply", [big, x], [[4]])
    (again,) = made.call("relu", [row], [[4]], storages=[1])
    (out,) = made.call("add", [again, x], [[4]])
    module = net(made.file([out]))
    value = np.float32([1, -2, 3, -4])
    module.run(x=value)
    assert np.array_equal(module.get_output(0), np.maximum(2 * value * value, 0) + value)


# --- errors -------------------------------------------------------------------------------------


def test_an_unknown_function_names_the_node_and_what_there_is() -> None:
    made = GraphMaker()
    x = made.input("x", [2])
    (y,) = made.call("ad", [x, x], [[2]], name="fused")
    with pytest.raises(ArchiveError) as caught:
        net(made.file([y]))
    assert "graph: node 1 'fused': no function 'ad'" in str(caught.value)
    assert "did you mean 'add'" in str(caught.value)
    assert "the module has add, matmul, multiply, relu" in str(caught.value)


def test_what_a_function_raises_comes_out_with_the_node() -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError("no")

    made = GraphMaker()
    x = made.input("x", [2])
    (y,) = made.call("fails", [x], [[2]], name="fused")
    module = net(made.file([y]), {"fails": fails})
    with pytest.raises(ZeroDivisionError) as caught:
        module.run()
    assert any("node 1 'fused'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("y", X, "there is no input 'y'"),
        (7, X, "there is no input 7, there are 2"),
        (-1, X, "there is no input -1"),
        ("x", X[0], "input 'x': got f32[3], expected f32[2, 3]"),
        ("x", X.astype(np.float64), "input 'x': got f64[2, 3], expected f32[2, 3]"),
        (1, X.T, "input 'p0': got f32[3, 2]"),
        ("x", "text", "'x': got str, expected an array"),
        (1.5, X, "got float, expected the name or number"),
        (True, X, "got bool, expected the name or number"),
    ],
)
def test_a_tensor_that_does_not_fit_is_refused(name: Any, value: Any, message: str) -> None:
    module = net(chain())
    for setter in (module.set_input, module.set_input_zero_copy):
        with pytest.raises(InputError) as caught:
            setter(name, value)
        assert message in str(caught.value)


def test_data_types_that_tensors_lack_are_refused() -> None:
    made = GraphMaker()
    x = made.input("x", [2], "float32x4")
    with pytest.raises(ArchiveError, match="node 'x': unknown data type 'float32x4'"):
        net(made.file([x]))


def test_shapes_that_a_call_decides_are_refused() -> None:
    made = GraphMaker()
    x = made.input("x", [-1, 4])
    with pytest.raises(ArchiveError, match="is known in a call only"):
        net(made.file([x]))


def test_tensors_of_other_devices_are_refused() -> None:
    made = GraphMaker()
    x = made.input("x", [4])
    with pytest.raises(UserError, match=r"'device_index': places tensors on device type 2"):
        net(made.file([x], device_index=["list_int", [2]]))


def test_what_is_no_graph_is_an_error() -> None:
    with pytest.raises(UserError, match="graph_json is None, expected the text of a graph"):
        create(None, FunctionTable(FUNCTIONS))  # type: ignore[arg-type]


def test_there_is_one_host() -> None:
    with pytest.raises(UserError, match="there is one host, not 'cpu:5'"):
        create(chain(), FunctionTable(FUNCTIONS), [cpu(5)])


def test_storages_that_no_memory_holds_are_refused() -> None:
    made = GraphMaker()
    x = made.input("x", [1 << 50])
    (y,) = made.call("add", [x, x], [[1 << 50]])
    module = net(made.file([y]))
    with pytest.raises(DeviceError):
        module.run()


@pytest.mark.parametrize("shape", [[(1 << 62) - 1], [1 << 60], [0, 1 << 60], [1 << 59]])
def test_tensors_of_more_bytes_than_there_can_be_are_refused(shape: list[int]) -> None:
    made = GraphMaker()
    places = [made.input(name, shape, "float64") for name in "xy"]
    with pytest.raises(ArchiveError, match=r"node '[xy]': f64\[.*is too large"):
        net(made.file(places))


def test_a_heap_with_a_cap_holds_the_storages() -> None:
    program = GraphProgram(
        read_graph(chain()), FunctionTable(FUNCTIONS), None, native.Heap(64)
    )
    with pytest.raises(DeviceError, match="64"):
        GraphModule(executor_module(program)).run()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("count", [3, 2500])
def test_long_chains_run_whether_their_storages_are_packed_or_not(count: int) -> None:
    made = GraphMaker()
    value = made.input("x", [2, 3])
    for index in range(count):
        (value,) = made.call("add", [value, [0, 0, 0]], [[2, 3]], storages=[index + 1])
    module = net(made.file([value]))
    module.run(x=X)
    assert np.allclose(module.get_output(0), (count + 1) * X)
