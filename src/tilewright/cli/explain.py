"""`tilewright explain`: why a model takes as long as it does, kernel by kernel, and what would help."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final

import click

from tilewright.base.text import printable_line
from tilewright.cli.display import example, out, phase_bar
from tilewright.cli.model_options import ModelOptions, model_options
from tilewright.cli.option_groups import OptionGroup, Verb, option
from tilewright.cli.options import CALLS, CallOptions, call_options, json_option

if TYPE_CHECKING:
    from tilewright.api.profiling.explanation import Explanation

_STYLES: Final = {"title": "bold", "kernel": "bold", "try": "green", "note": "dim"}
_APART: Final = ("kernel",)  # kinds of lines that an empty one stands before


@click.command(
    "explain",
    cls=Verb,
    short_help="Say why a model is slow, kernel by kernel, and what would help.",
    epilog=example(
        "tilewright explain model.onnx --threads 1",
        "tilewright explain bert.onnx --dim batch=1 --dim sequence=128",
        "tilewright explain model.vmfb --input=@x.npy --json",
    ),
)
@call_options
@CALLS
@option(
    "--kernels",
    default=8,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="Kernels that are explained; 0 = all.",
    group=OptionGroup.PRINTING,
)
@json_option()
@model_options
def command(
    options: ModelOptions,
    call: CallOptions,
    calls: int,
    kernels: int,
    as_json: bool,
) -> None:
    """Call MODEL (.vmfb, or what compile takes) a few times and say what holds its kernels up, and what would help.

    Times are held against the limits of this machine, measured in the same run.  A kernel is at a limit
    (arithmetic, memory, a cache), below all of them, without vectors, on the host, or too short to
    matter; the commands behind an arrow go after it.
    """
    from tilewright.api.profiling.explanation import explain_session

    session = options.open()
    arrays = call.arrays(session)
    with phase_bar(quiet=as_json) as progress:
        found = explain_session(
            session,
            arrays,
            dims=None,
            name=options.path,
            calls=calls,
            watcher=nullcontext(progress),
        )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found), indent=2))
    else:
        _print(found, kernels)


def _print(found: Explanation, count: int) -> None:
    from tilewright.api.profiling.explanation import MARKS

    for kind, text in found.lines(count):
        if kind in _APART:
            out.print()
        line = f"{MARKS.get(kind, '')}{printable_line(text)}"
        out.print(line, style=_STYLES.get(kind), soft_wrap=True)
