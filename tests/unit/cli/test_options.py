"""What options mean, apart from any verb."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import UserError
from tilewright.base.symbolic import symbol
from tilewright.cli.options import (
    call_inputs,
    parse_dims,
    parse_input_shapes,
    parse_input_values,
    parse_levels,
    random_inputs,
)


def test_levels() -> None:
    assert parse_levels(None) is None
    assert parse_levels("v2, v3,v4") == ("v2", "v3", "v4")


def test_input_shapes() -> None:
    assert parse_input_shapes([]) is None
    assert parse_input_shapes(["x=1,N, 3", "s="]) == {"x": [1, "N", 3], "s": []}
    for bad in ("x", "=1", ""):
        with pytest.raises(UserError, match="expected NAME=D,D"):
            parse_input_shapes([bad])


def test_input_values() -> None:
    assert parse_input_values([]) is None
    found = parse_input_values(["shape=2xi64=1 128", "scale=f32=2"])
    assert found is not None
    np.testing.assert_array_equal(found["shape"], [1, 128])
    assert found["scale"].dtype == np.float32


def test_dims() -> None:
    assert parse_dims(["N=4", "batch=0"]) == {"N": 4, "batch": 0}
    for bad in ("N", "N=", "=4", "N=x", "N=-1", "N=²"):
        with pytest.raises(UserError, match="expected NAME=NUMBER"):
            parse_dims([bad])


def test_random_inputs_fit_the_signature_and_repeat() -> None:
    n = symbol("n")
    specs = [
        ("x", dtypes.f32, (n, 3)),
        ("h", dtypes.bf16, (2 * n,)),
        ("m", dtypes.bool_, (4,)),
        ("i", dtypes.i64, ()),
    ]
    arrays = random_inputs(specs, {"n": 5})
    assert [a.shape for a in arrays] == [(5, 3), (10,), (4,), ()]
    assert [a.dtype for a in arrays] == [t.numpy for _, t, _ in specs]
    again = random_inputs(specs, {"n": 5})
    assert all(np.array_equal(a, b) for a, b in zip(arrays, again, strict=True))
    assert random_inputs(specs, {})[0].shape == (1, 3)


def test_sizes_do_not_go_with_given_inputs() -> None:
    with pytest.raises(UserError, match="goes with random inputs"):
        call_inputs(None, ["1xf32"], ["batch=2"])
