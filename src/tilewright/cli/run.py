"""`tilewright run`: run an artifact, a model, or an IREE module on given inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tilewright.api.model_inputs import random_inputs
from tilewright.base.errors import DeviceError, InputError, UserError
from tilewright.base.text import plural
from tilewright.cli.display import err, example, labelled, out
from tilewright.cli.library_model import MachineFunction, is_library
from tilewright.cli.model_options import ModelOptions, model_options
from tilewright.cli.option_groups import NUMBER, OptionGroup, Verb, option
from tilewright.cli.options import Command, given_inputs, parse_dims
from tilewright.cli.tensor_arguments import (
    check_output_names,
    places_of,
    write_results,
)
from tilewright.formats.tensor_text import (
    Array,
    TensorReader,
    check_outputs,
    compare,
    files_of,
)

if TYPE_CHECKING:
    from tilewright.cli.library_model import LibraryModel
    from tilewright.formats.output_checks import Check
    from tilewright.runtime.hal.driver import DeviceInfo
    from tilewright.runtime.session import Session


def _listing(name: str, listed: str, description: str) -> Callable[[Command], Command]:
    """An option that prints a list and leaves."""
    return option(
        f"--{name}",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_list(listed),
        help=description,
        group=OptionGroup.WHERE,
    )


def _list(listed: str) -> Callable[[click.Context, click.Parameter, bool], None]:

    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        del parameter
        if not value or ctx.resilient_parsing:
            return
        from tilewright.runtime.drivers import registry

        for driver in registry.drivers():
            found: Sequence[DeviceInfo] = ()
            reason = ""
            try:
                found = driver.query_available_devices()
            except DeviceError as error:
                reason = f" (unavailable: {error.message})"
            if listed == "drivers":
                click.echo(f"{driver.name}: {driver.summary}{reason}")
            elif reason:
                click.echo(f"{driver.name}:{reason}", err=True)
            for device in found if listed != "drivers" else ():
                dump = listed != "devices"
                click.echo(
                    driver.dump_device_info(device.device_id) if dump else device.uri
                )
        ctx.exit()

    return show


@click.command(
    "run",
    cls=Verb,
    short_help="Run an artifact or a model on given inputs.",
    epilog=example(
        "tilewright run model.vmfb --input=@x.npy --output=@y.npy",
        "tilewright run model.vmfb --input='2x3xf32=1 2 3 4 5 6'",
        "tilewright run bert.vmfb --input=ids=@ids.npy --input=mask=1x8xi64=1 --output=@all.npz",
        "tilewright run model.onnx --random --dim batch=4",
        "tilewright run case.mlir",
        "tilewright run --module=lib.vmfb --module=app.vmfb --function=main --input=4xf32=1",
    ),
)
@_listing("list-drivers", "drivers", "Print all drivers.")
@_listing("list-devices", "devices", "Print the URIs of all devices.")
@_listing("dump-devices", "details", "Print what is known about all devices.")
@option(
    "--input",
    "inputs",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="One per input, in order or by name; @file.npz gives all that it holds.",
)
@option(
    "--output",
    "outputs",
    multiple=True,
    metavar="[NAME=]WHERE",
    help="-, @file.npy, +file.npy, @file.bin, in order or by name; @file.npz takes all, by name.",
)
@option(
    "--expected-output",
    "expected",
    multiple=True,
    metavar="VALUE",
    help="Compare; exit with 1 on a difference. '(ignored)' skips one.",
    group=OptionGroup.CHECKING,
)
@option(
    "--expected-rtol",
    "rtol",
    type=NUMBER,
    metavar="X",
    default=1e-4,
    show_default=True,
    help="Relative tolerance.",
    group=OptionGroup.CHECKING,
)
@option(
    "--expected-atol",
    "atol",
    type=NUMBER,
    metavar="X",
    default=1e-5,
    show_default=True,
    help="Absolute tolerance.",
    group=OptionGroup.CHECKING,
)
@option("--random", "use_random", is_flag=True, help="Make up inputs.")
@option(
    "--dim", "dims", multiple=True, metavar="NAME=N", help="With --random: a dynamic size."
)
@option(
    "--output-max-element-count",
    "limit",
    type=click.IntRange(0),
    metavar="N",
    default=1024,
    show_default=True,
    help="Longer results are cut when printed.",
    group=OptionGroup.PRINTING,
)
@model_options
def command(  # noqa: PLR0913 - one parameter per option
    options: ModelOptions,
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    expected: tuple[str, ...],
    rtol: float,
    atol: float,
    use_random: bool,
    dims: tuple[str, ...],
    limit: int,
) -> None:
    """Run MODEL (.vmfb, .onnx, .mlir, or a library, ours or TVM's: .so .o .a .tar .c) once.

    A StableHLO module that checks itself (.mlir, or a .vmfb of one) exits with 1 where a check fails.

    Inputs and outputs use IREE's grammar: 2x3xf32=1 2 3 4 5 6, 4xf32=0, f32=1.5, @file.npy,
    2x2xf32=@file.bin.
    """
    if dims and not use_random:
        raise UserError(f"--dim '{dims[0]}': goes with --random only")
    if inputs and use_random:
        raise UserError("--random makes up every input, --input gives them: choose one")
    check_outputs(
        places_of(outputs), [*options.files, *files_of(inputs), *files_of(expected)]
    )
    session, checks = _opened(options, outputs, use_random=use_random)
    try:
        if use_random:
            arrays = random_inputs(session.inputs, parse_dims(dims))
        else:
            arrays = given_inputs(inputs, session.executor.input_names, session.inputs)
        result = session(*arrays)
    except InputError as error:
        if inputs or use_random:
            raise
        hint = "give one --input for each, or --random"
        raise InputError(error.message, location=error.location, hint=hint) from error
    results = result if isinstance(result, tuple) else (result,)
    names = session.executor.output_names
    if isinstance(session, MachineFunction):
        check_output_names(outputs, names)
    compared = {i for check in checks for i in (check.actual, check.expected)}
    shown = [i for i in range(len(results)) if outputs or i not in compared]
    for line in write_results(
        [results[i] for i in shown], [names[i] for i in shown], outputs, limit=limit
    ):
        out.print(line, soft_wrap=True)
    _run_checks(checks, results)
    _check(results, expected, rtol=rtol, atol=atol)


def _opened(
    options: ModelOptions, outputs: Sequence[str], *, use_random: bool
) -> tuple[Session | LibraryModel | MachineFunction, tuple[Check, ...]]:
    """What is called, and the checks that it makes.  Raises: UserError for words that do not fit it."""
    if not is_library(options.path):
        opened = options.opened()
        check_output_names(outputs, opened.session.executor.output_names)
        return opened.session, opened.checks
    model = options.open_library()
    if not isinstance(model, MachineFunction):
        check_output_names(outputs, model.output_names)
    elif use_random:
        raise UserError(
            "a library of TVM does not say what its inputs are, --random cannot make them up",
            location=options.path,
            hint=f"inputs: {', '.join(model.input_names)}",
        )
    return model, ()


def _run_checks(checks: Sequence[Check], results: Sequence[Array]) -> None:
    """Compare what a model that checks itself says is equal.  Raises: Exit with code 1 on a difference."""
    if not checks:
        return
    problems = [problem for check in checks if (problem := check.problem(results))]
    for problem in problems:
        err.print(labelled("mismatch", "red", problem))
    if problems:
        raise click.exceptions.Exit(1)
    err.print(f"{plural(len(checks), 'check')} passed", style="green")


def _check(
    results: Sequence[Array], expected: Sequence[str], *, rtol: float, atol: float
) -> None:
    """Compare with what was expected.  Raises: UserError, Exit with code 1 on a difference."""
    wanted = [None if v == "(ignored)" else TensorReader().read([v])[0] for v in expected]
    if wanted and len(wanted) != len(results):
        raise UserError(f"got {len(wanted)} --expected-output for {len(results)} results")
    problems = [
        problem
        for index, (actual, want) in enumerate(zip(results, wanted, strict=False))
        if want is not None
        and (problem := compare(index, actual, want, rtol=rtol, atol=atol))
    ]
    for problem in problems:
        err.print(labelled("mismatch", "red", problem))
    if problems:
        raise click.exceptions.Exit(1)
    if wanted:
        err.print("all expected outputs match", style="green")
