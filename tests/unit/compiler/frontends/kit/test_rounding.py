"""Rounding to whole numbers, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.rounding import away_from_zero
from tilewright.compiler.graph.ir import Graph

HALVES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 8388607.5, 8388609.0, 4503599627370497.0)


@pytest.mark.parametrize("dtype", [dtypes.f16, dtypes.f32, dtypes.f64])
def test_halves_go_away_from_zero_and_what_is_beside_them_does_not(
    dtype: dtypes.DType,
) -> None:
    kind = dtype.numpy
    places = np.array([x for x in HALVES if x <= float(np.finfo(kind).max)]).astype(kind)
    ends = np.array([np.inf, -np.inf]).astype(kind)
    beside = [places, *(np.nextafter(places, end) for end in ends)]
    x = np.concatenate([*beside, *(-part for part in beside)])
    expected = [
        math.copysign(math.floor(abs(Fraction(float(v))) + Fraction(1, 2)), float(v))
        for v in x
    ]
    e = NodeMaker(Graph("rounding"))
    found = away_from_zero(e, e.constant(np.concatenate([x, ends, [np.nan]], dtype=kind)))
    np.testing.assert_array_equal(found.array, [*expected, np.inf, -np.inf, np.nan])
