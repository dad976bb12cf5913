"""How arrays travel: a letter of the buffer protocol, or bits of the same size."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.runtime.plan_executor.tensors import (
    as_bits,
    buffer_formats,
    describe,
    describe_array,
    wire_type,
)

EVERY = pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)


@EVERY
def test_what_travels_has_one_of_the_accepted_formats(dtype: DType) -> None:
    array = np.zeros((2, 3), dtype.numpy)
    bits = as_bits(array, dtype)
    assert memoryview(bits).format in buffer_formats(dtype).split("|")
    assert bits.dtype == wire_type(dtype)
    assert np.shares_memory(bits, array)
    assert bits.view(dtype.numpy).dtype == array.dtype


@EVERY
def test_no_letter_of_another_size_is_accepted(dtype: DType) -> None:
    """What `l` stands for depends on the system."""
    accepted = set("bBhHiIlLqQefd?") & set(buffer_formats(dtype).split("|"))
    sizes = {letter: np.dtype(letter).itemsize for letter in accepted}
    assert sizes == dict.fromkeys(accepted, dtype.itemsize)


def test_types_and_shapes_as_text() -> None:
    assert describe(dtypes.f32, (2, "N")) == "f32[2, N]"
    assert describe_array(np.zeros((2, 0), np.float16)) == "f16[2, 0]"
    assert describe_array(np.zeros((), np.complex64)) == "complex64[]"
