"""What is made of rows of constants is folded for all rows at once."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.graphs import ops, parse
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import FoldConstants, FoldRows

PASSES = [FoldConstants(), FoldRows()]
STACK = "%s: f32[2, 3] = constant {value = f32[2, 3] [1.0, 2.0, nan, 4.0, inf, 6.0]}"


def run(text: str) -> Graph:
    graph = parse(text)
    run_passes(graph, PASSES)
    return graph


def folded(text: str, *calls: list[np.ndarray]) -> list[str]:
    """The ops that remain; every call computes what it did before."""
    before, after = parse(text), run(text)
    for inputs in calls:
        for old, new in zip(evaluate(before, inputs), evaluate(after, inputs), strict=True):
            np.testing.assert_array_equal(new, old)
    return ops(after)


def at(place: int) -> np.ndarray:
    return np.array(place, np.int64)


def test_a_chain_on_a_row_becomes_a_row_of_what_it_makes():
    left = folded(
        f"graph @g(%i: i64[]) {{ {STACK} %r: f32[3] = gather(%s, %i) {{axis = 0}}"
        " %n: f32[3] = neg(%r) %m: f32[3] = mul(%n, %r) return %m }",
        [at(0)],
        [at(1)],
        [at(-1)],
    )
    assert left == ["gather"]


@pytest.mark.parametrize("axis", [1, -1])
def test_rows_may_lie_along_any_axis(axis: int):
    left = folded(
        f"graph @g(%i: i64[]) {{ {STACK} %r: f32[2] = gather(%s, %i) {{axis = {axis}}}"
        " %y: f32[2] = exp(%r) return %y }",
        *([at(i)] for i in range(3)),
    )
    assert left == ["gather"]


def test_a_place_may_be_a_tensor_of_one_element():
    left = folded(
        f"graph @g(%i: i64[1]) {{ {STACK} %r: f32[1, 3] = gather(%s, %i) {{axis = 0}}"
        " %q: f32[3, 1] = transpose(%r) {perm = [1, 0]} return %q }",
        [np.array([1])],
    )
    assert left == ["reshape", "gather"]


def test_rows_at_one_place_and_constants_fold_together():
    text = (
        f"graph @g(%i: i64[], %j: i64[]) {{ {STACK}"
        " %t: f32[2] = constant {value = f32[2] [5.0, 7.0]}"
        " %r: f32[3] = gather(%s, %i) {axis = 0} %k: f32[] = gather(%t, %PLACE) {axis = 0}"
        " %two: f32[] = constant {value = f32[] [2.0]} %l: f32[] = mul(%k, %two)"
        " %y: f32[3] = mul(%r, %l) return %y }"
    )
    assert folded(text.replace("%PLACE", "%i"), [at(1), at(0)]) == ["gather"]
    assert folded(text.replace("%PLACE", "%j"), [at(1), at(0)]) == [
        *["gather", "gather", "mul"]
    ]


def test_what_would_take_more_memory_or_has_no_rows_stays():
    left = folded(
        f"graph @g(%i: i64[]) {{ {STACK} %r: f32[3] = gather(%s, %i) {{axis = 0}}"
        " %y: f32[9, 3] = broadcast_to(%r) {shape = [9, 3]} return %y }",
        [at(1)],
    )
    assert left == ["gather", "broadcast_to"]
    empty = run(
        "graph @g(%i: i64[]) { %s: f32[0, 3] = constant {value = f32[0, 3] []}"
        " %r: f32[3] = gather(%s, %i) {axis = 0} %y: f32[3] = neg(%r) return %y }",
    )
    assert ops(empty) == ["gather", "neg"]


def test_the_stack_is_let_go_and_what_replaces_it_lies_at_a_cache_line():
    graph = run(
        f"graph @g(%i: i64[]) {{ {STACK} %r: f32[3] = gather(%s, %i) {{axis = 0}}"
        " %y: f32[3] = neg(%r) return %y }",
    )
    (constant,) = (node for node in graph if node.op == "constant")
    array = constant.attributes["value"]
    assert isinstance(array, np.ndarray)
    np.testing.assert_array_equal(array[0], [-1, -2, np.nan])
    assert array.ctypes.data % 64 == 0


def test_a_table_of_words_stays_a_table():
    graph = parse(
        f"graph @g(%i: i64[]) {{ {STACK} %r: f32[3] = gather(%s, %i) {{axis = 0}}"
        " %n: f32[3] = neg(%r) return %n }"
    )
    run_passes(graph, [FoldConstants(), FoldRows(most=1)])
    assert ops(graph) == ["gather", "neg"]
