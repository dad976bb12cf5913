"""What options mean, apart from any verb."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import UserError
from tilewright.cli.options import (
    CallOptions,
    parse_dims,
    parse_input_shapes,
    parse_input_values,
    parse_levels,
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


@pytest.mark.parametrize("size", ["²", "9" * 5000, "--1"])
def test_sizes_of_a_shape_are_whole_numbers(size: str) -> None:
    with pytest.raises(UserError, match="is no size"):
        parse_input_shapes([f"x=1,{size}"])


def test_dims() -> None:
    assert parse_dims(["N=4", "batch=0"]) == {"N": 4, "batch": 0}
    for bad in ("N", "N=", "=4", "N=x", "N=-1", "N=²", "N=" + "9" * 5000):
        with pytest.raises(UserError, match="expected NAME=NUMBER"):
            parse_dims([bad])


def test_sizes_do_not_go_with_given_inputs() -> None:
    with pytest.raises(UserError, match="goes with random inputs"):
        _ = CallOptions(("1xf32",), ("batch=2",)).sizes
