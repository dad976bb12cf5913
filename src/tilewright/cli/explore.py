"""`tilewright explore`: a page about a model that compiles and calls it again as it is asked to."""

from __future__ import annotations

import contextlib
import webbrowser
from pathlib import Path

import click

from tilewright.base.errors import DeviceError, InputError
from tilewright.base.host_thread import start_thread
from tilewright.base.input_file import why_no_file
from tilewright.base.interrupts import answered
from tilewright.cli.display import err, example
from tilewright.cli.option_groups import Verb, option
from tilewright.cli.options import CALLS, THREADS, parse_dims


@click.command(
    "explore",
    cls=Verb,
    short_help="Show a page that compiles and calls a model as you ask it to.",
    epilog=example(
        "tilewright explore model.onnx",
        "tilewright explore bert.onnx --dim batch=1 --dim sequence=128 --open",
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@option("--dim", "dims", multiple=True, metavar="NAME=N", help="A dynamic size, at first.")
@CALLS
@THREADS
@option("--port", type=click.IntRange(0, 65535), default=0, metavar="N",
        help="Where it listens on this machine; default: a port that is free.")  # fmt: skip
@option("--open", "opens", is_flag=True, help="Open the page in the browser.")
def command(
    model: Path,
    dims: tuple[str, ...],
    calls: int,
    threads: int | None,
    port: int,
    opens: bool,
) -> None:
    """Show the page of report about MODEL (.vmfb, or what compile takes) to the browser of this machine, until Ctrl-C.

    The page has a form: level of optimization, instruction set, type of products, threads, dynamic sizes. What
    is asked for is compiled, called, measured, and put beside what was tried before.
    """
    problem = why_no_file(model)
    if problem is not None:
        raise InputError(problem, location=model)
    from tilewright.api.explorer import Explorer, ExplorerServer

    explorer = Explorer(model, threads=threads, dims=parse_dims(dims), calls=calls)
    with ExplorerServer(explorer, port) as server:
        err.print(f"{explorer.name}: {server.address}  (until Ctrl-C)", soft_wrap=True)
        if opens:
            # A browser of the terminal keeps who opened it waiting; where there is no thread, the address is read.
            with contextlib.suppress(DeviceError):
                start_thread(lambda: webbrowser.open(server.address))
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            answered()
            err.print("ended")
