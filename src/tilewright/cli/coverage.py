"""`tilewright coverage`: what of a model is fast, slow or not supported, before compiling it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.text import format_bytes, plural, printable_line
from tilewright.cli.codegen_options import CodegenOptions, codegen_options
from tilewright.cli.display import example, out, table
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import (
    coverage_options,
    json_option,
    parse_input_shapes,
    parse_input_values,
)

if TYPE_CHECKING:
    from tilewright.api.model import CoverageReport

_COLOURS = {
    "fast": "green",
    "call": "green",
    "kernel": "green",
    "scalar": "green",
    "fallback": "yellow",
    "slow": "red",
    "unsupported": "red",
}
_SHOWN_NODES = 3


@click.command(
    "coverage",
    cls=Verb,
    short_help="Say how a model will run, operator by operator, before compiling it.",
    epilog=example(
        "tilewright coverage model.onnx",
        "tilewright coverage bert.onnx --target=v3 --input-shape=ids=batch,128",
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@coverage_options
@option(
    "--quick", is_flag=True, help="Only import the model; how its kernels run stays open."
)
@codegen_options
@json_option()
def command(
    model: Path,
    target: str | None,
    input_shape: tuple[str, ...],
    input_value: tuple[str, ...],
    quick: bool,
    codegens: CodegenOptions,
    as_json: bool,
) -> None:
    """List every operator of MODEL with its status, found by scheduling its kernels.

    \b
    fast         its kernels run in lanes, or nothing of it is left to run
    call         a code generator of yours takes it
    scalar       machine code without lanes, too little to matter
    kernel       machine code; with --quick, nothing more is known
    fallback     runs its reference implementation on the host
    slow         without lanes or on the host, with what that costs
    unsupported  compilation would fail; exit code 1

    Of an ONNX model with strings or maps it says what `tilewright.onnx_backend` runs of it.
    """  # noqa: D301 - click's mark for lines that stay as they are
    from tilewright.api import model as api

    report = api.coverage(
        str(model),
        target=target,
        input_shapes=parse_input_shapes(input_shape),
        input_values=parse_input_values(input_value),
        quick=quick,
        byoc=codegens.chosen(),
    )
    if as_json:
        click.echo(json.dumps(_as_dict(report), indent=2))
    else:
        _print(report)
    if not report.supported:
        raise click.exceptions.Exit(1)


def _print(report: CoverageReport) -> None:
    opset = f", opset {report.metadata.opset}" if report.metadata.opset else ""
    out.print(
        f"{report.file}: {plural(report.node_count, 'node')}{opset}, "
        f"{format_bytes(report.weight_bytes)} of weights",
    )
    for word, values in (("input", report.inputs), ("output", report.outputs)):
        for value in values:
            out.print(f"{word:8}{printable_line(value)}")
    if report.dynamic_dims:
        out.print(f"dynamic {printable_line(', '.join(report.dynamic_dims))}")
    for problem in report.problems:
        if not problem.op_type:
            out.print(f"unsupported: {problem.reason}", style="red")
    if report.host_note:
        out.print(report.host_note, style="yellow")
    columns = [
        ("operator", "left"),
        ("count", "right"),
        ("status", "left"),
        ("runs as", "left"),
        ("why", "left"),
    ]
    rows = table("", columns)
    for row in report.rows:
        reasons = "; ".join(_because(reason.text, reason.nodes) for reason in row.reasons)
        colour = _COLOURS[row.status.value]
        ways = " ".join(row.outcomes)
        rows.add_row(
            row.op_type, str(row.count), row.status.value, ways, reasons, style=colour
        )
    out.print(rows)
    for hint in report.hints:
        out.print(hint)


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
