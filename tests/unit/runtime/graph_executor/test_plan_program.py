"""Compiled models under the graph executor give the numbers of their sessions."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tilewright
from fakes import small_models
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ArchiveError, InputError
from tilewright.formats.parameters import write_tvm_params
from tilewright.runtime.graph_executor import (
    GraphModule,
    create,
    create_executor_module,
)
from tilewright.runtime.packed.module import Module
from tilewright.runtime.plan_executor import PlanExecutor


def executor_of(model: tilewright.Model) -> PlanExecutor:
    executor = model.session.executor
    assert isinstance(executor, PlanExecutor)
    return executor


@pytest.fixture(scope="module")
def mlp() -> tilewright.Model:
    return tilewright.compile(small_models.mlp(), threads=1)


def x_of(batch: int = 5) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((batch, 20), np.float32)


def without_plan(graph_json: str) -> dict[str, Any]:
    """What TVM reads of it."""
    members: dict[str, Any] = json.loads(graph_json)
    del members["metadata"]
    return members


def test_kernels_are_called_by_name_without_the_plan(mlp: tilewright.Model) -> None:
    graph_json, lib, params = mlp.build()
    net = GraphModule(create(json.dumps(without_plan(graph_json)), lib, threads=2))
    net.set_input(**params)
    net.run(x=x_of())
    assert np.array_equal(net.get_output(0), mlp(x_of()))
    net.run(x=-x_of())
    assert np.array_equal(net.get_output(0), mlp(-x_of()))


def test_kernels_of_a_graph_check_their_tensors(mlp: tilewright.Model) -> None:
    graph_json, lib, _ = mlp.build()
    members = without_plan(graph_json)
    members["attrs"]["shape"][1][0] = [5, 21]
    net = GraphModule(create(json.dumps(members), lib))
    with pytest.raises(ArchiveError, match=r"node \d+ .*tensor 0 is f32\[5, 21\]"):
        net.run()


def test_a_graph_with_its_plan_runs_as_the_plan(mlp: tilewright.Model) -> None:
    graph_json, lib, params = mlp.build()
    net = GraphModule(create(graph_json, lib))
    net.load_params(params_file(params))
    assert list(net.get_input_info()[0]) == ["x"]
    net.run(x=x_of())
    assert np.array_equal(net.get_output(0), mlp(x_of()))
    net.run(**{name: 2 * array for name, array in params.items()})
    assert not np.array_equal(net.get_output(0), mlp(x_of()))


def params_file(params: Mapping[str, np.ndarray]) -> bytes:
    file = io.BytesIO()
    write_tvm_params(file, params)
    return file.getvalue()


def test_a_graph_of_dynamic_sizes_runs_as_its_plan() -> None:
    model = tilewright.compile(small_models.mlp("batch"))
    graph_json, lib, params = model.build()
    net = GraphModule(create(graph_json, lib, tilewright.cpu(0)))
    net.load_params(params_file(params))
    for batch in (3, 1, 8):
        net.run(x=x_of(batch))
        assert np.array_equal(net.get_output(0), model(x_of(batch)))


def test_the_executor_of_a_factory_is_the_path_of_tvm(mlp: tilewright.Model) -> None:
    lib = mlp.build()
    net = tilewright.graph_executor.GraphModule(lib["default"](tilewright.cpu(0)))
    net.set_input("x", x_of())
    net.run()
    y = net.get_output(0)
    assert np.array_equal(y, mlp(x_of()))
    assert np.array_equal(np.from_dlpack(y), mlp(x_of()))
    debug = tilewright.debug_executor.GraphModuleDebug(
        lib["debug_create"]("default", tilewright.cpu(0)), tilewright.cpu(0), lib.graph_json
    )
    assert np.array_equal(debug.run(number=1, x=x_of()).tensors[-1][0], mlp(x_of()))


def test_the_executor_of_a_loaded_model_has_the_words(mlp: tilewright.Model) -> None:
    net = GraphModule(create_executor_module(executor_of(mlp)))
    assert net.get_input_info() == ({"x": (5, 20)}, {"x": "float32"})
    assert net.get_output_info() == ({"y": (5, 7)}, {"y": "float32"})
    assert np.array_equal(net.get_output(0), np.zeros((5, 7), np.float32))
    net.set_input("x", x_of())
    net.run()
    assert np.array_equal(net.get_output(0), mlp(x_of()))
    out = np.zeros((5, 7), np.float32)
    net.set_output_zero_copy(0, out)
    given = x_of().copy()
    net.set_input_zero_copy(0, given)
    net.run()
    given *= -1
    net.run()
    assert np.array_equal(out, mlp(-x_of()))
    assert net.get_output(0).ctypes.data == out.ctypes.data


def test_dynamic_sizes_are_those_of_the_inputs() -> None:
    model = tilewright.compile(small_models.scale_and_shift())
    net = GraphModule(create_executor_module(executor_of(model)))
    assert str(net.get_input_info()[0]["x"][0]) == "batch"
    with pytest.raises(InputError, match=r"input 'x': .* is not set"):
        net.run()
    with pytest.raises(
        InputError, match=r"output 'y': .* has no value before the first run"
    ):
        net.get_output(0)
    scale = np.float32([1, -2, 3])
    for batch in (4, 1, 0, 9):
        x = np.random.default_rng(batch).standard_normal((batch, 3), np.float32)
        net.run(x=x, scale=scale)
        y, z = small_models.scale_and_shift_reference(x, scale)
        assert np.allclose(net.get_output(0), y)
        assert np.array_equal(net.get_output(1), z)
    with pytest.raises(InputError, match="input 'x': got f32"):
        net.set_input("x", scale)
    net.set_output_zero_copy(0, np.zeros((2, 3), np.float32))
    with pytest.raises(InputError, match="output 'y': got f32"):
        net.run()


def test_ops_on_the_host_run() -> None:
    with pytest.warns(TilewrightWarning, match="no kernel"):
        model = tilewright.compile(small_models.with_host_op())
    net = GraphModule(create_executor_module(executor_of(model)))
    x = np.array([[1, 2, 2, 7, -1], [3, 3, 0, 1, 1]], np.float32)
    net.run(x=x)
    assert np.array_equal(net.get_output(0), model(x))


def test_a_plan_without_its_kernels_is_refused(mlp: tilewright.Model) -> None:
    with pytest.raises(ArchiveError, match="no module has the kernels of the graph"):
        create(mlp.build().graph_json, Module())
