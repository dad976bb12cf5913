"""Inputs nobody gave: of the right types and sizes, the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.api.model_inputs import random_inputs
from tilewright.base import dtypes
from tilewright.base.errors import UserError
from tilewright.base.symbolic import symbol
from tilewright.formats.tensor_spec import TensorSpec


def test_random_inputs_fit_the_signature_and_repeat() -> None:
    n = symbol("n")
    rows = [
        ("x", dtypes.f32, (n, 3)),
        ("h", dtypes.bf16, (2 * n,)),
        ("m", dtypes.bool_, (4,)),
        ("i", dtypes.i64, ()),
    ]
    specs = [TensorSpec(*row) for row in rows]
    arrays = random_inputs(specs, {"n": 5})
    assert [a.shape for a in arrays] == [(5, 3), (10,), (4,), ()]
    assert [a.dtype for a in arrays] == [t.numpy for _, t, _ in specs]
    again = random_inputs(specs, {"n": 5})
    assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))
    assert random_inputs(specs, {})[0].shape == (1, 3)


def test_sizes_that_no_memory_holds_together_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tilewright.api.model_inputs.memory_bytes", lambda: 1000)
    specs = [TensorSpec(name, dtypes.f64, (symbol("n"), 10)) for name in "xyz"]
    assert len(random_inputs(specs, {"n": 4})) == 3
    with pytest.raises(UserError, match=r"input 'y': is .* 200 B are left"):
        random_inputs(specs, {"n": 10})


def test_sizes_that_no_memory_holds_are_named() -> None:
    spec = TensorSpec("x", dtypes.f32, (symbol("n"), 20))
    with pytest.raises(UserError, match=r"input 'x': is \[100000000000000, 20\], random"):
        random_inputs([spec], {"n": 10**14})
