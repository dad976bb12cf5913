"""`tilewright inspect`: what an artifact consists of, at any level."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from rich.table import Table

from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.input_file import why_no_file
from tilewright.base.outcome import Outcome
from tilewright.base.target import Target
from tilewright.base.text import (
    did_you_mean,
    format_bytes,
    plural,
    printable,
    printable_line,
)
from tilewright.cli.codegen_options import BYOC_MODULE, CodegenOptions
from tilewright.cli.display import example, out, phase_bar, table, thousands
from tilewright.cli.library_model import describe_library, is_library
from tilewright.cli.model_options import is_model
from tilewright.cli.option_groups import FILE, Verb, option
from tilewright.cli.options import TARGET
from tilewright.formats.artifact import (
    BILL_ATTRIBUTE,
    BILL_SYMBOL,
    PROVENANCE_ATTRIBUTE,
    PROVENANCE_SYMBOL,
    Artifact,
    extract,
    is_artifact,
)
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.elf.shared_library import read_shared_library
from tilewright.formats.plan import Plan
from tilewright.formats.vmfb import ModuleDef, read_archive
from tilewright.formats.vmfb.text import disassemble_module
from tilewright.runtime import native
from tilewright.runtime.loaders.module_file import read_module_file
from tilewright.runtime.loaders.trusted_keys import TrustedKeys, signers

if TYPE_CHECKING:
    from tilewright.api.model import Model

LIBRARY_SUFFIX: Final = ".so"
# What the colours of a level come from: our own texts read like one of these.
_LEXERS: Final = {"llvm": "llvm", "c": "c", "asm": "gas", "json": "json"}
LEVELS = (
    "metadata",
    "graph",
    "naive",
    "kernel",
    "llvm",
    "c",
    "asm",
    "bytecode",
    "plan",
    "provenance",
    "sbom",
)
_SOURCES: Final = ("graph", "naive", "kernel", "llvm", "c", "asm")
# How kernels come to be in a language that an artifact's are not in.
_WAYS: Final = {
    "c": "C is that of code made through it: compile the model with --target=c",
    "llvm": "LLVM IR is that of code made by LLVM: compile the model without --target=c",
}
_DOCUMENTS: Final = {"provenance": PROVENANCE_ATTRIBUTE, "sbom": BILL_ATTRIBUTE}
_SYMBOLS: Final = {"provenance": PROVENANCE_SYMBOL, "sbom": BILL_SYMBOL}


@click.command(
    "inspect",
    cls=Verb,
    short_help="Look into an artifact at any level.",
    epilog=example(
        "tilewright inspect model.vmfb",
        "tilewright inspect model.vmfb --output=kernel --kernel=matmul_0",
        "tilewright inspect model.vmfb --output=asm",
        "tilewright inspect model.onnx --output=c --kernel=softmax_0",
        "tilewright inspect model.onnx --target=x86_64-v3 --stage=vectorize",
    ),
)
@click.argument("module", type=click.Path(path_type=Path))
@option(
    "--output",
    type=click.Choice(LEVELS),
    default="metadata",
    show_default=True,
    help="The level.",
)
@option("--kernel", metavar="NAME", help="Only this kernel (naive, kernel, llvm, c, asm).")
@option(
    "--stage",
    metavar="NAME",
    help="Of a model: each kernel after this step from scheduled loops to source text.",
)
@TARGET
@option("--verify", is_flag=True, help="Compare the whole file with its checksum.")
@option(
    "--trusted-key",
    "trusted_keys",
    multiple=True,
    type=FILE,
    metavar="FILE",
    help="A public key (PEM) that must have signed the file.",
)
@BYOC_MODULE
def command(
    module: Path,
    output: str,
    kernel: str | None,
    stage: str | None,
    target: str | None,
    verify: bool,
    trusted_keys: tuple[str, ...],
    byoc_module: tuple[str, ...],
) -> None:
    """Print MODULE (.vmfb, also of IREE's compilers; a model is compiled first) at one level.

    Of a library (.so .o .a .tar .c, also of TVM): its modules, who imports whom, and their functions.

    \b
    metadata  functions, imports, dispatches, sizes
    graph     the tensor graph after every pass
    naive     each kernel as loops, before scheduling
    kernel    each kernel as loops, after scheduling, with the reasons
    llvm      each kernel as LLVM IR
    c         each kernel in C, of code that was made through C (--target=c)
    asm       each kernel as machine code
    bytecode  the virtual machine's functions
    plan      the steps that a session replays
    provenance  what was compiled, how, by which compiler (SLSA)
    sbom      its parts and the tools that made them (CycloneDX)
    """  # noqa: D301 - click's mark for lines that stay as they are
    if module.suffix.lower() == LIBRARY_SUFFIX and output in _DOCUMENTS:
        _show(_document_of_library(module, output, trusted_keys), "json")
        return
    if is_library(module):
        CodegenOptions(byoc_module=byoc_module).import_modules()
        _print_library(module, output, trusted_keys)
        return
    if is_model(module):
        model = _compiled(module, target or ("c host" if output == "c" else None))
        if stage is not None:
            _print_stage(model, stage, kernel)
            return
        if output in _SOURCES:
            _print_sources(model.sources(), model.compiled.parts[0].target, output, kernel)
            return
        archive = _archive_of(model)
    else:
        _refuse_options_of_models(module, target, stage)
        keys = TrustedKeys(trusted_keys) if trusted_keys else None
        archive = read_module_file(module, verify=verify, trusted=keys)
    _print_archive(module, archive, output, kernel)


def _print_archive(path: Path, archive: ModuleDef, output: str, kernel: str | None) -> None:
    if output == "bytecode":
        _show(disassemble_module(archive, rodata_limit=256), output)
        return
    if output == "metadata":
        _print_metadata(path, archive)
        return
    if output in _DOCUMENTS:
        _show(_document(archive, output, str(path)), "json")
        return
    artifact = extract(archive, str(path))
    (first, *_) = artifact.variants
    if output == "plan":
        _print_plan(first.plan)
    else:
        _print_sources(artifact.sources, Target.parse(first.target), output, kernel)


def _print_library(path: Path, output: str, keys: Sequence[str]) -> None:
    if output != "metadata":
        raise UserError(
            f"a library has no level '{output}'",
            location=path,
            hint="write it as text: tilewright compile MODEL -o net.ll",
        )
    lines = describe_library(path, trusted_keys=keys)
    out.print("\n".join(lines), markup=False, highlight=False)


def _compiled(path: Path, target: str | None) -> Model:
    """What a model becomes for a machine, by default this one."""
    from tilewright.api import model as api

    with phase_bar() as progress:
        return api.compile(str(path), target=target, progress=progress)


def _archive_of(model: Model) -> ModuleDef:
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "model.vmfb")
        model.save(archive)
        return read_archive(archive.read_bytes(), model.compiled.graph.name)


def _refuse_options_of_models(path: Path, target: str | None, stage: str | None) -> None:
    """Raise UserError for what only a compilation can answer."""
    for name, value in (("--target", target), ("--stage", stage)):
        if value is not None:
            raise UserError(
                f"{name} is for models, what is compiled stays as it is",
                location=path,
                hint="name the file of the model",
            )


def _print_stage(model: Model, stage: str, only: str | None) -> None:
    """Each kernel of a model after one step of its back end."""
    kernels = {kernel.name: kernel for kernel in model.kernels}
    if only is not None and only not in kernels:
        raise UserError(
            f"the model has no kernel '{only}'",
            hint=did_you_mean(only, kernels) or f"kernels: {' '.join(kernels)}",
        )
    for name, kernel in kernels.items():
        if only in (None, name):
            _show(kernel.after(stage), kernel.language)


def _document(archive: ModuleDef, output: str, location: str) -> str:
    """A description that the archive carries, laid out to be read."""
    return _laid_out(archive.attributes.get(_DOCUMENTS[output]), output, location)


def _document_of_library(path: Path, output: str, keys: Sequence[str]) -> str:
    """The same of an exported library, which is read and not loaded."""
    problem = why_no_file(path)
    if problem is not None:
        raise UserError(problem, location=path)
    data = memoryview(native.map_file(str(path)))
    if keys:
        TrustedKeys(keys).check(data, path, str(path))
    library = read_shared_library(data, str(path))
    symbol = library.symbols.get(_SYMBOLS[output])
    text = None
    if symbol is not None:
        found = bytes(library.data_at(_SYMBOLS[output], output)[: symbol.size])
        text = found.decode(errors="replace").rstrip("\0")
    return _laid_out(text, output, str(path))


def _laid_out(text: str | None, output: str, location: str) -> str:
    if text is None:
        raise UserError(
            f"the archive has no {output}",
            location=location,
            hint="archives of other compilers and of older versions have none",
        )
    try:
        return json.dumps(json.loads(text), indent=2)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"the {output} is damaged", location=location) from error


def _show(text: str, level: str) -> None:
    """Print a level: in colours on a terminal (none with NO_COLOR), as it is elsewhere."""
    if not out.is_terminal:
        click.echo(text)
        return
    from rich.syntax import Syntax

    lexer = _LEXERS.get(level, "python")
    painter = Syntax("", lexer, theme="ansi_dark", background_color="default")
    out.print(painter.highlight(printable(text)), soft_wrap=True)


def _missing(sources: Mapping[str, str], level: str, kernel: str = "") -> UserError:
    """What to say of a level, or of a kernel at it, that the sources do not have."""
    if not sources:
        hint = "compile without --no-sources to keep them"
        return UserError(f"the artifact has no level '{level}'", hint=hint)
    levels = sorted({name.partition("/")[0] for name in sources})
    if level not in levels:
        found = f"levels: {' '.join(levels)}"
        way = _WAYS.get(level)
        hint = f"{found}; {way}" if way else found
        return UserError(f"the artifact has no level '{level}'", hint=hint)
    kernels = [n.partition("/")[2] for n in sources if n.startswith(f"{level}/")]
    return UserError(
        f"the artifact has no kernel '{kernel}'",
        hint=did_you_mean(kernel, kernels) or f"kernels: {' '.join(kernels)}",
    )


def _print_sources(
    sources: Mapping[str, str], target: Target, level: str, only: str | None
) -> None:
    """The graph, or the kernels at a level.  Raises: UserError for what is not there."""
    if level == "graph":
        if level not in sources:
            raise _missing(sources, level)
        _show(sources[level], level)
        return
    stored = _language(target) if level == "asm" else level
    prefix = f"{stored}/"
    names = [n.removeprefix(prefix) for n in sources if n.startswith(prefix)]
    if not names:
        raise _missing(sources, stored if sources else level)
    if only is not None and only not in names:
        raise _missing(sources, stored, only)
    for name in names if only is None else [only]:
        text = sources[prefix + name]
        if level == "asm":
            text = _assemble(text, target, name)
        _show(text, level)


def _language(target: Target) -> str:
    """What the sources of kernels for a target are called in an artifact."""
    from tilewright.compiler.backends.registry import backend_of

    return backend_of(target).language


def _assemble(source: str, target: Target, kernel: str) -> str:
    from tilewright.compiler.backends.registry import backend_of

    return backend_of(target).assembly(source, target, name=f"kernel '{kernel}'")


def _tuned_count(module: ModuleDef) -> int:
    """How many kernels of an artifact run as a search decided, as far as its provenance says."""
    try:
        document = json.loads(module.attributes[PROVENANCE_ATTRIBUTE])
        given = document["predicate"]["buildDefinition"]["externalParameters"]
        return sum(len(own) for own in given["tuned"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return 0  # of other compilers, and damaged


def _print_metadata(path: Path, module: ModuleDef) -> None:
    rows = table(str(path), [("", "left"), ("", "left")])
    rows.show_header = False
    rows.add_row("file", format_bytes(path.stat().st_size))
    names = () if is_model(path) else signers(path)
    rows.add_row("signed by", ", ".join(names) or "nobody")
    rows.add_row(
        "module",
        f"{module.name}, bytecode version {module.bytecode_version >> 16}.{module.bytecode_version & 0xFFFF}",
    )
    for dependency in module.dependencies:
        rows.add_row("needs", f"{dependency.name} {dependency.minimum_version} or later")
    for export in module.exports:
        signature = module.signatures[export.function]
        text = signature.attributes.get(
            "iree.abi.declaration", signature.calling_convention
        )
        rows.add_row("exports", f"{export.name}  {text}")
    count = plural(len(module.imports), "function")
    rows.add_row(
        "imports", f"{count}  (--output=bytecode lists them)" if module.imports else count
    )
    rows.add_row(
        "bytecode",
        f"{format_bytes(view_bytes(module.bytecode).nbytes)} in {len(module.functions)} functions",
    )
    sizes = [view_bytes(segment.data).nbytes for segment in module.rodata]
    rows.add_row("rodata", f"{format_bytes(sum(sizes))} in {len(sizes)} segments")
    if is_artifact(module):
        _add_artifact(rows, extract(module, str(path)))
        if tuned := _tuned_count(module):
            rows.add_row("tuned", f"{plural(tuned, 'kernel')} (--output=provenance)")
    out.print(rows)


def _add_artifact(rows: Table, artifact: Artifact) -> None:
    add = rows.add_row
    add("made by", artifact.producer)
    for variant in artifact.variants:
        size = format_bytes(view_bytes(variant.image).nbytes)
        add("code", f"{size} for {variant.target}")
    plan = artifact.variants[0].plan
    add("weights", _weights_text(artifact))
    for variant in artifact.variants:
        read = sum(artifact.sizes[place] for place in {*variant.constants})
        if read < sum(artifact.sizes):
            own = format_bytes(artifact.own_bytes(variant))
            add("", f"{format_bytes(read)} for {variant.target}, {own} for it alone")
    arena = "by call" if plan.arena_bytes < 0 else format_bytes(plan.arena_bytes)
    add("activations", arena)
    kinds = [step.kind for step in plan.steps]
    found = Counter(plan.outcomes.values())
    add("kernels run as", ", ".join(f"{found[o]} {o}" for o in Outcome if found[o]))
    add("steps", ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)))
    levels = {re.sub(r"/.*", "", name) for name in artifact.sources}
    add("levels", " ".join(sorted(levels)) or "left out")


def _weights_text(artifact: Artifact) -> str:
    where = "" if artifact.weights is None else f" in {artifact.weights.file}"
    return f"{format_bytes(sum(artifact.sizes))}{printable(where)}"


def _print_plan(plan: Plan) -> None:
    columns = [
        ("step", "right"),
        ("name", "left"),
        ("runs as", "left"),
        ("grid", "left"),
        ("arguments", "left"),
    ]
    rows = table(f"plan of {printable_line(plan.name)}", columns)
    for index, step in enumerate(plan.steps):
        cells = []
        for position in step.arguments:
            entry = plan.entries[position]
            storage = plan.storages[entry.storage]
            shape = ", ".join(map(str, entry.shape))
            cells.append(f"{storage.name or storage.kind}: {entry.dtype}[{shape}]")
        count = len(cells) - step.result_count
        text = f"{', '.join(cells[:count])} → {', '.join(cells[count:])}"
        grid = "×".join(map(str, step.grid)) if step.kind == "dispatch" else step.kind
        rows.add_row(str(index), step.name, step.outcome or "", grid, text)
    out.print(rows)
    if plan.arena_bytes >= 0:
        out.print(f"arena: {thousands(plan.arena_bytes)} bytes")
