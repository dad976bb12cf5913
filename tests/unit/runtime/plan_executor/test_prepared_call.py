from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import InputError
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.runtime.plan_executor import PlanExecutor


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
