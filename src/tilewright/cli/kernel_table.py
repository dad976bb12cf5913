"""The table of kernels: time, rates, the limit each runs into, and a bar.

Called by `bench` and `profile`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.text import Text

from tilewright.api.profiling import KernelRow
from tilewright.base.outcome import Outcome
from tilewright.base.text import format_duration
from tilewright.cli.display import out, table

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline

_BAR: Final = 24
_SHOWN_NODES: Final = 2


def bar(share: float) -> str:
    """A bar of eighths of a character; a share above 0 is never invisible."""
    eighths = max(round(8 * _BAR * share), 1 if share > 0 else 0)
    rest = " ▏▎▍▌▋▊▉"[eighths % 8]
    return "█" * (eighths // 8) + (rest if eighths % 8 else "")


def print_kernels(
    found: Sequence[KernelRow],
    limit: int,
    limits: Roofline | None,
    *,
    with_nodes: bool = False,
) -> None:
    """Print at most `limit` rows (0 = all), slowest first, and what the rest takes together."""
    columns = [
        ("kernel", "left"), *([("nodes of the model", "left")] if with_nodes else []), ("runs as", "left"), ("calls", "right"), ("time", "right"), ("share", "right"),
        ("GFLOP/s", "right"), ("GB/s", "right"), ("limit", "bar"), ("of it", "right"),
        ("", "bar"),
    ]  # fmt: skip
    rows = table("\nkernels", columns)
    total = sum(row.time_ns for row in found) or 1
    for row in found[: limit or None]:
        name, share = ("", "") if limits is None else _limit_cells(row, limits)
        rows.add_row(
            row.name,
            *([_nodes_cell(row)] if with_nodes else []),
            outcome_cell(row.outcome),
            str(row.calls),
            format_duration(row.time_ns),
            f"{100 * row.time_ns / total:.1f} %",
            f"{row.flops_rate / 1e9:.1f}",
            f"{row.bytes_rate / 1e9:.1f}",
            name,
            share,
            bar(row.time_ns / max(found[0].time_ns, 1)),
        )
    hidden = found[limit:] if limit else ()
    if hidden:
        rest = sum(row.time_ns for row in hidden)
        rows.add_row(
            f"… {len(hidden)} more",
            *([""] if with_nodes else []),
            "",
            "",
            format_duration(rest),
            f"{100 * rest / total:.1f} %",
        )
    out.print(rows)


def _nodes_cell(row: KernelRow) -> str:
    """The first nodes that a kernel computes, and how many more there are."""
    shown = ", ".join(row.nodes[:_SHOWN_NODES])
    more = len(row.nodes) - _SHOWN_NODES
    return f"{shown} +{more}" if more > 0 else shown


def outcome_cell(outcome: Outcome | None) -> str | Text:
    """How a kernel runs; what has no lanes stands out."""
    if outcome in (Outcome.GENERIC, Outcome.HOST):
        return Text(str(outcome), style="yellow")
    return outcome or ""


def _limit_cells(row: KernelRow, limits: Roofline) -> tuple[Text, str]:
    name, share = row.limit(limits)
    colour = "green" if share >= 0.8 else "yellow" if share >= 0.5 else "red"
    colour = "dim" if name == "start" else colour
    return Text(name, style=colour), f"{100 * share:.0f} %"
