"""`run` compares the results before and after the pass: what is asserted here is the form."""

import numpy as np
import pytest

from fakes.graphs import only, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import ClampIndices, FuseKernels, GuardIndices

C = [GuardIndices(run_time=False), ClampIndices()]


def clamped(lines, inputs, result="y"):
    return run(C, f"graph @g<N: 1.., R: 0..>({inputs}) {{ {lines} return %{result} }}")


def test_indices_that_several_rows_share_are_clamped_once():
    graph = clamped(
        "%y: f32[R, 7] = gather(%x, %i) {axis = 1}", "%x: f32[R, 5], %i: i64[7]"
    )
    assert ops(graph) == ["clamp_index", "gather"]
    assert only(graph, "clamp_index").attributes["size"] == (5,)
    assert only(graph, "gather").attributes["in_range"] is True


def test_places_on_an_axis_of_known_size_are_short():
    known = clamped(
        "%y: f32[2, 7] = gather(%x, %i) {axis = 1}", "%x: f32[2, 5], %i: i64[7]"
    )
    assert only(known, "clamp_index").result.type.dtype.name == "i32"
    open_ = clamped(
        "%y: f32[2, 7] = gather(%x, %i) {axis = 1}", "%x: f32[2, N], %i: i64[7]"
    )
    assert only(open_, "clamp_index").result.type.dtype.name == "i64"


def test_indices_that_are_repeated_are_clamped_in_front_of_that():
    graph = clamped(
        "%j: i64[3, 7] = broadcast_to(%i) {shape = [3, 7]}"
        " %y: f32[3, 7] = gather_elements(%x, %j) {axis = 1}",
        "%x: f32[3, 5], %i: i64[1, 7]",
    )
    assert ops(graph) == ["clamp_index", "broadcast_to", "gather_elements"]


def test_who_picks_alike_shares_the_clamp():
    graph = clamped(
        "%a: f32[2, 7] = gather(%x, %i) {axis = 1} %b: f32[2, 7] = gather(%z, %i) {axis = 1}"
        " %y: f32[2, 7] = add(%a, %b)",
        "%x: f32[2, 5], %z: f32[2, 5], %i: i64[7]",
    )
    assert ops(graph).count("clamp_index") == 1


@pytest.mark.parametrize(
    ("inputs", "line"),
    [
        ("%x: f32[5, 4], %i: i64[7]", "%y: f32[7, 4] = gather(%x, %i) {axis = 0}"),
        ("%x: f32[5], %i: i64[7]", "%y: f32[7] = gather(%x, %i) {axis = 0}"),
        (
            "%x: f32[3, 5], %i: i64[3, 7]",
            "%y: f32[3, 7] = gather_elements(%x, %i) {axis = 1}",
        ),
    ],
)
def test_indices_that_are_read_once_stay_as_they_are(inputs, line):
    assert "clamp_index" not in ops(clamped(line, inputs))


def test_numbers_that_count_from_the_front_need_no_clamp():
    head = "%i: i64[3] = constant {value = i64[3] [0, NUMBER, 1]} "
    line = "%y: f32[3, 4] = gather(%x, %i) {axis = 0}"
    inside = clamped(head.replace("NUMBER", "4") + line, "%x: f32[5, 4]")
    assert only(inside, "gather").attributes["in_range"] is True
    behind = clamped(head.replace("NUMBER", "-1") + line, "%x: f32[5, 4]")
    assert only(behind, "gather").attributes["in_range"] is False


def test_nobody_else_says_that_indices_are_in_range():
    text = (
        "graph @g(%x: f32[5, 4], %i: i64[7]) {"
        " %y: f32[7, 4] = gather(%x, %i) {axis = 0, in_range = true} return %y }"
    )
    graph = parse(text)
    run_passes(graph, [GuardIndices()])
    assert only(graph, "gather").attributes["in_range"] is False


def test_a_clamp_is_kept_where_it_would_be_repeated_much():
    text = (
        "graph @g(%x: f32[COUNT, 4096], %i: i64[4096]) {"
        " %y: f32[COUNT, 4096] = gather(%x, %i) {axis = 1} return %y }"
    )
    many = run([*C, FuseKernels()], text.replace("COUNT", "64"))
    assert ops(many) == ["clamp_index", "gather"]
    few = run([*C, FuseKernels()], text.replace("COUNT", "2"))
    assert ops(few) == ["fused"]


def test_places_out_of_range_and_empty_axes_are_clamped_as_before():
    graph = clamped(
        "%y: f32[R, 4] = gather(%x, %i) {axis = 1}", "%x: f32[R, 5], %i: i32[4]"
    )
    i = np.array([-5, 4, 0, -1], np.int32)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    (y,) = evaluate(graph, [x, i])
    np.testing.assert_array_equal(y, x[:, i])
    (y,) = evaluate(graph, [x[:0], i])
    assert y.shape == (0, 4)
