from __future__ import annotations

import pytest

from fakes.graphs import run
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.transforms import FuseKernels, UpdateInPlace

P = [FuseKernels(), UpdateInPlace()]
HEAD = "graph @g(%x: f32[9, 5], %i: i64[2, 1], %u: f32[2, 5])"
UPDATE = "%y: f32[9, 5] = scatter_nd(%x, %i, %u)"


def updates(graph: Graph) -> list[Node]:
    regions = [region for node in graph.nodes for region in node.regions]
    nodes = [node for part in (graph, *regions) for node in part.nodes]
    return [node for node in nodes if node.attributes.get("in_place")]


@pytest.mark.parametrize(
    "body",
    [
        f"{UPDATE} return %y",
        f"%z: f32[9, 5] = exp(%x) {UPDATE} return %y, %z",
        f"{UPDATE} %z: f32[9, 5] = exp(%y) return %y, %z",
        "%w: f32[2, 5] = exp(%u) %y: f32[9, 5] = scatter_nd(%x, %i, %w) return %y",
        "%v: f32[9, 5] = reshape(%x) {shape = [9, 5]} %y: f32[9, 5] = scatter_nd(%v, %i, %u) return %y",
    ],
)
def test_an_input_that_becomes_an_output_is_updated_in_place(body: str) -> None:
    assert len(updates(run(P, f"{HEAD} {{ {body} }}"))) == 1


@pytest.mark.parametrize(
    "body",
    [
        f"{UPDATE} %z: f32[9, 5] = exp(%y) return %z",
        "%w: f32[9, 5] = exp(%x) %y: f32[9, 5] = scatter_nd(%w, %i, %u) return %y",
        '%y: f32[9, 5] = scatter_nd(%x, %i, %u) {reduction = "add"} return %y',
    ],
)
def test_other_updates_make_a_new_tensor(body: str) -> None:
    assert not updates(run(P, f"{HEAD} {{ {body} }}"))


def test_what_the_kernel_reads_elsewhere_is_not_overwritten() -> None:
    text = (
        "graph @g(%x: f32[9, 5], %i: i64[9, 5])"
        " { %y: f32[9, 5] = scatter_elements(%x, %i, %x) {axis = 0} return %y }"
    )
    assert not updates(run(P, text))
