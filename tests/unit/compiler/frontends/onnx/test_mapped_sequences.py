"""Maps over sequences whose length a call decides, beside lists of Python."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    graph = load(onnx_models.parse(text))
    return [np.asarray(y) for y in evaluate(graph, list(inputs))]


# Two sequences and a tensor: what the body captures, and what it is given.
ROWS = """graph (float[N,3] x, float[3] w, float k) => (float[A,3] y, float[B,3] z, int64 n) {
    s = SplitToSequence<axis = 0, keepdims = 1>(x)
    u = Neg(x)
    t = SplitToSequence<axis = 0>(u)
    p, q = SequenceMap<body = b (float[1,3] e, float[1,3] f, float c)
      => (float[1,3] r, float[1,3] d) {
        m = Mul(e, w)
        r = Add(m, c)
        d = Sub(e, f)
    }>(s, t, k)
    y = ConcatFromSequence<axis = 0>(p)
    z = ConcatFromSequence<axis = 0>(q)
    n = SequenceLength(q)
}"""


@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_map_walks_over_an_axis_of_any_size(rows: int) -> None:
    x, w, k = floats(rows, 3), floats(3), np.float32(0.5)
    y, z, n = run(ROWS, x, w, np.asarray(k))
    np.testing.assert_array_equal(y, x * w + k)
    np.testing.assert_array_equal(z, x + x)
    assert n == rows


# Pieces of several sizes, which the body makes longer; the names of the body look like those of the loop.
PIECES = """graph (float[N,2] x, int64[K] sizes, float[1,2] v) => (float[A,2] y, float[B,2] last) {
    s = SplitToSequence<axis = 0>(x, sizes)
    t = SequenceMap<body = b (float[P,2] map_count) => (float[Q,2] map_made) {
        map_made = Concat<axis = 0>(v, map_count, v)
    }>(s)
    y = ConcatFromSequence<axis = 0>(t)
    at = Constant<value_int = -1>()
    last = SequenceAt(t, at)
}"""


@pytest.mark.parametrize("sizes", [[3], [1, 2], [2, 0, 3, 1]])
def test_items_of_several_sizes_are_mapped(sizes: list[int]) -> None:
    x, v = floats(sum(sizes), 2), floats(1, 2)
    y, last = run(PIECES, x, np.array(sizes), v)
    items = np.split(x, np.cumsum(sizes)[:-1])
    wanted = [np.concatenate([v, item, v]) for item in items]
    np.testing.assert_array_equal(y, np.concatenate(wanted))
    np.testing.assert_array_equal(last, wanted[-1])


def test_a_body_may_give_one_value_twice() -> None:
    text = """graph (float[N,3] x) => (float[A,3] y, float[B,3] z) {
        s = SplitToSequence<axis = 0, keepdims = 1>(x)
        p, q = SequenceMap<body = b (float[1,3] e) => (float[1,3] r, float[1,3] r) {
            r = Neg(e)
        }>(s)
        y = ConcatFromSequence<axis = 0>(p)
        z = ConcatFromSequence<axis = 0>(q)
    }"""
    x = floats(4, 3)
    for found in run(text, x):
        np.testing.assert_array_equal(found, -x)


MIXED = """graph (float[N] x, float[2] a, float[2] b) => (float[A] y) {
    s = SequenceConstruct(a, b)
    t = SplitToSequence<axis = 0>(x)
    p = SequenceMap<body = m (float[2] e, float[1] f) => (float[2] r) { r = Mul(e, f) }>(s, t)
    y = ConcatFromSequence<axis = 0>(p)
}"""


def test_a_sequence_of_known_length_meets_one_of_any_length() -> None:
    x, a, b = floats(2), floats(2), floats(2)
    (y,) = run(MIXED, x, a, b)
    np.testing.assert_array_equal(y, np.concatenate([a * x[0], b * x[1]]))
    with pytest.raises(
        InputError, match=r"the position is one of the sequence.*does not hold"
    ):
        run(MIXED, floats(1), a, b)


def test_what_is_no_sequence_is_not_mapped() -> None:
    text = """graph (float[2] x) => (float[2] y) {
        p = SequenceMap<body = m (float[2] e) => (float[2] r) { r = Neg(e) }>(x)
        y = ConcatFromSequence<axis = 0>(p)
    }"""
    with pytest.raises(ModelError, match="operand 1 is not a sequence"):
        load(onnx_models.parse(text))
