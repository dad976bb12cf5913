from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from fakes.onnx_models import parse
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import InputError
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.runtime.plan_executor import PlanExecutor
from tilewright.runtime.plan_executor.prepared_call import PreparedCall


@pytest.fixture(scope="module")
def executor() -> PlanExecutor:
    b = GraphBuilder()
    past = b.input("past", TensorType(f32, (6, 3)))
    places = b.input("places", TensorType(i64, (1, 3)))
    new = b.input("new", TensorType(f32, (1, 3)))
    b.output("present", b.scatter_elements(past, places, new, axis=0))
    b.output("double", b.add(new, new))
    found = tw.compile(b.graph).session.executor
    assert isinstance(found, PlanExecutor)
    return found


def test_a_call_reads_what_its_arrays_hold_each_time(executor: PlanExecutor) -> None:
    past, places, new = (
        np.zeros((6, 3), np.float32),
        np.zeros((1, 3), np.int64),
        np.ones((1, 3), np.float32),
    )
    call = executor.prepare([past, places, new], [past, None])
    for row in range(3):
        places[...] = row
        new[...] = row + 1
        present, double = call()
        assert present is past
        assert np.array_equal(double, 2 * new)
    assert past[:, 0].tolist() == [1, 2, 3, 0, 0, 0]


def test_indices_are_checked_each_time(executor: PlanExecutor) -> None:
    past, places, new = (
        np.zeros((6, 3), np.float32),
        np.zeros((1, 3), np.int64),
        np.ones((1, 3), np.float32),
    )
    call = executor.prepare([past, places, new], [past, None])
    places[...] = 6
    with pytest.raises(InputError, match="index 6 is out of range"):
        call()
    places[...] = 5
    assert call()[0][5].tolist() == [1, 1, 1]


def test_arrays_that_would_be_copied_are_errors(executor: PlanExecutor) -> None:
    past, places = np.zeros((6, 3), np.float32), np.zeros((1, 3), np.int64)
    new = np.ones((3, 1), np.float32).T[:, ::-1]
    with pytest.raises(InputError, match="input 'new': would be copied"):
        executor.prepare([past, places, new], [None, None])
    dense = np.ones((1, 3), np.float32)
    with pytest.raises(InputError, match="input 'new': would be copied"):
        executor.prepare([past, places, dense], [None, dense])
    with pytest.raises(InputError, match="got 2 inputs"):
        executor.prepare([past, places], [None, None])


def test_a_plan_that_only_compares_sizes_is_one_list_of_commands() -> None:
    """The host decides nothing in it: what a branch expects of sizes is known when they are."""
    model = tw.compile(
        parse(
            """graph (bool c, float[2, N] a, float[M, 2] b, float[2, 2] z) => (float[2, 2] y) {
              y = If (c) <
                then_branch = t () => (float[2, 2] p) { p = MatMul (a, b) },
                else_branch = e () => (float[2, 2] q) { q = Identity (z) }
              >
            }"""
        )
    )
    executor = model.session.executor
    assert isinstance(executor, PlanExecutor)
    assert "expect" in [step.kind for step in executor.plan.steps]
    a, b, z = (
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(8, dtype=np.float32).reshape(4, 2),
        np.full((2, 2), 7, np.float32),
    )
    for go, right, wanted in (
        (True, b[:3], a @ b[:3]),
        (False, b[:3], z),
        (False, b, z),
    ):
        call = executor.prepare([np.array(go), a, right, z], [None])
        assert isinstance(call, PreparedCall)
        np.testing.assert_array_equal(call()[0], wanted)
        np.testing.assert_array_equal(model(np.array(go), a, right, z), wanted)
    with pytest.raises(InputError, match=r"sizes do not agree: N is 3, M is 4"):
        model(np.array(True), a, b, z)
