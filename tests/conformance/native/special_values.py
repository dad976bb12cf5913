"""NaN, infinities, zeros of both signs, denormals and the largest numbers, and how exact each op is.

What it is: declared cases with these values strewn over their float operands, and the comparison of
what comes of them.
What it is not: the tests (`test_scheduled_kernels`), which run them beside the ordinary values.
"""

from __future__ import annotations

from typing import Final

import ml_dtypes
import numpy as np

from conformance.native.declared_cases import KernelCase
from conformance.ops.test_cases import TOLERANCE
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops.declaration import OpDecl

ROUNDS: Final = 6
# Every result is a sum, a product or a copy of single elements: denormals come through.
EXACT: Final = {
    "neg", "abs", "relu", "add", "sub", "mul", "max", "min", "where", "clip", "identity",
    "sign", "floor", "ceil", "round",
}  # fmt: skip
# Which of two equal zeros is the larger is nobody's to say.
EITHER_ZERO: Final = {"max", "min", "clip", "relu"}
# Products of many numbers leave the range of f32 on ways that the order decides.
PRODUCTS: Final = {"reduce_prod", "cumprod", "pool_samples"}

# Operands that are finite by their meaning: which of the products in a block zero times an infinite scale is, is nobody's to say.
FINITE: Final = {
    "matmul_blocks": frozenset({2}),
    "matmul_byte_blocks": frozenset({1, 4}),
}


def is_alone(row: OpDecl) -> bool:
    """Whether every element of the result comes from one element of each operand."""
    return bool(row.schema.traits & (Trait.ELEMENTWISE | Trait.MOVEMENT))


def specials(row: OpDecl, dtype: DType) -> np.ndarray:
    """Values at the edges of a float type, and a few in the middle.

    Sums get no numbers whose squares overflow: the oracle, in f64, would go on where f32 ends.
    """
    kind = dtype.numpy
    info = ml_dtypes.finfo(kind)
    found = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0]
    if row.name not in PRODUCTS:
        found += [float(info.smallest_subnormal), -3 * float(info.smallest_subnormal)]
    if is_alone(row):
        found += [
            float(info.max),
            -float(info.max),
            float(info.smallest_normal),
            88.0,
            -104,
        ]
    return np.asarray(found).astype(kind)


def has_floats(item: KernelCase) -> bool:
    return any(dtypes.from_numpy(a.dtype).is_float for a in item.operands)


def strewn(row: OpDecl, item: KernelCase, turn: int) -> list[np.ndarray | None]:
    """The operands, None where absent, with all, half or a tenth of their floats replaced."""
    random = np.random.default_rng(turn)
    share = (1.0, 0.5, 0.1)[turn % 3]

    def changed(array: np.ndarray | None) -> np.ndarray | None:
        if array is None or not dtypes.from_numpy(array.dtype).is_float:
            return array
        values = random.choice(specials(row, dtypes.from_numpy(array.dtype)), array.shape)
        return np.where(random.random(array.shape) < share, values, array)

    finite = FINITE.get(row.name, frozenset())
    return [
        a if place in finite else changed(a) for place, a in enumerate(item.case.operands)
    ]


def assert_agree(
    row: OpDecl, actual: np.ndarray, expected: np.ndarray, context: str
) -> None:
    """NaN and infinities stand in the same places; zeros have their sign; the rest is close."""
    dtype = dtypes.from_numpy(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected, err_msg=context)
        return
    got, want = actual.astype(np.float64), expected.astype(np.float64)
    tolerance = TOLERANCE[dtype.name]
    largest = float(np.abs(want[np.isfinite(want)]).max(initial=0))
    smallest = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
    # Sums lose what is small beside what is large.
    floor = tolerance * (min(1.0, largest) if is_alone(row) else largest)
    if row.name in EXACT or Trait.MOVEMENT in row.schema.traits:
        floor = 0.0
    np.testing.assert_allclose(
        got, want, rtol=tolerance, atol=max(floor, 2 * smallest), err_msg=context
    )
    if is_alone(row) and row.name not in EITHER_ZERO:
        zeros = (want == 0) & (got == 0)
        np.testing.assert_array_equal(
            np.signbit(got[zeros]), np.signbit(want[zeros]), err_msg=f"{context}: signs"
        )
