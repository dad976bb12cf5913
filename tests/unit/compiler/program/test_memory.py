"""Memory planning: whatever is planned, every tensor is intact when it is read."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from fakes.program_runner import ProgramRunner
from fakes.programs import naive_kernels, planned, unplanned
from fakes.random_graphs import Case, graphs
from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program import memory
from tilewright.compiler.program.emit_plan import emit_plan
from tilewright.compiler.program.ir import Program, Storage
from tilewright.formats.plan import from_json, to_json, verify_plan


def f32(*shape: int) -> TensorType:
    return TensorType(dtypes.f32, shape)


def chain(length: int, shape: tuple[int, ...] = (4, 16)) -> Graph:
    """Transpose after transpose: nothing can be reused in place."""
    b = GraphBuilder()
    x = b.input("x", f32(*shape))
    for _ in range(length):
        x = b.transpose(x, perm=(1, 0))
    b.output("y", x)
    return b.graph


def transients(program: Program) -> list[Storage]:
    return [s for s in program.storages if s.kind == "transient"]


def check(case: Case) -> None:
    program = planned(case.graph)
    actual = ProgramRunner(program, naive_kernels(case.graph), case.dims).run(case.arrays)
    expected = evaluate(case.graph, case.arrays, dims=case.dims)
    for got, want in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    plan = emit_plan(program)
    verify_plan(plan)
    assert to_json(from_json(to_json(plan))) == to_json(plan)


@given(graphs(dynamic=False))
@settings(max_examples=30)
def test_a_static_program_in_a_poisoned_arena_computes_what_the_graph_says(
    case: Case,
) -> None:
    check(case)


@pytest.mark.slow
@given(graphs(dynamic=True))
@settings(max_examples=30)
def test_a_dynamic_program_in_a_poisoned_arena_computes_what_the_graph_says(
    case: Case,
) -> None:
    check(case)


def test_a_chain_needs_two_tensors_whatever_its_length() -> None:
    program = planned(chain(9))
    assert len(transients(program)) == 8
    assert program.arena_bytes == 2 * 256


def test_a_chain_of_pointwise_kernels_needs_one_tensor() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4, 16))
    y = b.exp(b.tanh(b.neg(b.relu(x))))
    b.output("y", y)
    program = planned(b.graph)
    assert len(program.steps) == 4
    assert len(transients(program)) == 1
    (storage,) = transients(program)
    assert (storage.first, storage.last, storage.offset_bytes) == (0, 3, 0)


def test_a_value_that_is_read_later_is_not_overwritten() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4, 16))
    kept = b.relu(x)
    b.output("y", b.add(b.tanh(b.neg(kept)), kept))
    program = planned(b.graph)
    assert len(transients(program)) == 2


def test_a_value_seen_through_a_view_keeps_its_bytes() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4, 16))
    kept = b.relu(x)
    view = b.reshape(kept, shape=(16, 4))
    b.output("y", b.neg(kept))
    b.output("z", b.transpose(view, perm=(1, 0)))
    program = planned(b.graph)
    (storage,) = transients(program)
    assert (storage.first, storage.last) == (0, 2)


def test_inputs_outputs_and_constants_are_never_overwritten() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4))
    b.output("y", b.relu(x))
    b.output("z", b.neg(b.constant(np.ones(4, np.float32))))
    assert transients(planned(b.graph)) == []


def test_constants_are_placed_one_after_the_other_at_aligned_offsets() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(3))
    for size in (1.0, 2.0, 3.0):
        x = b.add(x, b.constant(np.full(3, size, np.float32)))
        x = b.mul(x, b.constant(np.arange(3, dtype=np.float32) + np.float32(size)))
    b.output("y", x)
    program = planned(b.graph)
    offsets = [s.offset_bytes for s in program.storages if s.kind == "constant"]
    assert offsets == [64 * i for i in range(len(offsets))]
    assert program.weights_bytes == 64 * len(offsets) >= 3 * 64


def test_the_arena_of_a_dynamic_program_waits_for_its_sizes() -> None:
    n = symbol("n", 1)
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (n, 4)))
    b.output("y", b.transpose(b.transpose(x, perm=(1, 0)), perm=(1, 0)))
    program = planned(b.graph)
    assert program.arena_bytes == -1
    assert [s.size_bytes for s in transients(program)] == [16 * n]
    needs = memory.needs_of(program)
    assert needs.arena_bytes is None
    assert needs.lower_bound_bytes is None
    assert needs.unshared_bytes is None


def test_the_report_lists_the_largest_tensors_first() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4, 16))
    b.output("y", b.transpose(b.concat(x, b.relu(x), axis=0), perm=(1, 0)))
    program = planned(b.graph)
    needs = memory.needs_of(program)
    sizes = [row[2] for row in needs.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert {row[1] for row in needs.rows} == {"input", "output", "transient"}
    assert needs.arena_bytes == program.arena_bytes == needs.lower_bound_bytes == 768
    assert needs.unshared_bytes == 768


def test_lifetimes_are_unknown_until_memory_is_assigned() -> None:
    program = unplanned(chain(3))
    assert program.storages == ()
    assert program.arena_bytes == -1
    assert all(
        s.offset_bytes == -1 for s in memory.assign(program).storages if s.kind == "input"
    )
