"""Masks that hide nothing, or the same of every row, are what they are."""

from __future__ import annotations

import pytest

from fakes.graphs import assert_becomes, assert_same_results, copy_of, parse
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import Simplify

Q, K = "f32[2, 3, 5, 4]", "f32[2, 3, 7, 4]"
INPUTS = f"%q: {Q}, %k: {K}, %v: {K}"


def text(inputs: str, lines: str, operands: str) -> str:
    given = f"{INPUTS}, {inputs}" if inputs else INPUTS
    return f"graph @g({given}) {{ {lines} %y: {Q} = attention(%q, %k, %v, {operands}) return %y }}"


@pytest.mark.parametrize(
    ("type_", "value", "operands"),
    [("f32", "0.0", "%m, _"), ("f32", "-0.0", "%m, _"), ("bool", "true", "_, %m")],
)
def test_what_hides_nothing_goes(type_: str, value: str, operands: str) -> None:
    constant = (
        f"%m: {type_}[2, 1, 5, 7] = constant {{value = {type_}[2, 1, 5, 7] splat {value}}}"
    )
    assert_becomes([Simplify()], text("", constant, operands), text("", "", "_, _"))


@pytest.mark.parametrize(
    ("type_", "value", "operands"),
    [("f32", "1.0", "%m, _"), ("f32", "nan", "%m, _"), ("bool", "false", "_, %m")],
)
def test_what_hides_something_stays(type_: str, value: str, operands: str) -> None:
    constant = (
        f"%m: {type_}[1, 1, 1, 1] = constant {{value = {type_}[1, 1, 1, 1] splat {value}}}"
    )
    graph = parse(text("", constant, operands))
    run_passes(graph, [Simplify()])
    (node,) = [node for node in graph if node.op == "attention"]
    assert sum(value is not None for value in node.operands) == 4


@pytest.mark.parametrize("shape", ["2, 1, 1, 7", "1, 7", "7", "5, 1", "3, 1, 1", ""])
@pytest.mark.parametrize(("type_", "operands"), [("f32", "%m, _"), ("bool", "_, %m")])
def test_what_is_repeated_is_read_where_it_is(
    shape: str, type_: str, operands: str
) -> None:
    whole = "[2, 3, 5, 7]"
    spread = f"%m: {type_}{whole} = broadcast_to(%x) {{shape = {whole}}}"
    graph = parse(text(f"%x: {type_}[{shape}]", spread, operands))
    before = copy_of(graph)
    run_passes(graph, [Simplify()])
    assert "broadcast_to" not in [node.op for node in graph]
    assert_same_results(before, graph)


def test_sizes_that_only_a_call_compares_stay_repeated() -> None:
    graph = parse(
        "graph @g<L: 1.., N: 1..>(%q: f32[1, 2, 3, 4], %k: f32[1, 2, N, 4], %v: f32[1, 2, N, 4], %m: f32[L]) {"
        " %w: f32[1, 2, 3, N] = broadcast_to(%m) {shape = [1, 2, 3, N]}"
        " %y: f32[1, 2, 3, 4] = attention(%q, %k, %v, %w, _) return %y }"
    )
    run_passes(graph, [Simplify()])
    assert "broadcast_to" in [node.op for node in graph]
