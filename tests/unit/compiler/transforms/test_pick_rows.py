"""What a trip reads of a table, for a kernel that reads it from memory, is not copied."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.graphs import ops, parse
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import GuardIndices, PickRows

LOOP = """graph @g(%n: i64[], %x: f32[2, 3], %v: f32[4, 3, 3]) {{
  %z: i64[] = constant {{value = i64[] [-4]}}
  %t: i64[], %y: f32[2, 3] = while(%z, %x, %n, %v) {{carried = 2}}
    graph @go(%i: i64[], %p: f32[2, 3], %m: i64[], %u: f32[4, 3, 3]) {{
      %c: bool[] = less(%i, %m)
      return %c
    }}
    graph @body(%i: i64[], %p: f32[2, 3], %m: i64[], %u: f32[4, 3, 3]) {{
      %one: i64[] = constant {{value = i64[] [1]}}
      %j: i64[] = add(%i, %one)
      {body}
      return %j, %q
    }}
  return %y
}}"""
GATHER = "%w: f32[3, 3] = gather(%u, %i) {axis = 0} "


def picked(body: str, **options: int) -> tuple[Graph, list[str]]:
    """The graph, and the ops of the body; two calls compute what they did before."""
    text = LOOP.format(body=body)
    graph = parse(text)
    run_passes(graph, [GuardIndices(), PickRows(**{"least_bytes": 1, **options})])
    rng = np.random.default_rng(0)
    for count in (-4, 3):
        x, v = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3), (4, 3, 3)))
        inputs = [np.array(count, np.int64), x, v]
        (old,), (new,) = evaluate(parse(text), inputs), evaluate(graph, inputs)
        np.testing.assert_array_equal(new, old)
    (loop,) = (node for node in graph if node.op == "while")
    return graph, ops(loop.regions[1])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (GATHER + "%q: f32[2, 3] = matmul(%p, %w)", {"pick_row", "matmul"}),
        (
            (
                "%k: i64[1] = reshape(%i) {shape = [1]}"
                " %w1: f32[1, 3, 3] = gather(%u, %k) {axis = 0}"
                " %w: f32[3, 3] = reshape(%w1) {shape = [3, 3]} %q: f32[2, 3] = matmul(%p, %w)"
            ),
            {"pick_row", "matmul"},
        ),
        # Read elementwise: the load of the kernel picks.
        (
            GATHER
            + "%s: f32[3] = reduce_sum(%w) {axes = [0], keepdims = false} %q: f32[2, 3] = add(%p, %s)",
            {"gather", "add"},
        ),
        # Not whole rows in one piece.
        (
            (
                "%w: f32[4, 3] = gather(%u, %one) {axis = 1}"
                " %s: f32[3, 4] = transpose(%w) {perm = [1, 0]} %r: f32[2, 4] = matmul(%p, %s)"
                " %q: f32[2, 3] = matmul(%r, %w)"
            ),
            {"gather", "matmul"},
        ),
        # The table is made in the trip.
        (
            (
                "%a: f32[4, 3, 3] = neg(%u) %w: f32[3, 3] = gather(%a, %i) {axis = 0}"
                " %q: f32[2, 3] = matmul(%p, %w)"
            ),
            {"gather", "matmul"},
        ),
    ],
)
def test_rows_that_products_read_stay_where_they_are(body: str, found: set[str]) -> None:
    _, left = picked(body)
    assert {op for op in left if op in ("pick_row", "gather", "matmul", "add")} >= found
    assert ("pick_row" in left) is not ("gather" in left)


def test_what_the_loop_carries_is_no_table() -> None:
    """The next value may be written over it before the row is read."""
    _, left = picked(
        "%w: f32[1, 3] = gather(%p, %k) {axis = 0} %b: f32[3, 3] = gather(%u, %i) {axis = 0}"
        " %r: f32[1, 3] = matmul(%w, %b) %q: f32[2, 3] = add(%p, %r)".replace(
            "%w:", "%k: i64[1] = constant {value = i64[1] [1]} %w:", 1
        )
    )
    assert left.count("gather") == 1
    assert left.count("pick_row") == 1


def test_small_rows_are_copied() -> None:
    _, left = picked(GATHER + "%q: f32[2, 3] = matmul(%p, %w)", least_bytes=37)
    assert "pick_row" not in left
    _, left = picked(GATHER + "%q: f32[2, 3] = matmul(%p, %w)", least_bytes=36)
    assert "pick_row" in left


def test_outside_of_loops_and_where_sizes_are_read_rows_are_copied() -> None:
    plain = parse(
        "graph @g(%i: i64[], %u: f32[4, 3, 3], %p: f32[2, 3]) {"
        " %w: f32[3, 3] = gather(%u, %i) {axis = 0} %q: f32[2, 3] = matmul(%p, %w) return %q }"
    )
    run_passes(plain, [GuardIndices(run_time=False), PickRows(least_bytes=1)])
    assert "pick_row" not in ops(plain)
    _, left = picked(
        "%k: i64[1] = reshape(%one) {shape = [1]} bind_sizes(%k) {sizes = [S]} "
        + GATHER
        + "%q: f32[2, 3] = matmul(%p, %w)"
    )
    assert "pick_row" not in left
