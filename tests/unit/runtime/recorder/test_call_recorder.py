"""A call with arrays is recorded slot by slot, in the order of their roles."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tilewright.runtime import native
from tilewright.runtime.recorder import CallRecorder


def doubling() -> CallRecorder:
    """`f(x) = x, weights`, by way of scratch."""
    call = CallRecorder()
    x = call.input("x", "f", (2,), 8)
    outputs = [call.output(functools.partial(np.empty, 2, np.float32), 8) for _ in range(2)]
    weights = call.constant(np.array([5, 6], np.float32), 8)
    scratch = call.scratch(8)
    call.recorder.copy((scratch, 0, 8), (x, 0, 8))
    call.recorder.copy((outputs[0], 0, 8), (scratch, 0, 8))
    call.recorder.copy((outputs[1], 0, 8), (weights, 0, 8))
    return call


@pytest.mark.parametrize("pool", [None, native.Pool(2)])
def test_a_call_takes_arrays_and_returns_fresh_ones(pool: native.Pool | None) -> None:
    replayed = doubling().build(pool, native.Heap())
    assert replayed.commands.command_count == 3
    first, weights = replayed.call(np.array([1, 2], np.float32))
    second, _ = replayed.call(np.array([3, 4], np.float32))
    assert first.tolist() == [1, 2]
    assert second.tolist() == [3, 4]
    assert weights.tolist() == [5, 6]


def test_arrays_are_checked_by_name_type_and_shape() -> None:
    call = doubling().build(None, None).call
    with pytest.raises(TypeError, match="input 'x' has format 'd', expected 'f'"):
        call(np.zeros(2))
    with pytest.raises(ValueError, match=r"input 'x' has shape \(3,\), expected \(2,\)"):
        call(np.zeros(3, np.float32))


def test_a_slot_behind_those_of_a_later_role_is_a_mistake_of_ours() -> None:
    call = doubling()
    with pytest.raises(AssertionError, match="in the order of their roles"):
        call.input("y", "f", (2,), 8)
