"""`tilewright profile`: every command of a call on a timeline, and a table of kernels."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.api.profiling import (
    KernelRow,
    ProfiledCall,
    Sample,
    rows_of,
    sample,
    timeline,
)
from tilewright.base.output_file import STANDARD_OUTPUT, check_output, write_text_output
from tilewright.base.text import format_duration, plural
from tilewright.cli.display import err, example, out
from tilewright.cli.kernel_table import print_kernels
from tilewright.cli.model_options import ModelOptions, model_options
from tilewright.cli.option_groups import OptionGroup, Verb, option
from tilewright.cli.options import CallOptions, timing_options
from tilewright.formats.tensor_text import Array

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline
    from tilewright.runtime.session import Session


@click.command(
    "profile",
    cls=Verb,
    short_help="Time every command of a call; write a trace for Perfetto.",
    epilog=example(
        "tilewright profile model.vmfb --trace trace.json",
        "tilewright profile bert.onnx --dim batch=1 --dim sequence=128 --format csv",
        "tilewright profile iree.vmfb --function main --input 4xf32=1",
    ),
)
@timing_options
@option(
    "--trace",
    type=click.Path(allow_dash=True, path_type=Path),
    help="Write a timeline for ui.perfetto.dev or chrome://tracing.",
)
@option(
    "--format",
    "format_",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How the kernels are printed.",
    group=OptionGroup.PRINTING,
)
@model_options
def command(
    options: ModelOptions,
    call: CallOptions,
    calls: int,
    trace: Path | None,
    format_: str,
    no_limits: bool,
) -> None:
    """Call MODEL (.vmfb, or what compile takes) a few times, one command at a time, and say what each took.

    Commands that could overlap run after each other here, so that each has a time of its own.  The
    limit of a kernel is compute (the FMA peak), a level of memory (the farthest one that delivers as
    fast as the kernel reads and writes), or start (too short to matter); all are measured in this run.
    """
    if trace is not None:
        check_output(trace, inputs=options.files)
    session = options.open()
    arrays = call.arrays(session)
    session(*arrays)  # first calls allocate
    samples = [sample(session, arrays) for _ in range(calls)]
    if trace is not None:
        _write_trace(trace, options, session, arrays, samples)
        if str(trace) == STANDARD_OUTPUT:  # a table behind it would make it no JSON
            return
    limits = None
    if not no_limits:
        from tilewright.api.profiling.roofline import measure

        limits = measure(session.threads)
    _print(rows_of(session, arrays, samples), format_, limits)
    if format_ == "table":
        total = sum(sample.timing.duration_ns for sample in samples[-1])
        count = plural(len(samples[-1]), "command")
        out.print(f"\n{count}, {format_duration(total)} in the last call")
    if trace is not None:
        err.print(f"trace: {trace}  (open it at https://ui.perfetto.dev)", soft_wrap=True)


def _write_trace(
    path: Path,
    options: ModelOptions,
    session: Session,
    arrays: Sequence[Array],
    samples: Sequence[Sequence[Sample]],
) -> None:
    plan = None if session.variant is None else session.variant.plan
    dims = session.executor.dimensions_of(arrays)
    calls = [ProfiledCall(sample, dims) for sample in samples]
    text = json.dumps(timeline(Path(options.path).name, options.device, plan, calls))
    write_text_output(path, text, inputs=options.files)


def _print(rows: Sequence[KernelRow], format_: str, limits: Roofline | None) -> None:
    if format_ == "table":
        print_kernels(rows, 0, limits, with_nodes=True)
        return
    records = [_record(row, limits) for row in rows]
    if format_ == "json":
        click.echo(json.dumps(records))
        return
    writer = csv.DictWriter(sys.stdout, list(records[0]) if records else ["kernel"])
    writer.writeheader()
    writer.writerows(record | {"nodes": " ".join(record["nodes"])} for record in records)


def _record(row: KernelRow, limits: Roofline | None) -> dict[str, Any]:
    limit, share = ("", None) if limits is None else row.limit(limits)
    return {
        "kernel": row.name,
        "outcome": row.outcome,
        "calls": row.calls,
        "ns": row.time_ns,
        "flops": row.flops,
        "bytes": row.size_bytes,
        "limit": limit,
        "of_limit": share,
        "nodes": list(row.nodes),
    }
