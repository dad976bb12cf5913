"""TVM's debug executor: a graph executor whose nodes can be timed, run and looked at one by one.

    net = debug_executor.create(graph_json, lib, cpu(0), dump_root="dump")
    print(net.run(x=x))                       # the table of times; files in dump/
    y = net.debug_get_output("fused_add")     # runs up to the node
    first_divergence(net, other, x=x)         # where two executors part

Not here: times of whole runs (`GraphModule.benchmark`).
"""

from tilewright.runtime.debug_executor.debug_module import GraphModuleDebug, create
from tilewright.runtime.debug_executor.debug_result import DebugResult
from tilewright.runtime.debug_executor.divergence import Divergence, first_divergence
from tilewright.runtime.debug_executor.nodes import DebugNode

__all__ = [
    "DebugNode",
    "DebugResult",
    "Divergence",
    "GraphModuleDebug",
    "create",
    "first_divergence",
]
