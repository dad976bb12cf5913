"""`tilewright serve`: a language model over HTTP, with OpenAI's interface."""

from __future__ import annotations

from pathlib import Path

import click

from tilewright.base.interrupts import answered
from tilewright.cli.display import err, example
from tilewright.cli.language_options import (
    CONTEXT,
    MODEL,
    PRECISION,
    THREADS,
    open_model,
)
from tilewright.cli.option_groups import Verb, option


@click.command(
    "serve",
    cls=Verb,
    short_help="Serve a language model over HTTP, with OpenAI's interface.",
    epilog=example(
        "tilewright serve model.gguf",
        "curl http://127.0.0.1:8080/v1/chat/completions -d "
        '\'{"messages": [{"role": "user", "content": "Hello"}]}\'',
    ),
)
@MODEL
@option("--host", default="127.0.0.1", show_default=True, metavar="NAME",
        help="Where it listens; 0.0.0.0 is every network, without keys or encryption.")  # fmt: skip
@option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, metavar="N",
        help="The port; 0 takes one that is free.")  # fmt: skip
@CONTEXT
@THREADS
@PRECISION
def command(
    model: Path,
    host: str,
    port: int,
    context: int | None,
    threads: int | None,
    precision: str,
) -> None:
    """Serve a language model (.gguf) until Ctrl-C: /v1/models, /v1/completions, /v1/chat/completions."""
    from tilewright.api.language.server import Server

    opened = open_model(model, context, threads, precision)
    with Server(opened, host, port) as server:
        err.print(f"'{opened.name}' listens on http://{host}:{server.server_port}/v1")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            answered()
            err.print("ended")
