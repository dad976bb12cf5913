"""Optionals of which data decides whether they have a value: beside Python."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

# The largest of the numbers so far that are above a bound, if there is one.
LARGEST = """graph (int64 n, float[N] x, float bound) => (bool has, float[1] y) {
    c = Constant<value: tensor = bool {1}>()
    o0 = Optional<type: type_proto = float[1]>()
    o = Loop(n, c, o0) <body = b (int64 i, bool go, optional(float[1]) p)
        => (bool on, optional(float[1]) p2) {
        on = Identity(go)
        axis = Constant<value_ints = [0]>()
        at = Unsqueeze(i, axis)
        v = Gather<axis = 0>(x, at)
        above = Greater(v, bound)
        is = Squeeze(above)
        p2 = If(is) <
            then_branch = b1 () => (optional(float[1]) q) {
                there = OptionalHasElement(p)
                q = If(there) <
                    then_branch = b3 () => (float[1] r) {
                        before = OptionalGetElement(p)
                        r = Max(before, v)
                    },
                    else_branch = b4 () => (float[1] s) { s = Identity(v) }
                >
            },
            else_branch = b2 () => (optional(float[1]) t) { t = Identity(p) }
        >
    }>
    has = OptionalHasElement(o)
    y = If(has) <
        then_branch = e1 () => (float[1] a) { a = OptionalGetElement(o) },
        else_branch = e2 () => (float[1] d) { d = Constant<value_floats = [-1.0]>() }
    >
}"""
X = np.array([3, 1, 4, 1, 5, 9, 2], np.float32)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("trips", [0, 3, 7])
@pytest.mark.parametrize("bound", [0.5, 3.5, 10])
def test_a_loop_carries_an_optional(trips: int, bound: float) -> None:
    graph = load(onnx_models.parse(LARGEST))
    has, y = evaluate(graph, [np.array(trips), X, np.array(bound, np.float32)])
    found = X[:trips][X[:trips] > bound]
    assert has == bool(found.size)
    assert y == [found.max() if found.size else -1]


def test_what_is_compiled_carries_it_too() -> None:
    model = tilewright.compile(onnx_models.parse(LARGEST))
    has, y = model(np.array(7), X, np.array(3.5, np.float32))
    assert (has, y) == (True, [9])
    has, y = model(np.array(2), X, np.array(3.5, np.float32))
    assert (has, y) == (False, [-1])


def branches(end: str) -> str:
    return f"""graph (bool c, float[N] x) => ({end}) {{
        o = If(c) <
            then_branch = b1 () => (optional(float[M]) p) {{ p = Optional(x) }},
            else_branch = b2 () => (optional(float[M]) q) {{ q = Optional<type: type_proto = float[M]>() }}
        >
        y = OptionalGetElement(o)
    }}"""


def test_an_optional_without_a_value_has_none_to_take() -> None:
    graph = load(onnx_models.parse(branches("float[M] y")))
    np.testing.assert_array_equal(evaluate(graph, [np.array(True), X])[0], X)
    with pytest.raises(
        InputError, match=r"the optional is not empty.*does not hold for this call"
    ):
        evaluate(graph, [np.array(False), X])


def test_an_output_that_data_decides_the_presence_of_is_refused() -> None:
    with pytest.raises(
        ModelError, match="an optional that is there or not, depending on data"
    ):
        load(onnx_models.parse(branches("optional(float[M]) o")))
