"""Nodes are timed, run and looked at one by one, of graphs by hand and of compiled models."""

from __future__ import annotations

import gc
import json
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from fakes import small_models
from fakes.graphs_of_tvm import GraphMaker
from tilewright.base.errors import InputError, UserError
from tilewright.formats.parameters import read_parameters
from tilewright.runtime.debug_executor import GraphModuleDebug, create
from tilewright.runtime.graph_executor import (
    CallProgram,
    create_executor_module,
    executor_module,
)
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.plan_executor import PlanExecutor

X = np.float32([[1, -2, 3], [-4, 5, -6]])


def _into(compute: Any) -> Any:
    def call(*tensors: Any) -> None:
        *operands, out = (np.from_dlpack(tensor) for tensor in tensors)
        out[...] = compute(*operands)

    return call


LIBRARY = {
    "double": _into(lambda x: 2 * x),
    "relu": _into(lambda x: np.maximum(x, 0)),
    "sum": _into(lambda a, b: a + b),
}


def graph() -> bytes:
    """relu(2x) + x: the second node writes over the first's storage, the third over both."""
    made = GraphMaker()
    x = made.input("x", [2, 3])
    (double,) = made.call("double", [x], [[2, 3]], name="double")
    (relu,) = made.call("relu", [double], [[2, 3]], name="relu", storages=[1])
    flat = made.view(relu, [6])
    (out,) = made.call("sum", [flat, made.view(x, [6])], [[6]], name="out")
    return made.file([out])


def net(dump_root: Path | None = None) -> GraphModuleDebug:
    return create(graph(), FunctionTable(LIBRARY), tilewright.cpu(0), dump_root)


def expected() -> np.ndarray:
    return (np.maximum(2 * X, 0) + X).reshape(6)


def test_every_tensor_is_seen_although_storages_are_shared() -> None:
    found = net().tensors(x=X)
    assert np.array_equal(found[1, 0], 2 * X)
    assert np.array_equal(found[2, 0], np.maximum(2 * X, 0))
    assert np.array_equal(found[3, 0], np.maximum(2 * X, 0).reshape(6))
    assert np.array_equal(found[5, 0], expected())


def test_a_run_gives_times_and_tensors() -> None:
    module = net()
    result = module.run(number=2, repeat=3, min_repeat_ms=0, x=X)
    assert [len(times) for times in result.times] == [3] * 6
    assert [mean > 0 for mean in result.means] == [False, True, True, False, False, True]
    assert np.array_equal(module.get_output(0), expected())
    assert np.array_equal(
        result.output_tensors()["double____topo-index:1____output-num:0"], 2 * X
    )
    assert module.node_names == ("x", "double", "relu", "reshape_nop", "reshape_nop", "out")


def test_the_table_is_that_of_tvm() -> None:
    module = net()
    module.run(number=1, min_repeat_ms=0, x=X)
    lines = module.get_debug_result().splitlines()
    assert lines[0].split("  ")[0] == "Node Name"
    for column in (
        "Ops",
        "Time(us)",
        "Time(%)",
        "Shape",
        "Inputs",
        "Outputs",
        "Measurements(us)",
    ):
        assert column in lines[0]
    assert {line.split()[0] for line in lines[2:-1]} == {
        "double",
        "relu",
        "reshape_nop",
        "out",
    }
    assert lines[-1].startswith("Total_time")
    times = [float(line.split()[2]) for line in lines[2:-1]]
    assert times == sorted(times, reverse=True)
    unsorted = module.get_debug_result(sort_by_time=False).splitlines()
    assert [line.split()[0] for line in unsorted[2:4]] == ["double", "relu"]
    assert str(module.run(number=1, min_repeat_ms=0)).startswith("Node Name")


def test_single_nodes_are_run_timed_and_looked_at() -> None:
    module = net()
    module.set_input("x", X)
    assert np.array_equal(module.debug_get_output("double"), 2 * X)
    out = np.zeros_like(X)
    assert module.debug_get_output(2, out) is out
    assert np.array_equal(out, np.maximum(2 * X, 0))
    (tensor,) = module.execute_node("double")
    assert np.array_equal(tensor, 2 * X)
    assert np.array_equal(module.get_node_output(1), 2 * X)
    assert module.run_individual_node("relu", number=2, repeat=4).min > 0
    assert module.run_individual_node(0, repeat=2).results == (0.0, 0.0)
    times = module.run_individual(number=1, repeat=2)
    assert [len(row) for row in times] == [2] * 6
    assert np.array_equal(np.from_dlpack(module["debug_get_output"]("double")), 2 * X)
    assert len(module["run_individual_node"](1)) == 1
    assert module["get_num_inputs"]() == 1


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("dobule", "there is no node 'dobule'"),
        (6, "there is no node 6, there are 6"),
        (-1, "no node"),
    ],
)
def test_a_node_that_is_not_there_is_refused(node: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        net().debug_get_output(node)
    with pytest.raises(InputError, match="there is no output 1, there are 1"):
        net().debug_get_output("relu", output=1)
    with pytest.raises(InputError, match="nothing ran yet"):
        net().get_debug_result()


def test_files_are_those_of_tvm(tmp_path: Path) -> None:
    net(tmp_path / "dump").run(number=1, min_repeat_ms=0, x=X)
    folder = tmp_path / "dump"
    graph_dump = json.loads((folder / "_tvmdbg_graph_dump.json").read_text())
    assert [node["op"] for node in graph_dump["nodes"]] == [
        "param", "double", "relu", "__nop", "__nop", "sum",
    ]  # fmt: skip
    assert graph_dump["nodes"][5]["inputs"] == ["reshape_nop", "reshape_nop"]
    assert graph_dump["nodes"][1]["attrs"]["T"] == "type: float32"
    assert graph_dump["nodes"][1]["shape"] == [2, 3]
    tensors = read_parameters((folder / "output_tensors.params").read_bytes())
    assert "relu____topo-index:2____output-num:0" in tensors.entries
    assert len(tensors.entries) == 6
    trace = json.loads((folder / "_tvmdbg_execution_trace.json").read_text())
    assert trace["displayTimeUnit"] == "ns"
    phases = [(event["ph"], event["pid"], event["tid"]) for event in trace["traceEvents"]]
    assert phases == [("B", 1, 1), ("E", 1, 1)] * 6
    stamps = [event["ts"] for event in trace["traceEvents"]]
    assert stamps == sorted(stamps)


def test_a_profile_is_a_report() -> None:
    report = net().profile(x=X)
    assert [row["Name"] for row in report.calls] == ["double", "relu", "sum"]
    assert "Duration (us)" in report.table()


def test_exchanged_buffers_are_followed() -> None:
    module = net()
    module.run(number=1, min_repeat_ms=0, x=X)
    memory = np.zeros(24 + 64, np.uint8)
    start = -memory.ctypes.data % 64
    given = memory[start : start + 24].view(np.float32).reshape(2, 3)
    given[...] = -X
    module.set_input_zero_copy("x", given)
    assert np.array_equal(module.debug_get_output("double"), -2 * X)


def compiled(model: Any) -> tuple[tilewright.Model, GraphModuleDebug]:
    made = tilewright.compile(model, threads=1)
    executor = made.session.executor
    assert isinstance(executor, PlanExecutor)
    return made, GraphModuleDebug(create_executor_module(executor))


def test_the_steps_of_a_compiled_model_are_nodes(tmp_path: Path) -> None:
    made, module = compiled(small_models.mlp())
    x = np.random.default_rng(0).standard_normal((5, 20), np.float32)
    result = module.run(number=1, min_repeat_ms=0, x=x)
    assert np.array_equal(module.get_output(0), made(x))
    assert np.array_equal(result.tensors[-1][0], made(x))
    assert np.array_equal(result.tensors[0][0], x)
    assert all(
        mean > 0
        for node, mean in zip(result.nodes, result.means, strict=True)
        if not node.is_parameter
    )
    assert (result.dump(tmp_path / "dump") / "output_tensors.params").stat().st_size > 0


def test_dynamic_sizes_and_no_elements_can_be_looked_at() -> None:
    made, module = compiled(small_models.scale_and_shift())
    scale = np.float32([1, -2, 3])
    for batch in (3, 1, 0):
        x = np.random.default_rng(batch).standard_normal((batch, 3), np.float32)
        result = module.run(number=1, min_repeat_ms=0, x=x, scale=scale)
        named = {
            node.name: rows[0]
            for node, rows in zip(result.nodes, result.tensors, strict=True)
        }
        assert np.array_equal(named["x"], x)
        y, z = made(x, scale)
        assert any(np.array_equal(rows[0], y) for rows in result.tensors)
        assert any(np.array_equal(rows[0], z) for rows in result.tensors)


def test_what_runs_as_a_whole_has_no_nodes() -> None:
    program = CallProgram(lambda *_: (), (), ())
    with pytest.raises(UserError, match="has no nodes to look at"):
        GraphModuleDebug(executor_module(program))


def test_executors_and_their_memory_go_when_nobody_holds_them() -> None:
    module = net()
    module.run(number=1, min_repeat_ms=0, x=X)
    for name in ("run", "set_input", "debug_get_output", "execute_node"):
        assert module[name] is not None
    watched = [
        weakref.ref(module),
        weakref.ref(module.module),
        weakref.ref(module.module.executor),
    ]
    view = module.get_output(0)
    del module
    gc.collect()
    assert [one() for one in watched] == [None] * 3
    assert np.array_equal(view, expected())  # a view keeps its memory
