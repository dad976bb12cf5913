"""Rows walked one by one, written out and as a loop, against the same sums in numpy."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.recurrence import Rows, walked
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify


def _sums(steps: Dim, *, backwards: bool, keeps: bool) -> Graph:
    """The state is multiplied by the place and gets the row added; it is the row that is made."""
    row, given = (
        TensorType(dtypes.f64, (2,)),
        Value(TensorType(dtypes.f64, (steps, 2)), "x"),
    )
    graph = Graph("sums", inputs=[given])
    e = NodeMaker(graph)

    def step(place: Tensor, rows: Rows, state: Rows) -> tuple[Rows, Rows]:
        scaled = e.op("mul", state[0], e.cast(place, dtypes.f64))
        total = e.op("add", scaled, rows[0])
        return [total] if keeps else [], [total]

    rows, state = walked(
        e,
        [e.of_value(given)],
        [e.full(1, row.dtype, row.shape)],
        step,
        [row] if keeps else [],
        backwards=backwards,
    )
    graph.outputs = [e.value(t) for t in (*rows, *state)]
    verify(graph)
    return graph


@pytest.mark.thinned(3)
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("steps", [0, 1, 3, 40])
def test_rows_written_out_and_in_a_loop_are_the_same(
    steps: int, keeps: bool, backwards: bool
) -> None:
    x = np.random.default_rng(0).standard_normal((steps, 2))
    total, expected = np.ones(2), np.zeros((steps, 2))
    for place in reversed(range(steps)) if backwards else range(steps):
        total = total * place + x[place]
        expected[place] = total
    wanted = [expected, total] if keeps else [total]
    for size in (steps, symbol("steps")):
        graph = _sums(size, backwards=backwards, keeps=keeps)
        is_loop = any(node.op == "while" for node in graph)
        assert is_loop == (size != steps or steps == 40)
        for found, right in zip(evaluate(graph, [x]), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-12)
