"""Executors of other optimization levels part where a value of the model differs, not where nodes share a name."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import flow_models, small_networks
from fakes.graphs import parse
from fakes.small_networks import inputs_of, network
from tilewright.base import dtypes
from tilewright.base.diagnostics import TilewrightWarning
from tilewright.compiler.graph.ir import Graph
from tilewright.runtime.debug_executor import GraphModuleDebug, create, first_divergence
from tilewright.runtime.packed.function_table import FunctionTable

MLP = """net (float[batch, 8] x) => (float[batch, 3] y) {
    m1 = MatMul (x, w1)
    s1 = Add (m1, b1)
    h1 = Relu (s1)
    m2 = MatMul (h1, w2)
    s2 = Add (m2, b2)
    h2 = Tanh (s2)
    m3 = MatMul (h2, w3)
    y = Softmax (m3)
}"""
MLP_WEIGHTS = {"w1": [8, 16], "b1": [16], "w2": [16, 16], "b2": [16], "w3": [16, 3]}
IMAGES = """net (float[1, 3, 10, 10] x) => (float[1, 5] y) {
    c1 = Conv <pads = [1, 1, 1, 1]> (x, w1)
    r1 = Relu (c1)
    c2 = Conv <strides = [2, 2]> (r1, w2)
    a2 = Abs (c2)
    p = GlobalAveragePool (a2)
    f = Flatten (p)
    y = MatMul (f, w3)
}"""
IMAGES_WEIGHTS = {"w1": [6, 3, 3, 3], "w2": [7, 6, 3, 3], "w3": [7, 5]}


def debugged(model: onnx.ModelProto | Graph, level: int) -> GraphModuleDebug:
    factory = tw.build(model, opt_level=level)
    return GraphModuleDebug(factory["default"](tw.cpu(0)))


def shared(left: GraphModuleDebug, right: GraphModuleDebug) -> set[str]:
    theirs = {tensor.key for tensor in right.model_tensors}
    return {t.name for t in left.model_tensors if t.key in theirs}


def with_weight(model: onnx.ModelProto, name: str, factor: float) -> onnx.ModelProto:
    """The same model with one initializer scaled."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for held in other.graph.initializer:
        if held.name == name:
            array = onnx.numpy_helper.to_array(held) * np.float32(factor)
            held.CopyFrom(onnx.numpy_helper.from_array(array, name))
    return other


CASES = {
    "fused": (network(MLP, MLP_WEIGHTS, dtypes.f32), {"batch": 5}, {"h1", "h2"}),
    "images": (network(IMAGES, IMAGES_WEIGHTS, dtypes.f32), {}, {"r1", "a2"}),
    "quantized": (small_networks.quantized(), {"batch": 2}, {"q"}),
    "attention": (small_networks.attention(dtypes.f32), {"batch": 2, "length": 7}, set()),
}


@pytest.mark.parametrize(
    "name", [*list(CASES)[:-1], pytest.param("attention", marks=pytest.mark.slow)]
)
def test_levels_of_a_model_do_not_part(name: str) -> None:
    model, dims, expected = CASES[name]
    inputs = inputs_of(model, dims)
    plain, fused = (debugged(model, level) for level in (0, 2))
    assert expected <= shared(plain, fused)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TilewrightWarning)
        assert first_divergence(plain, fused, **inputs) is None
        assert first_divergence(fused, plain, **inputs) is None


@pytest.mark.parametrize(
    ("name", "weight", "first", "agreed"),
    [
        ("fused", "w1", "h1", 0),
        ("fused", "b2", "h2", 1),
        pytest.param("fused", "w3", "m3", 2, marks=pytest.mark.slow),
        pytest.param("images", "w1", "r1", 0, marks=pytest.mark.slow),
        ("images", "w2", "a2", 1),
    ],
)
def test_the_first_value_that_both_have_behind_the_cause_is_named(
    name: str, weight: str, first: str, agreed: int
) -> None:
    model, dims, _ = CASES[name]
    inputs = inputs_of(model, dims)
    fused, plain = debugged(with_weight(model, weight, 1.5), 2), debugged(model, 0)
    for left, right in ((plain, fused), (fused, plain)):
        found = first_divergence(left, right, **inputs)
        assert found is not None
        assert (found.name, found.agreed) == (first, agreed)
        assert found.shared >= 2


def test_a_value_whose_axes_lie_in_another_order_is_told_where_the_model_has_it() -> None:
    model, _, _ = CASES["images"]
    x = inputs_of(model, {})["x"]
    plain, fused = (debugged(model, level) for level in (0, 2))
    moved = [tensor.name for tensor in fused.model_tensors if tensor.axes]
    assert "r1" in moved
    found = first_divergence(plain, debugged(with_weight(model, "w1", 2), 2), x=x)
    assert found is not None
    assert found.difference.index is not None
    assert len(found.difference.index) == 4
    wanted = plain.tensors(x=x)
    place = next(t for t in plain.model_tensors if t.name == "r1")
    assert found.difference.values[0] == str(
        wanted[place.node, place.output][found.difference.index]
    )


def test_values_in_a_loop_are_matched_trip_by_trip() -> None:
    case = flow_models.models()["loop_of_trips_from_data"]
    plain, fused = (debugged(case.model, level) for level in (0, 2))
    n, x, w = np.array(3), np.ones((2, 4), np.float32), np.eye(4, dtype=np.float32)
    assert first_divergence(plain, fused, n=n, x=x, w=w) is None
    both = shared(plain, fused)
    assert {"loop[0]/s2", "loop[2]/s2"} <= both
    other = onnx.ModelProto()
    other.CopyFrom(case.model)
    loop = next(node for node in other.graph.node if node.op_type == "Loop")
    body = next(a.g for a in loop.attribute if a.name == "body")
    next(node for node in body.node if node.output[0] == "s2").op_type = "Softsign"
    found = first_divergence(plain, debugged(other, 2), n=n, x=x, w=w)
    assert found is not None
    assert found.name == "loop[0]/s2"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::tilewright.base.diagnostics.TilewrightWarning")
@pytest.mark.parametrize("name", flow_models.models())
def test_levels_of_programs_with_control_flow_do_not_part(name: str) -> None:
    case = flow_models.models()[name]
    plain, fused = (debugged(case.model, level) for level in (0, 2))
    for call in case.calls:
        inputs = {v.name: x for v, x in zip(case.model.graph.input, call, strict=True)}
        assert first_divergence(plain, fused, **inputs) is None
        assert first_divergence(fused, plain, **inputs) is None


def test_where_only_outputs_are_left_a_warning_says_so() -> None:
    text = """graph @g(%x: f32[4]) {{
      %two: f32[] = constant {{value = f32[] [{}]}}
      %a: f32[4] = mul(%x, %two)
      %b: f32[4] = add(%a, %x)
      return %b as "out"
    }}"""
    x = np.float32([1, 2, 3, 4])
    # Level 2 makes one kernel of both nodes, whose result has another name here.
    fused = debugged(parse(text.format(2).replace("%b", "%c")), 2)
    with pytest.warns(
        TilewrightWarning, match="no value of the model in common but outputs"
    ):
        assert first_divergence(debugged(parse(text.format(2)), 0), fused, x=x) is None
    with pytest.warns(TilewrightWarning, match="in common but outputs"):
        found = first_divergence(debugged(parse(text.format(3)), 0), fused, x=x)
    assert found is not None
    assert (found.name, found.nodes, found.shared) == ("out", None, 0)
    assert "output 'out'" in str(found)
    assert "in common but outputs" in str(found)


def test_a_plan_that_runs_as_a_graph_of_functions_knows_the_model_too() -> None:
    graph = parse("""graph @g(%x: f32[4]) {
      %a: f32[4] = exp(%x)
      %r: f32[2, 2] = reshape(%a) {shape = [2, 2]}
      %b: f32[2, 2] = tanh(%r)
      %s: f32[2] = reduce_sum(%b) {axes = [0], keepdims = false}
      return %s as "s"
    }""")

    def into(compute: object) -> object:
        def call(x: object, y: object) -> None:
            np.from_dlpack(y)[...] = compute(np.from_dlpack(x))  # type: ignore[operator]

        return call

    functions = {
        "exp": into(np.exp),
        "tanh": into(np.tanh),
        "reduce_sum": into(lambda x: x.sum(0)),
    }
    graph_json = tw.build(graph, opt_level=0).graph_json
    x, fused = np.float32([1, -2, 3, -4]), debugged(graph, 1)
    own = create(graph_json, FunctionTable(functions))
    assert {t.name for t in own.model_tensors} >= {"a", "b"}
    assert first_divergence(own, fused, x=x) is None
    wrong = create(graph_json, FunctionTable({**functions, "tanh": into(np.sin)}))
    found = first_divergence(fused, wrong, x=x)
    assert found is not None
    assert found.name == "b"
