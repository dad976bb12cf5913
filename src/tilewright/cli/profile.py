"""`tilewright profile`: every command of a call on a timeline, and a table of kernels."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.text import format_duration, plural
from tilewright.cli.display import err, example, out
from tilewright.cli.kernel_profile import KernelRow, command_cost, rows_of
from tilewright.cli.kernel_table import print_kernels
from tilewright.cli.options import call_options, open_session, parse_dims, random_inputs
from tilewright.cli.trace_events import Command, trace_events
from tilewright.formats.tensor_text import Array, TensorReader

if TYPE_CHECKING:
    from tilewright.formats.plan import Step
    from tilewright.runtime.session import Session


@click.command(
    "profile",
    short_help="Time every command of a call; write a trace for Perfetto.",
    epilog=example(
        "tilewright profile model.vmfb --trace trace.json",
        "tilewright profile bert.onnx --dim batch=1 --dim sequence=128 --format csv",
        "tilewright profile iree.vmfb --function main --input 4xf32=1",
    ),
)
@click.argument("model")
@click.option("--function", help="Which function; default: the only one.")
@click.option("--device", default="local-task", show_default=True, help="URI of a device.")
@call_options
@click.option(
    "--calls",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Calls that are timed; the table shows medians.",
)
@click.option(
    "--trace",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a timeline for ui.perfetto.dev or chrome://tracing.",
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the kernels are printed.",
)
def command(  # noqa: PLR0913 - one parameter per option
    model: str,
    function: str | None,
    device: str,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    calls: int,
    trace: Path | None,
    format_: str,
) -> None:
    """Call MODEL (.vmfb or .onnx) a few times, one command at a time, and say what each took.

    Commands that could overlap run after each other here, so that each has a time of its own.
    """
    session = open_session(model, threads, device=device, function=function)
    sizes = parse_dims(dims)
    arrays = TensorReader().read(inputs) if inputs else random_inputs(session.inputs, sizes)
    session(*arrays)  # first calls allocate
    samples = [session.profile(*arrays) for _ in range(calls)]
    if trace is not None:
        _write_trace(trace, model, device, session, arrays, samples)
    _print(rows_of(session, arrays, samples), format_)
    if format_ == "table":
        total = sum(ns for _, ns in samples[-1])
        count = plural(len(samples[-1]), "command")
        out.print(f"\n{count}, {format_duration(total)} in the last call")
    if trace is not None:
        err.print(f"trace: {trace}  (open it at https://ui.perfetto.dev)", soft_wrap=True)


def _write_trace(
    path: Path,
    model: str,
    device: str,
    session: Session,
    arrays: Sequence[Array],
    samples: Sequence[Sequence[tuple[Step, int]]],
) -> None:
    calls = [
        [
            Command(
                step.target or step.kind,
                step.kind,
                ns,
                command_cost(session, arrays, step, ns),
            )
            for step, ns in sample
        ]
        for sample in samples
    ]
    text = json.dumps(trace_events(Path(model).name, device, calls))
    path.write_text(text, encoding="utf-8")


def _print(rows: Sequence[KernelRow], format_: str) -> None:
    if format_ == "table":
        print_kernels(rows, 0, None)
        return
    records = [
        {
            "kernel": row.name,
            "calls": row.calls,
            "ns": row.time_ns,
            "flops": row.flops,
            "bytes": row.size_bytes,
        }
        for row in rows
    ]
    if format_ == "json":
        click.echo(json.dumps(records))
        return
    writer = csv.DictWriter(sys.stdout, list(records[0]) if records else ["kernel"])
    writer.writeheader()
    writer.writerows(records)
