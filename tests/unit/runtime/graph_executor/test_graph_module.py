"""The words of TVM's graph executor: inputs and outputs, zero copy, parameters, times."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tilewright
from fakes.graphs_of_tvm import GraphMaker
from tilewright.base.errors import ArchiveError, InputError, UserError
from tilewright.formats.parameters import write_tvm_params
from tilewright.runtime.graph_executor import GraphModule, create
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.packed.functions import packed_function
from tilewright.runtime.packed.tensors import array_of, tensor_of

W = np.float32([[1, 2, 3], [4, 5, 6]])
X = np.float32([[1, -1, 2], [-2, 3, 0]])


def add(left: Any, right: Any, out: Any) -> None:
    np.from_dlpack(out)[...] = np.from_dlpack(left) + np.from_dlpack(right)


def graph() -> bytes:
    made = GraphMaker()
    x, w = made.input("x", [2, 3]), made.input("p0", [2, 3])
    (once,) = made.call("add", [x, w], [[2, 3]])
    (twice,) = made.call("add", [once, w], [[2, 3]], name="twice")
    return made.file([twice])


def net() -> GraphModule:
    return GraphModule(create(graph(), FunctionTable({"add": add}), tilewright.cpu(0)))


def params(**arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    write_tvm_params(file, arrays)
    return file.getvalue()


def aligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def test_inputs_and_outputs_are_counted_named_and_described() -> None:
    module = net()
    assert (module.get_num_inputs(), module.get_num_outputs()) == (2, 1)
    assert [module.get_input_index(name) for name in ("x", "p0", "q")] == [0, 1, -1]
    assert module.get_input_info() == (
        {"x": (2, 3), "p0": (2, 3)},
        {"x": "float32", "p0": "float32"},
    )
    assert module.get_output_info() == ({"twice": (2, 3)}, {"twice": "float32"})
    module.load_params(params(p0=W))
    assert module.get_input_info() == ({"x": (2, 3)}, {"x": "float32"})


def test_outputs_are_views_and_copies() -> None:
    module = net()
    module.load_params(params(p0=W))
    module.run(x=X)
    view, copy = module.get_output(0), module.get_output(0).numpy()
    out = np.zeros((2, 3), np.float32)
    assert module.get_output(0, out) is out
    assert type(copy) is np.ndarray
    module.run(x=X + 1)
    assert np.array_equal(view, X + 1 + 2 * W)
    assert np.array_equal(copy, X + 2 * W)
    assert np.array_equal(out, X + 2 * W)
    assert np.array_equal(np.from_dlpack(view), view)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros((3, 2), np.float32), "got float32[3, 2]"),
        (np.zeros((2, 3), np.int32), "got int32[2, 3]"),
        (np.broadcast_to(np.float32(0), (2, 3)), "read-only"),
    ],
)
def test_an_output_goes_only_where_it_fits(out: np.ndarray, message: str) -> None:
    with pytest.raises(InputError) as caught:
        net().get_output(0, out)
    assert "output 'twice'" in str(caught.value)
    assert message in str(caught.value)


def test_runs_read_and_write_the_memory_of_the_caller() -> None:
    module = net()
    module.set_input("p0", W)
    x, y = aligned(X), aligned(np.zeros_like(X))
    module.set_input_zero_copy("x", x)
    module.set_output_zero_copy(0, y)
    module.run()
    assert np.array_equal(y, X + 2 * W)
    x += 1
    module.run()
    assert np.array_equal(y, X + 1 + 2 * W)
    assert module.get_output(0).ctypes.data == y.ctypes.data
    module.set_input("x", X - 1)
    module.run()
    assert np.array_equal(y, X - 1 + 2 * W)
    assert np.array_equal(x, X + 1)  # what the caller lent is not written


def test_memory_that_does_not_do_is_refused() -> None:
    module = net()
    odd = np.zeros(7 * 4 + 64, np.uint8)
    start = (-odd.ctypes.data % 64) + 4
    for value, message in (
        (X.T.copy().T, "not dense"),
        (odd[start : start + 24].view(np.float32).reshape(2, 3), "no multiple of 64"),
    ):
        with pytest.raises(InputError, match=message):
            module.set_input_zero_copy("x", value)
    frozen = aligned(X)
    frozen.flags.writeable = False
    with pytest.raises(InputError, match="read-only"):
        module.set_output_zero_copy(0, frozen)
    with pytest.raises(InputError, match="read-only"):
        module.set_input_zero_copy("x", frozen)  # a packed function may write to it
    with pytest.raises(InputError, match="there are 0 outputs 'y'"):
        module.set_output_zero_copy("y", aligned(X))


def test_inputs_can_be_looked_at() -> None:
    module = net()
    module.set_input(0, X)
    assert np.array_equal(module.get_input("x"), X)
    out = np.zeros_like(X)
    assert module.get_input(0, out) is out
    assert np.array_equal(out, X)
    module.get_input("x").copyfrom(X + 1)
    module.run()
    assert np.array_equal(module.get_output(0), X + 1)


def test_a_run_from_inputs_gives_copies() -> None:
    module = net()
    (first,) = module.run_from_inputs("x", X, 1, W)
    (second,) = module.run_from_inputs("x", X + 1)
    assert np.array_equal(first, X + 2 * W)
    assert np.array_equal(second, X + 1 + 2 * W)
    with pytest.raises(InputError, match="got 1 arguments, expected pairs"):
        module.run_from_inputs("x")


def test_parameters_are_shared_not_copied() -> None:
    data = params(p0=W, unknown=W)
    first, second = net(), net()
    first.load_params(data)
    second.share_params(first, data)
    second.run(x=X)
    assert np.array_equal(second.get_output(0), X + 2 * W)
    assert second.get_input("p0").ctypes.data == first.get_input("p0").ctypes.data
    first.get_input("p0")[...] += 1
    second.run(x=X)
    assert np.array_equal(second.get_output(0), X + 2 * (W + 1))
    del first
    second.run(x=X)
    assert np.array_equal(second.get_output(0), X + 2 * (W + 1))


def test_parameters_that_do_not_fit_are_refused() -> None:
    module = net()
    with pytest.raises(InputError, match="input 'p0': got f32"):
        module.load_params(params(p0=W[0]))
    with pytest.raises(ArchiveError):
        module.load_params(b"nothing")
    with pytest.raises(ArchiveError):
        module.load_params(params(p0=W)[:-1])


def test_functions_of_the_executor_are_packed_functions() -> None:
    module = net()
    module["set_input"]("x", tvm_ffi.from_dlpack(X))
    module["set_input"](1, tvm_ffi.from_dlpack(W))
    module["run"]()
    assert np.array_equal(np.from_dlpack(module["get_output"](0)), X + 2 * W)
    assert module["get_num_inputs"]() == 2
    assert module["get_num_outputs"]() == 1
    assert module["get_input_index"]("p0") == 1
    module["load_params"](params(p0=2 * W))
    info = module["get_input_info"]()
    assert [tuple(info["shape"][name]) for name in info["shape"]] == [(2, 3)]
    assert info["dtype"]["x"] == "float32"
    assert list(module["get_output_info"]()["dtype"]) == ["twice"]
    out = np.zeros_like(X)
    module["get_output"](0, tvm_ffi.from_dlpack(out))
    (fresh,) = module["run_from_inputs"]("x", tvm_ffi.from_dlpack(X))
    assert np.array_equal(np.from_dlpack(fresh), X + 4 * W)
    other = net()
    other["share_params"](module.module, params(p0=W))
    other["set_input_zero_copy"]("x", tvm_ffi.from_dlpack(aligned(X)))
    other["set_output_zero_copy"](0, tvm_ffi.from_dlpack(aligned(X)))
    other["run"]()
    assert np.array_equal(other.get_output(0), X + 4 * W)
    assert np.array_equal(np.from_dlpack(other["get_input"]("p0")), 2 * W)
    assert module["run"] is module.module["run"]
    with pytest.raises(InputError, match="has no function 'runs'"):
        module["runs"]


def test_functions_come_from_imports_and_from_compiled_code_alike() -> None:
    importer = FunctionTable({})
    importer.import_module(FunctionTable({"add": packed_function(add)}))
    module = GraphModule(create(graph().decode(), importer))
    module.run(x=X, p0=W)
    assert np.array_equal(module.get_output(0), X + 2 * W)


def test_a_run_is_timed() -> None:
    module = net()
    result = module.benchmark(tilewright.cpu(0), repeat=3, number=2, x=X, p0=W)
    assert len(result.results) == 3
    assert np.array_equal(module.get_output(0), X + 2 * W)
    assert module.benchmark(end_to_end=True, repeat=1, number=1, x=X).mean > 0
    assert module.benchmark(func_name="get_num_inputs", repeat=1, number=1).mean > 0


@pytest.mark.parametrize(
    "device", [None, "local-task://?threads=2", "local-sync", [tilewright.cpu(0)]]
)
def test_an_executor_runs_on_any_device_of_the_host(device: Any) -> None:
    module = GraphModule(create(graph(), FunctionTable({"add": add}), device))
    module.run(x=X, p0=W)
    assert np.array_equal(module.get_output(0), X + 2 * W)


def test_other_devices_and_modules_are_refused() -> None:
    with pytest.raises(UserError, match="runs on the host, not on 'cuda:0'"):
        create(graph(), FunctionTable({"add": add}), tilewright.device("cuda", 0))
    with pytest.raises(UserError, match="runs on local devices"):
        create(graph(), FunctionTable({"add": add}), "null")
    with pytest.raises(InputError, match="no graph executor but 'functions'"):
        GraphModule(FunctionTable({}))
    with pytest.raises(InputError, match="'int' is no module"):
        create(graph(), 3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int8", "bool"])
def test_tensors_of_every_type_go_through_packed_functions(dtype: str) -> None:
    made = GraphMaker()
    x = made.input("x", [2, 3], dtype)
    (y,) = made.call("__copy", [x], [[2, 3]], dtype)
    module = GraphModule(create(made.file([y]), FunctionTable({})))
    value = np.array([[1, 0, 1], [0, 1, 1]]).astype(module.get_input("x").dtype)
    module["set_input"]("x", tensor_of(value))
    module["run"]()
    found = module["get_output"](0)
    assert str(found.dtype) == dtype
    assert np.array_equal(array_of(found), value)
    (fresh,) = module["run_from_inputs"](0, tensor_of(value))
    assert np.array_equal(array_of(fresh), value)
