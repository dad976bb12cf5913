"""Indices that a call must look at get a check; the others get none."""

import pytest

from fakes.graphs import assert_becomes, parse, run
from tilewright.base.errors import ModelError
from tilewright.compiler.ops.declaration import OpDecl
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import (
    EliminateCommon,
    EliminateDead,
    GuardIndices,
    Simplify,
)

G = [GuardIndices()]
HEAD = "graph @g(%t: f32[5, 3], %i: i64[4])"
GATHER = "%y: f32[4, 3] = gather(%t, %i) {axis = 0}"
CHECK = "%c: i64[] = out_of_range(%i) {axis = 0, high = [4], low = [-5], size = [5]}"


def checks(graph):
    return [n.operands[0].name for n in graph if n.op == "out_of_range"]


def test_a_gather_gets_a_check_before_it():
    assert_becomes(
        G, f"{HEAD} {{ {GATHER} return %y }}", f"{HEAD} {{ {CHECK} {GATHER} return %y }}"
    )


def test_what_nobody_uses_of_a_check_stays():
    graph = parse(f"{HEAD} {{ {CHECK} {GATHER} return %y }}")
    run_passes(graph, [EliminateCommon(), EliminateDead()])
    assert checks(graph) == ["i"]


def test_equal_checks_are_one_and_others_are_not():
    graph = parse(
        f"graph @g(%t: f32[5, 3], %u: f32[5, 2], %v: f32[6, 3], %i: i64[4]) {{ {GATHER}"
        " %a: f32[4, 2] = gather(%u, %i) {axis = 0}"
        " %b: f32[4, 3] = gather(%v, %i) {axis = 0} return %y, %a, %b }"
    )
    run_passes(graph, G)
    assert [n.attributes["high"] for n in graph if n.op == "out_of_range"] == [(4,), (5,)]


def test_repeated_indices_are_looked_at_once():
    text = """
graph @g<N: 0..>(%t: f32[5, 3], %i: i64[4], %j: i64[1, 1]) {{
  %r: i64[4, 1] = reshape(%i) {{shape = [4, 1]}}
  %b: i64[4, 3] = broadcast_to(%r) {{shape = [4, 3]}}
  %e: i64[N, 3] = broadcast_to(%j) {{shape = [N, 3]}}
  %y: f32[{0}, 3] = gather_elements(%t, %{1}) {{axis = 0}} return %y
}}"""
    for rows, indices, looked_at in (("4", "b", "i"), ("N", "e", "e")):
        graph = parse(text.format(rows, indices))
        run_passes(graph, G)
        assert checks(graph) == [looked_at]  # nobody reads what no row repeats


def test_each_column_of_tuples_is_checked_for_itself():
    graph = parse(
        "graph @g(%t: f32[5, 3], %i: i64[4, 2])"
        " { %y: f32[4] = gather_nd(%t, %i) {batch_dims = 0} return %y }"
    )
    run_passes(graph, G)
    assert [n.attributes["size"] for n in graph if n.op == "out_of_range"] == [(5,), (3,)]


def test_columns_that_count_are_in_range():
    graph = parse(
        "graph @g(%t: f32[5, 3], %j: i64[4, 1]) {"
        " %r: i64[4, 1] = iota() {shape = [4, 1], axis = 0, dtype = i64}"
        " %i: i64[4, 2] = concat(%r, %j) {axis = 1}"
        " %y: f32[4] = gather_nd(%t, %i) {batch_dims = 0} return %y }"
    )
    run_passes(graph, G)
    assert [n.attributes["axis"] for n in graph if n.op == "out_of_range"] == [1]


def test_scatters_are_checked():
    graph = parse(
        "graph @g(%t: f32[5, 3], %i: i64[2, 3], %u: f32[2, 3]) {"
        " %y: f32[5, 3] = scatter_elements(%t, %i, %u) {axis = 0} return %y }"
    )
    run_passes(graph, G)
    assert checks(graph) == ["i"]


SAMPLES = (
    "graph @g(%x: f32[2, 6, 6, 2], %b: i64[3], %r: f32[3, 4, 1], %c: f32[3, 4, 1]) {"
    " %y: f32[3, 4, 4, 2] = pool_samples(%x, %b, %r, %c) return %y }"
)


def test_the_images_of_samples_are_checked():
    graph = parse(SAMPLES)
    run_passes(graph, G)
    assert checks(graph) == ["b"]


def test_ops_for_the_host_check_for_themselves(monkeypatch):
    monkeypatch.setattr(OpDecl, "supports", lambda *_: False)
    assert not run_passes(parse(SAMPLES), G).modified


@pytest.mark.parametrize(("values", "works"), [("0, 4, -5", True), ("0, 5, 1", False)])
def test_constants_are_checked_at_once(values, works):
    text = (
        f"graph @g(%t: f32[5, 3]) {{ %i: i64[3] = constant() {{value = i64[3] [{values}]}}"
        " %y: f32[3, 3] = gather(%t, %i) {axis = 0} return %y }"
    )
    for run_time in (True, False):
        if works:
            assert not checks(run([GuardIndices(run_time=run_time)], text))
            continue
        graph = parse(text)
        with pytest.raises(ModelError, match="index 5 is out of range on axis 0 of size 5"):
            run_passes(graph, [GuardIndices(run_time=run_time)])


def test_only_constants_are_checked_where_calls_are_not_to_be():
    graph = parse(f"{HEAD} {{ {GATHER} return %y }}")
    assert not run_passes(graph, [GuardIndices(run_time=False)]).modified


def test_no_index_is_nothing_to_look_at():
    text = "graph @g(%t: f32[5, 3], %i: i64[0]) { %y: f32[0, 3] = gather(%t, %i) {axis = 0} return %y }"
    assert_becomes(G, text, text)


@pytest.mark.parametrize(
    ("op", "more"), [("gather_elements", ""), ("scatter_elements", ", %u")]
)
def test_places_that_do_not_count_from_the_end_begin_at_0(op, more):
    graph = parse(
        "graph @g(%t: f32[5], %i: i64[4], %u: f32[4]) {"
        f" %y: f32[{5 if more else 4}] = {op}(%t, %i{more}) {{axis = 0, from_end = false}}"
        " return %y }"
    )
    run_passes(graph, G)
    assert [n.attributes["low"] for n in graph if n.op == "out_of_range"] == [(0,)]


def test_a_known_place_before_the_first_is_refused_where_none_counts_from_the_end():
    text = (
        "graph @g(%t: f32[5, 3]) {{ %i: i64[1] = constant() {{value = i64[1] [-1]}}"
        " %y: f32[1, 3] = gather(%t, %i) {{axis = 0{}}} return %y }}"
    )
    run_passes(parse(text.format("")), G)
    with pytest.raises(ModelError, match="index -1 is out of range"):
        run_passes(parse(text.format(", from_end = false")), [Simplify(), *G])
