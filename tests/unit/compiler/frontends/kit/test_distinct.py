"""Distinct elements and slices against numpy, where numpy has one answer for NaN."""

import numpy as np
import pytest

from tilewright.base import dtypes, symbolic
from tilewright.compiler.frontends.kit.distinct import distinct
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify

RNG = np.random.default_rng(5)


def found(
    x: np.ndarray, axis: int | None = None, *, in_order: bool = True, dynamic: bool = False
) -> list[np.ndarray]:
    graph = Graph("distinct")
    shape = [symbolic.symbol(f"n{i}", 0) if dynamic else n for i, n in enumerate(x.shape)]
    value = Value(TensorType(dtypes.from_numpy(x.dtype), tuple(shape)), "x")
    graph.inputs.append(value)
    e = NodeMaker(graph)
    made = distinct(e, e.of_value(value), axis, in_order=in_order)
    for result in (made.values, made.places, made.inverse, made.counts):
        graph.outputs.append(e.value(result))
        graph.output_names.append(f"y{len(graph.outputs)}")
    verify(graph)
    return evaluate(graph, [x])


def expected(x: np.ndarray, axis: int | None, *, in_order: bool) -> list[np.ndarray]:
    values, where, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.ravel()
    if in_order:
        return [values, where, inverse, counts]
    order = np.argsort(where, kind="stable")
    rank = np.argsort(order, kind="stable")
    return [np.take(values, order, axis or 0), where[order], rank[inverse], counts[order]]


CASES = {
    "floats": (RNG.integers(-3, 3, 17).astype(np.float32), None),
    "not a number": (np.array([2, np.nan, 1, -np.inf, np.nan, np.inf], np.float32), None),
    "zeros of both signs": (np.array([0.0, -0.0, 1, -0.0]), None),
    "halves": (RNG.integers(-2, 2, 9).astype(np.float16), None),
    "truths": (np.array([True, False, True]), None),
    "u64": (np.array([2**64 - 1, 0, 2**63, 0], np.uint64), None),
    "a matrix": (RNG.integers(0, 3, (3, 5)), None),
    "a scalar": (np.array(7, np.int8), None),
    "none": (np.zeros(0, np.float32), None),
    "rows": (RNG.integers(0, 2, (9, 2)).astype(np.int32), 0),
    "columns from the back": (RNG.integers(0, 2, (2, 7)).astype(np.float64), -1),
    "slices of many": (RNG.integers(0, 2, (2, 6, 4)), 1),
    "slices of one": (RNG.integers(0, 3, (1, 6, 1)), 1),
    "rows of nothing": (np.zeros((3, 0), np.float32), 0),
    "no rows": (np.zeros((0, 3), np.float32), 0),
    "one row": (np.ones((1, 9), np.float32), 0),
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_distinct_elements_and_slices_are_those_of_numpy(
    name: str, in_order: bool, dynamic: bool
) -> None:
    x, axis = CASES[name]
    ours = found(x, axis, in_order=in_order, dynamic=dynamic)
    for actual, wanted in zip(ours, expected(x, axis, in_order=in_order), strict=True):
        np.testing.assert_array_equal(actual, wanted)
        assert actual.shape == wanted.shape


def test_rows_that_are_equal_but_for_where_they_are_not_numbers_are_equal() -> None:
    x = np.array([[np.nan, 1], [0, 2], [np.nan, 1]], np.float32)
    values, places, inverse, counts = found(x, 0)
    np.testing.assert_array_equal(values, [[0, 2], [np.nan, 1]])
    assert [places.tolist(), inverse.tolist(), counts.tolist()] == [
        [1, 0],
        [1, 0, 1],
        [1, 2],
    ]
