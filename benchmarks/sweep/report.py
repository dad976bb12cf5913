"""The table of a sweep and its summary.

What it is: rows → ratios, lines sorted by ratio, the three numbers that have bars.
What it is not: a measurement.
Who calls it: ``op_sweep.py`` and ``block_sweep.py``.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from figures.bars import OURS, PEER
from figures.rows import format_duration

WEIGHTY_S: Final = 20e-6
KNOWN: Final = "known sizes"
SYMBOLS_BAR: Final = 0.85
"""Of the speed that the same model has when it is compiled for the sizes of the call."""
Row = dict[str, Any]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a sweep came to.

    Attributes:
        worst: Greatest ratio among weighty cases: those that take us more than 20 µs.
        above: How many weighty cases are above the bar.
        median: Of the ratios of all cases.
    """

    cases: int
    worst: float
    median: float
    weighty: int
    above: int
    wrong: int
    refused: int
    alone: int

    def lines(self, bar: float) -> list[str]:
        """Return the text below a table."""
        return [
            f"{self.cases} cases timed, {self.weighty} of them take us more than 20 µs",
            (
                f"worst of those {self.worst:.2f} ×, {self.above} above {bar:g} ×"
                f"; median of all {self.median:.2f} ×"
            ),
        ]


def ratio_of(row: Row, statistic: str = "min_s") -> float | None:
    """Return our time over the peer's, none where one of them has none."""
    if OURS not in row or PEER not in row:
        return None
    return row[OURS][statistic] / row[PEER][statistic]


def is_weighty(row: Row) -> bool:
    """Whether a call of ours takes longer than what calling costs."""
    return row[OURS]["min_s"] > WEIGHTY_S


def symbol_lines(rows: Sequence[Row]) -> list[str]:
    """Return what symbols cost: the weighty cases below the bar, slowest first; nothing of a run without them."""
    speeds = [
        (row[KNOWN]["min_s"] / row[OURS]["min_s"], row)
        for row in rows
        if OURS in row and KNOWN in row and is_weighty(row)
    ]
    if not speeds:
        return []
    slow = sorted(((s, r) for s, r in speeds if s < SYMBOLS_BAR), key=lambda each: each[0])
    return [
        (
            f"-- {len(speeds)} weighty cases with symbols have {statistics.median(s for s, _ in speeds):.2f}"
            f" of their speed with known sizes (median), {len(slow)} below {SYMBOLS_BAR}"
        ),
        f"{'speed':>7}  {'symbols':>10}  {'known':>10}  {'of peer':>7}  case",
        *(f"{speed:7.2f}  {_symbol_cells(row)}  {row['name']}" for speed, row in slow),
        "",
    ]


def _symbol_cells(row: Row) -> str:
    ratio = ratio_of(row)
    times = (f"{format_duration(row[key]['min_s']):>10}" for key in (OURS, KNOWN))
    return "  ".join((*times, f"{'-' if ratio is None else f'{ratio:.2f}':>7}"))


def complaint(row: Row) -> str:
    """Return what is to be said of a row beyond its times."""
    if "failed" in row:
        return f"FAILED {row['failed']}"
    words = [f"WRONG {row['wrong']}"] if row.get("wrong") else []
    for runtime, reason in row.get("refused", {}).items():
        words.append(f"{runtime} refuses: {reason}")
    return "; ".join(words)


def summarize(rows: Sequence[Row], bar: float) -> Summary:
    """Return worst, median and counts."""
    timed = [(ratio, row) for row in rows if (ratio := ratio_of(row)) is not None]
    weighty = [ratio for ratio, row in timed if is_weighty(row)]
    refusals = [row.get("refused", {}) for row in rows]
    failed = sum("failed" in row for row in rows)
    return Summary(
        cases=len(timed),
        worst=max(weighty, default=0.0),
        median=statistics.median([ratio for ratio, _ in timed]) if timed else 0.0,
        weighty=len(weighty),
        above=sum(ratio > bar for ratio in weighty),
        wrong=sum(bool(row.get("wrong")) for row in rows),
        refused=failed + sum(OURS in refusal for refusal in refusals),
        alone=sum(list(refusal) == [PEER] for refusal in refusals),
    )


def line_of(row: Row) -> str:
    """Return one line of the table: ratios of least and middle times, both times, how it ran, the name."""
    least, middle = ratio_of(row), ratio_of(row, "median_s")
    cells = [f"{'-' if least is None else f'{least:.2f}':>7}"]
    cells.append(f"{'-' if middle is None else f'{middle:.2f}':>7}")
    cells += [
        f"{format_duration(row[runtime]['min_s']) if runtime in row else '-':>10}"
        for runtime in (OURS, PEER)
    ]
    cells.append(f"{row.get('runs_as', ''):18}")
    cells.append(row["name"])
    if note := complaint(row):
        cells.append(f"[{note[:160]}]")
    return "  ".join(cells)


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines, what failed first, then by falling ratio; light cases stand below."""

    def place(row: Row) -> tuple[int, float]:
        ratio = ratio_of(row)
        if ratio is None:
            refused_here = "failed" in row or OURS in row.get("refused", {})
            return (0 if refused_here else 3, 0.0)
        return (1 if is_weighty(row) else 2, -ratio)

    heading = (
        f"{'least':>7}  {'median':>7}  {'ours':>10}  {'peer':>10}  {'runs as':18}  case"
    )
    titles = (
        "refused or failed here",
        "cases of more than 20 µs",
        "cases of at most 20 µs",
        f"refused by {PEER}",
    )
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in sorted(rows, key=place):
        groups[place(row)[0]].append(row)
    lines: list[str] = []
    for number in sorted(groups):
        lines += [f"-- {titles[number]}", heading, *map(line_of, groups[number]), ""]
    return lines


def family_lines(rows: Sequence[Row]) -> list[str]:
    """Return per family: cases, median and worst ratio of the weighty ones."""
    families: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        ratio = ratio_of(row)
        if ratio is not None and is_weighty(row):
            families[row["family"]].append(ratio)
    ordered = sorted(families.items(), key=lambda item: -max(item[1]))
    return [
        f"{name:12} {len(ratios):4} cases  median {statistics.median(ratios):5.2f}"
        f"  worst {max(ratios):7.2f}"
        for name, ratios in ordered
    ]
