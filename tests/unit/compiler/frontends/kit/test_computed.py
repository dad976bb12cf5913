"""Places that data decides."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.compiler.frontends.kit import computed
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType

OPEN = "graph (bool[A,B,C] x) => (int64[3,K] y) { y = NonZero(x) }"
KNOWN = OPEN.replace("A,B,C", "5,7,3")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 7, 3), (2, 1, 33), (0, 4, 3), (3, 0, 2)])
def test_places_of_several_axes_are_numpys(shape: tuple[int, ...]) -> None:
    model = tw.compile(onnx_models.parse(OPEN), threads=1)
    for x in (np.random.default_rng(3).random(shape) < 0.5, np.ones(shape, bool)):
        np.testing.assert_array_equal(np.asarray(model(x)), np.stack(np.nonzero(x)))


@pytest.mark.parametrize(("text", "divided"), [(OPEN, dtypes.f64), (KNOWN, dtypes.i64)])
def test_places_are_divided_by_open_sizes_in_f64(text: str, divided: dtypes.DType) -> None:
    nodes = load(onnx_models.parse(text)).nodes
    quotients = [n.operands[0] for n in nodes if n.schema.name == "div"]
    assert len(quotients) == 2
    assert all(x is not None and x.type.dtype is divided for x in quotients)
    assert not any(n.schema.name == "mod" for n in nodes)


@pytest.mark.parametrize("size", [3, 7, 10, 33, 4097, (1 << 31) - 1])
def test_places_near_multiples_of_an_open_size_are_those_of_integers(size: int) -> None:
    near = np.arange(1, 2000, dtype=np.int64) * ((1 << 52) // 2000 // size) * size
    places = np.concatenate([near - 1, near, near + 1])
    graph = Graph("places")
    for name, type_ in (
        ("places", TensorType(dtypes.i64, places.shape)),
        ("sized", TensorType(dtypes.bool_, (symbol("N", 1),))),
    ):
        graph.inputs.append(Value(type_, name))
    e = NodeMaker(graph)
    given, sized = (e.of_value(value) for value in graph.inputs)
    graph.outputs.append(e.value(computed.unraveled(e, given, (1 << 52, *sized.shape))))
    graph.output_names.append("y")
    (found,) = evaluate(graph, [places, np.broadcast_to(np.False_, (size,))])
    np.testing.assert_array_equal(found, np.stack(np.divmod(places, size)))
