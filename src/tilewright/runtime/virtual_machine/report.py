"""A profile: what was called, how long it took, on what; as a table, CSV or JSON, and beside another.

Source: TVM 0.23, `tvm.runtime.profiling.Report`, which later releases do not have.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, cast, final

from tilewright.base.errors import UserError
from tilewright.base.json_text import read_json
from tilewright.base.record import field, record
from tilewright.runtime.virtual_machine.metrics import (
    Count,
    Duration,
    Metric,
    Percent,
    Ratio,
    add,
    from_json_value,
    to_json_value,
)

DURATION: Final = "Duration (us)"
_COLUMNS: Final = ("Name", DURATION, "Percent", "Device", "Count", "Argument Shapes")
_SUMMED: Final = (DURATION, "Percent", "Count")

Row = Mapping[str, Metric]


@final
@record
class Report:
    """What a profiled call did.

    Attributes:
        calls: one row per function that was called, in order; columns by name.
        device_metrics: the whole, per device.
        configuration: what it ran on.
    """

    calls: tuple[Row, ...]
    device_metrics: Mapping[str, Row] = field(default_factory=dict)
    configuration: Row = field(default_factory=dict)

    def table(
        self, sort: bool = True, aggregate: bool = True, col_sums: bool = True
    ) -> str:
        """The calls as text.

        Args:
            sort: longest first, otherwise in the order of the calls.
            aggregate: one row for all calls of a function with the same shapes.
            col_sums: add a row of sums, the whole of each device, and the configuration.
        """
        rows = _aggregated(self.calls) if aggregate else list(self.calls)
        if sort:
            rows.sort(key=_duration, reverse=True)
        if not col_sums:
            return _as_text(_columns_of(rows), rows)
        totals = [
            {"Name": "Total", "Device": d, **m} for d, m in self.device_metrics.items()
        ]
        parts = [_as_text(_columns_of(rows), rows, [_sums(self.calls), *totals])]
        if self.configuration:
            lines = [f"{name}: {value}" for name, value in self.configuration.items()]
            parts.append("\n".join(["Configuration", "-------------", *lines]))
        return "\n\n".join(parts)

    def csv(self) -> str:
        """One line per call, with a head; numbers without separators."""
        columns = _columns_of(self.calls)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for row in self.calls:
            writer.writerow([_plain(row.get(column, "")) for column in columns])
        return text.getvalue()

    def json(self) -> str:
        """Calls, device metrics and configuration; `from_json` reads it back."""
        return json.dumps(
            {
                "calls": [_row_to_json(row) for row in self.calls],
                "device_metrics": {
                    name: _row_to_json(row) for name, row in self.device_metrics.items()
                },
                "configuration": _row_to_json(self.configuration),
            }
        )

    @staticmethod
    def from_json(text: str | bytes) -> Report:
        """Read what `json` wrote.  Raises: UserError for what is no report."""
        try:
            members = read_json(text)
        except (ValueError, RecursionError) as error:
            raise _no_report(f"is no JSON ({error})") from error
        if not isinstance(members, dict) or not isinstance(members.get("calls"), list):
            raise _no_report("has no list 'calls'")
        members = cast("dict[str, object]", members)
        devices = _mapping(members.get("device_metrics", {}), "device_metrics")
        return Report(
            tuple(_row_from_json(row) for row in cast("list[object]", members["calls"])),
            {name: _row_from_json(row) for name, row in devices.items()},
            _row_from_json(members.get("configuration", {})),
        )

    def compare(self, other: Report) -> Comparison:
        """This report as the state before, `other` as the one after."""
        before, after = ({_key(r): r for r in _aggregated(x.calls)} for x in (self, other))
        keys = dict.fromkeys((*before, *after))
        rows = [_compared(before.get(key), after.get(key)) for key in keys]
        rows.sort(key=lambda row: -abs(_number(row.get("Difference (us)"))))
        return Comparison(tuple(rows), _compared(_sums(self.calls), _sums(other.calls)))

    def __str__(self) -> str:
        return self.table()


@final
@record
class Comparison:
    """Two reports side by side.

    Attributes:
        calls: one row per function and shapes, the largest change first; what only one of the reports has
            lacks the other's columns.
        total: the sums.
    """

    calls: tuple[Row, ...]
    total: Row

    def table(self) -> str:
        """The rows as text, with the sums below."""
        return _as_text(_columns_of([*self.calls, self.total]), self.calls, [self.total])

    def __str__(self) -> str:
        return self.table()


def _compared(before: Row | None, after: Row | None) -> Row:
    known = before or after or {}
    row = {c: known[c] for c in ("Name", "Device", "Argument Shapes") if c in known}
    for title, side in (("Before (us)", before), ("After (us)", after)):
        if side is not None:
            row[title] = Duration(_duration(side))
    if before is not None and after is not None:
        first, second = _duration(before), _duration(after)
        row["Difference (us)"] = Duration(second - first)
        if first > 0:
            row["After / Before"] = Ratio(second / first)
    else:
        row["Difference (us)"] = Duration(_duration(after or {}) - _duration(before or {}))
    return row


def _number(metric: Metric | None) -> float:
    return 0.0 if metric is None or isinstance(metric, str) else float(metric.value)


def _duration(row: Row) -> float:
    return _number(row.get(DURATION))


def _key(row: Row) -> tuple[str, ...]:
    """What rows of one function have in common: all that is text."""
    return tuple(f"{k}={v}" for k, v in sorted(row.items()) if isinstance(v, str))


def _aggregated(rows: Iterable[Row]) -> list[Row]:
    """One row per function, device and shapes."""
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        key, counted = _key(row), {"Count": Count(1), **row}
        known = found.get(key)
        if known is not None:
            counted = {
                c: add(known[c], counted[c]) if c in known else counted[c] for c in counted
            }
        found[key] = counted
    return list(found.values())


def _sums(rows: Iterable[Row]) -> Row:
    sums: dict[str, Metric] = {"Name": "Sum"}
    for row in _aggregated(rows):
        for column in _SUMMED:
            if column in row:
                sums[column] = (
                    add(sums[column], row[column]) if column in sums else row[column]
                )
    return sums


def _columns_of(rows: Iterable[Row]) -> list[str]:
    """The known columns first, in their order, then the others as they come."""
    present = dict.fromkeys(column for row in rows for column in row)
    known = [column for column in _COLUMNS if column in present]
    return [*known, *(column for column in present if column not in known)]


def _as_text(columns: Sequence[str], rows: Sequence[Row], foot: Sequence[Row] = ()) -> str:
    """Columns in line: texts to the left, numbers to the right; the foot below a rule."""
    cells = [[str(row.get(column, "")) for column in columns] for row in (*rows, *foot)]
    widths = [
        max(len(title), *(len(line[i]) for line in cells)) if cells else len(title)
        for i, title in enumerate(columns)
    ]
    is_text = [
        all(isinstance(row.get(column, ""), str) for row in (*rows, *foot))
        for column in columns
    ]

    def line(parts: Sequence[str]) -> str:
        placed = (
            part.ljust(width) if text else part.rjust(width)
            for part, width, text in zip(parts, widths, is_text, strict=True)
        )
        return "  ".join(placed).rstrip()

    lines = [line(columns), *(line(cell) for cell in cells[: len(rows)])]
    if foot:
        lines.append("-" * (sum(widths) + 2 * (len(widths) - 1)))
        lines.extend(line(cell) for cell in cells[len(rows) :])
    return "\n".join(lines)


def _plain(metric: Metric) -> object:
    return metric if isinstance(metric, str) else metric.value


def _row_to_json(row: Row) -> dict[str, dict[str, float | str]]:
    return {name: to_json_value(metric) for name, metric in row.items()}


def _row_from_json(value: object) -> Row:
    return {k: from_json_value(v) for k, v in _mapping(value, "a row").items()}


def _mapping(value: object, subject: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _no_report(f"has {value!r:.80} where {subject} is expected")
    return cast("Mapping[str, object]", value)


def _no_report(reason: str) -> UserError:
    return UserError(
        f"the text {reason}",
        location="profile report",
        hint="Report.json writes what Report.from_json reads",
    )


def make_report(
    timings: Iterable[tuple[str, str, float]],
    *,
    whole_us: float,
    device: str,
    configuration: Mapping[str, Metric],
) -> Report:
    """The report of one call.

    Args:
        timings: name, argument shapes and microseconds of each function, in order.
        whole_us: microseconds of the whole call, at least the sum of its parts.
        device: what it ran on.
        configuration: what else a reader must know.
    """
    calls = tuple(
        {
            "Name": name,
            DURATION: Duration(duration_us),
            "Percent": Percent(100 * duration_us / whole_us if whole_us else 0.0),
            "Device": device,
            "Count": Count(1),
            "Argument Shapes": shapes,
        }
        for name, shapes, duration_us in timings
    )
    whole = {DURATION: Duration(whole_us), "Percent": Percent(100.0), "Count": Count(1)}
    return Report(calls, {device: whole}, dict(configuration))
