"""Which class of the style sheet a way to run has, the same in every drawing; and axis ticks.

Called by the drawings and the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from tilewright.base.outcome import Outcome

MEANINGS: Final = {
    Outcome.TILED: "products whose sums stay in registers",
    Outcome.ROWS: "vectors along the axis that is walked",
    Outcome.COLUMNS: "vectors across the axis that is walked",
    Outcome.POINTWISE: "element by element, in vectors",
    Outcome.GENERIC: "machine code without vectors",
    Outcome.USER: "a schedule of yours",
    Outcome.HOST: "no kernel: the reference, in Python",
    Outcome.CALL: "a function of another module",
}
OTHER: Final = "other"


def outcome_class(outcome: Outcome | None) -> str:
    """The class of an outcome; of copies and what is unknown, too."""
    return f"o-{(outcome or OTHER).replace(' ', '-')}"


def nice_ticks(limit: float, count: int, base: int = 10) -> list[float]:
    """About `count` round numbers from 0 to `limit`: 1, 2 or 5 times a power (of 2: any power)."""
    if limit <= 0:
        return [0.0]
    step = _nice_step(limit / count, base)
    return [step * n for n in range(int(limit / step * (1 + 1e-9)) + 1)]


def _nice_step(wanted: float, base: int) -> float:
    if base == 2:
        return 2.0 ** math.ceil(math.log2(wanted))
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= wanted * (1 - 1e-9))


def decades(low: float, high: float) -> Iterator[float]:
    """The powers of ten from `low` to `high`."""
    for power in range(
        math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1
    ):
        yield 10.0**power
