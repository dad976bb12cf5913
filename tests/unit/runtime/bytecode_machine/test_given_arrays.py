"""Arrays of callers are held against a signature before anything is copied."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.base.symbolic import symbol
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.bytecode_machine.given_arrays import (
    check_shapes,
    check_target,
    check_types,
)

SPECS = (TensorSpec("x", dtypes.f32, (symbol("n"), 3)), TensorSpec("k", dtypes.i64, ()))


def test_shapes_that_fit_pass_and_what_is_no_array_is_left_to_others() -> None:
    fitting: list[tuple[tuple[TensorSpec, ...], list[object]]] = [
        (SPECS, [np.zeros((0, 3), np.float64), np.array(2)]),
        (SPECS, [None, 5]),
        ((), [np.zeros(7)]),
    ]
    for specs, inputs in fitting:
        assert check_shapes(specs, inputs) is None, inputs


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (
            [np.zeros((2, 4), np.float32)],
            r"input 'x': got f32\[2, 4\], expected f32\[n, 3\]",
        ),
        (
            [np.zeros(3, "M8[s]")],
            r"input 'x': got datetime64\[s\]\[3\], expected f32\[n, 3\]",
        ),
        ([None, np.zeros(1, np.int64)], r"input 'k': got i64\[1\], expected i64\[\]"),
    ],
)
def test_the_first_input_of_another_shape_is_named(inputs: list[object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        check_shapes(SPECS, inputs)


def test_targets_have_the_type_of_the_result_and_may_be_written() -> None:
    made = np.ones((2, 3), np.float32)
    check_target(np.zeros((2, 3), np.float32), made, "y")
    with pytest.raises(
        InputError, match=r"output 'y': got f64\[2, 3\], expected f32\[2, 3\]"
    ):
        check_target(np.zeros((2, 3)), made, "y")
    read_only = np.zeros((2, 3), np.float32)
    read_only.flags.writeable = False
    for target in (read_only, np.zeros((3, 2), np.float32).T):
        with pytest.raises(InputError, match=r"output 'y': expected a dense array of f32"):
            check_target(target, made, "y")


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "S3", "O"])
def test_an_input_of_elements_that_tensors_do_not_have_is_named(dtype: str) -> None:
    given = [np.zeros(2, np.float32), np.zeros(2, dtype)]
    with pytest.raises(InputError, match=r"input 'k': numpy type .* has no tensor data"):
        check_types(("x", "k"), given)
    check_types(("x", "k"), given[:1])
    check_types((), given)
