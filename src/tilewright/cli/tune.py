"""`tilewright tune`: search faster decisions for the kernels of a model by running them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.base.errors import InputError
from tilewright.base.input_file import why_no_file
from tilewright.base.interrupts import INTERRUPTED
from tilewright.base.text import format_duration, plural
from tilewright.cli.display import err, example, labelled, out, phase_bar, table
from tilewright.cli.option_groups import OptionGroup, Verb, option
from tilewright.cli.options import (
    TARGET,
    THREADS,
    json_option,
    parse_dims,
    parse_input_shapes,
)

if TYPE_CHECKING:
    from tilewright.api.tune import Tuning


@click.command(
    "tune",
    cls=Verb,
    short_help="Search faster schedules by running kernels; compile uses them.",
    epilog=example(
        "tilewright tune model.onnx --budget 60s",
        "tilewright tune model.onnx --budget 10m --threads 1 --kernel 'conv_*'",
        "tilewright compile model.onnx   # uses what was found",
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "--budget",
    default="60s",
    show_default=True,
    metavar="TIME",
    help="How long to search: 60s, 5m, 1h; checking the whole model takes some seconds more.",
)
@THREADS
@TARGET
@option(
    "--kernel",
    "pattern",
    default="*",
    metavar="PATTERN",
    help="Tune these kernels only, for example 'matmul_*'.",
)
@option(
    "--dim",
    "dims",
    multiple=True,
    metavar="NAME=N",
    help="A dynamic size; others are guessed.",
)
@option(
    "--input-shape",
    multiple=True,
    metavar="NAME=D,D,…",
    help="Fix or name the dimensions of an input, as for compile.",
)
@option(
    "--store",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what is found in this file (compile --tuning-store); default: beside the cache.",
)
@json_option(OptionGroup.PRINTING)
def command(  # noqa: PLR0913 - one parameter per option
    model: Path,
    budget: str,
    threads: int | None,
    target: str | None,
    pattern: str,
    dims: tuple[str, ...],
    input_shape: tuple[str, ...],
    store: Path | None,
    as_json: bool,
) -> None:
    """Search faster decisions for the kernels of MODEL (what compile takes).

    Each kernel runs alone with other tiles, orders and workgroups, beside the best known; what is faster by more than
    chance explains is kept, and the whole model is measured at the end: what makes it slower is dropped. Compilations for the
    same target and threads use what was found. Results stay the same. A second run goes on where the first stopped; Ctrl-C ends the search and
    keeps what was found.
    """
    problem = why_no_file(model)
    if problem is not None:
        raise InputError(problem, location=model)
    from tilewright.api.tune import tune

    with phase_bar(quiet=as_json) as progress:
        tuning = tune(
            str(model),
            budget=budget,
            target=target,
            threads=threads,
            kernels=pattern,
            dims=parse_dims(dims),
            input_shapes=parse_input_shapes(input_shape),
            store=store,
            progress=progress,
        )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(tuning), default=str))
    else:
        _print(model, tuning)
    if tuning.is_interrupted:
        text = "the next run goes on from here"
        text += (
            ""
            if tuning.is_checked
            else "; nothing is used before the whole model was measured"
        )
        err.print(labelled("interrupted", "yellow", text))
        raise click.exceptions.Exit(INTERRUPTED)


def _print(model: Path, tuning: Tuning) -> None:
    """The kernels that became faster, and what that is for the model."""
    rows = table(
        str(model),
        [
            ("kernel", "left"),
            ("uses", "right"),
            ("before", "right"),
            ("after", "right"),
            ("ratio", "right"),
            ("decisions", "left"),
        ],
    )
    faster = [kernel for kernel in tuning.kernels if kernel.ratio < 1.0]
    for kernel in faster:
        rows.add_row(
            kernel.name,
            str(kernel.uses),
            format_duration(kernel.before_ns),
            format_duration(kernel.after_ns),
            f"{kernel.ratio:.3f}",
            kernel.decisions,
        )
    if faster:
        out.print(rows)
    count = plural(len(tuning.kernels), "kernel")
    out.print(f"{len(faster)} of {count} became faster; {tuning.tried} points tried now")
    if tuning.dropped:
        out.print(
            f"{plural(tuning.dropped, 'kernel')} dropped: the whole model became slower"
        )
    if not (tuning.tried or tuning.is_done or tuning.is_interrupted):
        out.print("timing the kernels as they are took the budget: try a longer one")
    if tuning.is_done:
        out.print("every point that the search leads to is tried")
    if tuning.before_ns:
        ratio = tuning.after_ns / tuning.before_ns
        before, after = format_duration(tuning.before_ns), format_duration(tuning.after_ns)
        out.print(f"whole model: {before} before, {after} after ({ratio:.3f})")
    out.print(f"store: {tuning.store}")
