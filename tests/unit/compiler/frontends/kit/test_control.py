"""Control flow of imported models as graphs: what they compute, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import flow_models, onnx_models
from tilewright.base import dtypes
from tilewright.base.errors import InputError, ModelError, TilewrightError
from tilewright.base.symbolic import symbol
from tilewright.compiler.frontends.kit.assumptions import known_equalities
from tilewright.compiler.frontends.kit.control import counted, worth_unrolling
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify

onnxruntime = pytest.importorskip("onnxruntime")
MODELS = flow_models.models()


@pytest.mark.sampled(3)
@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", MODELS)
def test_a_graph_with_control_flow_computes_what_onnxruntime_does(name: str) -> None:
    case = MODELS[name]
    graph = load(case.model)
    verify(graph)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    for inputs in case.calls:
        fed = {value.name: x for value, x in zip(graph.inputs, inputs, strict=True)}
        wanted = session.run(None, fed)
        for actual, expected in zip(evaluate(graph, list(inputs)), wanted, strict=True):
            if actual.size or expected.size:
                np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_must_be_equal_are_sizes_of_the_graph(name: str) -> None:
    graph = load(MODELS[name].model)
    assert known_equalities(graph.equalities, graph) == graph.equalities


def test_a_scan_of_no_rows_stacks_rows_of_any_size() -> None:
    """onnxruntime does not run one."""
    graph = load(
        onnx_models.parse("""graph (float[N, 0] x, float[1] s) => (float[1] t, float[K, 0] y) {
          t, y = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [-1], body = b
            (float[1] a, float[N] r) => (float[1] a2, float[M] o) {
              a2 = Exp (a)
              o = Concat <axis = 0> (r, a)
            }> (s, x)
        }""")
    )
    verify(graph)
    state, rows = evaluate(graph, [np.ones((3, 0), np.float32), np.ones(1, np.float32)])
    assert (state[0], rows.shape) == (1, (4, 0))


def test_cheap_branches_are_computed_both_and_others_are_not() -> None:
    branches = """graph (bool c, float[K, 40] x) => (float[K, 40] y) {
      y = If (c) <
        then_branch = a () => (float[K, 40] p) { p = OP(x) },
        else_branch = b () => (float[K, 40] q) { q = Exp(x) }
      >
    }"""
    cheap = load(onnx_models.parse(branches.replace("OP", "Neg").replace("K", "2")))
    heavy = load(onnx_models.parse(branches.replace("OP", "Softmax").replace("K", "2")))
    assert "if" not in {node.op for node in cheap.nodes}
    assert "if" in {node.op for node in heavy.nodes}


def test_a_size_that_data_gives_is_checked() -> None:
    graph = load(
        onnx_models.parse("graph (int64[1] n) => (float[K] y) { y = ConstantOfShape(n) }")
    )
    with pytest.raises(
        InputError, match="node 'y': the data gives size -3, expected at least 0"
    ):
        evaluate(graph, [np.array([-3])])


def test_branches_of_different_ranks_are_refused() -> None:
    model = onnx_models.parse(
        """graph (bool c, float[2, 3] x) => (float y) {
          y = If (c) <
            then_branch = a () => (float[2, 3] p) { p = Softmax(x) },
            else_branch = b () => (float q) { q = ReduceSum<keepdims = 0>(x) }
          >
        }"""
    )
    with pytest.raises(ModelError, match=r"the result is f32\[2, 3\] or f32\[\]"):
        load(model)


@pytest.mark.parametrize(
    ("text", "node", "remedy"),
    [
        (
            """graph (int64 n, float[N] x) => (int64[T, 1, K] y) {
              y = Loop (n, ) <body = b (int64 i, bool c) => (bool d, int64[1, A] p) {
                d = Identity(c)
                p = NonZero(x)
              }>
            }""",
            "node 'y' (Loop)",
            "hint: compute what decides the size before the branch or loop",
        ),
        (
            """graph (int64 n, float[2] x) => (float y) {
              y = Loop (n, , x) <body = b (int64 i, bool c, float s) => (bool d, float t) {
                d = Identity(c)
                one = Constant<value = int64[1] {0}>()
                t = Unsqueeze(s, one)
              }>
            }""",
            "node 'y' (Loop)",
            "hint: give it one rank and type, or the number of trips as a constant",
        ),
    ],
)
def test_a_refusal_names_the_node_and_what_helps(text: str, node: str, remedy: str) -> None:
    with pytest.raises(ModelError) as caught:
        load(onnx_models.parse(text))
    assert node in str(caught.value)
    assert remedy in str(caught.value)


def test_short_loops_of_few_nodes_are_written_out() -> None:
    assert worth_unrolling(1, 10_000)
    assert worth_unrolling(16, 16)
    assert not worth_unrolling(17, 16)


DECLARED = """graph (int64 n, float[5] x, float[1] z) => (float[1] y, float[K, 1] rows) {
  y, rows = Loop (n, , z) <body = b (int64 i, bool c, float[1] s) => (bool d, float[1] t, float[1] r) {
    d = Identity (c)
    one = Constant<value_ints = [1]> ()
    first = Reshape (i, one)
    end = Add (first, one)
    piece = Slice (x, first, end)
    t = Add (s, piece)
    r = Identity (t)
  }>
}"""


def test_a_loop_takes_sizes_that_its_body_declares_from_the_declaration() -> None:
    model = onnx_models.parse(DECLARED)
    x, zero = np.arange(5, dtype=np.float32), np.zeros(1, np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for trips in (0, 1, 5):
        wanted = session.run(None, {"n": np.array(trips), "x": x, "z": zero})
        found = evaluate(load(model), [np.array(trips), x, zero])
        for actual, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(actual, expected)
    with pytest.raises(TilewrightError, match="expected at least 1"):
        evaluate(load(model), [np.array(7), x, zero])


def test_sizes_are_compared_in_the_region_that_needs_them() -> None:
    graph = load(MODELS["sizes_that_only_what_runs_compares"].model)
    assert not graph.equalities
    x, z, go, stop = (
        np.ones(3, np.float32),
        np.ones(5, np.float32),
        np.array(True),
        np.array(0),
    )
    for inputs, node in (((go, stop, x, z), "s"), ((~go, stop + 1, x, z), "u")):
        with pytest.raises(InputError, match=f"node '{node}': sizes do not agree: 3 and 5"):
            evaluate(graph, list(inputs))


def test_sizes_that_a_loop_of_some_trips_compares_are_those_of_every_call() -> None:
    model = """graph (float[T, 4] xs, float[N] x, float[M] z) => (float[N] y, float[T, 4] r) {
      y, r = Scan <num_scan_inputs = 1, body = b (float[N] s, float[4] i) => (float[N] t, float[4] o) {
        t = Add (s, z)
        o = Exp (i)
      }> (x, xs)
    }"""
    graph = load(onnx_models.parse(model))
    assert [str(value.type) for value in graph.inputs[1:]] == ["f32[N]", "f32[N]"]


@pytest.mark.parametrize(("begin", "count", "expected"), [(0, 4, 6), (1, 4, 6), (3, 4, 3), (4, 4, 0), (5, 4, 0)])  # fmt: skip
def test_a_counted_loop_ends_before_its_end(begin: int, count: int, expected: int) -> None:
    end = symbol("end")
    graph = Graph("numbers", inputs=[Value(TensorType(dtypes.f64, (end,)), "x")])
    e = NodeMaker(graph)
    (total,) = counted(
        e,
        end,
        [e.scalar(0, dtypes.i64)],
        lambda step, state: [e.op("add", state[0], step)],
        begin=begin,
    )
    graph.outputs = [e.value(total)]
    assert evaluate(graph, [np.zeros(count)])[0] == expected
