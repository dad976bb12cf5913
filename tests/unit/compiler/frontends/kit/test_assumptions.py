import numpy as np
import pytest

from fakes import onnx_models
from tilewright.base import symbolic
from tilewright.base.errors import InputError
from tilewright.compiler.frontends.kit.assumptions import Assumptions, solve
from tilewright.compiler.frontends.onnx import load, load_model
from tilewright.compiler.graph.evaluator import evaluate

N, M, K = (symbolic.symbol(n, 1) for n in "NMK")
BARE = {"N": 0, "M": 1, "K": 2}


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ((N, M), Assumptions(equal={"M": N})),
        ((M, N), Assumptions(equal={"M": N})),
        ((N, 5), Assumptions(equal={"N": 5})),
        ((K, N + M), Assumptions(equal={"K": N + M})),
        ((N, K + M), Assumptions(equal={"N": K + M})),
        ((symbolic.minimum(512, N), N), Assumptions(upper={"N": 512})),
        ((N, symbolic.maximum(4, N)), Assumptions(lower={"N": 4})),
        ((N * 768, M * 768), None),
        ((N * M, K), None),
        ((symbolic.floordiv(N, 2), M), None),
        ((N, 0), None),
        ((N + M, N + 3), Assumptions(equal={"M": 3})),
    ],
)
def test_what_follows_from_an_equality(
    pair: tuple[symbolic.Dim, symbolic.Dim], expected: Assumptions | None
) -> None:
    assert solve([pair], BARE) == expected


def test_symbols_that_no_input_shows_by_themselves_are_left_alone() -> None:
    assert solve([(N, M)], {"N": 0}) is None


def input_types(body: str) -> list[str]:
    return [str(v.type) for v in load(onnx_models.parse(body)).inputs]


def test_operands_that_meet_have_one_dimension() -> None:
    body = "graph (float[N, 3] x, float[M, 3] y) => (float[N, 3] z) { z = Add(x, y) }"
    assert input_types(body) == ["f32[N, 3]", "f32[N, 3]"]
    with pytest.raises(InputError, match="has size 5, expected 4"):
        evaluate(
            load(onnx_models.parse(body)), [np.zeros((n, 3), np.float32) for n in (4, 5)]
        )


def test_a_product_fixes_the_dimension_that_it_sums_over() -> None:
    body = """graph (float[B, K] x) => (float[B, 4] y) <float[2, 4] w = {1,2,3,4,5,6,7,8}> {
      y = MatMul(x, w)
    }"""
    assert input_types(body) == ["f32[B, 2]"]


def test_a_table_of_positions_bounds_the_sequence() -> None:
    body = """graph (int64[B, S] ids, float[5, 2] table, float[B, S, 2] x) => (float[B, S, 2] y)
      <int64 one = {1}, int64[1] first = {0}, int64[1] start = {0}> {
        shape = Shape(ids)
        s = Gather(shape, one)
        end = Unsqueeze(s, first)
        rows = Slice(table, start, end)
        y = Add(x, rows)
      }"""
    graph = load(onnx_models.parse(body))
    (dim,) = {d for v in graph.inputs for d in v.type.shape if str(d) == "S"}
    assert symbolic.bounds(dim) == (1, 5)
    assert str(graph.outputs[0].type) == "f32[B, S, 2]"


def test_a_cache_and_a_mask_agree_on_the_total_length() -> None:
    body = """graph (float[B, S, 4] q, float[B, P, 4] past, float[B, T] mask)
      => (float[B, S, T] y) <int64[1] axis = {1}> {
        keys = Concat<axis = 1>(past, q)
        turned = Transpose<perm = [0, 2, 1]>(keys)
        scores = MatMul(q, turned)
        wide = Unsqueeze(mask, axis)
        y = Add(scores, wide)
      }"""
    assert input_types(body) == ["f32[B, S, 4]", "f32[B, P, 4]", "f32[B, (P + S)]"]


def test_a_cache_behind_a_mask_of_the_total_length_may_be_empty() -> None:
    body = """graph (float[B, T] mask, float[B, S, 4] q, float[B, P, 4] past)
      => (float[B, S, T] y) <int64[1] axis = {1}> {
        keys = Concat<axis = 1>(past, q)
        turned = Transpose<perm = [0, 2, 1]>(keys)
        scores = MatMul(q, turned)
        wide = Unsqueeze(mask, axis)
        y = Add(scores, wide)
      }"""
    graph = load(onnx_models.parse(body))
    assert input_types(body) == ["f32[B, (P + S)]", "f32[B, S, 4]", "f32[B, P, 4]"]
    sizes = [s for v in graph.inputs for d in v.type.shape for s in symbolic.symbols(d)]
    assert {s.bounds() for s in sizes if s.name == "P"} == {(0, None)}
    q = np.ones((2, 3, 4), np.float32)
    shapes = ((2, 3), (2, 3, 4), (2, 0, 4))
    (y,) = evaluate(graph, [np.ones(shape, np.float32) for shape in shapes])
    np.testing.assert_array_equal(y, q @ q.transpose(0, 2, 1) + 1)


def test_a_symbol_has_the_bounds_that_are_known_of_it_wherever_it_stands() -> None:
    known = Assumptions(equal={"K": N + M}).merged(Assumptions({}, {"N": 0}, {"M": 7}))
    assert symbolic.bounds(known.dim("K")) == (1, None)
    assert symbolic.bounds(known.merged(Assumptions(upper={"N": 2})).dim("K")) == (1, 9)


def test_what_cannot_be_solved_is_handed_on() -> None:
    body = """graph (float[N] x, float[M, 3] y) => (float[M, 3] z) <int64[2] s = {-1, 3}> {
      pairs = Reshape(x, s)
      z = Add(pairs, y)
    }"""
    imported = load_model(onnx_models.parse(body))
    assert [(str(a), str(b)) for a, b in imported.assumptions] == [
        ("N", "3*(N // 3)"),
        ("(N // 3)", "M"),
    ]


def test_broadcasting_a_static_one_assumes_nothing() -> None:
    body = "graph (float[N, 1] x, float[1, M] y) => (float[N, M] z) { z = Add(x, y) }"
    imported = load_model(onnx_models.parse(body))
    assert input_types(body) == ["f32[N, 1]", "f32[1, M]"]
    assert imported.assumptions == ()
