"""Compiled models under the graph executor give the numbers of their sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest

import tilewright
from fakes import small_models
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ArchiveError, InputError
from tilewright.formats.graph_json import read_graph
from tilewright.formats.plan import to_json
from tilewright.runtime.graph_executor import (
    GraphModule,
    create,
    create_executor_module,
)
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.packed.kernel_function import KernelFunction
from tilewright.runtime.packed.module import Module
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.kernels import kernel_functions


class Kernels(Module):
    """The kernels of a plan: as an executable, and one by one."""

    kind = "kernels"

    def __init__(self, executor: PlanExecutor) -> None:
        super().__init__()
        assert executor.executable is not None
        self.executable: LoadedExecutable = executor.executable
        self.kernels: Mapping[str, KernelFunction] = kernel_functions(
            executor.plan, self.executable
        )

    def load_executable(self) -> LoadedExecutable:
        return self.executable

    def find_kernel(self, name: str) -> KernelFunction | None:
        return self.kernels.get(name)


def executor_of(model: tilewright.Model) -> PlanExecutor:
    executor = model.session.executor
    assert isinstance(executor, PlanExecutor)
    return executor


def set_weights(net: GraphModule, executor: PlanExecutor) -> None:
    """The constants by the names that the graph gives them."""
    graph = read_graph(to_json(executor.plan))
    names = graph.input_names[len(executor.plan.inputs) :]
    for name, data in zip(names, executor.constants, strict=True):
        target = net.get_input(name)
        net.set_input(name, np.frombuffer(data, target.dtype).reshape(target.shape))


@pytest.fixture(scope="module")
def mlp() -> tilewright.Model:
    return tilewright.compile(small_models.mlp(), threads=1)


def x_of(batch: int = 5) -> np.ndarray:
    return np.random.default_rng(3).standard_normal((batch, 20), np.float32)


def test_kernels_are_called_by_name_without_the_plan(mlp: tilewright.Model) -> None:
    executor = executor_of(mlp)
    members = json.loads(to_json(executor.plan))
    del members["metadata"]
    net = GraphModule(create(json.dumps(members), Kernels(executor), threads=2))
    set_weights(net, executor)
    net.run(x=x_of())
    assert np.array_equal(net.get_output(0), mlp(x_of()))
    net.run(x=-x_of())
    assert np.array_equal(net.get_output(0), mlp(-x_of()))


def test_kernels_of_a_graph_check_their_tensors(mlp: tilewright.Model) -> None:
    executor = executor_of(mlp)
    members = json.loads(to_json(executor.plan))
    del members["metadata"]
    members["attrs"]["shape"][1][0] = [5, 21]
    net = GraphModule(create(json.dumps(members), Kernels(executor)))
    with pytest.raises(ArchiveError, match=r"node \d+ .*tensor 0 is f32\[5, 21\]"):
        net.run()


def test_a_graph_with_its_plan_runs_as_the_plan(mlp: tilewright.Model) -> None:
    executor = executor_of(mlp)
    net = GraphModule(create(to_json(executor.plan), Kernels(executor)))
    set_weights(net, executor)
    net.run(x=x_of())
    assert np.array_equal(net.get_output(0), mlp(x_of()))
    twice = {
        name: 2 * net.get_input(name) for name in net.get_input_info()[0] if name != "x"
    }
    net.run(**twice)
    assert not np.array_equal(net.get_output(0), mlp(x_of()))


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
    x = np.random.default_rng(1).standard_normal((2, 5, 5), np.float32)
    net.run(x=x)
    assert np.array_equal(net.get_output(0), model(x))


def test_a_plan_without_its_kernels_is_refused(mlp: tilewright.Model) -> None:
    plan = executor_of(mlp).plan
    net = GraphModule(create(to_json(plan), Module()))
    with pytest.raises(ArchiveError, match="executable has no kernel"):
        net.run(x=x_of())
