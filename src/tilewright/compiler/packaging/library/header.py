"""The header of a library: the template `model.h` with the signature of one model.

Called by `sources`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tilewright.base.symbolic import Dim, symbols
from tilewright.base.version import VERSION
from tilewright.compiler.packaging.library.names import comment, macro_names
from tilewright.formats.plan import Dimension, Entry, Plan

TEMPLATES: Final = Path(__file__).parent
_OF_TENSORS: Final = (
    "RANK",
    "SHAPE",
    "ELEMENTS",
    "BYTES",
)  # what `_tensor` defines besides
_WORD: Final = re.compile(r"@([A-Z_]+)@")


def fill(template: str, words: Mapping[str, str]) -> str:
    """The template of that name with every `@WORD@` replaced."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return _WORD.sub(lambda match: words[match[1]], text)


def header_text(
    plan: Plan, name: str, labels: Sequence[str], arena_bytes: int, scratch_bytes: int
) -> str:
    """`<name>.h`.

    Args:
        plan: whose signature it is.
        name: what its names begin with.
        labels: the levels, best first.
        arena_bytes: of a call of a static model.
        scratch_bytes: of each thread of such a call.
    """
    upper = name.upper()
    late = [comment(plan.outputs[i][0]) for i in late_outputs(plan)]
    words = {
        "NAME": name,
        "UPPER": upper,
        "MODEL": comment(plan.name),
        "VERSION": VERSION,
        "SIGNATURE": _signature(plan),
        "INPUT_COUNT": str(len(plan.inputs)),
        "OUTPUT_COUNT": str(len(plan.outputs)),
        "DIM_COUNT": str(len(plan.dims)),
        "TENSORS": _tensors(plan, upper, arena_bytes, scratch_bytes),
        "LEVELS": ", ".join(f'"{label}"' for label in labels),
        "RUN": _run(plan, name, upper),
        "AND_DIMS": " and say what the dimensions are" if plan.dims else "",
        "SHAPES": _shapes(plan, name),
        "LATE": f": data decides those of {', '.join(late)}" if late else "",
        **_memory_words(plan, name, upper),
    }
    return fill("model.h", words)


def _memory_words(plan: Plan, name: str, upper: str) -> Mapping[str, str]:
    """What the options say of memory, which cannot be taken beforehand where data decides sizes."""
    if plan.has_reads or plan.has_blocks:
        return {
            "CONCURRENCY": "0: this model has sizes that data decides, whose memory calls take when they know them",
            "WORKSPACE": "NULL, likewise",
            "WORKSPACE_BYTES": "0",
        }
    least = (
        f"{name}_workspace_bytes()" if plan.dims else f"{upper}_WORKSPACE_BYTES(threads)"
    )
    indent = " " * 31
    return {
        "CONCURRENCY": "0: a call that finds no memory of an earlier one takes some. n: memory for n calls at a\n"
        f"{indent}time is taken by create (where sizes vary: by prepare), others wait, and no call\n"
        f"{indent}allocates any",
        "WORKSPACE": "memory for one call at a time instead of the model's own, aligned to 64 bytes",
        "WORKSPACE_BYTES": f"at least {least}",
    }


def late_outputs(plan: Plan) -> tuple[int, ...]:
    """The outputs whose shapes data decides, by position."""
    bound = {size.name for step in plan.steps for size in step.sizes}
    return tuple(
        place
        for place, (_, entry) in enumerate(plan.outputs)
        if any(s.name in bound for d in plan.entries[entry].shape for s in symbols(d))
    )


def entries_of(plan: Plan, rows: Sequence[tuple[str, int]]) -> list[Entry]:
    """The entries of inputs or outputs."""
    return [plan.entries[entry] for _, entry in rows]


def shape_text(entry: Entry) -> str:
    """`f32[batch, 3]`."""
    return f"{entry.dtype}[{', '.join(map(str, entry.shape))}]"


def _signature(plan: Plan) -> str:
    lines = [
        f" *   {subject} {index}  {comment(shape_text(plan.entries[entry])):24} {comment(name)}"
        for subject, rows in (("input ", plan.inputs), ("output", plan.outputs))
        for index, (name, entry) in enumerate(rows)
    ]
    lines += [
        f" *   size {index}    {_dim_comment(plan, dim)}"
        for index, dim in enumerate(plan.dims)
    ]
    return "\n".join(lines)


def _dim_comment(plan: Plan, dim: Dimension) -> str:
    limits = [f"at least {dim.minimum}"] if dim.minimum else []
    limits += [f"at most {dim.maximum}"] if dim.maximum is not None else []
    text = f"{dim.name}: axis {dim.axis} of input {plan.inputs[dim.input][0]}"
    return comment(", ".join([text, *limits]))


def _tensors(plan: Plan, upper: str, arena_bytes: int, scratch_bytes: int) -> str:
    lines: list[str] = []
    for subject, rows in (("INPUT", plan.inputs), ("OUTPUT", plan.outputs)):
        words = macro_names((name for name, _ in rows), endings=_OF_TENSORS)
        for index, (word, (_, entry)) in enumerate(zip(words, rows, strict=True)):
            lines += ["", *_tensor(plan.entries[entry], f"{upper}_{subject}_{word}", index)]
    dims = macro_names(dim.name for dim in plan.dims)
    lines += ["", *(f"#define {upper}_DIM_{word} {i}" for i, word in enumerate(dims))]
    if not plan.dims and not plan.has_reads and not plan.has_blocks:
        size = f"((size_t){arena_bytes} + (size_t){scratch_bytes} * (size_t)(threads))"
        lines += [
            "/* What a workspace must have for a model that runs on so many threads. */",
            f"#define {upper}_WORKSPACE_BYTES(threads) {size}",
        ]
    return "\n".join([*lines, ""]).replace("\n\n\n", "\n\n")


def _tensor(entry: Entry, word: str, index: int) -> list[str]:
    lines = [
        f"#define {word} {index} /* {comment(shape_text(entry))} */",
        f"#define {word}_RANK {len(entry.shape)}",
    ]
    shape = [extent for extent in entry.shape if isinstance(extent, int)]
    if len(shape) < len(entry.shape):
        return lines
    elements = math.prod(shape)
    extents = ", ".join(map(str, shape)) if shape else "1"  # C has no arrays of no elements
    return [
        *lines,
        f"#define {word}_SHAPE {{{extents}}}",
        f"#define {word}_ELEMENTS {elements}",
        f"#define {word}_BYTES {elements * entry.dtype.itemsize}",
    ]


def _run(plan: Plan, name: str, upper: str) -> str:
    arrays = "const void* const inputs[], void* const outputs[]"
    if late_outputs(plan):
        return (
            "/* Computes the outputs. Data decides shapes of theirs, so addresses do not do. Where they are known to the\n"
            "   caller, run_tensors checks them; else run_allocating asks for memory. */"
        )
    if not plan.dims:
        return (
            f"/* Computes the outputs: {upper}_INPUT_COUNT tensors in, {upper}_OUTPUT_COUNT out. */\n"
            f"{upper}_API int {name}_run({name}* model, {arrays});"
        )
    return (
        f"/* Computes the outputs for these sizes, {upper}_DIM_COUNT of them. */\n"
        f"{upper}_API int {name}_run_dims({name}* model, const int64_t dims[], {arrays});"
    )


def _shapes(plan: Plan, name: str) -> str:
    if not plan.dims:
        return ""
    api = f"{name.upper()}_API"
    note = (
        "Of outputs whose shapes data decides nobody knows them. "
        if late_outputs(plan)
        else ""
    )
    return f"""
/* Makes what calls of these sizes need, which they then find: the 32 sizes used last are kept, with `concurrency`
   all that were prepared, and no others run. */
{api} int {name}_prepare({name}* model, const int64_t dims[]);

/* The extents of a tensor for these sizes. {note}*/
{api} int {name}_input_shape({name}* model, const int64_t dims[], uint32_t input, int64_t out_shape[]);
{api} int {name}_output_shape({name}* model, const int64_t dims[], uint32_t output, int64_t out_shape[]);

/* What a workspace for these sizes must have. */
{api} int {name}_workspace_bytes({name}* model, const int64_t dims[], size_t* out_bytes);
"""


def fixed_size(value: Dim) -> int:
    """The number, or -1 where it depends on the call."""
    return value if isinstance(value, int) else -1
