"""The plots of a report as SVG: a call as a strip of time, the roofline, the memory over the steps.

Called by `page`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, final

from tilewright.api.profiling import KernelRow
from tilewright.api.report.markup import Markup, element, number, shortened
from tilewright.api.report.palette import decades, nice_ticks, outcome_class
from tilewright.api.report.report_data import ReportData
from tilewright.base.text import format_bytes, format_duration, plural

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline

_STRIP: Final = (1200.0, 56.0)
_ROOF: Final = (760.0, 430.0)
_MEMORY: Final = (1200.0, 330.0)
_LABELLED: Final = 6
_LIFETIMES_LIMIT: Final = 20_000


@final
@dataclass(frozen=True, slots=True)
class _Axis:
    """From values to places; logarithmic where `log`."""

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.begin + (self.end - self.begin) * (value - low) / ((high - low) or 1.0)


def _svg(size: tuple[float, float], name: str, label: str, *parts: str) -> Markup:
    width, height = size
    return element(
        "svg",
        *parts,
        id=name,
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=label,
    )


def _tick(x: float, y: float, text: str, kind: str) -> Markup:
    return element("text", text, class_=f"tick {kind}", x=x, y=y)


def _rule(x: float, y: float, to_x: float, to_y: float, kind: str = "grid") -> Markup:
    return element("line", class_=kind, x1=x, y1=y, x2=to_x, y2=to_y)


# --- a call ----------------------------------------------------------------------------------


def draw_strip(data: ReportData) -> Markup:
    """The steps of a call end to end, as wide as they take time."""
    width, height = _STRIP
    total = data.time_ns or 1
    axis = _Axis(0, total, 0.0, width)
    parts: list[Markup] = []
    now = 0
    for place, step in enumerate(data.steps):
        took = step.row.time_ns
        title = element(
            "title",
            f"step {place}: {shortened(step.row.name, 200)}, {format_duration(took)}",
        )
        parts.append(
            element(
                "rect",
                title,
                x=axis(now),
                y=0,
                width=max(axis(took), 0.3),
                height=height - 20,
                class_=f"step {'thin ' * (axis(took) < 4)}{outcome_class(step.row.outcome)}",
                data_step=place,
                data_kernel=step.kernel,
            )
        )
        now += took
    for tick in nice_ticks(total, 8):
        x = axis(tick)
        parts.append(_rule(x, height - 20, x, height - 15, "ticks"))
        kind = "start" if x < 20 else "end" if x > width - 30 else "middle"
        parts.append(_tick(x, height - 3, _round_duration(tick), kind))
    return _svg(_STRIP, "strip", "the steps of a call over time", *parts)


def _round_duration(time_ns: float) -> str:
    return format_duration(time_ns).replace(".00", "") if time_ns else "0"


# --- the roofline ----------------------------------------------------------------------------


def draw_roofline(data: ReportData) -> Markup | None:
    """Kernels with arithmetic below the limits of the machine; None if there are none of them."""
    rows = [
        (place, row)
        for place, row in enumerate(data.kernels)
        if row.flops and row.size_bytes and row.time_ns
    ]
    return _RooflinePlot(data, rows).drawing() if rows else None


@final
class _RooflinePlot:
    """Arithmetic per byte across, FLOP/s upwards, both logarithmic."""

    def __init__(self, data: ReportData, rows: Sequence[tuple[int, KernelRow]]) -> None:
        self.total_ns: int = data.time_ns or 1
        self.limits: Roofline | None = data.limits
        self.rows: Sequence[tuple[int, KernelRow]] = rows
        width, height = _ROOF
        density = [row.flops / row.size_bytes for _, row in rows]
        rates = [row.flops_rate for _, row in rows]
        tops, ridges = list(rates), list(density)
        if self.limits is not None:
            tops.append(self.limits.flops)
            ridges.append(self.limits.flops / self.limits.read_bytes)
        low, high = min(*density, 0.5) / 1.6, max(*ridges, 1.0) * 2.2
        self.x: _Axis = _Axis(low, high, 62.0, width - 16, log=True)
        bottom = max(min(rates) / 1.8, max(tops) / 1e5)
        self.y: _Axis = _Axis(bottom, max(tops) * 1.9, height - 44, 14.0, log=True)

    def drawing(self) -> Markup:
        parts = [*self._grid(), *self._roofs(), *self._points()]
        return _svg(_ROOF, "roofline", "kernels below the limits of the machine", *parts)

    def _grid(self) -> Iterator[Markup]:
        x, y = self.x, self.y
        for value in decades(x.low, x.high):
            yield _rule(x(value), y.begin, x(value), y.end)
            yield _tick(x(value), y.begin + 16, f"{value:g}", "middle")
        for value in decades(y.low, y.high):
            yield _rule(x.begin, y(value), x.end, y(value))
            yield _tick(x.begin - 8, y(value) + 4, f"{value / 1e9:g}", "end")
        yield _tick((x.begin + x.end) / 2, y.begin + 36, "FLOP per byte", "middle label")
        yield element(
            "text", "GFLOP/s", class_="tick label middle",
            transform=f"translate(14 {number((y.begin + y.end) / 2)}) rotate(-90)",
        )  # fmt: skip

    def _roofs(self) -> Iterator[Markup]:
        """The peak of arithmetic, and a slope for each level of memory, the farthest strongest."""
        if self.limits is None:
            return
        x, y, flops = self.x, self.y, self.limits.flops
        levels = (("memory", self.limits.read_bytes), *self.limits.caches)
        first_ridge = max(flops / max(rate for _, rate in levels), x.low)
        yield _rule(x(first_ridge), y(flops), x.end, y(flops), "roof")
        text = f"compute: {flops / 1e9:,.0f} GFLOP/s"
        yield _tick(x.end - 4, y(flops) - 7, text, "end roof-name")
        for place, (name, rate) in enumerate(levels):
            begin = max(x.low, y.low / rate)
            ridge = max(flops / rate, begin)
            kind = "roof" if place == 0 else "roof cache"
            yield _rule(x(begin), y(begin * rate), x(ridge), y(ridge * rate), kind)
            at = (x(begin) + 8, y(begin * rate))
            rise = math.degrees(math.atan2(y(ridge * rate) - at[1], x(ridge) - x(begin)))
            yield element(
                "text",
                f"{name}: {rate / 1e9:,.0f} GB/s",
                class_="tick roof-name",
                transform=f"translate({number(at[0])} {number(at[1] - 11)}) rotate({number(rise)})",
            )

    def _points(self) -> Iterator[Markup]:
        taken: list[tuple[float, float, float]] = []
        labels: list[Markup] = []  # above all points
        for order, (place, row) in enumerate(
            sorted(self.rows, key=lambda r: -r[1].time_ns)
        ):
            x = self.x(row.flops / row.size_bytes)
            y = min(self.y(max(row.flops_rate, self.y.low)), self.y.begin)
            share = row.time_ns / self.total_ns
            radius = 3.0 + 22.0 * share**0.5
            yield element(
                "circle",
                element("title", self._title(row)),
                cx=x,
                cy=y,
                r=radius,
                class_=f"point {outcome_class(row.outcome)}",
                data_kernel=place,
                tabindex=0,
            )
            if order < _LABELLED:
                labels += self._label(shortened(row.name, 26), x, y, radius, taken)
        yield from labels

    def _label(
        self,
        text: str,
        x: float,
        y: float,
        radius: float,
        taken: list[tuple[float, float, float]],
    ) -> Iterator[Markup]:
        """Beside a point, unless another label is there."""
        width = 6.3 * len(text)
        is_right = x + radius + 4 + width < self.x.end
        begin = x + radius + 4 if is_right else x - radius - 4 - width
        if any(abs(y - at) < 13 and begin < e and b < begin + width for b, e, at in taken):
            return
        taken.append((begin, begin + width, y))
        at = x + radius + 4 if is_right else x - radius - 4
        yield _tick(at, y + 4, text, "start point-name" if is_right else "end point-name")

    def _title(self, row: KernelRow) -> str:
        share = 100 * row.time_ns / self.total_ns
        lines = [
            f"{shortened(row.name, 200)} ({row.outcome or 'unknown'})",
            f"{format_duration(row.time_ns)} in {plural(row.calls, 'call')}, {share:.1f} %",
            f"{row.flops_rate / 1e9:.1f} GFLOP/s, {row.bytes_rate / 1e9:.1f} GB/s",
        ]
        if self.limits is not None:
            name, share = row.limit(self.limits)
            lines.append(f"{100 * share:.0f} % of {name}")
        return "\n".join(lines)


# --- memory ----------------------------------------------------------------------------------


def draw_memory(data: ReportData) -> Markup | None:
    """The arena over the steps of a call; None if there is none."""
    memory = data.memory
    if (
        memory is None
        or not data.steps
        or not 0 < len(memory.lifetimes) <= _LIFETIMES_LIMIT
    ):
        return None
    width, height = _MEMORY
    steps = len(data.steps)
    x = _Axis(0, steps, 78.0, width - 8)
    y = _Axis(0, memory.arena_bytes, height - 40, 26.0)
    parts: list[Markup] = []
    for tick in nice_ticks(memory.arena_bytes, 5, base=2):
        parts.append(_rule(x.begin, y(tick), x.end, y(tick)))
        parts.append(_tick(x.begin - 8, y(tick) + 4, format_bytes(tick), "end"))
    whole = (tick for tick in nice_ticks(steps, 12) if tick == int(tick))
    parts += (_tick(x(tick), y.begin + 16, f"{tick:g}", "middle") for tick in whole)
    parts.append(_tick((x.begin + x.end) / 2, y.begin + 33, "step", "middle label"))
    for lifetime in memory.lifetimes:
        step = data.steps[min(lifetime.first, steps - 1)]
        tensor, size = lifetime.tensor, lifetime.size_bytes
        lines = (
            f"{shortened(lifetime.name, 200)}: {tensor}",
            f"{format_bytes(size)} at byte {lifetime.offset:,}",
            f"alive from step {lifetime.first} through {lifetime.last}",
        )
        top = y(lifetime.offset + size)
        parts.append(
            element(
                "rect",
                element("title", "\n".join(lines)),
                x=x(lifetime.first),
                width=x(lifetime.last + 1) - x(lifetime.first),
                y=top,
                height=max(y(lifetime.offset) - top, 0.5),
                class_=f"life {outcome_class(step.row.outcome)}",
                data_first=lifetime.first,
                data_last=lifetime.last,
                data_step=lifetime.first,
            )
        )
    peak = y(memory.peak_bytes)
    parts.append(_rule(x.begin, peak, x.end, peak, "roof peak"))
    text = f"the line: {format_bytes(memory.peak_bytes)}, the most that is alive at once"
    parts.append(_tick(x.end, 14, text, "end"))
    return _svg(_MEMORY, "memory", "where tensors lie in the arena, step by step", *parts)
