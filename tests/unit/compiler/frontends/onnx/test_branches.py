"""Branches whose results have several ranks: exporters write squeezing an axis of open size like that."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

# `x[:, :, ::2].squeeze(-1)` and what follows, as torch's older exporter writes it.
SQUEEZED = """graph (float[N,2,L] x, bool p) => (float[A,2] y) {
    first = Constant<value_ints = [0]>()
    most = Constant<value_ints = [9223372036854775807]>()
    last = Constant<value_ints = [2]>()
    cut = Slice(x, first, most, last, last)
    shape = Shape(cut)
    axis = Constant<value_int = 2>()
    size = Gather<axis = 0>(shape, axis)
    one = Constant<value_int = 1>()
    CONDITION
    z = If(c) <
      then_branch = t () => (float[A,2] a) { a = Squeeze(cut, last) },
      else_branch = e () => (float[A,2,B] b) { b = Identity(cut) }
    >
    y = Neg(z)
}"""
IS_ONE = "c = Equal(size, one)"
X = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def run(text: str, x: np.ndarray, p: bool = True) -> np.ndarray:
    (found,) = evaluate(load(onnx_models.parse(text)), [x, np.array(p)])
    return np.asarray(found)


@pytest.mark.parametrize(
    "condition", [IS_ONE, "d = Equal(one, size) i = Cast<to = 7>(d) c = Cast<to = 9>(i)"]
)
@pytest.mark.parametrize("length", [1, 2])
def test_an_axis_of_open_size_is_squeezed(condition: str, length: int) -> None:
    x = X[:, :, :length]
    found = run(SQUEEZED.replace("CONDITION", condition), x)
    np.testing.assert_array_equal(found, -x[:, :, 0])


def test_a_call_whose_axis_is_longer_is_refused() -> None:
    model = onnx_models.parse(SQUEEZED.replace("CONDITION", IS_ONE))
    compiled = tilewright.compile(model, threads=1)
    np.testing.assert_array_equal(compiled(X, np.array(True)), -X[:, :, 0])
    with pytest.raises(InputError, match="3, expected 1"):
        compiled(np.ones((3, 2, 5), np.float32), np.array(True))


def test_a_known_size_takes_the_branch_that_it_says() -> None:
    text = SQUEEZED.replace("CONDITION", IS_ONE).replace("float[A,2] y", "float[A,2,B] y")
    model = onnx_models.parse(text)
    x = np.ones((3, 2, 5), np.float32)
    graph = load(model, input_shapes={"x": ("N", 2, 5)})
    (found,) = evaluate(graph, [x, np.array(True)])
    np.testing.assert_array_equal(found, -x[:, :, ::2])


@pytest.mark.parametrize(
    "condition",
    [
        "c = Identity(p)",
        "t = Add(one, one) c = Less(size, t)",
        # Numbers that are no sizes, and sizes that a cast may change.
        "f = Cast<to = 1>(size) o = Constant<value_float = 1.0>() c = Equal(f, o)",
        "f = Cast<to = 3>(size) o = Cast<to = 3>(one) c = Equal(f, o)",
    ],
)
def test_another_condition_gives_results_of_one_rank(condition: str) -> None:
    with pytest.raises(ModelError, match="depending on data"):
        load(onnx_models.parse(SQUEEZED.replace("CONDITION", condition)))


def test_an_axis_that_stays_in_the_result_has_any_size() -> None:
    """tf2onnx asks of a batch whether it is 1; that one branch has another rank does not make it so."""
    text = """graph (float[N,2] x) => (float[A] y) {
        shape = Shape<start = 0, end = 1>(x)
        one = Constant<value_ints = [1]>()
        c = Equal(shape, one)
        z = If(c) <
          then_branch = t () => (float[A,2] a) { a = Identity(x) },
          else_branch = e () => (float[A,1,2] b) { b = Unsqueeze(x, one) }
        >
        flat = Constant<value_ints = [-1]>()
        y = Reshape(z, flat)
    }"""
    with pytest.raises(ModelError, match="depending on data"):
        load(onnx_models.parse(text))


def test_an_axis_is_squeezed_inside_of_a_branch() -> None:
    inner = SQUEEZED[SQUEEZED.index("first =") : SQUEEZED.rindex("y = Neg")]
    inner = inner.replace("CONDITION", IS_ONE)
    text = f"""graph (float[N,2,L] x, bool p) => (float[A,2] y) {{
        y = If(p) <
          then_branch = u () => (float[A,2] v) {{ {inner} v = Neg(z) }},
          else_branch = o () => (float[A,2] w) {{
            zero = Constant<value_int = 0>()
            w = Gather<axis = 2>(x, zero)
          }}
        >
    }}"""
    np.testing.assert_array_equal(run(text, X, True), -X[:, :, 0])
    long = np.ones((3, 2, 5), np.float32)
    np.testing.assert_array_equal(run(text, long, False), long[:, :, 0])
    with pytest.raises(InputError, match="sizes do not agree: 3 and 1"):
        run(text, long, True)
