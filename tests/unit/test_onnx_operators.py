"""Functions and operators that users register: what they mean, when, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright import onnx_operators
from tilewright.base.errors import ModelError, UserError

TWICE = """<domain: "com.example", opset_import: ["": 19]>
           Twice (x) => (y) { y = Add(x, x) }"""
X = np.array([-2, 3], np.float32)


def model(node: str, functions: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["": 19, "com.example": 1]>
            agraph (float[2] x) => (float[2] y) {{ y = {node} }}
            {functions}"""
    )


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for name in ("Twice", "SoftCap"):
        onnx_operators.unregister("com.example", name)


def test_a_registered_function_is_the_meaning_of_its_nodes() -> None:
    with pytest.raises(
        ModelError, match=r"op 'Twice' of domain 'com.example' is not supported"
    ):
        tw.compile(model("com.example.Twice(x)"))
    onnx_operators.register_function(onnx.parser.parse_function(TWICE))
    np.testing.assert_array_equal(tw.compile(model("com.example.Twice(x)"))(X), 2 * X)
    assert tw.coverage(model("com.example.Twice(x)"), quick=True).supported


def test_a_registered_operator_writes_ops_of_the_graph() -> None:
    @onnx_operators.register_operator("com.example", "SoftCap")
    def soft_cap(call: onnx_operators.Call):
        e, x = call.maker, call.tensor(0)
        limit = e.scalar(call.float("cap", 30.0), x.dtype)
        return e.op("mul", e.op("tanh", e.op("div", x, limit)), limit)

    compiled = tw.compile(model("com.example.SoftCap <cap = 2.0> (x)"))
    np.testing.assert_allclose(compiled(X), 2 * np.tanh(X / 2), rtol=1e-6)
    assert len(compiled.kernels) == 1
    with pytest.raises(ModelError, match="attribute 'other' is not supported"):
        tw.compile(model("com.example.SoftCap <other = 1> (x)"))


def test_overloads_are_functions_of_their_own() -> None:
    onnx_operators.register_function(onnx.parser.parse_function(TWICE))
    other = onnx.parser.parse_function(TWICE.replace("Add", "Mul"))
    other.overload = "square"
    onnx_operators.register_function(other)
    found = model("com.example.Twice(x)")
    found.graph.node[0].overload = "square"
    np.testing.assert_array_equal(tw.compile(found)(X), X * X)


def test_what_is_there_already_stays_unless_it_is_replaced() -> None:
    function = onnx.parser.parse_function(TWICE)
    onnx_operators.register_function(function)
    with pytest.raises(UserError, match="is registered already"):
        onnx_operators.register_function(function)
    function.node[0].op_type = "Sub"
    onnx_operators.register_function(function, replace=True)
    np.testing.assert_array_equal(tw.compile(model("com.example.Twice(x)"))(X), 0 * X)
    with pytest.raises(
        UserError, match=r"'Relu' of domain 'ai.onnx' is an operator that is known"
    ):
        onnx_operators.register_operator("", "Relu")


def test_a_function_of_the_model_comes_first() -> None:
    onnx_operators.register_function(onnx.parser.parse_function(TWICE))
    own = TWICE.replace("Add(x, x)", "Neg(x)")
    np.testing.assert_array_equal(tw.compile(model("com.example.Twice(x)", own))(X), -X)
