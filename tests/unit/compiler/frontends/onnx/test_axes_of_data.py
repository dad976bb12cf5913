"""Axes that only the data of a call gives, of which it also says how many there are, beside numpy."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3) - 7

REDUCED = """graph (float[N,M,3] x, int64[K] axes) => (float[A,B,C] y) {
    y = KIND<keepdims = 1, noop_with_empty_axes = NOOP>(x, axes)
}"""


def run(text: str, *inputs: np.ndarray) -> np.ndarray:
    (found,) = evaluate(load(onnx_models.parse(text)), list(inputs))
    return np.asarray(found)


@pytest.mark.thinned(7)
@pytest.mark.parametrize("axes", [[], [0], [-1, 0], [2, 1, 0], [1, 1]])
@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize(
    ("kind", "function"),
    [("ReduceSumSquare", lambda x, a: (x * x).sum(a, keepdims=True)),
     ("ReduceMax", lambda x, a: x.max(a, keepdims=True)),
     ("ReduceProd", lambda x, a: x.prod(a, keepdims=True))],
)  # fmt: skip
def test_data_says_how_many_axes_are_reduced(kind, function, noop, axes) -> None:
    text = REDUCED.replace("KIND", kind).replace("NOOP", str(noop))
    found = run(text, X, np.array(axes, np.int64))
    chosen = tuple({a % 3 for a in axes}) or (() if noop else (0, 1, 2))
    np.testing.assert_allclose(found, function(X, chosen), rtol=1e-6)


def test_an_axis_that_is_none_fails_the_call() -> None:
    text = REDUCED.replace("KIND", "ReduceSum").replace("NOOP", "0")
    with pytest.raises(InputError, match="index 3 is out of range"):
        run(text, X, np.array([0, 3]))


def test_a_rank_that_depends_on_data_is_refused() -> None:
    text = REDUCED.replace("KIND", "ReduceSum").replace("NOOP", "0")
    with pytest.raises(ModelError, match="the rank of the result depends on data"):
        load(onnx_models.parse(text.replace("keepdims = 1", "keepdims = 0")))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("kind", ["CumSum", "CumProd"])
def test_one_axis_may_be_declared_as_a_vector_of_any_length(kind: str, axis: int) -> None:
    text = f"graph (float[4,2,3] x, int64[K] a) => (float[4,2,3] y) {{ y = {kind}(x, a) }}"
    model = onnx_models.parse(text, opset=26, ir_version=13)
    (found,) = evaluate(load(model), [X, np.array([axis])])
    wanted = np.cumsum(X, axis) if kind == "CumSum" else np.cumprod(X, axis)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_products_run_along_an_axis_of_any_length(size, exclusive, reverse) -> None:
    text = f"""graph (double[2,N] x) => (double[2,N] y) {{
        axis = Constant<value_int = 1>()
        y = CumProd<exclusive = {exclusive}, reverse = {reverse}>(x, axis)
    }}"""
    x = np.exp(np.sin(np.arange(2.0 * size)).reshape(2, size) / 8)
    (found,) = evaluate(load(onnx_models.parse(text, opset=26, ir_version=13)), [x])
    turned = x[:, ::-1] if reverse else x
    wanted = np.cumprod(turned, 1)
    if exclusive:
        wanted = np.concatenate([np.ones((2, 1)), wanted[:, :-1]], 1)
    np.testing.assert_allclose(found, wanted[:, ::-1] if reverse else wanted, rtol=1e-9)
