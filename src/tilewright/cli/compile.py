"""`tilewright compile`: a model file in, an artifact out, and what it consists of."""

from __future__ import annotations

import contextlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.base.file_kinds import ARTIFACT_SUFFIX
from tilewright.base.outcome import Outcome
from tilewright.base.output_file import STANDARD_OUTPUT, check_output
from tilewright.base.text import format_bytes, plural
from tilewright.cli.codegen_options import CodegenOptions, codegen_options
from tilewright.cli.display import err, example, out, phase_bar, table, thousands
from tilewright.cli.option_groups import OptionGroup, Verb, option
from tilewright.cli.options import (
    beside,
    compile_arguments,
    compile_options,
)
from tilewright.cli.pass_options import PassOptions, pass_options
from tilewright.formats.byte_view import LazyBytes, view_bytes

if TYPE_CHECKING:
    from tilewright.api.model import Model
    from tilewright.base.target import Target
    from tilewright.compiler.packaging.parts import Part
    from tilewright.formats.plan import Plan

_BESIDE: Final = Path("<beside the library>")


@click.command(
    "compile",
    cls=Verb,
    short_help="Compile a model to an archive, a library, or a program.",
    epilog=example(
        "tilewright compile model.onnx -o model.vmfb",
        "tilewright compile model.onnx --target=x86_64 --levels=v2,v3,v4",
        "tilewright compile bert.onnx --input-shape=ids=batch,128",
        "tilewright compile model.onnx -o model.so --header=model.h",
        "tilewright compile model.onnx -o model.dll --target=x86_64-windows",
        "tilewright compile model.onnx -o model.c --target=c",
    ),
)
@click.argument("model", type=click.Path(path_type=Path))
@option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True, path_type=Path),
    help="What to write, the suffix says it: .vmfb, .so .dylib .dll, .o .a .tar, .c, .ll .s, a program "
    "(none, .exe); - is standard output. Default: the model's name with .vmfb.",
)
@option(
    "--header",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=_BESIDE,
    help="Also write the C header of a library; without a name, beside it (net.h for net.so).",
)
@option(
    "--weights",
    type=click.Path(path_type=Path),
    help="Keep the weights in this file: .irpa, .safetensors or, of a .vmfb, .params. Several "
    "artifacts may share one; what it has stays.",
)
@compile_options
@pass_options
@codegen_options
@option(
    "--no-tuned",
    is_flag=True,
    help="Do not use what tune found: every kernel as the cost model likes it best.",
    group=OptionGroup.CODE,
)
@option(
    "--tuning-store",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Use what tune --store=FILE found; default: the store beside the cache.",
    group=OptionGroup.CODE,
)
@option(
    "--no-sources",
    is_flag=True,
    help="Leave the printed levels out of the artifact.",
    group=OptionGroup.CODE,
)
@option(
    "--memory",
    is_flag=True,
    help="Print where every tensor lives.",
    group=OptionGroup.PRINTING,
)
@option(
    "-q", "--quiet", is_flag=True, help="Print errors only.", group=OptionGroup.PRINTING
)
def command(  # noqa: PLR0913 - one parameter per option
    model: Path,
    output: Path | None,
    header: Path | None,
    weights: Path | None,
    no_tuned: bool,
    tuning_store: Path | None,
    no_sources: bool,
    memory: bool,
    quiet: bool,
    passes: PassOptions,
    codegens: CodegenOptions,
    **compiling: Any,
) -> None:
    """Compile MODEL (ONNX, StableHLO or GGUF) to machine code.

    A .vmfb archive holds the code, the weights and the execution plan. It runs with `tilewright run`,
    `tilewright.load`, and under IREE's runtime. Libraries and programs need nothing beside them; a C
    compiler makes them, for other machines Zig's (the package ziglang).
    """
    from tilewright.api import model as api

    path = output or beside(model, ARTIFACT_SUFFIX)
    if output is None and path == model and model.exists():
        raise UserError(
            "is an input, which writing there would destroy",
            location=model,
            hint="an artifact is compiled already (tilewright run); a model of this name needs -o",
        )
    header = path.with_suffix(".h") if header == _BESIDE else header
    # Said before the work, not after it.
    target = api.resolve_targets(compiling["target"], None)[0]
    _check_outputs(path, header, weights, model, target)
    schedules, byoc = passes.read_schedules(), codegens.chosen()
    with passes.context(), phase_bar(quiet=quiet) as progress:
        compiled = api.compile(
            str(model),
            **compile_arguments(compiling),
            schedules=schedules,
            byoc=byoc,
            tuned=not no_tuned if tuning_store is None or no_tuned else tuning_store,
            progress=progress,
        )
        progress.phase("write")
        with (
            knobs.override(cache=False)
            if compiling["no_cache"]
            else contextlib.nullcontext()
        ):
            size_bytes = _write(compiled, path, header, weights, sources=not no_sources)
    if quiet or str(path) == STANDARD_OUTPUT:  # where the summary would go
        return
    _print_summary(compiled, path, size_bytes)
    if memory:
        _print_memory(compiled)


def _check_outputs(
    path: Path, header: Path | None, weights: Path | None, model: Path, target: Target
) -> None:
    """Raise UserError for what could not be written."""
    from tilewright.compiler.backends.registry import backend_of
    from tilewright.compiler.packaging.weights_file import check_weights_path
    from tilewright.runtime.library.forms import ARCHIVE, TEXTS, check_form, check_system

    form = check_form(path, inputs=[model])
    check_system(path, target.os)
    forms = backend_of(target).text_forms
    if form in TEXTS and form[1:] not in forms:
        raise UserError(
            f"kernels of target '{target.backend}' are not written as '{form}'",
            location=path,
            hint=f"texts: .c {' '.join(f'.{name}' for name in forms)}",
        )
    if header is not None:
        check_output(header, inputs=[model])
        if form in (ARCHIVE, *TEXTS):
            raise UserError("only libraries have a header", location=f"--header={header}")
    if weights is not None:
        check_weights_path(weights, inputs=[model])
        if form in TEXTS:
            raise UserError("kernels have no weights", location=f"--weights={weights}")


def _write(
    model: Model, path: Path, header: Path | None, weights: Path | None, *, sources: bool
) -> int:
    """Write the model; returns the bytes of the file."""
    from tilewright.runtime.library.forms import ARCHIVE, form_of

    if form_of(path) == ARCHIVE:
        return model.save(path, sources=sources, weights=weights)
    model.export_library(path, header=header, weights=weights)
    return path.stat().st_size


def _print_summary(model: Model, path: Path, size_bytes: int) -> None:
    report = model.memory
    plan = model.compiled.parts[0].plan
    dispatches = sum(step.kind == "dispatch" for step in plan.steps)
    host = sum(step.kind == "host" for step in plan.steps)
    rows = table(f"{path}  ({format_bytes(size_bytes)})", [("", "left"), ("", "left")])
    rows.show_header = False
    rows.add_row("inputs", ", ".join(map(str, model.inputs)))
    rows.add_row("outputs", ", ".join(map(str, model.outputs)))
    rows.add_row(
        "kernels",
        f"{len(model.kernels)} for {plural(dispatches, 'step')} per run"
        + (f", {plural(host, 'op')} on the host" if host else ""),
    )
    rows.add_row("run as", _outcomes(plan))
    for part in model.compiled.parts:
        rows.add_row("code", _size_of_code(part))
    cached = sum(not r.compiled.seconds for r in model.compiled.kernels[0])
    if cached:
        rows.add_row("from cache", f"{cached} of {plural(len(model.kernels), 'kernel')}")
    tuned = sum(record.is_tuned for record in model.compiled.kernels[0])
    if tuned:
        rows.add_row("tuned", f"{tuned} of {plural(len(model.kernels), 'kernel')}")
    rows.add_row("weights", format_bytes(report.weights_bytes))
    arena = "depends on the call's shapes"
    if report.arena_bytes is not None:
        arena = format_bytes(report.arena_bytes)
        if report.unshared_bytes:
            arena += f" ({format_bytes(report.unshared_bytes)} without sharing)"
    rows.add_row("activations", arena)
    seconds = model.compiled.seconds
    rows.add_row("time", ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items()))
    out.print(rows)


def _size_of_code(part: Part) -> str:
    """What of the code there is: sources that nobody had compiled have no size."""
    image = part.image
    if isinstance(image, LazyBytes) and not image.are_made:
        return f"as source for {part.target}"
    return f"{format_bytes(view_bytes(image).nbytes)} for {part.target}"


def _outcomes(plan: Plan) -> str:
    """How many kernels, and ops on the host, run in each way."""
    found = Counter(plan.outcomes.values())
    return ", ".join(f"{found[o]} {o}" for o in Outcome if found[o])


def _print_memory(model: Model) -> None:
    rows = table(
        "memory plan",
        [
            ("tensor", "left"),
            ("kind", "left"),
            ("bytes", "right"),
            ("steps", "right"),
            ("offset", "right"),
        ],
    )
    for name, kind, size, first, last, offset in model.memory.rows:
        text = thousands(size) if isinstance(size, int) else str(size)
        place = "" if offset < 0 else thousands(offset)
        rows.add_row(name, kind, text, f"{max(first, 0)}–{max(last, 0)}", place)
    out.print(rows)
    if model.memory.lower_bound_bytes is not None:
        err.print(
            f"lower bound of any plan: {thousands(model.memory.lower_bound_bytes)} bytes"
        )
