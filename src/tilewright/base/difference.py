"""How far two tensors are apart, in words that do not depend on their scale.

Floats are measured against the largest finite magnitude of the second tensor, which is what sums of
many terms are exact to (docs/numerics.md); integers and booleans must be equal, NaN and infinities
must stand at the same places.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.record import record

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

TOLERANCES: Final[Mapping[DType, float]] = {
    dtypes.f64: 1e-9,
    dtypes.f32: 1e-4,
    dtypes.f16: 2e-2,
    dtypes.bf16: 1e-1,
}
"""The largest error that passes, relative to the largest magnitude.  Types not listed must be equal."""


@final
@record(kw_only=True)
class Difference:
    """One tensor on both sides.

    Attributes:
        name: the tensor.
        error: the largest distance of two elements, relative to the largest magnitude; infinite
            where NaN, infinities, shapes or types differ.
        index: where it is; None if shapes or types differ, empty where there are no elements.
        values: the two elements there, or the two types.
        count: how many elements are further apart than `tolerance`.
        size: how many there are.
    """

    name: str
    error: float
    tolerance: float
    index: tuple[int, ...] | None
    values: tuple[str, str]
    count: int
    size: int

    @property
    def is_beyond(self) -> bool:
        """Whether the tensors count as different."""
        return not self.error <= self.tolerance

    def __str__(self) -> str:
        if self.index is None:
            return f"'{self.name}': {self.values[0]} and {self.values[1]}"
        if not self.size:
            return f"'{self.name}': no elements"
        place = ", ".join(map(str, self.index))
        return (
            f"'{self.name}': error {self.error:.2g} (tolerance {self.tolerance:.2g}), "
            f"{self.count} of {self.size} elements beyond it, worst at [{place}]: "
            f"{self.values[0]} and {self.values[1]}"
        )


def measure(name: str, a: Array, b: Array, tolerance: float | None = None) -> Difference:
    """Put two tensors beside each other; `tolerance` None takes that of the type."""
    if a.dtype != b.dtype or a.shape != b.shape:
        types = (f"{a.dtype}{list(a.shape)}", f"{b.dtype}{list(b.shape)}")
        return Difference(
            name=name,
            error=np.inf,
            tolerance=0.0,
            index=None,
            values=types,
            count=a.size,
            size=a.size,
        )
    dtype = dtypes.from_numpy(a.dtype)
    limit = TOLERANCES.get(dtype, 0.0) if tolerance is None else tolerance
    errors = _errors(a, b)
    worst = int(np.argmax(errors)) if a.size else 0
    index = tuple(int(i) for i in np.unravel_index(worst, a.shape)) if a.size else ()
    return Difference(
        name=name,
        error=float(errors[worst]) if a.size else 0.0,
        tolerance=limit,
        index=index,
        values=(str(a[index]), str(b[index])) if a.size else ("", ""),
        count=int(np.count_nonzero(errors > limit)),
        size=a.size,
    )


def _errors(a: Array, b: Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The error of each element, flat."""
    wide_a, wide_b = (np.ravel(x).astype(np.float64) for x in (a, b))
    equal = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    if not dtypes.from_numpy(a.dtype).is_float:
        # 64-bit integers may differ where their floats do not.
        return np.where(np.ravel(a) == np.ravel(b), 0.0, np.inf)
    finite = np.isfinite(wide_a) & np.isfinite(wide_b)
    magnitude = np.max(np.abs(wide_b), initial=0.0, where=np.isfinite(wide_b))
    with np.errstate(all="ignore"):
        apart = np.abs(wide_a - wide_b) / (magnitude if magnitude > 0 else 1.0)
    return np.where(equal, 0.0, np.where(finite, apart, np.inf))
