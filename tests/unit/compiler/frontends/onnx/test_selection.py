"""Boxes and distinct elements beside onnxruntime, compiled and by the oracles, inside of branches, too."""

import numpy as np
import onnx
import pytest

import tilewright.onnx_backend as backend
from fakes import onnx_models
from fakes.onnx_models import run_node
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(3)


def boxes(*shape: int) -> np.ndarray:
    return RNG.uniform(0, 4, (*shape, 4)).astype(np.float32)


def scores(*shape: int) -> np.ndarray:
    return (RNG.integers(0, 12, shape) / 11).astype(np.float32)


def scalar(value: float, dtype: type = np.float32) -> np.ndarray:
    return np.array([value], dtype)


def onnxruntime_gives(
    model: onnx.ModelProto, feeds: dict[str, np.ndarray]
) -> list[np.ndarray]:
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


CALLS = {
    "all operands": [boxes(2, 41), scores(2, 3, 41), scalar(7, np.int64), scalar(0.3), scalar(0.2)],
    "no threshold of scores": [boxes(1, 23), scores(1, 2, 23), scalar(50, np.int64), scalar(0.05)],
    "no threshold of overlap": [boxes(3, 9), scores(3, 1, 9), scalar(4, np.int64)],
    "how many left out": [boxes(1, 5), scores(1, 2, 5)],
    "a score only": [boxes(1, 9), scores(1, 2, 9), scalar(9, np.int64), None, scalar(0.5)],
    "one box": [boxes(1, 1), scores(1, 1, 1), scalar(1, np.int64), scalar(0)],
    "none wanted": [boxes(1, 5), scores(1, 2, 5), scalar(0, np.int64), scalar(0.5)],
    "fewer than none": [boxes(1, 5), scores(1, 2, 5), scalar(-3, np.int64), scalar(0.5)],
}  # fmt: skip


@pytest.mark.thinned(3)
@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("name", CALLS)
def test_boxes_are_chosen_as_onnxruntime_chooses_them(name: str, center: int) -> None:
    arrays = CALLS[name]
    model = onnx_models.one_node("NonMaxSuppression", arrays, center_point_box=center)
    model.graph.output[0].CopyFrom(
        onnx.helper.make_tensor_value_info("y0", onnx.TensorProto.INT64, ["n", 3])
    )
    feeds = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
    (expected,) = onnxruntime_gives(model, feeds)
    (ours,) = evaluate(load(model), list(feeds.values()))
    np.testing.assert_array_equal(ours, expected)


def test_no_boxes_at_all_give_none() -> None:
    arrays = [boxes(1, 0), scores(1, 2, 0), scalar(3, np.int64)]
    (ours,) = run_node("NonMaxSuppression", arrays)
    assert ours.shape == (0, 3)


IN_A_BRANCH = """graph (bool p, float[B,N,4] boxes, float[B,C,N] scores, int64[M] x) => (int64[3] m, int64 n) {
      m, n = If (p) <
        then_branch = t () => (int64[3] a, int64 an) {
          most = Constant<value = int64 {5}> ()
          iou = Constant<value = float {0.4}> ()
          found = NonMaxSuppression (boxes, scores, most, iou)
          axes = Constant<value_ints = [0]> ()
          a = ReduceSum<keepdims = 0> (found, axes)
          an = Size (found)
        },
        else_branch = e () => (int64[3] b, int64 bn) {
          u, places, inverse, counts = Unique<sorted = 0> (x)
          bn = Size (u)
          axes2 = Constant<value_ints = [0]> ()
          three = Constant<value_ints = [3]> ()
          s = ReduceSum<keepdims = 1> (u, axes2)
          b = Expand (s, three)
        }
      >
    }"""


@pytest.mark.slow
def test_sizes_that_a_branch_reads_stay_in_it_compiled() -> None:
    model = onnx_models.parse(IN_A_BRANCH)
    prepared = backend.prepare(model)
    b, s = boxes(2, 30), scores(2, 3, 30)
    for p in (True, False):
        for x in (np.array([4, 4, 1, 9, 1]), np.array([-2])):
            feeds = {"p": np.array(p), "boxes": b, "scores": s, "x": x}
            ours = prepared.run(list(feeds.values()))
            for actual, wanted in zip(ours, onnxruntime_gives(model, feeds), strict=True):
                np.testing.assert_array_equal(actual, wanted)


@pytest.mark.slow
def test_distinct_rows_and_boxes_of_any_size_are_compiled_once() -> None:
    text = """graph (float[B,N,4] boxes, float[B,C,N] scores, int64[M,W] x) => (int64[K,3] y, int64[V,W] u) {
          most = Constant<value = int64 {6}> ()
          iou = Constant<value = float {0.3}> ()
          least = Constant<value = float {0.1}> ()
          y = NonMaxSuppression (boxes, scores, most, iou, least)
          u = Unique<axis = 0> (x)
        }"""
    model = onnx_models.parse(text)
    prepared = backend.prepare(model)
    for n, m, w in ((17, 9, 3), (1, 1, 1), (150, 40, 6)):
        feeds = {
            "boxes": boxes(2, n), "scores": scores(2, 2, n), "x": RNG.integers(0, 2, (m, w))
        }  # fmt: skip
        ours = prepared.run(list(feeds.values()))
        for actual, wanted in zip(ours, onnxruntime_gives(model, feeds), strict=True):
            np.testing.assert_array_equal(actual, wanted)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("in_order", [0, 1])
def test_distinct_strings_are_found_on_the_host(axis: int | None, in_order: int) -> None:
    attributes = {} if axis is None else {"axis": axis}
    x = np.array([["b", "a"], ["ab", "b"], ["b", "a"]], object)
    node = onnx.helper.make_node(
        "Unique", ["x"], ["v", "p", "i", "c"], sorted=in_order, **attributes
    )
    graph = onnx.helper.make_graph(
        [node], "one",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, ["n", 2])],
        [onnx.helper.make_empty_tensor_value_info(n) for n in "vpic"],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    model.ir_version = 10
    values, places, inverse, counts = backend.prepare(model).run([x])
    expected, where, back, often = np.unique(
        x.astype(str), return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    order = np.arange(where.size) if in_order else np.argsort(where)
    np.testing.assert_array_equal(values.astype(str), np.take(expected, order, 0))
    np.testing.assert_array_equal(places, where[order])
    np.testing.assert_array_equal(inverse, np.argsort(order)[back.ravel()])
    np.testing.assert_array_equal(counts, often[order])
