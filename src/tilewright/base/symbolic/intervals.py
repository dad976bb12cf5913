"""Interval arithmetic: bounds of what `//`, `%`, `min`, `max` and products may be.

Pure functions on pairs of Python integers; an open end is None.  Knows nothing of expressions;
called by `algebra`.
"""

from __future__ import annotations

Bounds = tuple[int | None, int | None]


def product_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of `x * y` for `x` in `a` and `y` in `b`."""
    (al, ah), (bl, bh) = a, b
    if al is not None and bl is not None and al >= 0 and bl >= 0:
        return (al * bl, None if ah is None or bh is None else ah * bh)
    if al is None or ah is None or bl is None or bh is None:
        return (None, None)
    corners = (al * bl, al * bh, ah * bl, ah * bh)
    return (min(corners), max(corners))


def floordiv_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of `x // y`; nothing is known of divisors that may not be positive."""
    (low, high), (divisor_low, divisor_high) = a, b
    if divisor_low is None or divisor_low < 1:
        return (None, None)
    if low is None or low < 0:
        least = None if low is None else low // divisor_low
    else:
        least = 0 if divisor_high is None else low // divisor_high
    if high is None:
        return (least, None)
    return (least, high // divisor_low if high >= 0 else -1)


def mod_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of `x % y`; nothing is known of divisors that may not be positive."""
    if b[0] is None or b[0] < 1:
        return (None, None)
    top = None if b[1] is None else b[1] - 1
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        top = a[1] if top is None else min(top, a[1])
    return (0, top)


def min_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of `min(x, y)`."""
    highs = [high for high in (a[1], b[1]) if high is not None]
    low = None if a[0] is None or b[0] is None else min(a[0], b[0])
    return (low, min(highs) if highs else None)


def max_bounds(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of `max(x, y)`."""
    lows = [low for low in (a[0], b[0]) if low is not None]
    high = None if a[1] is None or b[1] is None else max(a[1], b[1])
    return (max(lows) if lows else None, high)
