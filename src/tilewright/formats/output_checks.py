"""Checks that a model brings along: what the host compares after a call, and what it says where it differs.

Both sides are outputs of the graph.  Rules are those of the
reference interpreter: `eq` compares values (NaN equals nothing, zeros are equal), `almost_eq` allows an
absolute difference, `close` counts units in the last place.

Made by front ends whose models check themselves, kept in artifacts, asked by who runs such a model.

Source: the check dialect of StableHLO and its reference interpreter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.base.record import record

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

_MOST: Final = 2.0**63
_FAR: Final = np.uint64(2**64 - 1)


@final
@record(eq=False)
class Check:
    """One comparison of two outputs of a graph, by position.

    Attributes:
        rule: `eq`, `almost_eq` or `close`.
        place: where in the file it stands.
        actual, expected: positions of outputs.
        tolerance: the largest difference: absolute, or in units in the last place.
    """

    rule: str
    place: str
    actual: int
    expected: int
    tolerance: float = 0.0

    def problem(self, outputs: Sequence[Array]) -> str:
        """What is wrong with the outputs of a call; empty if nothing is."""
        if max(self.actual, self.expected) >= len(outputs):
            return f"{self.place}: check failed: there are only {len(outputs)} outputs"
        actual, expected = outputs[self.actual], outputs[self.expected]
        if actual.shape != expected.shape or actual.dtype != expected.dtype:
            held, wanted = (f"{a.dtype}{list(a.shape)}" for a in (actual, expected))
            return f"{self.place}: check failed: got {held}, expected {wanted}"
        wrong = ~_RULES[self.rule](actual, expected, self.tolerance)
        if not np.any(wrong):
            return ""
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        return (
            f"{self.place}: check failed: element {list(index)} is {actual[index]}, expected "
            f"{expected[index]}{self._allowed()} ({int(wrong.sum())} of {wrong.size} differ)"
        )

    def _allowed(self) -> str:
        if self.rule == "almost_eq":
            return f" within {self.tolerance:g}"
        return f" within {int(self.tolerance)} ulp" if self.rule == "close" else ""


def _equal(actual: Array, expected: Array, tolerance: float) -> Any:
    del tolerance
    return np.asarray(actual == expected)


def _almost_equal(actual: Array, expected: Array, tolerance: float) -> Any:
    if actual.dtype.kind in "biu":
        return _equal(actual, expected, tolerance)
    left, right = actual.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(left - right) <= tolerance
    return near | (left == right) | (np.isnan(left) & np.isnan(right))


def _close(actual: Array, expected: Array, tolerance: float) -> Any:
    if actual.dtype.kind in "biu":
        return _equal(actual, expected, tolerance)
    return ulp_distance(actual, expected) <= np.uint64(tolerance)


def ulp_distance(actual: Array, expected: Array) -> Any:
    """How many floats lie between two, through zero; the largest number where one is not finite."""
    left, right = (_magnitude(x) for x in (actual, expected))
    signs = np.signbit(actual) != np.signbit(expected)
    apart = np.maximum(left, right) - np.minimum(left, right)
    found = np.where(signs, left + right, apart)
    wide = [x.astype(np.float64) for x in (actual, expected)]
    is_nan = [np.isnan(x) for x in wide]
    finite = np.isfinite(wide[0]) & np.isfinite(wide[1])
    same = (wide[0] == wide[1]) | (is_nan[0] & is_nan[1])
    return np.where(finite, found, np.where(same, np.uint64(0), _FAR))


def _magnitude(x: Array) -> Any:
    bits: Any = np.ascontiguousarray(x).reshape(x.shape).view(f"u{x.dtype.itemsize}")
    mask = (1 << (8 * x.dtype.itemsize - 1)) - 1
    return (bits & bits.dtype.type(mask)).astype(np.uint64)


_RULES: Final[dict[str, Callable[[Array, Array, float], Any]]] = {
    "almost_eq": _almost_equal,
    "close": _close,
    "eq": _equal,
}


def to_rows(checks: Sequence[Check]) -> list[list[object]]:
    """Checks as JSON."""
    return [[c.rule, c.place, c.actual, c.expected, c.tolerance] for c in checks]


def from_rows(rows: object) -> tuple[Check, ...]:
    """The checks that JSON says.  Raises: ValueError for what is none."""
    found: list[Check] = []
    for row in cast("Sequence[Sequence[object]]", rows):
        rule, place, actual, expected, tolerance = row
        is_known = rule in _RULES and isinstance(place, str) and place.isprintable()
        if not is_known or type(actual) is not int or type(expected) is not int:
            raise ValueError(f"{row!r:.80} is no check")
        if min(actual, expected) < 0 or not isinstance(tolerance, int | float):
            raise ValueError(f"{row!r:.80} is no check")
        if not 0 <= tolerance < _MOST:
            raise ValueError(f"{row!r:.80} is no check")
        found.append(Check(str(rule), str(place), actual, expected, float(tolerance)))
    return tuple(found)


def failed(checks: Sequence[Check], outputs: Sequence[Array]) -> tuple[str, ...]:
    """What is wrong with the outputs of a call, check by check."""
    return tuple(problem for check in checks if (problem := check.problem(outputs)))
