"""Every prefix of the standard passes keeps what a graph means."""

import numpy as np
import pytest
from hypothesis import given, settings

from fakes.graphs import assert_same_results, copy_of, parse
from fakes.grown_graphs import graphs
from fakes.standard_passes import standard_passes
from tilewright.base import dtypes
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.lowering.build_kernel import can_build
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.passes import PassContext, VerifyInstrument, run_passes


def passes_of_all():
    """Every pass, with small panels and tiles."""
    return standard_passes(
        choose_panel=lambda rows, columns, depth, dtype: 4,
        choose_tile=lambda places, channels, filters, taps, groups, dtype, steps: (
            2 if taps == 3 else 0
        ),
        choose_parts=lambda rows, columns, steps, *, products: 2 if steps > 4 else 0,
    )


@pytest.mark.slow
@settings(max_examples=120)
@given(graphs())
def test_every_prefix_of_the_passes_keeps_the_results(graph):
    before = copy_of(graph)
    held = frozenset()
    for graph_pass in passes_of_all():
        result = run_passes(graph, [graph_pass], held=held)
        held |= graph_pass.ensures
        if result.modified:
            verify(graph)
            assert_same_results(before, graph, tolerance=2e-4)


@settings(max_examples=30)
@given(graphs(most_steps=20))
def test_after_fusion_every_node_is_a_constant_a_view_or_a_kernel(graph):
    run_passes(graph, passes_of_all())
    for node in graph.nodes:
        assert node.op in ("constant", "reshape") or can_build(node), node
        assert all(inner.op != "fused" for region in node.regions for inner in region.nodes)


@settings(max_examples=20)
@given(graphs())
def test_running_everything_twice_changes_nothing_but_scales(graph):
    passes = passes_of_all()[:-1]
    run_passes(graph, passes)
    before = copy_of(graph)
    run_passes(graph, passes)
    assert_same_results(before, graph)


def test_no_optimisation_level_loses_results():
    text = (
        "graph @g<N: 1..>(%x: f32[N, 4]) {"
        " %w: f32[4, 3] = constant {value = f32[4, 3]"
        " [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0]}"
        " %m: f32[N, 3] = matmul(%x, %w) %r: f32[N, 3] = relu(%m) return %r }"
    )
    for level in (0, 1, 2):
        graph = parse(text)
        context = PassContext(opt_level=level, instruments=(VerifyInstrument(),))
        run_passes(graph, passes_of_all(), context)
        assert_same_results(parse(text), graph)
        assert any(n.op == "fused" for n in graph.nodes) is (level > 1)


def test_without_optimisation_the_ops_are_those_of_the_model():
    build = GraphBuilder()
    x = build.input("x", TensorType(dtypes.f32, (1, 4, 9, 9)))
    s = build.input("s", TensorType(dtypes.f32, (4,)))
    pooled = build.max_pool(build.group_norm(x, s, None, groups=2), kernel=(7, 7))
    build.output("y", build.average_pool(pooled, kernel=(3, 3)))
    run_passes(build.graph, passes_of_all(), PassContext(opt_level=0))
    assert [n.op for n in build.graph] == ["group_norm", "max_pool", "average_pool"]


def test_an_empty_graph_and_a_graph_of_inputs_pass_through():
    for text in ("graph @g() { return }", "graph @g(%x: f32[2]) { return %x, %x }"):
        graph = parse(text)
        run_passes(graph, passes_of_all())
        assert graph.nodes == []
    assert evaluate(graph, [np.ones(2, np.float32)])[0].sum() == 2


CONTROL_FLOW = """graph @g<N: 1..>(%c: bool[], %x: f32[N, 4]) {
  %n: i64[] = constant {value = i64[] [3]}
  %a: f32[N, 4] = if(%c, %x)
    graph @then(%v: f32[N, 4]) {
      %e: f32[N, 4] = exp(%v) %f: f32[N, 4] = tanh(%e) return %f
    }
    graph @else(%v: f32[N, 4]) {
      %one: f32[] = constant {value = f32[] [1.0]} %e: f32[N, 4] = mul(%v, %one) return %e
    }
  %zero: i64[] = constant {value = i64[] [0]}
  %t: i64[], %b: f32[N, 4] = while(%zero, %a, %n) {carried = 2}
    graph @go(%i: i64[], %v: f32[N, 4], %m: i64[]) {
      %g: bool[] = less(%i, %m) return %g
    }
    graph @body(%i: i64[], %v: f32[N, 4], %m: i64[]) {
      %one: i64[] = constant {value = i64[] [1]} %j: i64[] = add(%i, %one)
      %w: f32[N, 4] = tanh(%v) %z: f32[N, 4] = relu(%w) return %j, %z
    }
  return %b
}"""


def test_regions_of_control_flow_are_transformed_too():
    graph = parse(CONTROL_FLOW)
    run_passes(graph, passes_of_all())
    verify(graph)
    for seed in range(4):
        assert_same_results(parse(CONTROL_FLOW), graph, seed=seed)
    branch, loop = (n for n in graph.nodes if n.regions)
    assert [[n.op for n in r.nodes] for r in branch.regions] == [["fused"], []]
    body = [[n.op for r in k.regions for n in r.nodes] for k in loop.regions[1].nodes]
    assert ["tanh", "relu"] in body


def test_steps_of_a_recurrence_share_their_weights():
    builder = GraphBuilder()
    state = builder.input("x", TensorType(dtypes.f32, (2, 200)))
    table = np.random.default_rng(0).random(
        (600, 200), np.float32
    )  # larger than what is hashed
    weights = builder.constant(table)
    for _ in range(3):
        stored = builder.transpose(weights, perm=(1, 0))
        for start in (0, 200):  # sliced anew in each step, as front ends write it
            gate = builder.slice(
                stored, axes=(1,), starts=(start,), sizes=(200,), steps=(1,)
            )
            state = builder.tanh(builder.matmul(state, gate))
    builder.output("y", state)
    run_passes(builder.graph, passes_of_all())
    constants = [
        n.result.type.size_bytes for n in builder.graph.nodes if n.op == "constant"
    ]
    assert sorted(constants) == [200 * 200 * 4] * 2


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_no_transpose_stands_around_a_group_norm_between_convolutions(groups):
    build = GraphBuilder()
    x = build.input("x", TensorType(dtypes.f32, (1, 8, 9, 7)))
    w = build.input("w", TensorType(dtypes.f32, (8, 8, 3, 3)))
    s = build.input("s", TensorType(dtypes.f32, (8,)))
    pads = (1, 1, 1, 1)
    for _ in range(3):
        normal = build.group_norm(build.conv(x, w, None, pads=pads), s, s, groups=groups)
        x = build.mul(normal, build.sigmoid(normal))
    build.output("y", build.conv(x, w, None, pads=pads))
    run_passes(build.graph, passes_of_all())
    kernels = [
        [n.op for r in k.regions for n in r.nodes] or [k.op] for k in build.graph.nodes
    ]
    moved = ["transpose" in kernel for kernel in kernels]
    assert sum(moved) == 3  # the image at both ends, and the weights
    assert moved[-1]
    assert not any("transpose" in k for k in kernels if "silu" in k)
