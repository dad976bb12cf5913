"""The graph executor beside the plan executor on the same kernels, and what a packed function adds.

What it is: a model of small kernels, run by the plan and as a graph that calls the same kernels by name,
in turns; both with inputs and outputs bound, one thread.  Then a graph of as many packed functions that do
nothing.  What it is not: a measurement of kernels.

    python benchmarks/graph_executor.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright
from tilewright.runtime.graph_executor import GraphModule, create
from tilewright.runtime.packed.function_table import FunctionTable
from tilewright.runtime.plan_executor import PlanExecutor

KERNELS = 20
SHAPE = (8, 64)
ROUNDS, CALLS = 40, 500


def small_model() -> onnx.ModelProto:
    """Matrix products, each a kernel of its own."""
    chooser = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for index in range(KERNELS):
        weight = chooser.standard_normal((SHAPE[1], SHAPE[1])).astype(np.float32) / 8
        weights.append(onnx.numpy_helper.from_array(weight, f"w{index}"))
        nodes.append(helper.make_node("MatMul", [value, f"w{index}"], [f"y{index}"]))
        value = f"y{index}"
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, SHAPE)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def as_graph(model: tilewright.Model) -> GraphModule:
    """The model's graph without its plan, over the same kernels."""
    graph_json, lib, params = model.build()
    members = json.loads(graph_json)
    del members["metadata"]
    net = GraphModule(create(json.dumps(members), lib, threads=1))
    net.set_input(**params)
    return net


def packed_graph() -> GraphModule:
    """As many packed functions that do nothing, with three tensors each."""
    nodes: list[dict[str, object]] = [
        {"op": "null", "name": "x", "inputs": []},
        {"op": "null", "name": "w", "inputs": []},
    ]
    attrs = {"func_name": "f", "num_inputs": "2", "num_outputs": "1", "flatten_data": "0"}
    for index in range(KERNELS):
        before = [max(index + 1, 1) if index else 0, 0, 0]
        nodes.append(
            {
                "op": "tvm_op",
                "name": f"f{index}",
                "inputs": [before, [1, 0, 0]],
                "attrs": attrs,
            }
        )
    count = len(nodes)
    members = {
        "nodes": nodes,
        "arg_nodes": [0, 1],
        "heads": [[count - 1, 0, 0]],
        "attrs": {
            "dltype": ["list_str", ["float32"] * count],
            "shape": ["list_shape", [[8, 8]] * count],
            "storage_id": ["list_int", list(range(count))],
        },
        "node_row_ptr": list(range(count + 1)),
    }
    return GraphModule(
        create(json.dumps(members), FunctionTable({"f": lambda *_: None}), threads=1)
    )


def in_turns(calls: Mapping[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Median and minimum of each call in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(CALLS):
                call()
            times[name].append((time.perf_counter() - begin) / CALLS * 1e6)
    return {name: (statistics.median(t), min(t)) for name, t in times.items()}


def main() -> None:
    """Print the times and the ratio."""
    argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]).parse_args()
    model = tilewright.compile(small_model(), threads=1)
    executor = model.session.executor
    assert isinstance(executor, PlanExecutor)
    net = as_graph(model)
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    net.set_input("x", x)
    net.run()
    assert np.array_equal(net.get_output(0), model(x))
    out = np.empty_like(model(x))
    packed = packed_graph()
    made = GraphModule(model.build()["default"]("local-task://?threads=1"))
    made.set_input("x", x)
    commands = len(executor.plan.steps)
    found = in_turns(
        {
            "plan": lambda: executor(x),
            "plan, outputs given": lambda: executor.run_into([x], [out]),
            "factory's executor": made.run,
            "graph": net.run,
            "graph, set_input": lambda: net.run(x=x),
            f"graph of {KERNELS} packed functions": packed.run,
        }
    )
    print(f"{commands} kernels, one thread, us per run (median, minimum)")
    for name, (median, least) in found.items():
        print(f"{name:32} {median:8.2f} {least:8.2f}")
    ratio = found["graph"][0] / found["plan"][0]
    print(f"graph / plan: {ratio:.3f} (bar 1.05)")
    print(
        f"a packed function: {found[f'graph of {KERNELS} packed functions'][0] / KERNELS:.3f} us"
    )


if __name__ == "__main__":
    main()
