"""The contents page: each step leaves what its comment promises."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.small_models import mlp, scale_and_shift, with_host_op
from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.kernel.ir import Space
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.formats.plan import verify_plan

OPTIONS = pipeline.CompileOptions(targets=(Target.level("v3"),), threads=2, jobs=1)


@pytest.fixture(params=[mlp, scale_and_shift, with_host_op], ids=lambda f: f.__name__)
def graph(request: pytest.FixtureRequest) -> Graph:
    made, _ = pipeline.import_model(request.param(), OPTIONS)
    pipeline.optimize(made, OPTIONS)
    return made


def test_after_optimization_every_node_is_data_a_kernel_or_runs_on_the_host(
    graph: Graph,
) -> None:
    for node in graph:
        is_data = bool(node.schema.traits & (Trait.CONSTANT | Trait.VIEW))
        assert is_data or pipeline.is_kernel(node) or node.op == "top_k"
        assert not (is_data and pipeline.is_kernel(node))


def test_every_kernel_of_the_graph_is_found_once(graph: Graph) -> None:
    groups = pipeline.find_kernels(graph)
    nodes = [node for group in groups for node in group.nodes]
    assert set(nodes) == {node for node in graph if pipeline.is_kernel(node)}
    assert len(nodes) == len(set(nodes))
    assert len({group.naive.name for group in groups}) == len(groups)
    for group in groups:
        verify(group.naive)


def test_scheduled_kernels_own_no_device_memory(graph: Graph) -> None:
    groups = pipeline.find_kernels(graph)
    scheduled = pipeline.schedule_kernels(
        groups, OPTIONS.targets[0], OPTIONS, pipeline.SILENT
    )
    assert len(scheduled) == len(groups)
    for item in scheduled:
        assert isinstance(item, pipeline.Scheduled)  # there is no cache
        verify(item.kernel)
        assert all(b.space is not Space.DEVICE for b in item.kernel.locals)


def test_nodes_that_differ_in_constants_alone_share_a_kernel() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (4, 8)))
    for seed in range(3):
        weight = np.random.default_rng(seed).standard_normal((8, 8)).astype(np.float32)
        x = b.softmax(b.matmul(x, b.constant(weight)), axis=-1)
    b.output("y", x)
    compiled = pipeline.compile_model(b.graph, OPTIONS)
    plan = compiled.parts[0].plan
    dispatches = [step.target for step in plan.steps if step.kind == "dispatch"]
    assert len(dispatches) == 3 * len(set(dispatches))
    assert {record.name for record in compiled.kernels[0]} == set(dispatches)


def test_a_compilation_yields_a_part_and_kernels_per_target() -> None:
    targets = (Target.level("v2"), Target.level("v3"))
    options = pipeline.CompileOptions(targets=targets, threads=1, jobs=1)
    compiled = pipeline.compile_model(mlp(), options)
    assert [part.target for part in compiled.parts] == list(targets)
    assert len(compiled.kernels) == 2
    for part in compiled.parts:
        verify_plan(part.plan)
        assert part.image
    assert list(compiled.seconds) == [
        "import", "optimize graph", "build kernels", "schedule", "generate code", "plan memory",
    ]  # fmt: skip
    assert all(seconds >= 0 for seconds in compiled.seconds.values())


def test_among_several_levels_the_widest_up_to_avx2_packs_the_weights() -> None:
    levels = {name: Target.level(name) for name in ("v1", "v2", "v3", "v4")}
    for names, packing in (
        (("v2", "v3", "v4"), "v3"),
        (("v4", "v3", "v1"), "v3"),
        (("v2", "v4"), "v2"),
        (("v4",), "v4"),
        (("v1", "v2"), "v1"),
    ):
        targets = tuple(levels[name] for name in names)
        options = pipeline.CompileOptions(targets=targets)
        assert options.packing_target == levels[packing], names


def test_code_for_avx2_among_several_levels_is_that_for_avx2_alone() -> None:
    levels = tuple(Target.level(name) for name in ("v2", "v3", "v4"))
    several = pipeline.CompileOptions(targets=levels, threads=2, jobs=1)
    parts = pipeline.compile_model(mlp(), several).parts
    (alone,) = pipeline.compile_model(mlp(), OPTIONS).parts
    assert parts[1].image == alone.image
    assert parts[1].plan == alone.plan
    assert parts[0].image != parts[2].image


def test_a_model_without_kernels_has_no_code() -> None:
    b = GraphBuilder()
    b.output("y", b.input("x", TensorType(dtypes.f32, (3,))))
    compiled = pipeline.compile_model(b.graph, OPTIONS)
    assert compiled.parts[0].image == b""
    assert compiled.kernels == ((),)


def test_ops_on_the_host_are_warned_of_with_their_bytes() -> None:
    compiled = pipeline.compile_model(with_host_op(), OPTIONS)
    (warning,) = compiled.diagnostics.warnings
    assert "op 'top_k' has no kernel" in warning.message
    # Five floats in, two floats and two 64-bit indices out, in each of two rows.
    assert (
        warning.cost
        == f"moves {2 * (5 * 4 + 2 * 4 + 2 * 8)} bytes through numpy on each run"
    )
    assert not pipeline.compile_model(mlp(), OPTIONS).diagnostics.warnings
