"""Formulas of the front ends' kit, computed on arrays by the oracles of the graph's ops."""

from collections.abc import Callable

import numpy as np

from tilewright.base.dtypes import from_numpy
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.kit.wide import Wide
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType


def on_tensors(function: Callable[..., Tensor], *arrays: np.ndarray) -> np.ndarray:
    """What `function` of a maker and tensors gives for arrays."""
    graph = Graph("formula")
    maker = NodeMaker(graph)
    for place, array in enumerate(arrays):
        type_ = TensorType(from_numpy(array.dtype), array.shape)
        graph.inputs.append(Value(type_, f"x{place}"))
    found = function(maker, *map(maker.of_value, graph.inputs))
    graph.outputs.append(maker.value(found))
    graph.output_names.append("y")
    (result,) = evaluate(graph, list(arrays))
    return np.asarray(result)


def on_numbers(function: Callable[..., Wide], *arrays: object) -> np.ndarray:
    """What a formula gives for numbers in f64."""
    given = [np.asarray(array, np.float64) for array in arrays]
    return on_tensors(lambda e, *xs: function(*(Wide.of(e, x) for x in xs)).tensor, *given)
