"""`tilewright coverage`: what of a model is fast, slow or not supported, before any work."""

from __future__ import annotations

import json
from pathlib import Path

import click

from tilewright.cli.display import out, table

_COLOURS = {"fast": "green", "fallback": "yellow", "unsupported": "red"}


@click.command("coverage", short_help="Say what of a model is supported, before any work.")
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
def command(model: Path, as_json: bool) -> None:
    """List every operator of MODEL with its status.

    fast: becomes machine code. fallback: runs its reference implementation on the host. unsupported: compilation would fail; exit code 1.
    """
    from tilewright.api import model as api

    report = api.coverage(str(model))
    if as_json:
        click.echo(json.dumps(report.as_dict(), indent=2))
    else:
        rows = table(
            str(model),
            [("operator", "left"), ("count", "right"), ("status", "left"), ("why", "left")],
        )
        for row in report.rows:
            colour = _COLOURS[row.status]
            status = f"[{colour}]{row.status}[/{colour}]"
            rows.add_row(row.op, str(row.count), status, "; ".join(row.reasons))
        out.print(rows)
        for fact in report.facts:
            out.print(fact, markup=False)
    if not report.is_supported:
        raise click.exceptions.Exit(1)
