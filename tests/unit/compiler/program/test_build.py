"""From graphs to programs: views cost nothing, outputs are written in place where they can be."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.program_runner import ProgramRunner
from fakes.programs import naive_kernels, planned, unplanned
from tilewright.base import dtypes
from tilewright.base.errors import InternalError, ModelError
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.build import build_program
from tilewright.compiler.program.ir import (
    Copy,
    Dispatch,
    HostCall,
    Program,
    operands_of,
    results_of,
)
from tilewright.formats.plan import Dimension


def f32(*shape: int) -> TensorType:
    return TensorType(dtypes.f32, shape)


def run(graph: Graph, *arrays: np.ndarray) -> Program:
    """Check that the program computes what the graph says; returns it."""
    program = planned(graph)
    actual = ProgramRunner(program, naive_kernels(graph), {}).run(arrays)
    for got, want in zip(actual, evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, want)
    return program


def kinds(program: Program) -> list[str]:
    return [type(step).__name__ for step in program.steps]


X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def test_a_view_is_another_entry_of_the_same_storage() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    view = b.reshape(b.relu(x), shape=(3, 2))
    b.output("y", b.neg(view))
    program = run(b.graph, X)
    assert kinds(program) == ["Dispatch", "Dispatch"]
    (written,) = results_of(program.steps[0])
    (read,) = operands_of(program.steps[1])
    assert written.storage is read.storage
    assert read.type.shape == (3, 2)


def test_an_output_seen_through_views_is_written_in_place() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", b.reshape(b.reshape(b.relu(x), shape=(6,)), shape=(3, 2)))
    program = run(b.graph, X)
    assert kinds(program) == ["Dispatch"]
    (result,) = results_of(program.steps[0])
    assert result.storage.kind == "output"
    assert result.storage.name == "y"


def test_an_input_as_output_is_copied() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", x)
    b.output("z", b.reshape(x, shape=(6,)))
    assert kinds(run(b.graph, X)) == ["Copy", "Copy"]


def test_a_constant_as_output_is_copied() -> None:
    b = GraphBuilder()
    b.input("x", f32(2, 3))
    b.output("y", b.constant(np.arange(3, dtype=np.int64)))
    b.output("z", b.constant(np.float32(2)))
    assert kinds(run(b.graph, X)) == ["Copy", "Copy"]


def test_a_value_that_is_several_outputs_is_computed_once() -> None:
    b = GraphBuilder()
    y = b.relu(b.input("x", f32(2, 3)))
    b.output("first", y)
    b.output("again", y)
    b.output("flat", b.reshape(y, shape=(6,)))
    program = run(b.graph, X)
    assert kinds(program) == ["Dispatch", "Copy", "Copy"]
    assert [e.storage.name for _, e in program.outputs] == ["first", "again", "flat"]
    assert len({id(e.storage) for _, e in program.outputs}) == 3


def test_an_output_that_is_read_again_is_not_disturbed() -> None:
    b = GraphBuilder()
    y = b.relu(b.input("x", f32(2, 3)))
    b.output("y", y)
    b.output("z", b.neg(y))
    assert kinds(run(b.graph, X)) == ["Dispatch", "Dispatch"]


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_empty_tensors_and_scalars_have_steps_like_others(shape: tuple[int, ...]) -> None:
    b = GraphBuilder()
    x = b.input("x", f32(*shape))
    b.output("y", b.add(x, b.constant(np.float32(1))))
    b.output("x", x)
    run(b.graph, np.zeros(shape, np.float32))


def test_an_op_without_a_kernel_runs_on_the_host() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    parts = b.op("dft", [b.reshape(b.relu(x), shape=(2, 3, 1))], {"axis": 1})
    b.output("parts", parts)
    program = run(b.graph, X)
    assert kinds(program) == ["Dispatch", "HostCall"]
    call = program.steps[1]
    assert isinstance(call, HostCall)
    assert call.op == "dft"
    assert call.attributes["axis"] == 1
    assert [r.storage.kind for r in call.results] == ["output"]


def test_nodes_that_share_a_kernel_have_names_of_their_own() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", b.softmax(b.softmax(x, axis=-1), axis=-1))
    program = unplanned(b.graph)
    assert [s.name for s in program.steps if isinstance(s, Dispatch)] == [
        "softmax",
        "softmax.1",
    ]
    assert len(program.kernels) == 1


def test_scratch_of_a_kernel_is_a_result_nobody_reads() -> None:
    b = GraphBuilder()
    b.output("y", b.softmax(b.input("x", f32(2, 3)), axis=-1))
    program = unplanned(b.graph)
    (step,) = program.steps
    assert isinstance(step, Dispatch)
    assert step.result_count == len(step.arguments) - 1 > 1
    assert [e.storage.kind for e in results_of(step)[1:]] == ["transient"] * (
        step.result_count - 1
    )


def test_dimensions_come_from_the_first_input_axis_that_is_one() -> None:
    n, m = symbol("n", 2, 9), symbol("m")
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2 * n, m)))
    y = b.input("y", TensorType(dtypes.f32, (m, n)))
    b.output("z", b.matmul(x, y))
    program = unplanned(b.graph)
    assert program.dims == (Dimension("m", 0, 1, 0), Dimension("n", 1, 1, 2, 9))
    (step,) = program.steps
    assert isinstance(step, Dispatch)
    assert step.dims == tuple(symbol(s.name) for s in program.kernels[0].dims)
    assert step.flops == 4 * n * n * m


def test_a_dimension_that_no_input_shows_is_an_error_with_a_way_out() -> None:
    n, m = symbol("n"), symbol("m")
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (n * m,)))
    b.output("y", b.relu(x))
    with pytest.raises(ModelError) as caught:
        unplanned(b.graph)
    assert str(caught.value).startswith(
        "main: dimensions ['m', 'n'] are not the size of any input axis\nhint: fix the input"
    )


def test_a_graph_out_of_order_is_a_bug_of_ours() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", b.neg(b.relu(x)))
    b.graph.nodes.reverse()
    with pytest.raises(InternalError, match="has no place"):
        unplanned(b.graph)


def test_an_empty_graph_has_an_empty_program() -> None:
    program = build_program(Graph("empty"), (), {})
    assert (program.inputs, program.outputs, program.steps, program.dims) == (
        (),
        (),
        (),
        (),
    )


def test_steps_say_what_they_touch() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(2, 3))
    b.output("y", x)
    program = unplanned(b.graph)
    (copy,) = program.steps
    assert isinstance(copy, Copy)
    assert operands_of(copy) == (copy.source,)
    assert results_of(copy) == (copy.target,)
    assert isinstance(b.graph.inputs[0], Value)
    assert "input 'x'" in repr(copy.source.storage)
