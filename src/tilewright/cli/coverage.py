"""`tilewright coverage`: what of a model is fast, slow or not supported, before any work."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.text import format_bytes, plural
from tilewright.cli.display import example, out, table

if TYPE_CHECKING:
    from tilewright.api.model import CoverageReport

_COLOURS = {"fast": "green", "fallback": "yellow", "unsupported": "red"}
_SHOWN_NODES = 3


@click.command(
    "coverage",
    short_help="Say what of a model is supported, before any work.",
    epilog=example("tilewright coverage model.onnx"),
)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(model: Path, as_json: bool) -> None:
    """List every operator of MODEL with its status.

    fast: becomes machine code. fallback: runs its reference implementation on the host.
    unsupported: compilation would fail; exit code 1.
    """
    from tilewright.api import model as api

    report = api.coverage(str(model))
    if as_json:
        click.echo(json.dumps(_as_dict(report), indent=2))
    else:
        _print(report)
    if not report.supported:
        raise click.exceptions.Exit(1)


def _print(report: CoverageReport) -> None:
    out.print(
        f"{report.file}: {plural(report.node_count, 'node')}, opset {report.metadata.opset}, "
        f"{format_bytes(report.weight_bytes)} of weights",
        markup=False,
    )
    for word, values in (("input", report.inputs), ("output", report.outputs)):
        for value in values:
            out.print(f"{word:8}{value}", markup=False)
    if report.dynamic_dims:
        out.print(f"dynamic {', '.join(report.dynamic_dims)}", markup=False)
    for problem in report.problems:
        if not problem.op_type:
            out.print(f"unsupported: {problem.reason}", markup=False, style="red")
    columns = [
        ("operator", "left"),
        ("count", "right"),
        ("status", "left"),
        ("why", "left"),
    ]
    rows = table("", columns)
    for row in report.rows:
        why = "; ".join(_because(reason.text, reason.nodes) for reason in row.reasons)
        colour = _COLOURS[row.status.value]
        rows.add_row(row.op_type, str(row.count), row.status.value, why, style=colour)
    out.print(rows, markup=False)


def _because(text: str, nodes: tuple[str, ...]) -> str:
    names = ", ".join(f"'{name}'" for name in nodes[:_SHOWN_NODES])
    more = len(nodes) - _SHOWN_NODES
    return f"{text} (at {names}{f' and {more} more' if more > 0 else ''})"


def _as_dict(report: CoverageReport) -> dict[str, object]:
    rows = [
        {
            **dataclasses.asdict(row),
            "status": row.status.value,
            "reasons": [
                {**dataclasses.asdict(reason), "status": reason.status.value}
                for reason in row.reasons
            ],
        }
        for row in report.rows
    ]
    return {**dataclasses.asdict(report), "supported": report.supported, "rows": rows}
