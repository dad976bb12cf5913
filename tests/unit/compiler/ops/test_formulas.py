from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import f32, f64
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.ops import formulas


def run(function, x: np.ndarray) -> np.ndarray:
    dtype = f64 if x.dtype == np.float64 else f32
    b = KernelBuilder("f")
    source, target = b.parameter("x", dtype, x.shape), b.result("y", dtype, x.shape)
    with b.nest(x.shape) as i:
        b.store(target, i, function(b, b.load(source, i)))
    out = np.empty_like(x)
    evaluate(b.build(), [x, out])
    return out


def ulps(actual: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units in the last place of f32."""
    spacing = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(actual.astype(np.float64) - exact) / spacing
    return float(np.nanmax(np.where(actual == exact, 0, error)))


WIDE = np.concatenate([-np.logspace(-30, 38, 20001), np.logspace(-30, 38, 20001)])
SMALL = np.linspace(-1, 1, 20001)
GROWING = np.concatenate([np.linspace(-100, 88, 40001), SMALL, 0.2 * SMALL, 1e-3 * SMALL])
# name, exact function, arguments, allowed error in f32 ulp
ROWS = [
    ("log1p", np.log1p, np.abs(WIDE), 2),
    ("expm1", np.expm1, GROWING, 6),
    ("softplus", lambda x: np.logaddexp(x, 0), np.linspace(-80, 80, 20001), 3),
    ("sinh", np.sinh, np.clip(GROWING, -89, 89), 6),
    ("cosh", np.cosh, np.linspace(-89, 89, 40001), 4),
    ("atan", np.arctan, WIDE, 4),
    ("asin", np.arcsin, SMALL, 3),
    ("acos", np.arccos, SMALL, 2),
    ("asinh", np.arcsinh, WIDE, 4),
    ("acosh", np.arccosh, 1 + np.abs(WIDE), 4),
    ("atanh", np.arctanh, SMALL[1:-1], 4),
]


@pytest.mark.parametrize(("name", "exact", "x", "limit"), ROWS, ids=[r[0] for r in ROWS])
def test_the_error_stays_within_the_stated_ulp(name, exact, x, limit):
    x32 = x.astype(np.float32)
    with np.errstate(all="ignore"):
        wanted = exact(x32.astype(np.float64))
    actual = run(getattr(formulas, name), x32)
    finite = np.isfinite(wanted.astype(np.float32))
    assert ulps(actual[finite], wanted[finite]) <= limit
    x64 = x32.astype(np.float64)
    np.testing.assert_allclose(
        run(getattr(formulas, name), x64)[finite], wanted[finite], rtol=2e-15, atol=1e-300
    )


@pytest.mark.parametrize(("name", "exact"), [(r[0], r[1]) for r in ROWS])
def test_special_values_come_out_as_in_numpy(name, exact):
    x = np.float32(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 2.0, -2.0, 1e-40, -65504, -3e38]
    )
    with np.errstate(all="ignore"):
        wanted = exact(x.astype(np.float64)).astype(np.float32)
    found = run(getattr(formulas, name), x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-44)
    zeros = wanted == 0
    np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))
