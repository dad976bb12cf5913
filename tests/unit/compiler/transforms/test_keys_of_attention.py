"""Attention whose keys are hidden more than once, or are not there: the same numbers as the ops that it stands for."""

import numpy as np
import pytest

import tilewright as tw
from fakes.graphs import ops, parse, run
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.transforms import RecognizeAttention, Simplify


def random_inputs(*shapes):
    draw = np.random.default_rng(0).standard_normal
    return [draw(shape).astype(np.float32) for shape in shapes]


def hides(value, name, mask, scores):
    return (
        f"%x{name}: f32[] = constant {{value = f32[] [{value}]}}"
        f" %{name}: f32[2, 3, 5, 7] = where(%{mask}, %{scores}, %x{name})"
    )


@pytest.mark.parametrize("inner", ["-3e38", "-inf"])
@pytest.mark.parametrize("outer", ["-3e38", "-inf"])
@pytest.mark.parametrize("added", ["", "%e: f32[2, 3, 5, 7] = add(%a, %d)"])
def test_rows_whose_keys_are_all_hidden_twice_are_those_of_the_model(inner, outer, added):
    text = (
        "graph @g(%q: f32[2, 3, 5, 4], %k: f32[2, 3, 7, 4], %v: f32[2, 3, 7, 6], %m: bool[5, 7],"
        " %n: bool[2, 1, 1, 7], %d: f32[5, 7]) {"
        " %t: f32[2, 3, 4, 7] = transpose(%k) {perm = [0, 1, 3, 2]}"
        " %s: f32[2, 3, 5, 7] = matmul(%q, %t)"
        f" {hides(inner, 'a', 'm', 's')} {added} {hides(outer, 'b', 'n', 'e' if added else 'a')}"
        " %p: f32[2, 3, 5, 7] = softmax(%b) {axis = -1}"
        " %o: f32[2, 3, 5, 6] = matmul(%p, %v) return %o }"
    )
    graph = run([Simplify(), RecognizeAttention()], text)
    assert "attention" in ops(graph)
    *ends, bias = random_inputs((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 6), (5, 7))
    bias[1], bias[2:] = -np.inf, bias[2:] * 1e38
    padded = np.array([[0] * 7, [1, 1, 0, 1, 0, 0, 0]], bool).reshape(2, 1, 1, 7)
    inputs = [*ends, np.tri(5, 7, dtype=bool), padded, bias]
    (expected,), (got,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_attention_of_no_keys_is_zero_as_the_sum_over_none_is():
    b = GraphBuilder()
    q, k, v = (
        b.input(name, TensorType(f32, (1, 2, rows, 4)))
        for name, rows in (("q", 3), ("k", symbol("keys", 0)), ("v", symbol("keys", 0)))
    )
    scores = b.matmul(q, b.transpose(k, perm=(0, 1, 3, 2)))
    b.output("o", b.matmul(b.softmax(scores, axis=-1), v))
    model = tw.compile(b.graph, cache=False)
    assert any(kernel.name.startswith("attention") for kernel in model.kernels)
    for count in (0, 1, 9):
        inputs = random_inputs((1, 2, 3, 4), (1, 2, count, 4), (1, 2, count, 4))
        (wanted,) = evaluate(b.graph, inputs)
        assert count or not wanted.any()
        np.testing.assert_allclose(model(*inputs), wanted, rtol=1e-5, atol=1e-6)
