"""`tilewright quantize`: a model with weights of 4 or 8 bits."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import click

from tilewright.base.text import format_bytes, plural
from tilewright.cli.display import example, out, phase_bar, table
from tilewright.cli.option_groups import FILE, OptionGroup, Verb, option
from tilewright.cli.options import json_option

if TYPE_CHECKING:
    from tilewright.api.quantize import QuantizedModel


@click.command(
    "quantize",
    cls=Verb,
    short_help="Store the weights of a model in 4 or 8 bits.",
    epilog=example(
        "tilewright quantize model.onnx -o small.onnx",
        "tilewright quantize model.onnx -o small.onnx --bits=8 --block=64",
        "tilewright quantize model.onnx -o small.onnx --asymmetric --exclude='*lm_head*'",
    ),
)
@click.argument("model", type=FILE)
@option(
    "-o",
    "--output",
    required=True,
    type=FILE,
    metavar="FILE",
    help="The new model (.onnx).",
)
@option(
    "--bits",
    type=click.Choice(["4", "8"]),
    default="4",
    show_default=True,
    help="Of a weight.",
)
@option(
    "--block",
    type=click.Choice(["16", "32", "64", "128", "256"]),
    default="32",
    show_default=True,
    help="Weights that share a scale.",
)
@option(
    "--symmetric/--asymmetric",
    default=True,
    show_default=True,
    help="Zero is the middle of the range, or each block has a zero point.",
)
@option(
    "--int8-activations",
    is_flag=True,
    help="Permit that activations are rounded to 8 bits where they meet these weights: faster, less exact.",
)
@option(
    "--include",
    multiple=True,
    metavar="PATTERN",
    help="Only products whose names fit ('*mlp*'); may be repeated.",
)
@option(
    "--exclude",
    multiple=True,
    metavar="PATTERN",
    help="Products that keep their weights; may be repeated.",
)
@json_option(OptionGroup.PRINTING)
def command(  # noqa: PLR0913 - one for each option
    model: str,
    output: str,
    bits: str,
    block: str,
    symmetric: bool,
    int8_activations: bool,
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write MODEL (.onnx) with the weights of its products (MatMul, Gemm) in 4 or 8 bits.

    Weights along the sum share a scale in blocks; activations stay floats, unless --int8-activations is given.  The nodes written are MatMulNBits, which
    onnxruntime reads, too.  What each product's weights changed by is listed.
    """
    from tilewright.api.quantize import quantize

    with phase_bar() as progress:
        found = quantize(
            model,
            output,
            bits=int(bits),
            block=int(block),
            symmetric=symmetric,
            int8_activations=int8_activations,
            include=include,
            exclude=exclude,
            progress=progress,
        )
    if as_json:
        fields = ("before_bytes", "after_bytes")
        lists = {
            "nodes": [dataclasses.asdict(node) for node in found.nodes],
            "kept": [dataclasses.asdict(node) for node in found.kept],
        }
        click.echo(json.dumps({**{f: getattr(found, f) for f in fields}, **lists}))
    else:
        _print(found, output)


def _print(found: QuantizedModel, output: str) -> None:
    columns = [
        ("node", "left"),
        ("weights", "left"),
        ("error", "right"),
        ("largest", "right"),
        ("before", "right"),
        ("after", "right"),
    ]
    rows = table("", columns)
    for node in found.nodes:
        rows.add_row(
            node.name,
            "x".join(map(str, node.shape)),
            f"{node.error:.2%}",
            f"{node.largest:.2g}",
            format_bytes(node.before_bytes),
            format_bytes(node.after_bytes),
        )
    out.print(rows, markup=False)
    for node in found.kept:
        out.print(f"{node.name} stays as it was: {node.reason}", markup=False)
    out.print(
        f"{output}: {plural(len(found.nodes), 'product')}, weights {format_bytes(found.before_bytes)} -> "
        f"{format_bytes(found.after_bytes)}",
        markup=False,
    )
