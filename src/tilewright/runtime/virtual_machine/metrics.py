"""What a profiler measures: durations, shares, counts and ratios, in the JSON form of TVM's profiler.

Source: TVM 0.23, `runtime/profiling.h` (`DurationNode`, `PercentNode`, `CountNode`, `RatioNode`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, final

from tilewright.base.errors import UserError
from tilewright.base.record import record


@final
@record
class Duration:
    """A time.  Units: microseconds."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:,.2f}"


@final
@record
class Percent:
    """A share of the whole.  Units: percent."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.2f}"


@final
@record
class Count:
    """How often."""

    value: int

    def __str__(self) -> str:
        return f"{self.value:,}"


@final
@record
class Ratio:
    """One number by another."""

    value: float

    def __str__(self) -> str:
        return f"{self.value:.3f}"


Number = Duration | Percent | Count | Ratio
Metric = Number | str

_KINDS: Final[Mapping[str, type[Any]]] = {
    "microseconds": Duration,
    "percent": Percent,
    "count": Count,
    "ratio": Ratio,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def to_json_value(metric: Metric) -> dict[str, float | str]:
    """One member that says what the value is: `{"microseconds": 1.5}`, `{"string": "cpu0"}`."""
    return (
        {"string": metric}
        if isinstance(metric, str)
        else {_NAMES[type(metric)]: metric.value}
    )


def from_json_value(value: object) -> Metric:
    """The metric that JSON holds.  Raises: UserError for anything else."""
    if isinstance(value, dict) and len(value) == 1:
        name, content = next(iter(value.items()))
        if name == "string" and isinstance(content, str):
            return content
        kind = _KINDS.get(name)
        if kind is Count and type(content) is int:
            return Count(content)
        if kind in (Duration, Percent, Ratio) and type(content) in (int, float):
            return kind(float(content))
    raise UserError(
        f"{value!r:.80} is no metric",
        location="profile report",
        hint=f"a metric has one member: string, {', '.join(_KINDS)}",
    )


def add(left: Metric, right: Metric) -> Metric:
    """Both together: of numbers of one kind the sum, of ratios and texts the first."""
    match left, right:
        case Duration(), Duration():
            return Duration(left.value + right.value)
        case Percent(), Percent():
            return Percent(left.value + right.value)
        case Count(), Count():
            return Count(left.value + right.value)
        case _:
            return left
