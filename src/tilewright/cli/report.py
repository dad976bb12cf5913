"""`tilewright report`: one page that shows a model's graph with times, memory and code."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import click

from tilewright.base.output_file import STANDARD_OUTPUT
from tilewright.base.text import format_bytes
from tilewright.cli.display import err, example, phase_bar
from tilewright.cli.model_options import ModelOptions, model_options
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import CallOptions, beside, timing_options


@click.command(
    "report",
    cls=Verb,
    short_help="Write a page with the graph, its times, memory and code.",
    epilog=example(
        "tilewright report model.onnx -o report.html",
        "tilewright report bert.onnx --dim batch=1 --dim sequence=128",
        "tilewright report model.vmfb --input=@x.npy --threads=1",
    ),
)
@option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True, path_type=Path),
    help="The page; default: the model's name with .html.",
)
@timing_options
@model_options
def command(
    options: ModelOptions,
    output: Path | None,
    call: CallOptions,
    calls: int,
    no_limits: bool,
) -> None:
    """Call MODEL (.vmfb, or what compile takes) a few times, one command at a time, and write a page about it.

    The page needs no network and no other file: the graph with the time of every step, the kernels below
    the limits of this machine, the memory over the steps, and a table with the code of each kernel (of a
    .vmfb what is stored in it).
    """
    from tilewright.api.report import Subject, check_report_path, make_report

    path = output or beside(options.path, ".html")
    check_report_path(path, inputs=options.files)  # said before the work, not after it
    session, sources = options.open_with_sources()
    arrays = call.arrays(session)
    with phase_bar() as progress:
        made = make_report(
            session,
            arrays,
            dims=None,
            subject=Subject.of_file(options.path),
            sources=sources,
            calls=calls,
            limits=not no_limits,
            watcher=nullcontext(progress),
        )
    made.save(path)
    if str(path) != STANDARD_OUTPUT:
        size = format_bytes(len(str(made).encode()))
        err.print(f"report: {path}  ({size}, opens in any browser)", soft_wrap=True)
