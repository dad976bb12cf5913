"""Values at two points: what is not so at one of them is not always so, which takes longer to see from bounds.

The points lie within the bounds of the symbols, one near 0 and one far from it.  Built on `algebra`; called by `queries`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Final

from tilewright.base.symbolic.algebra import Atom, Dim, Operation, Symbol

Samples = tuple[int, ...]
_NEAR: Final = 1
_FAR: Final = (1 << 20) - 1
"""One less than a power of two: most of what divides has its largest remainder there."""

NUMBERS: Final[Mapping[str, Callable[[int, int], int]]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": min,
    "max": max,
}
"""What the operations of the algebra come to with numbers."""


def samples(value: Dim) -> Samples:
    """What `value` is at both points; nothing where a divisor is 0 at one of them."""
    if isinstance(value, int):
        return (value, value)
    if value.samples is None:
        value.samples = _samples_of(value.terms, value.constant)
    return value.samples


def _samples_of(terms: tuple[tuple[tuple[Atom, ...], int], ...], constant: int) -> Samples:
    near = far = constant
    for monomial, factor in terms:
        first = second = factor
        for atom in monomial:
            there = _at(atom)
            if not there:
                return ()
            first *= there[0]
            second *= there[1]
        near += first
        far += second
    return (near, far)


def _at(atom: Atom) -> Samples:
    if isinstance(atom, Symbol):
        return (_within(atom, _NEAR), _within(atom, _FAR))
    if not isinstance(atom, Operation):
        return (0, 0)  # it may be any number
    left, right = samples(atom.left), samples(atom.right)
    if not left or not right or (atom.op in ("floordiv", "mod") and 0 in right):
        return ()
    compute = NUMBERS[atom.op]
    return (compute(left[0], right[0]), compute(left[1], right[1]))


def _within(symbol: Symbol, number: int) -> int:
    """The value within the bounds of a symbol that is nearest to a number."""
    if symbol.upper is not None and number > symbol.upper:
        return symbol.upper
    if symbol.lower is not None and number < symbol.lower:
        return symbol.lower
    return number
