"""`tilewright compare`: do two ways to run a model agree, and if not, from which node on."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.text import printable_line
from tilewright.cli.codegen_options import CodegenOptions, codegen_options
from tilewright.cli.display import example, out, phase_bar, table
from tilewright.cli.option_groups import FILE, NUMBER, OptionGroup, Verb, option
from tilewright.cli.options import (
    CallOptions,
    call_options,
    compile_arguments,
    compile_options,
    given_inputs,
    json_option,
)

if TYPE_CHECKING:
    from tilewright.api.compare import Comparison, Difference
    from tilewright.formats.tensor_spec import TensorSpec
    from tilewright.formats.tensor_text import Array


@click.command(
    "compare",
    cls=Verb,
    short_help="Run a model in two ways; name the first node that differs.",
    epilog=example(
        "tilewright compare model.onnx",
        "tilewright compare model.onnx onnxruntime --dim batch=4",
        "tilewright compare model.onnx O0 --tolerance 1e-6",
        "tilewright compare model.vmfb other.vmfb --input @x.npy",
    ),
)
@click.argument("model", type=FILE)
@click.argument("against", default="oracle", type=FILE)
@compile_options
@codegen_options
@call_options
@option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Of the random values.",
    group=OptionGroup.MEASURING,
)
@option(
    "--tolerance",
    type=NUMBER,
    help="The largest error that passes, relative to a tensor's largest magnitude; "
    "default: 1e-4 for f32, and by type.",
    metavar="X",
)
@option(
    "--memory",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    metavar="MB",
    help="For inner tensors of one run.",
    group=OptionGroup.MEASURING,
)
@json_option(OptionGroup.PRINTING)
@click.pass_context
def command(  # noqa: PLR0913 - one parameter per option
    context: click.Context,
    model: str,
    against: str,
    call: CallOptions,
    seed: int,
    tolerance: float | None,
    memory: int,
    as_json: bool,
    codegens: CodegenOptions,
    **compiling: Any,
) -> None:
    """Run MODEL (.vmfb, or what compile takes) and AGAINST on the same inputs and compare the outputs.

    AGAINST is oracle (numpy, the default), onnxruntime, another optimization level (O0), a target
    (x86_64-v2), or another model or artifact.  Where both know the inside of the model, the first
    node that differs is looked for.  Exits with 1 if the outputs differ.
    """
    from tilewright.api.compare import compare

    sizes = call.sizes
    chosen = codegens.chosen()
    with phase_bar() as progress:
        found = compare(
            model,
            against,
            inputs=partial(_given, call.inputs) if call.inputs else None,
            dims=sizes,
            seed=seed,
            tolerance=tolerance,
            limit_bytes=memory << 20,
            progress=progress,
            **_options(context, compiling),
            **({} if chosen is None else {"byoc": chosen}),
        )
    if as_json:
        click.echo(json.dumps(dataclasses.asdict(found) | {"equal": found.is_equal}))
    else:
        _print(found)
    if not found:
        raise click.exceptions.Exit(1)


def _given(values: Sequence[str], specs: Sequence[TensorSpec]) -> Sequence[Array]:
    """The arrays of `--input`, of these types."""
    return given_inputs(values, [spec.name for spec in specs], specs)


def _options(context: click.Context, given: dict[str, Any]) -> dict[str, Any]:
    """Those options of `compile` that stand on the command line, as its arguments."""
    told = {
        name: value
        for name, value in given.items()
        if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    return compile_arguments(told)


def _print(found: Comparison) -> None:
    first, second = found.titles
    colour, verdict = ("green", "equal within tolerance") if found else ("red", "different")
    out.print(f"{first} against {second}: {verdict}", style=colour)
    _print_differences("", found.outputs)
    finding = found.finding
    if finding is None:
        return
    out.print(f"\nfirst node that differs: {printable_line(finding.location)}", style="red")
    out.print(f"op {finding.op}, result {finding.difference}")
    if not finding.is_confirmed:
        out.print("only together with its neighbours: it arises where nodes are fused")
    _print_differences("\non the way there", found.path)


def _print_differences(title: str, differences: Sequence[Difference]) -> None:
    columns = [
        ("tensor", "left"),
        ("error", "right"),
        ("tolerance", "right"),
        ("beyond", "right"),
        ("worst at", "left"),
        ("values", "left"),
    ]
    rows = table(title, columns)
    for d in differences:
        place = "" if d.index is None or not d.size else f"[{', '.join(map(str, d.index))}]"
        rows.add_row(
            d.name,
            f"{d.error:.2g}",
            f"{d.tolerance:.2g}",
            f"{d.count} of {d.size}",
            place,
            " and ".join(filter(None, d.values)),
            style="red" if d.is_beyond else "",
        )
    out.print(rows)
