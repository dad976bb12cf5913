"""The functions of a library's header in C, the tables behind them, and its entry points.

Called by `sources`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.version import VERSION
from tilewright.compiler.packaging.library.header import (
    entries_of,
    fill,
    fixed_size,
    late_outputs,
)
from tilewright.compiler.packaging.library.names import string
from tilewright.compiler.packaging.library.weights import WeightsFile, checksum
from tilewright.formats.plan import Entry, Plan

PACKED_FUNCTIONS: Final = {
    "main": "tw_packed_main",
    "get_num_inputs": "tw_packed_input_count",
    "get_num_outputs": "tw_packed_output_count",
    "get_input_name": "tw_packed_input_name",
    "get_output_name": "tw_packed_output_name",
    "get_graph_json": "tw_packed_graph_json",
    "get_level": "tw_packed_level",
}
"""The packed functions of a library by name, and what of the core they are."""


def interface_source(
    plan: Plan, name: str, programs: Sequence[tuple[str, str]], weights: Sequence[str]
) -> str:
    """`<name>.c`.

    Args:
        plan: whose signature it is.
        name: what its names begin with.
        programs: symbol and label of each level, best first.
        weights: the lines that define the constant `weights`.
    """
    late = late_outputs(plan)
    words = {
        "NAME": name,
        "UPPER": name.upper(),
        "VERSION": VERSION,
        "TITLE": string(plan.name),
        "PROGRAMS": ", ".join(f"&{symbol}" for symbol, _ in programs),
        "PROGRAM_DECLARATIONS": "\n".join(
            f"extern const tw_program_t {symbol};" for symbol, _ in programs
        ),
        "PROGRAM_COUNT": str(len(programs)),
        "LEVELS": ", ".join([*(string(label) for _, label in programs), "NULL"]),
        "WEIGHTS": "\n".join(weights),
        "TENSOR_INFOS": "\n".join(_infos(plan, name)),
        "DIM_INFOS": "\n".join(_dim_infos(plan, name)),
        "INPUT_COUNT": str(len(plan.inputs)),
        "OUTPUT_COUNT": str(len(plan.outputs)),
        "DIM_COUNT": str(len(plan.dims)),
        "LATE_OUTPUTS": ", ".join(
            str(int(place in late)) for place in range(max(len(plan.outputs), 1))
        ),
    }
    shapes = fill("shapes.c", words) if plan.dims else ""
    return fill("model.c", {**words, "RUN": _run(plan, name), "SHAPES": shapes})


CONTEXT_SYMBOL: Final = "__tvm_ffi__library_ctx"
"""Where tvm-ffi says what a library imports."""


def function_symbol(function: str, prefix: str) -> str:
    """The symbol of a packed function in a library whose functions have a prefix."""
    return f"__tvm_ffi_{prefix}{function}"


def entry_source(name: str, prefix: str) -> str:
    """`<name>_entry.c`: names of which a process has one each, or one of each prefix."""
    functions = "\n".join(
        f"ENTRY({entry}, {function})" for entry, function in PACKED_FUNCTIONS.items()
    )
    words = {"NAME": name, "PREFIX": prefix, "FUNCTIONS": functions}
    return fill("entry.c", words)


def weights_inside(name: str, size_bytes: int) -> list[str]:
    """The lines that define `weights` for bytes that are assembled into the library."""
    data = f"{name}_weight_data" if size_bytes else "NULL"
    lines = [f"extern const uint8_t {data}[];"] if size_bytes else []
    return [*lines, _weights(data, "NULL", (0, 0, 0))]


def weights_beside(file: WeightsFile) -> list[str]:
    """The lines that define `weights` for a file beside the library."""
    numbers = (file.size_bytes, len(file.header), checksum(file.header))
    return [_weights("NULL", string(file.name), numbers)]


def _weights(data: str, file: str, numbers: tuple[int, int, int]) -> str:
    size, header, check = numbers
    return (
        f"static const tw_weights_t weights = {{{data}, {file}, {size}u, {header}u, "
        f"UINT64_C({check})}};"
    )


def _infos(plan: Plan, name: str) -> list[str]:
    lines: list[str] = []
    for subject, rows in (("input", plan.inputs), ("output", plan.outputs)):
        entries = entries_of(plan, rows)
        lines += [
            f"static const int64_t {subject}_{i}_shape[] = "
            f"{{{', '.join(str(fixed_size(d)) for d in entry.shape) or '0'}}};"
            for i, entry in enumerate(entries)
        ]
        infos = [
            _info(label, entry, f"{subject}_{i}_shape")
            for i, ((label, _), entry) in enumerate(zip(rows, entries, strict=True))
        ]
        lines += [
            f"static const {name}_tensor_info {subject}_infos[] = {{",
            *(infos or ["    {0},"]),
            "};",
        ]
    return lines


def _info(label: str, entry: Entry, shape: str) -> str:
    code, bits = entry.dtype.dlpack
    return (
        f"    {{{string(label)}, {string(entry.dtype.name)}, {shape}, "
        f"{fixed_size(entry.size_bytes)}, {len(entry.shape)}, {code}, {bits}, "
        f"{entry.dtype.itemsize}}},"
    )


def _dim_infos(plan: Plan, name: str) -> list[str]:
    rows = [
        f"    {{{string(d.name)}, {d.input}, {d.axis}, {d.minimum}, "
        f"{-1 if d.maximum is None else d.maximum}}},"
        for d in plan.dims
    ]
    return [
        f"static const {name}_dim_info dim_infos[] = {{",
        *(rows or ["    {0},"]),
        "};",
    ]


def _run(plan: Plan, name: str) -> str:
    arrays = "const void* const inputs[], void* const outputs[]"
    if late_outputs(plan):
        return ""
    if plan.dims:
        head = f"int {name}_run_dims({name}* model, const int64_t dims[], {arrays}) {{"
        return f"{head}\n  return run(model, dims, inputs, outputs);\n}}"
    head = f"int {name}_run({name}* model, {arrays}) {{"
    return f"{head}\n  return run(model, NULL, inputs, outputs);\n}}"
