"""`tilewright bench`: how fast, how close to the machine's limits, and where the time goes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
import numpy as np

from tilewright.base.symbolic import Dim, evaluate
from tilewright.base.text import format_duration
from tilewright.cli.display import err, out, table, thousands
from tilewright.cli.options import open_session, parse_dims, random_inputs
from tilewright.formats.tensor_text import Array, TensorReader

if TYPE_CHECKING:
    from tilewright.cli.roofline import Roofline
    from tilewright.runtime.session import Session


@click.command("bench", short_help="Measure latency, GFLOP/s and every kernel.")
@click.argument("model")
@click.option(
    "--input", "inputs", multiple=True, metavar="VALUE", help="Default: random values."
)
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="A dynamic size.")
@click.option(
    "--threads", type=click.IntRange(1), help="Default: the cores of this process."
)
@click.option("--seconds", default=3.0, show_default=True, help="How long to measure.")
@click.option("--warmup", default=3, show_default=True, help="Calls that do not count.")
@click.option(
    "--kernels", default=20, show_default=True, help="Rows of the kernel table; 0 = all."
)
@click.option("--no-limits", is_flag=True, help="Do not measure the machine's limits.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(  # noqa: PLR0913 - one parameter per option
    model: str,
    inputs: tuple[str, ...],
    dims: tuple[str, ...],
    threads: int | None,
    seconds: float,
    warmup: int,
    kernels: int,
    no_limits: bool,
    as_json: bool,
) -> None:
    """Call MODEL (.vmfb or .onnx) over and over and report.

    Shares are of the FMA peak and the streaming read bandwidth that this run measured on this
    machine with this many threads.
    """
    session = open_session(model, threads)
    sizes = parse_dims(dims)
    arrays = TensorReader().read(inputs) if inputs else random_inputs(session.inputs, sizes)
    limits = None
    if not no_limits:
        from tilewright.cli.roofline import measure

        limits = measure(session.threads)
    times_ns = _time_calls(session, arrays, warmup, seconds)
    rows = _profile(session, arrays)
    flops = sum(row[2] for row in rows)
    if as_json:
        click.echo(json.dumps(_as_dict(model, session, times_ns, flops, rows, limits)))
        return
    _print_latency(model, session, times_ns, flops, limits)
    _print_kernels(rows, kernels, limits)


def _time_calls(
    session: Session, arrays: Sequence[Array], warmup: int, seconds: float
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    for _ in range(warmup):
        session(*arrays)
    times: list[int] = []
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times) < 3:
        start = time.perf_counter_ns()
        session(*arrays)
        times.append(time.perf_counter_ns() - start)
    return np.array(times, np.int64)


def _profile(
    session: Session, arrays: Sequence[Array], runs: int = 7
) -> list[tuple[str, int, int, int]]:
    """(kernel, calls, flops, median ns of all calls together), slowest first."""
    samples = [session.profile(*arrays) for _ in range(runs)]
    env = session.executor.dimensions_of(arrays)
    totals: dict[str, list[int]] = {}
    for position, (step, _) in enumerate(samples[0]):
        duration = int(np.median([sample[position][1] for sample in samples]))
        row = totals.setdefault(step.target or step.kind, [0, 0, 0])
        row[0] += 1
        row[1] += _number(step.flops, env)
        row[2] += duration
    found = [(name, calls, flops, ns) for name, (calls, flops, ns) in totals.items()]
    return sorted(found, key=lambda row: -row[3])


def _number(dim: Dim, env: Mapping[str, int]) -> int:
    return dim if isinstance(dim, int) else evaluate(dim, env)


def _print_latency(
    model: str,
    session: Session,
    times_ns: np.ndarray[tuple[int], np.dtype[np.int64]],
    flops: int,
    limits: Roofline | None,
) -> None:
    rows = table(model, [("", "left"), ("", "right")])
    rows.show_header = False
    rows.add_row("threads", str(session.threads))
    rows.add_row("calls", thousands(len(times_ns)))
    for name, value in _distribution(times_ns).items():
        rows.add_row(name, format_duration(value))
    rate = flops / float(np.median(times_ns))
    rows.add_row("arithmetic", f"{flops / 1e6:,.3f} MFLOP")
    rows.add_row("rate", f"{rate:.1f} GFLOP/s")
    if limits is not None:
        rows.add_row("share of peak", f"{100 * rate * 1e9 / limits.flops:.1f} %")
        rows.add_row("FMA peak", f"{limits.flops / 1e9:.1f} GFLOP/s")
        rows.add_row("streaming read", f"{limits.read_bytes / 1e9:.1f} GB/s")
    out.print(rows, markup=False)
    if np.quantile(times_ns, 0.9) > 1.3 * np.median(times_ns):
        err.print(
            "[yellow]noisy:[/yellow] the slowest tenth took 1.3 times the median or more"
        )


def _distribution(times_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    quantiles = {"min": 0.0, "median": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: float(np.quantile(times_ns, q)) for name, q in quantiles.items()}


def _print_kernels(
    found: list[tuple[str, int, int, int]], limit: int, limits: Roofline | None
) -> None:
    columns = [
        ("kernel", "left"), ("calls", "right"), ("time", "right"), ("share", "right"),
        ("GFLOP/s", "right"), ("of peak", "right"), ("", "bar"),
    ]  # fmt: skip
    rows = table("kernels", columns)
    total = sum(row[3] for row in found) or 1
    for name, calls, flops, ns in found[: limit or None]:
        rate = flops / ns if ns else 0.0
        peak = f"{100 * rate * 1e9 / limits.flops:.0f} %" if limits is not None else ""
        bar = "█" * round(16 * ns / max(found[0][3], 1))
        cells = [name, str(calls), format_duration(ns), f"{100 * ns / total:.1f} %"]
        rows.add_row(*cells, f"{rate:.1f}", peak, bar)
    hidden = found[limit:] if limit else []
    if hidden:
        rest = sum(row[3] for row in hidden)
        rows.add_row(
            f"… {len(hidden)} more",
            "",
            format_duration(rest),
            f"{100 * rest / total:.1f} %",
        )
    out.print(rows, markup=False)


def _as_dict(
    model: str,
    session: Session,
    times_ns: np.ndarray[tuple[int], np.dtype[np.int64]],
    flops: int,
    rows: list[tuple[str, int, int, int]],
    limits: Roofline | None,
) -> dict[str, object]:
    return {
        "model": model,
        "threads": session.threads,
        "calls": len(times_ns),
        "latency_ns": _distribution(times_ns),
        "flops": flops,
        "peak_flops": None if limits is None else limits.flops,
        "read_bytes_per_s": None if limits is None else limits.read_bytes,
        "kernels": [
            dict(zip(("name", "calls", "flops", "ns"), row, strict=True)) for row in rows
        ],
    }
