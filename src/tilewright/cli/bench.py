"""`tilewright bench`: how fast, how close to the machine's limits, and where the time goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tilewright.api.profiling import KernelRow, profile
from tilewright.base.interrupts import INTERRUPTED
from tilewright.base.text import format_bytes, format_duration, plural
from tilewright.cli.display import err, example, labelled, measuring_bar, out, table
from tilewright.cli.kernel_table import bar, print_kernels
from tilewright.cli.latency import Latency, measure
from tilewright.cli.model_options import ModelOptions, model_options
from tilewright.cli.option_groups import NUMBER, OptionGroup, Verb, option
from tilewright.cli.options import NO_LIMITS, CallOptions, call_options, json_option

if TYPE_CHECKING:
    from tilewright.api.profiling.roofline import Roofline
    from tilewright.runtime.session import Session


@click.command(
    "bench",
    cls=Verb,
    short_help="Measure latency, GFLOP/s and every kernel.",
    epilog=example(
        "tilewright bench model.vmfb --threads 1",
        "tilewright bench bert.onnx --dim batch=1 --dim sequence=128 --json",
    ),
)
@call_options
@option(
    "--seconds",
    type=NUMBER,
    default=3.0,
    show_default=True,
    help="How long to measure.",
    metavar="X",
)
@option(
    "--repeat",
    type=click.IntRange(1),
    metavar="N",
    help="Measure N calls instead.",
    group=OptionGroup.MEASURING,
)
@option(
    "--warmup",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Calls that do not count.",
    metavar="N",
    group=OptionGroup.MEASURING,
)
@option(
    "--kernels",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    help="Rows of the kernel table; 0 = all.",
    metavar="N",
    group=OptionGroup.PRINTING,
)
@NO_LIMITS
@json_option(OptionGroup.PRINTING)
@model_options
def command(
    options: ModelOptions,
    call: CallOptions,
    seconds: float,
    repeat: int | None,
    warmup: int,
    kernels: int,
    no_limits: bool,
    as_json: bool,
) -> None:
    """Call MODEL (.vmfb, or what compile takes) over and over and report.

    Every kernel is put beside the limit it runs into, measured in this run with as many threads:
    compute is the FMA peak; memory, L3, L2 and L1 are the farthest level that delivers as fast as the
    kernel reads and writes; start means that it is too short to matter.
    """
    model, session = options.path, options.open()
    arrays = call.arrays(session)
    limits = None
    if not no_limits:
        from tilewright.api.profiling.roofline import measure as measure_limits

        limits = measure_limits(session.threads)
    with measuring_bar() as progress:
        latency = measure(
            lambda: session(*arrays),
            seconds=seconds,
            warmup=warmup,
            repeat=repeat,
            progress=progress,
        )
    rows = () if latency.is_interrupted else profile(session, arrays)
    if as_json:
        click.echo(json.dumps(_as_dict(model, session, latency, rows, limits)))
    else:
        _print_latency(model, session, latency, rows, limits)
        _print_histogram(latency)
    if latency.is_interrupted:
        err.print(labelled("interrupted", "yellow", "kernels were not measured"))
        raise click.exceptions.Exit(INTERRUPTED)
    if as_json:
        return
    print_kernels(rows, kernels, limits)
    if latency.is_noisy:
        text = "the slowest tenth took 1.3 times the median or more"
        err.print(labelled("noisy", "yellow", text))


def _print_latency(
    model: str,
    session: Session,
    latency: Latency,
    kernels: Sequence[KernelRow],
    limits: Roofline | None,
) -> None:
    threads, calls = (
        plural(session.threads, "thread"),
        plural(len(latency.times_ns), "call"),
    )
    rows = table(f"{model}  ({threads}, {calls})", [("", "left"), ("", "right")])
    rows.show_header = False
    for name, value in latency.quantiles.items():
        rows.add_row(name, format_duration(value))
    memory, cap = session.memory, ""
    if memory.capacity_bytes is not None:
        cap = f" of {format_bytes(memory.capacity_bytes)}"
    rows.add_row("memory of calls", f"{format_bytes(memory.peak_bytes)}{cap} at the peak")
    if not kernels:
        out.print(rows)
        return
    whole = _total(kernels, latency)
    rows.add_row("arithmetic", f"{whole.flops / 1e9:.3f} GFLOP")
    rows.add_row("rate", f"{whole.flops_rate / 1e9:.1f} GFLOP/s")
    rows.add_row("bytes", format_bytes(whole.size_bytes))
    rows.add_row("traffic", f"{whole.bytes_rate / 1e9:.1f} GB/s")
    if limits is not None:
        rows.add_row("FMA peak", f"{limits.flops / 1e9:.1f} GFLOP/s")
        rows.add_row("share of it", f"{100 * whole.flops_rate / limits.flops:.1f} %")
        rows.add_row("streaming read", f"{limits.read_bytes / 1e9:.1f} GB/s")
        rows.add_row("share of it", f"{100 * whole.bytes_rate / limits.read_bytes:.1f} %")
    out.print(rows)


def _total(kernels: Sequence[KernelRow], latency: Latency) -> KernelRow:
    """The whole call as one kernel that takes the median."""
    return KernelRow(
        "all",
        sum(row.calls for row in kernels),
        sum(row.flops for row in kernels),
        sum(row.size_bytes for row in kernels),
        round(latency.median_ns),
    )


def _print_histogram(latency: Latency) -> None:
    bins = latency.histogram()
    most = max(b.count for b in bins)
    rows = table("\ncalls by duration", [("", "right"), ("", "bar"), ("", "right")])
    rows.show_header = False
    for b in bins:
        label = f"{format_duration(b.low_ns)} – {format_duration(b.high_ns)}"
        rows.add_row(label, bar(b.count / most), str(b.count))
    out.print(rows)


def _as_dict(
    model: str,
    session: Session,
    latency: Latency,
    rows: Sequence[KernelRow],
    limits: Roofline | None,
) -> dict[str, object]:
    kernels: list[dict[str, object]] = []
    for row in rows:
        described: dict[str, object] = {
            "name": row.name,
            "outcome": row.outcome,
            "calls": row.calls,
            "flops": row.flops,
            "bytes": row.size_bytes,
            "ns": row.time_ns,
        }
        if limits is not None:
            described["limit"], described["share"] = row.limit(limits)
        kernels.append(described)
    return {
        "model": model,
        "threads": session.threads,
        "calls": len(latency.times_ns),
        "latency_ns": latency.quantiles,
        "flops": sum(row.flops for row in rows),
        "bytes": sum(row.size_bytes for row in rows),
        "memory": {
            "peak_bytes": session.memory.peak_bytes,
            "kept_bytes": session.memory.kept_bytes,
            "capacity_bytes": session.memory.capacity_bytes,
        },
        "peak_flops": None if limits is None else limits.flops,
        "read_bytes_per_s": None if limits is None else limits.read_bytes,
        "kernels": kernels,
    }
