"""Draws and penalties: borders, and what is refused.  Against TVM: conformance/interop/test_tvm.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.relax_machine import sampling


def _floats(*values: float) -> tvm_ffi.Tensor:
    return tvm_ffi.from_dlpack(np.array(values, np.float32))


def _tokens(*values: int) -> tvm_ffi.Tensor:
    return tvm_ffi.from_dlpack(np.array(values, np.int32))


def test_draws_go_through_the_tokens_in_order_of_their_probability() -> None:
    shares = _floats(0.1, 0.5, 0.4)
    drawn = [sampling.sample_top_p_from_prob(shares, 1.0, u) for u in (0.0, 0.6, 0.95)]
    assert drawn == [1, 2, 0]
    assert {sampling.sample_top_p_from_prob(shares, 0.3, u) for u in (0.0, 0.6, 0.95)} == {
        1
    }
    logits = _floats(*np.log([0.1, 0.5, 0.4]))
    drawn = [
        sampling.sample_top_p_from_logits(logits, 1.0, 1.0, u) for u in (0.0, 0.6, 0.95)
    ]
    assert drawn == [1, 2, 0]
    assert sampling.sample_top_p_from_logits(logits, 0.0, 0.5, 0.99) == 1
    assert sampling.sample_top_p_from_prob(shares, 0.0, 0.5) == 1


def test_a_draw_beyond_all_sums_takes_the_last_token() -> None:
    rows = tvm_ffi.from_dlpack(np.full((2, 3), 0.25, np.float32))
    draws = tvm_ffi.from_dlpack(np.array([[0.3], [0.99]], np.float32))
    assert np.from_dlpack(sampling.multinomial_from_uniform(rows, draws)).tolist() == [
        [1],
        [2],
    ]


def test_penalties_are_applied_in_place_and_once_for_each_time() -> None:
    logits = np.array([2, -2, 4], np.float32)
    tensor = tvm_ffi.from_dlpack(logits)
    sampling.apply_repetition_penalty(tensor, _tokens(0, 1, 0), 2.0)
    assert logits.tolist() == [0.5, -4, 4]
    sampling.apply_presence_and_frequency_penalty(tensor, _tokens(2), _tokens(3), 1.0, 0.5)
    assert logits.tolist() == [0.5, -4, 1.5]
    sampling.apply_softmax_with_temperature(tensor, 1.0)
    assert logits.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sampling.sample_top_p_from_prob(_floats(), 0.5, 0.5),
        lambda: sampling.sample_top_p_from_prob(_floats(np.nan, np.nan), 0.5, 0.5),
        lambda: sampling.sample_top_p_from_prob(_tokens(1), 0.5, 0.5),
        lambda: sampling.sample_top_p_from_prob("x", 0.5, 0.5),
        lambda: sampling.sample_top_p_from_logits(_floats(1, 2), 1.0, 1.0, 1.5),
        lambda: sampling.multinomial_from_uniform(_floats(1, 2), _floats(1)),
        lambda: sampling.apply_repetition_penalty(_floats(1, 2), _tokens(2), 1.0),
        lambda: sampling.apply_repetition_penalty(_floats(1, 2), _tokens(-1), 1.0),
        lambda: sampling.apply_repetition_penalty(_tokens(1, 2), _tokens(0), 1.0),
        lambda: sampling.apply_presence_and_frequency_penalty(
            _floats(1, 2), _tokens(0, 1), _tokens(1), 1.0, 1.0
        ),
        lambda: sampling.apply_softmax_with_temperature(_floats(1, 2), 0.0),
    ],
)
def test_what_does_not_fit_is_refused(call: Any) -> None:
    with pytest.raises(InputError):
        call()
