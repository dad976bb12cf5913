"""The contents page: each step leaves what its comment promises."""

from __future__ import annotations

import operator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from fakes import onnx_models
from fakes.small_models import mlp, scale_and_shift, with_host_op
from tilewright.base import dtypes
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.backends.cpu import stages
from tilewright.compiler.backends.kernel_cache import KernelRequest
from tilewright.compiler.frontends.onnx import CoverageReport, Status
from tilewright.compiler.graph.ir import Graph, Node
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.kernel.ir import Kernel, Space
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering import kernel_uses
from tilewright.compiler.lowering.build_kernel import build_kernel
from tilewright.compiler.lowering.kernel_uses import find_kernels, is_kernel
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.packaging.parts import make_artifact
from tilewright.compiler.printers.llvm_text.module import KernelModule
from tilewright.compiler.schedule.rules import run
from tilewright.formats.plan import verify_plan

OPTIONS = pipeline.CompileOptions(targets=(Target.level("v3"),), threads=2, jobs=1)


@pytest.fixture(params=[mlp, scale_and_shift, with_host_op], ids=lambda f: f.__name__)
def graph(request: pytest.FixtureRequest) -> Graph:
    made = pipeline.import_model(request.param(), OPTIONS).graph
    pipeline.optimize(made, OPTIONS)
    return made


def test_after_optimization_every_node_is_data_a_kernel_or_runs_on_the_host(
    graph: Graph,
) -> None:
    for node in graph:
        is_data = bool(node.schema.traits & (Trait.CONSTANT | Trait.VIEW))
        assert is_data or is_kernel(node) or node.op == "ngram_counts"
        assert not (is_data and is_kernel(node))


def test_every_kernel_of_the_graph_is_found_once(graph: Graph) -> None:
    groups = find_kernels(graph)
    nodes = [node for group in groups for node in group.nodes]
    assert set(nodes) == {node for node in graph if is_kernel(node)}
    assert len(nodes) == len(set(nodes))
    assert len({group.naive.name for group in groups}) == len(groups)
    for group in groups:
        verify(group.naive)


def test_scheduled_kernels_own_no_device_memory(graph: Graph) -> None:
    groups = find_kernels(graph)
    scheduled = [*pipeline.schedule_kernels(groups, OPTIONS.targets[0], OPTIONS)]
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


def test_a_kernel_is_built_once_for_nodes_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (4, 8)))
    for _ in range(5):
        x = b.softmax(b.relu(x), axis=-1)
    b.output("y", x)
    built: list[str] = []

    def build(node: Node, name: str) -> Kernel:
        built.append(node.op)
        return build_kernel(node, name)

    monkeypatch.setattr(kernel_uses, "build_kernel", build)
    groups = find_kernels(b.graph)
    assert sorted(built) == ["relu", "softmax"]
    assert [len(group.nodes) for group in groups] == [5, 5]


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
        "import", "optimize graph", "build kernels", "generate code", "plan memory",
    ]  # fmt: skip
    assert all(seconds >= 0 for seconds in compiled.seconds.values())


def test_kernels_go_to_the_back_end_while_further_ones_are_scheduled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheduled, waiting = list[str](), list[int]()
    schedule, emit = pipeline.schedule_as_decided, stages.emit_kernel

    def note(request: KernelRequest) -> tuple[KernelRequest, Kernel]:
        scheduled.append(request.naive.name)
        return schedule(request)

    def emitted(kernel: Kernel, target: Target) -> KernelModule:
        waiting.append(len(scheduled))
        return emit(kernel, target)

    monkeypatch.setattr(pipeline, "schedule_as_decided", note)
    monkeypatch.setattr(stages, "emit_kernel", emitted)
    pipeline.compile_model(mlp(), OPTIONS)
    assert waiting == [*range(1, len(scheduled) + 1)]
    assert len(scheduled) > 1


class Watching:
    """Numbers of kernels that were told, by phase."""

    def __init__(self) -> None:
        self.told: dict[str, list[int]] = {}

    def phase(self, name: str) -> None:
        self.told[name] = []

    def advance(self, done: int, total: int) -> None:
        del total
        list(self.told.values())[-1].append(done)


def test_kernels_of_the_cache_are_told_one_by_one(tmp_path: Path) -> None:
    options = replace(OPTIONS, cache=CompilationCache(folder=tmp_path, limit_bytes=1 << 30))
    pipeline.compile_model(mlp(), options)
    watching = Watching()
    count = len(pipeline.compile_model(mlp(), options, watching).kernels[0])
    assert watching.told["generate code"] == [*range(1, count + 1), count]
    assert count > 1


@pytest.mark.slow
def test_targets_of_equal_forms_share_a_graph_and_its_weights() -> None:
    targets = (Target.parse("x86_64-v3"), Target.parse("c x86_64-v3"))
    compiled = pipeline.compile_model(mlp(), pipeline.CompileOptions(targets=targets))
    shared = [
        [s.array for s in part.program.storages if s.is_constant] for part in compiled.parts
    ]
    assert shared[0]
    assert all(map(operator.is_, *shared))
    artifact = make_artifact(compiled.parts)
    assert [v.format.partition("-x86")[0] for v in artifact.variants] == [
        "embedded-elf",
        "system-elf",
    ]


@pytest.mark.slow
def test_targets_of_other_forms_have_graphs_of_their_own() -> None:
    targets = (Target.parse("x86_64-v3"), Target.parse("c"))
    options = pipeline.CompileOptions(targets=targets)
    graph = pipeline.import_model(mlp(), options).graph
    packed, plain = pipeline.optimize(graph, options)
    assert packed is graph
    assert packed is not plain
    compiled = pipeline.compile_model(mlp(), options)
    artifact = make_artifact(compiled.parts)
    first, second = artifact.variants
    assert first.constants != second.constants
    assert artifact.own_bytes(first) > 0
    assert [artifact.constants_of(v) for v in artifact.variants] == [
        make_artifact([part]).constants for part in compiled.parts
    ]


@pytest.mark.slow
def test_code_for_avx2_among_several_levels_is_that_for_avx2_alone() -> None:
    levels = tuple(Target.level(name) for name in ("v2", "v3", "v4"))
    several = pipeline.CompileOptions(targets=levels, threads=2, jobs=1)
    parts = pipeline.compile_model(mlp(), several).parts
    (alone,) = pipeline.compile_model(mlp(), OPTIONS).parts
    assert parts[1].image == alone.image
    assert parts[1].plan == alone.plan
    assert parts[0].image != parts[2].image


def product(size: int) -> Graph:
    b = GraphBuilder()
    x, y = (b.input(name, TensorType(dtypes.f32, (size, size))) for name in "xy")
    b.output("z", b.relu(b.matmul(x, y)))
    return b.graph


@pytest.fixture
def without_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule finds anything in a nest but the last one, which always applies."""
    monkeypatch.setattr(run, "_RULES", run._RULES[-1:])


@pytest.mark.usefixtures("without_lanes")
def test_a_heavy_kernel_without_lanes_is_warned_of_with_its_cost() -> None:
    compiled = pipeline.compile_model(product(128), OPTIONS)
    (warning,) = compiled.diagnostics.warnings
    assert "no rule found lanes for it" in warning.message
    assert warning.cost.startswith("about ")
    assert "in lanes" in warning.cost
    assert compiled.kernels[0][-1].name in warning.hint
    assert {step.outcome for step in compiled.parts[0].plan.steps} == {Outcome.GENERIC}


@pytest.mark.usefixtures("without_lanes")
def test_the_command_that_shows_why_a_kernel_is_slow_names_its_file(tmp_path: Path) -> None:
    shape = (128, 128)
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xyz"
    ]
    node = helper.make_node("MatMul", ["x", "y"], ["z"])
    model = helper.make_model(helper.make_graph([node], "g", values[:2], values[2:]))
    onnx.save(model, tmp_path / "net.onnx")
    (warning,) = pipeline.compile_model(tmp_path / "net.onnx", OPTIONS).diagnostics.warnings
    assert "tilewright inspect net.onnx --output=kernel --kernel=matmul" in warning.hint
    (other,) = pipeline.compile_model(product(128), OPTIONS).diagnostics.warnings
    assert "Model.kernels" in other.hint


@pytest.mark.usefixtures("without_lanes")
def test_a_light_kernel_without_lanes_is_not_worth_a_warning() -> None:
    compiled = pipeline.compile_model(product(8), OPTIONS)
    assert not compiled.diagnostics.warnings
    assert {record.verdict.outcome for record in compiled.kernels[0]} == {Outcome.GENERIC}


def test_the_outcome_is_in_records_and_plan() -> None:
    compiled = pipeline.compile_model(product(128), OPTIONS)
    by_name = {r.name: r.verdict.outcome for r in compiled.kernels[0]}
    assert Outcome.TILED in by_name.values()
    assert compiled.parts[0].plan.outcomes == by_name
    host = pipeline.compile_model(with_host_op(), OPTIONS).parts[0].plan
    assert {s.outcome for s in host.steps if s.kind == "host"} == {Outcome.HOST}


def statuses(report: CoverageReport) -> dict[str, Status]:
    return {row.op_type: row.status for row in report.rows}


WIDE = """graph (float[128, 128] x, float[128, 128] w) => (float[128, 128] y)
    { a = MatMul(x, w) b = Relu(a) c = Identity(b) y = MatMul(c, c) }"""
NARROW = "graph (float[4, 4] x, float[4, 4] w) => (float[4, 4] y) { y = MatMul(x, w) }"


def test_coverage_knows_what_scheduling_came_to() -> None:
    report = pipeline.coverage(onnx_models.parse(WIDE), OPTIONS)
    fast = dict.fromkeys(("MatMul", "Relu", "Identity"), Status.FAST)
    assert statuses(report) == fast
    (row,) = [row for row in report.rows if row.op_type == "MatMul"]
    assert Outcome.TILED in row.outcomes
    quick = pipeline.coverage(onnx_models.parse(WIDE), OPTIONS, quick=True)
    assert statuses(quick) == {
        "MatMul": Status.KERNEL,
        "Relu": Status.KERNEL,
        "Identity": Status.FAST,
    }


@pytest.mark.usefixtures("without_lanes")
def test_coverage_calls_only_heavy_work_without_lanes_slow() -> None:
    report = pipeline.coverage(onnx_models.parse(WIDE), OPTIONS)
    found = statuses(report)
    assert (found["MatMul"], found["Identity"]) == (Status.SLOW, Status.FAST)
    assert report.rows[0].op_type == "MatMul"
    assert all("on one core, in lanes" in r.text for r in report.rows[0].reasons)
    light = pipeline.coverage(onnx_models.parse(NARROW), OPTIONS)
    assert statuses(light) == {"MatMul": Status.SCALAR}


@pytest.mark.parametrize(("rows", "status"), [(2, Status.FALLBACK), (20000, Status.SLOW)])
def test_coverage_weighs_what_runs_on_the_host(
    rows: int, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "can_build", lambda node: node.op != "tanh")
    body = f"graph (float[{rows}, 9] x) => (float[{rows}, 9] y) {{ y = Tanh(x) }}"
    report = pipeline.coverage(onnx_models.parse(body), OPTIONS)
    assert statuses(report) == {"Tanh": status}
    assert "op 'tanh' has no kernel" in report.rows[0].reasons[0].text


def test_coverage_of_an_unsupported_model_schedules_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(pipeline, "schedule_kernels")
    body = "graph (float[3] x) => (float[3] y) { a = Magic(x) y = Relu(a) }"
    report = pipeline.coverage(onnx_models.parse(body), OPTIONS)
    assert statuses(report) == {"Magic": Status.UNSUPPORTED, "Relu": Status.KERNEL}


def test_a_model_without_kernels_has_no_code() -> None:
    b = GraphBuilder()
    b.output("y", b.input("x", TensorType(dtypes.f32, (3,))))
    compiled = pipeline.compile_model(b.graph, OPTIONS)
    assert compiled.parts[0].image == b""
    assert compiled.kernels == ((),)


def test_ops_on_the_host_are_warned_of_with_their_bytes() -> None:
    compiled = pipeline.compile_model(with_host_op(), OPTIONS)
    (warning,) = compiled.diagnostics.warnings
    assert "op 'ngram_counts' has no kernel" in warning.message
    # Two rows of five words in, of three counts out.
    assert warning.cost == f"moves {2 * (5 * 8 + 3 * 4)} bytes through numpy on each run"
    assert not pipeline.compile_model(mlp(), OPTIONS).diagnostics.warnings
