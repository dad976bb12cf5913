"""Rows that move elements: positions that data gives."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

SCATTER = """<ir_version: 11, opset_import: ["" : 24]>
graph (float[2,5,3] x, float[2,2,3] u, int64[2] w) => (float[2,5,3] y) { y = TensorScatter<axis = 1>(x, u, w) }"""


@pytest.mark.parametrize("places", [(0, 3), (-1, 0), (0, 4), (-5, 0), (0, 2**40)])
def test_a_cache_is_written_inside_of_it(places: tuple[int, int]) -> None:
    import onnx

    cache, update = np.ones((2, 5, 3), np.float32), np.zeros((2, 2, 3), np.float32)
    graph = load(onnx.parser.parse_model(SCATTER))
    given = [cache, update, np.array(places)]
    if not all(0 <= place <= 3 for place in places):
        with pytest.raises(InputError, match="index"):
            evaluate(graph, given)
        return
    expected = cache.copy()
    for row, place in enumerate(places):
        expected[row, place : place + 2] = 0
    np.testing.assert_array_equal(evaluate(graph, given)[0], expected)
