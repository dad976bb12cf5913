"""Write the reference pages that are derived from the source: knobs, ops, ONNX operators, commands, the API.

What it is: one function per page, from a table of the source to Markdown.
What it is not: a documentation generator; everything that explains is written by hand.
Who calls it: a developer after changing a table or a public docstring, `make check` with ``--check``, the tests::

    python tools/gendocs.py
    python tools/gendocs.py --check
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

import api_reference
import compatibility
from tilewright import cli
from tilewright.base import dtypes, knobs
from tilewright.base.dtypes import DType
from tilewright.cli import option_groups
from tilewright.compiler.frontends.onnx import table
from tilewright.compiler.frontends.stablehlo import reached
from tilewright.compiler.frontends.stablehlo import table as stablehlo_table
from tilewright.compiler.graph.schema import AttributeSpec, OperandSpec
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl, type_of
from tilewright.compiler.schedule import primitives
from tilewright.compiler.schedule.trace import PRIMITIVES, Primitive

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
NOTE: Final = "<!-- Written by tools/gendocs.py; change the table it comes from. -->\n"
PARAGRAPHS: Final = "\n\n"
# Sets of element types that declarations use, largest first.
SETS: Final = (
    ("any", dtypes.ALL),
    ("native", dtypes.ANY),
    ("numeric", dtypes.NUMERIC),
    ("float", dtypes.FLOATS),
    ("integer", dtypes.INTEGERS),
    ("signed integer", dtypes.SIGNED_INTEGERS),
    ("unsigned integer", dtypes.UNSIGNED_INTEGERS),
)


# --- knobs -----------------------------------------------------------------------------------


def knobs_page() -> str:
    """Every environment variable."""
    body = [
        (f"`{knob.variable}`", _kind(knob), _default(knob), knob.summary)
        for knob in knobs.TABLE.values()
    ]
    return f"""{NOTE}
# Knobs

Settings that come from outside the program, all of them. A variable is read at each use, so a change shows at
once; a value that does not parse is a `UserError` naming the variable; a variable that starts with
`{knobs.PREFIX}` and is not listed here is reported by the command line. Everything that changes what is
compiled is an option of `tilewright.compile`, not a knob.

{compatibility.table(("variable", "value", "default", "what it does"), body)}

In Python, `with tilewright.base.knobs.override(verify=True):` sets one for a block.
"""


def _kind(knob: knobs.Knob[object]) -> str:
    parser = getattr(knob.parse, "__name__", "").removeprefix("_parse_")
    words = {
        "bool": "0 or 1",
        "count": "number",
        "threads": "number up to 4096",
        "size": "size (`512M`)",
        "str": "text",
    }
    return words.get(parser, parser)


def _default(knob: knobs.Knob[object]) -> str:
    value = knob.default()
    if knob is knobs.CACHE_DIR:
        return "`$XDG_CACHE_HOME/tilewright`, else `~/.cache/tilewright`"
    if knob is knobs.CACHE_LIMIT:
        return f"{knobs.CACHE_LIMIT.default() >> 30}G"
    if isinstance(value, bool):
        return str(int(value))
    return "none" if value is None else str(value)


# --- ops -------------------------------------------------------------------------------------


def ops_page() -> str:
    """Every op of the graph IR."""
    parts: list[str] = []
    for family, found in catalogue.families():
        body = [
            (
                f"`{op.name}`",
                ", ".join(map(_operand, op.schema.operands)) or "–",
                ", ".join(map(_attribute, op.schema.attributes)) or "–",
                op.schema.summary,
                _runs(op),
                ", ".join(_known(op)) or "–",
            )
            for op in found
        ]
        heading = (
            "op",
            "operands",
            "attributes",
            "what it computes",
            "runs as",
            "passes know",
        )
        title = family.replace("_", " ").capitalize()
        parts.append(f"## {title}\n\n{compatibility.table(heading, body)}")
    sets = compatibility.table(
        ("name", "element types"),
        [(name, " ".join(t.name for t in members)) for name, members in SETS],
    )
    count = len(catalogue.all_ops())
    return f"""{NOTE}
# Ops of the graph IR

{count} ops, each declared in one place (`src/tilewright/compiler/ops`, one file per family); shapes broadcast as
in numpy unless the op says otherwise. An op that runs as *kernel* becomes machine code; *host* runs its numpy
oracle, with a warning; *data* costs nothing at run time. The word behind it is the part the op plays where several share
a kernel. What passes know of an op: where each element of a move comes from (*places*), between which numbers results lie
(*ranges*), how it runs on other orders of axes (*layout*), what its arithmetic counts as (*work*), which
sizes it takes to be equal (*equal sizes*), whether computing
an element again costs no more than loading it (*cheap*). `b.<op>(…)` of
`tilewright.compiler.ops.builder.GraphBuilder` makes one. How to add one: [add-an-op](how-to/add-an-op.md).

{sets}

## Ops without a kernel

{_host_table()}

{PARAGRAPHS.join(parts)}
"""


def _host_table() -> str:
    """Every op that always runs its oracle, and why."""
    found = [op for op in catalogue.all_ops() if op.on_host]
    intro = "Their oracle runs in numpy; so do element types of which kernels know nothing (4-bit, 8-bit floats)."
    return f"{intro}\n\n" + compatibility.table(
        ("op", "why it has no kernel"), [(f"`{op.name}`", op.on_host) for op in found]
    )


def _types(allowed: tuple[DType, ...]) -> str:
    for name, members in SETS:
        if set(allowed) == set(members):
            return name
    return " ".join(t.name for t in allowed)


def _operand(spec: OperandSpec) -> str:
    text = f"{spec.name}: {f'like {spec.like}' if spec.like else _types(spec.dtypes)}"
    if spec.variadic:
        return f"{text} …"
    return f"[{text}]" if spec.optional else text


def _attribute(spec: AttributeSpec) -> str:
    return spec.name if spec.required else f"{spec.name} = {spec.default}"


def _runs(op: OpDecl) -> str:
    if op.name in ("constant", "fused"):
        return "data" if op.name == "constant" else "kernel"
    if op.name in ("if", "while"):
        return "control flow"
    if op.schema.region_count:
        return "packed function"
    return "host" if op.body is None else f"kernel, {op.schema.role.value}"


def _known(op: OpDecl) -> list[str]:
    columns = ("places", "ranges", "layout", "work", "equal_sizes")
    known = [
        name.replace("_", " ") for name in columns if getattr(op.schema, name) is not None
    ]
    case = next(iter(cases.instances(op)), None)
    if case is None or op.body is None or op.body.pointwise is None:
        return known
    types = [None if a is None else type_of(a) for a in case.operands]
    return [*known, "cheap"] if op.is_cheap(types, case.attributes) else known


# --- ONNX ------------------------------------------------------------------------------------


# --- primitives ------------------------------------------------------------------------------

# What other systems call what ours do under another name; the names behind the first column are checked.
OTHER_WORDS: Final = (
    (
        "pack, `stage_mem` (Exo), `transform_layout` of an operand (TVM)",
        (
            "`split` the columns, `reorder` the blocks of them outermost, `cache_read` in front of these: the cache lies in panels, "
            "`[blocks][depth][columns of a block]`. Weights are packed so while compiling, by a pass of the graph."
        ),
    ),
    ("`parallel`", "`bind`: the threads share out the workgroups"),
    ("`compute_inline`, `reverse_compute_inline` (TVM)", "`inline`, `reverse_inline`"),
    ("`compute_with` (Halide)", "`fuse_nests`"),
    ("`loop_partition` (TVM), `cut_loop` (Exo)", "`partition`, `interior`, `specialize`"),
    (
        "`decompose_reduction` (TVM)",
        "`fission`, which gives the start of a sum loops of its own",
    ),
)


def primitives_page() -> str:
    """Every schedule primitive."""
    rooms: dict[str, list[Primitive[..., Any]]] = {}
    for name in sorted(PRIMITIVES):
        found = getattr(primitives, name)
        rooms.setdefault(found.__module__.rpartition(".")[2], []).append(found)
    parts = [
        f"## {room.replace('_', ' ').capitalize()}\n\n"
        + PARAGRAPHS.join(map(_primitive, each))
        for room, each in sorted(rooms.items())
    ]
    return f"""{NOTE}
# Schedule primitives

Rewrites of a kernel that keep what it computes: each proves that it may be applied, or raises a `ScheduleError` that says why not. They are the
methods of the kernel in [a schedule of your own](how-to/write-a-schedule.md), and the steps of a
[trace](how-to/read-a-schedule.md). Each returns the names of what it made.

{compatibility.table(("elsewhere", "here"), OTHER_WORDS)}

{PARAGRAPHS.join(parts)}
"""


def _primitive(found: Primitive[..., Any]) -> str:
    _, *parameters = found.signature.parameters.values()
    shown = ", ".join(str(p.replace(annotation=p.empty)) for p in parameters)
    text = inspect.cleandoc(found.__doc__ or "")
    summary, _, rest = text.partition("\n\n")
    return f"### `{found.name}({shown})`\n\n{summary}" + (
        f"\n\n```text\n{rest}\n```" if rest else ""
    )


def onnx_page() -> str:
    """Every ONNX operator that has a row."""
    parts: list[str] = []
    for domain in ("", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"):
        title = domain or "ai.onnx"
        names = ", ".join(f"`{name}`" for name in table.names(domain))
        parts.append(f"## {title}\n\n{names}")
    lists = runpy.run_path(str(DOCS.parent / "tests" / "fakes" / "onnx_exclusions.py"))
    missing: dict[str, list[str]] = {}
    for name, reason in lists["CONTRIBUTED"].items():
        missing.setdefault(reason, []).append(f"`{name}`")
    rows = "".join(
        f"| {', '.join(names)} | {reason} |\n" for reason, names in missing.items()
    )
    parts.append(
        f"## com.microsoft: what is not supported\n\n| operators | why |\n| --- | --- |\n{rows}"
    )
    return f"""{NOTE}
# ONNX operators

Opsets 1 to the newest that the installed package `onnx` knows. What becomes of an operator depends on its types and attributes:
`tilewright coverage model.onnx` says it for a model, before compiling. An operator that is not listed is reported
with all others of its kind in one error. Optionals, and sequences whose length
is known, are resolved while importing; a sequence whose length a call decides is a list inside of the model, of items that differ in size along one axis at most. Strings and maps are computed by the host, before and after what is compiled; models that
take or give such values, or sequences and optionals, run by `tilewright.onnx_backend`, ONNX's own interface (`onnx.backend.base`).

{PARAGRAPHS.join(parts)}
"""


def stablehlo_page() -> str:
    """Every operation of StableHLO's dialects that has a row, and what its suites gave."""
    parts: list[str] = []
    for dialect in ("stablehlo", "chlo", "interpreter"):
        names = ", ".join(
            f"`{name.partition('.')[2]}`"
            for name in stablehlo_table.names()
            if name.startswith(f"{dialect}.")
        )
        parts.append(f"## {dialect}\n\n{names}")
    rows = "\n".join(
        f"| {suite} | {found.modules} | {found.right} | {found.unchecked} | {found.refused} | {found.other} |"
        for suite, found in reached.SUITES.items()
    )
    return f"""{NOTE}
# StableHLO operations

Text (`.mlir`) and portable artifacts (`.mlirbc`, StableHLO 0.9 to 1.20). What becomes of an operation depends on its types and
attributes: `tilewright coverage module.mlir` says it for a module, before compiling. An operation that is not listed is
reported with all others of its kind in one error.

Every constraint of the specification on types and attributes is held before an operation is imported: what breaks one is refused with the
operation, its place and what to write instead. Nothing broadcasts by itself, and sizes that a text leaves open (`?`) must be one size in a call
where the specification demands one shape. Where
exporters or the verifier of StableHLO are less strict and the meaning is clear, so are we: real factors of `dot_general` may be of two types (JAX
writes them for TPUs), a start of `reduce` and `reduce_window` may be of the type that the region makes, and `EQ` and `NE` of whole numbers may
state either order.

An argument or a result of `main` whose elements are quantized is an array of their storage: `!quant.uniform<i8:f32, 0.1:3>` comes
as `int8`, of which `(stored - 3) * 0.1` is the number. Scale and zero point are the module's, and stay there.

| suite (StableHLO 1.20) | modules | right | without checks | refused | other |
| --- | --- | --- | --- | --- | --- |
{rows}

`interpret` are the tests of the reference interpreter, `testdata` modules that JAX made, each with what it expects. Other: {reached.OTHER}.
`python -m pytest tests/conformance/frontends/test_stablehlo.py` measures it, and fails where this page says something else.

{PARAGRAPHS.join(parts)}
"""


# --- commands --------------------------------------------------------------------------------


def commands_page() -> str:
    """The arguments and options of every verb."""
    parts: list[str] = []
    for verb in cli.VERBS:
        command = cli.root.get_command(click.Context(cli.root), verb)
        assert command is not None
        context = click.Context(command, info_name=verb)
        arguments = " ".join(
            _argument(p) for p in command.params if isinstance(p, click.Argument)
        )
        options = [
            (group.value if first else "", *_option(option))
            for group, options in option_groups.grouped(command, context).items()
            for first, option in zip([True, *[False] * len(options)], options, strict=False)
            if "--help" not in option.opts
        ]
        text = "\n\n".join(
            map(_paragraph, inspect.cleandoc(command.help or "").split("\n\n"))
        )
        parts.append(
            f"## {verb}\n\n`tilewright {f'{verb} {arguments}'.strip()}`\n\n{text}\n\n"
            + compatibility.table(("", "option", "what it does"), options)
        )
    return f"""{NOTE}
# Commands

`tilewright VERB --help` prints the same. Errors of users go to standard error as `error: …` with exit code 1, wrong
options exit with 2, Ctrl-C with 130, SIGTERM with 143, a closed terminal with 129; results go to standard output. `eval "$(tilewright completion bash)"` in `~/.bashrc` lets the
shell complete verbs, options and files (zsh and fish, too).

{PARAGRAPHS.join(parts)}
"""


def _paragraph(text: str) -> str:
    """As it is, where the help marks it so."""
    return f"```text\n{text[2:]}\n```" if text.startswith("\b\n") else text


def _argument(parameter: click.Argument) -> str:
    name = (parameter.name or "").upper()
    return name if parameter.required else f"[{name}]"


def _option(option: click.Option) -> tuple[str, str]:
    names = (*option.opts, *option.secondary_opts)
    spelling = ", ".join(f"`{name}`" for name in names)
    takes_none = option.is_flag or option.count
    value = "" if takes_none else f" {option.metavar or _value(option.type)}"
    text = option.help or ""
    if isinstance(option.default, str | int | float) and not takes_none:
        text += f" Default: {option.default}."
    return f"{spelling}{value}", text.strip()


def _value(kind: click.ParamType[object]) -> str:
    choices = getattr(kind, "choices", None)
    return " / ".join(choices) if choices else kind.name.upper().removesuffix(" RANGE")


PAGES: Final[dict[str, Callable[[], str]]] = {
    "api.md": lambda: api_reference.page(NOTE),
    "knobs.md": knobs_page,
    "ops.md": ops_page,
    "primitives.md": primitives_page,
    "onnx-operators.md": onnx_page,
    "stablehlo-operations.md": stablehlo_page,
    "commands.md": commands_page,
    "runtime/compatibility.md": lambda: compatibility.page(NOTE),
}


def outdated(folder: Path) -> list[str]:
    """The pages that differ from what the tables say."""
    found: list[str] = []
    for name, page in PAGES.items():
        path = folder / name
        if not path.is_file() or path.read_text(encoding="utf-8") != page():
            found.append(name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages; with --check only compare, 1 if any is outdated."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--folder", type=Path, default=DOCS)
    options = parser.parse_args(arguments)
    found = outdated(options.folder)
    for name in found:
        sys.stdout.write(f"docs/{name}: {'outdated' if options.check else 'written'}\n")
        if not options.check:
            (options.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (options.folder / name).write_text(PAGES[name](), encoding="utf-8")
    if found and options.check:
        sys.stdout.write("hint: python tools/gendocs.py\n")
    elif not found:
        sys.stdout.write("gendocs: all reference pages are current\n")
    return 1 if found and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
