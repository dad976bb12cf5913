"""TVM's graph executor: a graph in JSON, a module with its functions, tensors that are set and read.

    net = GraphModule(lib["default"](cpu(0)))       # a factory's executor
    net = GraphModule(create(graph_json, lib, cpu(0)))
    net.set_input("x", x); net.run(); y = net.get_output(0)

The functions of a graph may be any packed functions; kernels of ours among them are recorded into one
command list and replayed natively.  Not here: how plans run (`plan_executor`), times and tensors of single
nodes (`debug_executor`).
"""

from tilewright.runtime.graph_executor.call_program import CallProgram
from tilewright.runtime.graph_executor.executor import GraphExecutor
from tilewright.runtime.graph_executor.executor_module import (
    ExecutorModule,
    executor_module,
    executor_of,
)
from tilewright.runtime.graph_executor.factory import create, create_executor_module
from tilewright.runtime.graph_executor.graph_module import GraphModule
from tilewright.runtime.graph_executor.graph_program import GraphProgram
from tilewright.runtime.graph_executor.plan_program import ExecutableModule
from tilewright.runtime.graph_executor.program import Program
from tilewright.runtime.graph_executor.tensor import Tensor

__all__ = [
    "CallProgram",
    "ExecutableModule",
    "ExecutorModule",
    "GraphExecutor",
    "GraphModule",
    "GraphProgram",
    "Program",
    "Tensor",
    "create",
    "create_executor_module",
    "executor_module",
    "executor_of",
]
