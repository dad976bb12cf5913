"""Names that stand for two things: readers take one or the other, so models with them are refused, or warned of."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import FunctionProto, NodeProto, TensorProto, ValueInfoProto, helper

from tilewright.base.diagnostics import TilewrightWarning
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def value(name: str, *shape: int, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: Sequence[NodeProto], functions: Sequence[FunctionProto] = ()
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [value("x", 4)], [value("y", 4)])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions)


def function(
    op: str = "Neg",
    inputs: Sequence[str] = ("a",),
    opsets: Sequence[onnx.OperatorSetIdProto] = tuple(OPSETS),
) -> FunctionProto:
    body = [helper.make_node(op, ["a"], ["b"])]
    return helper.make_function("own", "F", list(inputs), ["b"], body, list(opsets))


def call(*functions: FunctionProto, operands: Sequence[str] = ("x",)) -> onnx.ModelProto:
    return model([helper.make_node("F", operands, ["y"], domain="own")], functions)


def with_defaults() -> FunctionProto:
    made = function("LeakyRelu")
    made.attribute_proto.extend(helper.make_attribute("k", v) for v in (1.0, 3.0))
    return made


def loop_of_one_name() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["i"], ["v"])],
        "body",
        [
            value("i", kind=TensorProto.INT64),
            value("c", kind=TensorProto.BOOL),
            value("i", 4),
        ],
        [value("d", kind=TensorProto.BOOL), value("v", 4)],
    )
    count = helper.make_node("Constant", [], ["n"], value_int=3)
    return model([count, helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)])


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (call(function("Neg"), function("Relu")), "function 'own::F' is there twice"),
        (call(function(opsets=[*OPSETS, helper.make_opsetid("", 11)])), "opset of domain ''"),
        (call(function(inputs=["a", "a"]), operands=["x", "x"]), "input 'a' is there twice"),
        (call(with_defaults()), "attribute 'k' is there twice"),
        (loop_of_one_name(), "input 'i' is there twice"),
    ],
    ids=["functions", "opsets of a function", "operands", "defaults", "loop"],
)  # fmt: skip
def test_a_name_that_stands_for_two_is_refused(made: onnx.ModelProto, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        load(made)


@pytest.mark.parametrize(
    "imports",
    [
        [("", 11), ("ai.onnx", 13)],
        [("ai.onnx", 11), ("", 13)],
        [("", 11), ("", 13)],
        [("", 13), ("", 11)],
        [("", 13), ("ai.onnx", 11)],
    ],
)
def test_the_last_opset_of_a_domain_is_taken_as_onnxruntime_does(
    imports: list[tuple[str, int]],
) -> None:
    """Up to opset 12 Softmax goes over all axes from the first on."""
    ort = pytest.importorskip("onnxruntime")
    graph = helper.make_graph(
        [helper.make_node("Softmax", ["x"], ["y"])],
        "g",
        [value("x", 1, 2, 3)],
        [value("y", 1, 2, 3)],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*each) for each in imports]
    )
    made.ir_version = 8
    x = np.arange(6, dtype=np.float32).reshape(1, 2, 3)
    session = ort.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    taken, other = imports[1][1], imports[0][1]
    told = f"opset {taken} of domain 'ai.onnx' is taken, the last .* imports {other}, too\nhint: keep one"
    with pytest.warns(TilewrightWarning, match=told):
        found = evaluate(load(made), [x])
    np.testing.assert_allclose(found[0], session.run(None, {"x": x})[0], rtol=1e-5)


def test_a_domain_nobody_reads_may_have_two_versions() -> None:
    made = model([helper.make_node("Neg", ["x"], ["y"])])
    made.opset_import.append(helper.make_opsetid("own", 2))
    with pytest.warns(TilewrightWarning, match="opset 2 of domain 'own' is taken"):
        assert len(load(made).outputs) == 1


def test_what_is_there_twice_and_the_same_is_taken() -> None:
    made = call(function(), function())
    made.opset_import.append(helper.make_opsetid("ai.onnx", 17))
    assert len(load(made).outputs) == 1


@pytest.mark.parametrize("opset", [8, 17])
@pytest.mark.parametrize("count", [-1, 0, 3])
def test_a_scan_of_more_than_it_has_is_refused(count: int, opset: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["b"])], "body", [value("a")], [value("b")]
    )
    # Lengths come first in the older form.
    given = ["", "x"] if opset == 8 else ["x"]
    made = model([helper.make_node("Scan", given, ["y"], num_scan_inputs=count, body=body)])
    made.opset_import[0].version = opset
    refused = f"num_scan_inputs is {count}, of {len(given)} inputs"
    with pytest.raises(ModelError, match=refused):
        load(made)
