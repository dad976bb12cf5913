"""Sizes of 0: those that a call decides may be nothing, whatever is left to compute."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import tilewright as tw
from fakes import onnx_models
from tilewright.base import symbolic
from tilewright.base.errors import InputError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

NONZERO = "graph (float[N,5] x) => (int64[2,K] y) { y = NonZero(x) }"
BRANCHES = """graph (bool p, float[N,5] x) => (float[5] top, float[M,5] y) {
    axis = Constant<value_ints = [0]>()
    top = ReduceMax<keepdims = 0>(x, axis)
    y = If(p) <
      then_branch = t () => (float[A,5] a) {
        row = Constant<value: tensor = float[1,5] {1, 2, 3, 4, 5}>()
        a = Concat<axis = 0>(x, row)
      },
      else_branch = e () => (float[B,5] b) { b = Relu(x) }
    >
}"""
GROWING = """graph (int64 n, float[N,5] x) => (float[K,5] y) {
    c = Constant<value: tensor = bool {1}>()
    y = Loop(n, c, x) <body = b (int64 i, bool go, float[S,5] s) => (bool on, float[T,5] t) {
        on = Identity(go)
        row = Constant<value: tensor = float[1,5] {1, 2, 3, 4, 5}>()
        t = Concat<axis = 0>(s, row)
    }>
}"""
NOTHING = np.zeros((0, 5), np.float32)
ROW = np.arange(1, 6, dtype=np.float32)[None]


def low(text: str) -> int | None:
    graph = load(onnx_models.parse(text))
    (x,) = (value for value in graph.inputs if value.name == "x")
    return symbolic.bounds(x.type.shape[0])[0]


def test_sizes_may_be_nothing_where_data_decides_others() -> None:
    assert [low(text) for text in (NONZERO, BRANCHES, GROWING)] == [0, 0, 0]


def test_other_models_take_nothing_where_nothing_is_left() -> None:
    assert low("graph (float[N,5] x) => (float[N,5] y) { y = Relu(x) }") == 1
    text = NONZERO.replace("=> (", "=> (float[N,5] z, ").replace("{", "{ z = Relu(x)")
    assert low(text) == 0


@pytest.mark.parametrize("chosen", [0, 1])
def test_branches_of_different_sizes_take_nothing(chosen: int) -> None:
    p = np.array(bool(chosen))
    wanted = [np.full(5, -np.inf, np.float32), ROW if chosen else NOTHING]
    by_oracles = evaluate(load(onnx_models.parse(BRANCHES)), [p, NOTHING])
    compiled = tw.compile(onnx_models.parse(BRANCHES), threads=1)(p, NOTHING)
    for found in (by_oracles, compiled):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
            assert np.shape(one) == other.shape


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_a_loop_makes_something_of_nothing(trips: int) -> None:
    (y,) = evaluate(load(onnx_models.parse(GROWING)), [np.array(trips), NOTHING])
    np.testing.assert_array_equal(y, np.repeat(ROW, trips, 0))


NOTHING_LEFT = {
    "MatMul": "graph (float[A,B] x, float[B,C] w) => (float[A,C] y) { y = MatMul(x, w) }",
    "Gemm": "graph (float[A,B] x, float[B,C] w, float[C] c) => (float[A,C] y) { y = Gemm(x, w, c) }",
    "Einsum": """graph (float[A,B] x, float[B,C] w) => (float[C] y) {
        y = Einsum<equation = "ab,bc->c">(x, w)
    }""",
    "ReduceSum": """graph (float[A,B] x) => (float[B] y) {
        axis = Constant<value_ints = [0]>()
        y = ReduceSum<keepdims = 0>(x, axis)
    }""",
    "ReduceMax": """graph (float[A,B] x) => (float[A] y) {
        axis = Constant<value_ints = [1]>()
        y = ReduceMax<keepdims = 0>(x, axis)
    }""",
    "Slice": """graph (float[A,B] x) => (float[C,D] y) {
        begin = Constant<value_ints = [1]>()
        end = Constant<value_ints = [9]>()
        axis = Constant<value_ints = [1]>()
        y = Slice(x, begin, end, axis)
    }""",
    "Pad": """graph (float[A,B] x) => (float[C,D] y) {
        pads = Constant<value_ints = [0, 1, 2, 0]>()
        y = Pad(x, pads)
    }""",
    "Gather": """graph (float[A,B] x, int64[C] i) => (float[A,C] y) { y = Gather<axis = 1>(x, i) }""",
}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["plan", "vm"])
@pytest.mark.parametrize("name", NOTHING_LEFT)
def test_sizes_of_0_go_together_whatever_is_left(
    name: str, engine: str, tmp_path: Path
) -> None:
    """Each size 0, 1 or 2; results are those of onnxruntime, down to their shapes."""
    proto = onnx_models.parse(NOTHING_LEFT[name])
    tw.compile(proto, threads=1, jobs=1).save(tmp_path / "model.vmfb")
    session = tw.load(tmp_path / "model.vmfb", engine=engine, threads=1)
    peer = onnxruntime.InferenceSession(proto.SerializeToString())
    names = "AB" if len(proto.graph.input) == 1 else "ABC"
    for sizes in itertools.product((0, 1, 2), repeat=len(names)):
        known = dict(zip(names, sizes, strict=True))
        feeds = {}
        for value in proto.graph.input:
            tensor = value.type.tensor_type
            shape = [known[dim.dim_param] for dim in tensor.shape.dim]
            whole = tensor.elem_type == TensorProto.INT64
            feeds[value.name] = np.full(
                shape, 0 if whole else 3, np.int64 if whole else np.float32
            )
        if name == "Gather" and known["C"] and not known["B"]:
            continue  # beyond the end
        (wanted,) = peer.run(None, feeds)
        found = np.asarray(session(**feeds))
        assert found.shape == wanted.shape, sizes
        np.testing.assert_array_equal(found, wanted)


def test_a_size_that_must_be_more_stays_bounded() -> None:
    text = """graph (float[N,5] x, float[M,5] z) => (float[M,5] y) {
        begin = Constant<value_ints = [0]>()
        end = Constant<value_ints = [1]>()
        row = Slice(x, begin, end)
        y = Add(row, z)
    }"""
    model = tw.compile(onnx_models.parse(text), threads=1)
    with pytest.raises(InputError, match=r"dimension 'N' .* is 0, expected at least 1"):
        model(NOTHING, np.ones((4, 5), np.float32))


def test_there_is_no_place_among_no_elements() -> None:
    text = "graph (float[N,M] x) => (int64[N] y) { y = ArgMax<axis = 1, keepdims = 0>(x) }"
    model = tw.compile(onnx_models.parse(text), threads=1)
    with pytest.raises(InputError, match=r"dimension 'M' .* is 0, expected at least 1"):
        model(np.ones((2, 0), np.float32))
